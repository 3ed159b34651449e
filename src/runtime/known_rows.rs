//! The rows of the last list, found by id. Most rows of a list are the same as in the list before, and reading one anew
//! takes many times as long as finding it here.
//!
//! An object has its labels and metadata for life; only its state changes. So a row is the same if id, state, creation
//! and length are. The rows of an id may contradict each other if a list has it twice: from the second one on, until the
//! list after the next, they are read anew.

use std::borrow::Borrow;
use std::cell::Cell;
use std::hash::{Hash, Hasher};

use super::wire::{self, Field, WireType};
use crate::model::HasId;
use crate::system::maps::IdSet;

/// Rows of the present list and the one before it.
#[derive(Debug)]
pub struct KnownRows<M> {
    /// Apart from the table, of which up to a half is empty.
    rows: IdSet<Box<KnownRow<M>>>,
    /// Number of the present list, from 1 on.
    list: u32,
    /// The connection from which the rows came.
    connection: u64,
}

/// A row, found by its id. With 20,000 of each kind every 24 bytes in here are a megabyte.
#[derive(Debug)]
struct KnownRow<M> {
    row: M,
    facts: RowVersion,
    /// The last list that had it.
    list: Cell<u32>,
    /// The last list that had its id more than once; 0: none.
    repeated_in: Cell<u32>,
}

impl<M: HasId> Borrow<str> for Box<KnownRow<M>> {
    fn borrow(&self) -> &str {
        self.row.id()
    }
}

impl<M: HasId> Hash for KnownRow<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.id().hash(state);
    }
}

impl<M: HasId> PartialEq for KnownRow<M> {
    fn eq(&self, other: &Self) -> bool {
        self.row.id() == other.row.id()
    }
}

impl<M: HasId> Eq for KnownRow<M> {}

/// What can differ between two rows with the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RowVersion {
    created_at: u64,
    state: u32,
    bytes: u32,
}

/// The numbers of the fields by which a row is known.
#[derive(Clone, Copy, Debug)]
pub struct KeyFields {
    pub(super) id: u32,
    pub(super) state: u32,
    /// The highest of the three.
    pub(super) created_at: u32,
}

impl<M> KnownRow<M> {
    /// Says whether this list or the one before it had its id more than once.
    fn is_repeated(&self, list: u32) -> bool {
        let repeated_in = self.repeated_in.get();
        repeated_in > 0 && repeated_in + 1 >= list
    }
}

/// What a row on the wire is known by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    id: &'a str,
    facts: RowVersion,
}

impl<'a> Key<'a> {
    /// Reads the key of a row; `None` if the row lacks an id, or if the fields up to the creation are not in the order of
    /// their numbers, in which every known runtime writes all of them.
    pub(super) fn of(row: &'a [u8], fields: KeyFields) -> Option<Self> {
        let mut id = None;
        let mut facts = RowVersion {
            bytes: u32::try_from(row.len()).ok()?,
            ..RowVersion::default()
        };
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
                facts.state = number(WireType::Varint)?.try_into().ok()?;
            } else if field.number == fields.created_at {
                facts.created_at = number(WireType::Varint)?;
            }
            rest = rest.get(field.value.end..)?;
        }
        let id = id.filter(|id: &&str| !id.is_empty())?;
        Some(Self { id, facts })
    }
}

fn text_of<'a>(field: &Field, bytes: &'a [u8]) -> Option<&'a str> {
    let text = bytes.get(field.value.clone());
    let text = text.filter(|_| field.kind == WireType::Delimited)?;
    std::str::from_utf8(text).ok()
}

impl<M> Default for KnownRows<M> {
    fn default() -> Self {
        Self {
            rows: IdSet::default(),
            list: 1,
            connection: 0,
        }
    }
}

impl<M: Clone + HasId> KnownRows<M> {
    /// Begins a list, and forgets the rows that the last one did not have. On another connection it forgets all: there
    /// may be another runtime behind it.
    pub(super) fn begin(&mut self, connection: u64) {
        let last = self.list;
        if self.connection != connection || last == u32::MAX {
            *self = Self::default();
            self.connection = connection;
        }
        self.rows.retain(|known| known.list.get() >= last);
        self.rows.shrink_to(self.rows.len());
        self.list += 1;
    }

    /// Returns the row of the last list that this one is.
    pub(super) fn get(&self, key: &Key<'_>) -> Option<M> {
        let known = self.rows.get(key.id)?;
        if known.list.replace(self.list) == self.list {
            known.repeated_in.set(self.list);
        }
        let is_repeated = known.is_repeated(self.list);
        (!is_repeated && known.facts == key.facts).then(|| known.row.clone())
    }

    /// Remembers a row that was read anew, after [`Self::get`] did not find it. A row that ends with a second id is not
    /// the one that its key names.
    pub(super) fn insert(&mut self, key: &Key<'_>, row: M) {
        if row.id() != key.id {
            return;
        }
        let before = self.rows.get(key.id);
        let repeated_in = before.map_or(0, |known| known.repeated_in.get());
        self.rows.replace(Box::new(KnownRow {
            row,
            facts: key.facts,
            list: Cell::new(self.list),
            repeated_in: Cell::new(repeated_in),
        }));
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

    /// A row with the id "a".
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct A(u8);

    impl HasId for A {
        fn id(&self) -> &'static str {
            "a"
        }
    }

    fn key(row: &[u8]) -> Option<Key<'_>> {
        Key::of(row, FIELDS)
    }

    #[test]
    fn a_row_is_known_until_a_list_lacks_it() {
        let mut known = KnownRows::default();
        let key = key(ROW).unwrap();
        known.begin(1);
        known.insert(&key, A(1));
        known.begin(1);
        assert_eq!(known.get(&key), Some(A(1)));
        known.begin(1);
        assert_eq!(known.get(&key), Some(A(1)), "the list before had it");
        known.begin(1);
        known.begin(1);
        assert_eq!(known.get(&key), None);
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn another_state_creation_or_length_makes_another_row() {
        let mut known = KnownRows::default();
        let first = key(ROW).unwrap();
        known.begin(1);
        known.insert(&first, A(1));
        known.begin(1);
        for other in [
            &b"\x0a\x01a\x30\x01\x38\x09\x42\x01l"[..],
            b"\x0a\x01a\x38\x09\x42\x03lll",
            b"\x0a\x01a\x30\x02\x38\x08\x42\x01l",
            b"\x0a\x01a\x30\x02\x38\x09\x42\x02ll",
        ] {
            assert_eq!(known.get(&key(other).unwrap()), None, "{other:?}");
            known.begin(1);
        }
        let other_id = key(b"\x0a\x01b\x30\x02\x38\x09\x42\x01l").unwrap();
        assert_eq!(known.get(&other_id), None);
        assert_eq!(known.get(&first), Some(A(1)));
    }

    #[test]
    fn an_id_that_a_list_had_twice_is_read_anew_in_that_list_and_the_next() {
        let mut known = KnownRows::default();
        let key = key(ROW).unwrap();
        known.begin(1);
        known.insert(&key, A(1));
        assert_eq!(known.get(&key), None, "the present list");
        known.insert(&key, A(2));
        known.begin(1);
        assert_eq!(known.get(&key), None);
        known.insert(&key, A(1));
        assert_eq!(known.get(&key), None, "twice again");
        known.insert(&key, A(2));
        known.begin(1);
        assert_eq!(known.get(&key), None);
        known.insert(&key, A(3));
        known.begin(1);
        assert_eq!(known.get(&key), Some(A(3)), "once in the list before");
    }

    #[test]
    fn another_connection_knows_no_row() {
        let mut known = KnownRows::default();
        let key = key(ROW).unwrap();
        known.begin(1);
        known.insert(&key, A(1));
        known.begin(2);
        assert_eq!(known.get(&key), None);
    }

    #[test]
    fn a_row_with_another_id_than_its_key_is_not_remembered() {
        let mut known = KnownRows::default();
        let row = b"\x0a\x01b\x30\x02\x38\x09\x42\x01l\x0a\x01a";
        known.begin(1);
        known.insert(&key(row).unwrap(), A(1));
        assert_eq!(known.len(), 0);
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
