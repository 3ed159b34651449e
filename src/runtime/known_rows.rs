//! The rows of the last list, found by id. Most rows of a list are the same as in the list before, and reading one anew
//! takes many times as long as finding it here.
//!
//! An object has its labels and metadata for life; only its state changes. So a row is the same if id, state, creation
//! and length are. An id that this list or the last one has twice is not found here: its rows may contradict each other.

use super::wire::{self, Field, Kind};
use crate::system::maps::IdMap;

/// Rows of the present list and the one before it.
#[derive(Debug)]
pub struct KnownRows<M> {
    rows: IdMap<Box<str>, Known<M>>,
    /// Number of the present list.
    list: u64,
}

#[derive(Debug)]
struct Known<M> {
    row: M,
    facts: Facts,
    /// The last list that had it.
    list: u64,
    /// The last list that had its id more than once.
    repeated_in: Option<u64>,
}

/// What can differ between two rows with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    state: u64,
    created_at: u64,
    bytes: usize,
}

/// The numbers of the fields by which a row is known.
#[derive(Clone, Copy, Debug)]
pub struct KeyFields {
    pub(super) id: u32,
    pub(super) state: u32,
    /// The highest of the three.
    pub(super) created_at: u32,
}

/// What a row on the wire is known by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    id: &'a str,
    facts: Facts,
}

impl<'a> Key<'a> {
    /// Reads the key of a row; `None` if the row lacks an id, or if its fields are not in the order of their numbers, in
    /// which every known runtime writes them.
    pub(super) fn of(row: &'a [u8], fields: KeyFields) -> Option<Self> {
        let (mut id, mut facts) = (
            None,
            Facts {
                state: 0,
                created_at: 0,
                bytes: row.len(),
            },
        );
        let (mut rest, mut last) = (row, 0);
        while !rest.is_empty() {
            let field = wire::field(rest).ok()?;
            if field.number > fields.created_at {
                break;
            }
            if field.number <= last {
                return None;
            }
            last = field.number;
            let number = |kind| {
                (field.kind == kind)
                    .then(|| field.number_in(rest))
                    .flatten()
            };
            if field.number == fields.id {
                id = Some(text_of(&field, rest)?);
            } else if field.number == fields.state {
                facts.state = number(Kind::Varint)?;
            } else if field.number == fields.created_at {
                facts.created_at = number(Kind::Varint)?;
            }
            rest = rest.get(field.value.end..)?;
        }
        let id = id.filter(|id: &&str| !id.is_empty())?;
        Some(Self { id, facts })
    }
}

fn text_of<'a>(field: &Field, bytes: &'a [u8]) -> Option<&'a str> {
    let text = bytes.get(field.value.clone());
    let text = text.filter(|_| field.kind == Kind::Delimited)?;
    std::str::from_utf8(text).ok()
}

impl<M> Default for KnownRows<M> {
    fn default() -> Self {
        Self {
            rows: IdMap::default(),
            list: 0,
        }
    }
}

impl<M: Clone> KnownRows<M> {
    /// Begins a list, and forgets the rows that the last one did not have.
    pub(super) fn begin(&mut self) {
        let last = self.list;
        self.rows.retain(|_, known| known.list >= last);
        self.rows.shrink_to(self.rows.len());
        self.list += 1;
    }

    /// Returns the row of the last list that this one is.
    pub(super) fn get(&mut self, key: &Key<'_>) -> Option<M> {
        let known = self.rows.get_mut(key.id)?;
        if known.list == self.list {
            known.repeated_in = Some(self.list);
        }
        let is_repeated = known.repeated_in.is_some_and(|list| list + 1 >= self.list);
        if is_repeated || known.facts != key.facts {
            return None;
        }
        known.list = self.list;
        Some(known.row.clone())
    }

    /// Remembers a row that was read anew.
    pub(super) fn insert(&mut self, key: &Key<'_>, row: M) {
        let list = self.list;
        let before = self.rows.get(key.id);
        let repeated_in = before.and_then(|known| {
            let is_of_this_list = known.list == list;
            is_of_this_list.then_some(list).or(known.repeated_in)
        });
        let facts = key.facts;
        let known = Known {
            row,
            facts,
            list,
            repeated_in,
        };
        self.rows.insert(key.id.into(), known);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: KeyFields = KeyFields {
        id: 1,
        state: 6,
        created_at: 7,
    };

    /// A row of an id of one letter, state 2, creation 9, and a label.
    const ROW: &[u8] = b"\x0a\x01a\x30\x02\x38\x09\x42\x01l";

    fn key(row: &[u8]) -> Option<Key<'_>> {
        Key::of(row, FIELDS)
    }

    #[test]
    fn a_row_is_known_until_a_list_lacks_it() {
        let mut known = KnownRows::default();
        let key = key(ROW).unwrap();
        known.begin();
        known.insert(&key, "row");
        known.begin();
        assert_eq!(known.get(&key), Some("row"));
        known.begin();
        assert_eq!(known.get(&key), Some("row"), "the list before had it");
        known.begin();
        known.begin();
        assert_eq!(known.get(&key), None);
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn another_state_creation_or_length_makes_another_row() {
        let mut known = KnownRows::default();
        let first = key(ROW).unwrap();
        known.begin();
        known.insert(&first, ());
        known.begin();
        for other in [
            &b"\x0a\x01a\x30\x01\x38\x09\x42\x01l"[..],
            b"\x0a\x01a\x38\x09\x42\x03lll",
            b"\x0a\x01a\x30\x02\x38\x08\x42\x01l",
            b"\x0a\x01a\x30\x02\x38\x09\x42\x02ll",
            b"\x0a\x01b\x30\x02\x38\x09\x42\x01l",
        ] {
            assert_eq!(known.get(&key(other).unwrap()), None, "{other:?}");
        }
        assert_eq!(known.get(&first), Some(()));
    }

    #[test]
    fn an_id_that_a_list_had_twice_is_read_anew_in_that_list_and_the_next() {
        let mut known = KnownRows::default();
        let key = key(ROW).unwrap();
        known.begin();
        known.insert(&key, 1);
        assert_eq!(known.get(&key), None, "the present list");
        known.insert(&key, 2);
        known.begin();
        assert_eq!(known.get(&key), None);
        known.insert(&key, 1);
        assert_eq!(known.get(&key), None, "twice again");
        known.insert(&key, 2);
        known.begin();
        assert_eq!(known.get(&key), None);
        known.insert(&key, 3);
        known.begin();
        assert_eq!(known.get(&key), Some(3), "once in the list before");
    }

    #[test]
    fn a_row_without_an_id_or_with_fields_in_another_order_has_no_key() {
        for row in [
            &b""[..],
            b"\x0a\x00\x30\x02",
            b"\x30\x02\x0a\x01a",
            b"\x0a\x01a\x0a\x01b",
            b"\x08\x01\x30\x02",
            b"\x0a\x01a\x32\x01x",
            b"\x0a\x01\xff",
            b"\x0a\x05a",
        ] {
            assert!(key(row).is_none(), "{row:?}");
        }
    }
}
