//! The rows of the last list, found by the bytes of their fields. Most rows of a list are the same as in the list
//! before, and reading one anew takes several times as long as finding it here.
//!
//! Never takes one row for another: 128 bits under a secret key, so that nobody can write labels or annotations with
//! which two rows look alike.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};

use super::wire::{self, Field};

/// What a row is known by.
pub(super) type Digest = u128;

/// Rows of the present list and the one before it.
#[derive(Debug)]
pub struct KnownRows<M> {
    rows: HashMap<Digest, Known<M>>,
    /// Number of the present list.
    list: u64,
    key: SipHasher13,
}

#[derive(Debug)]
struct Known<M> {
    row: M,
    /// The last list that had it.
    list: u64,
}

impl<M> Default for KnownRows<M> {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            rows: HashMap::new(),
            list: 0,
            key: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
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

    /// Returns what a row is known by: its fields that are read, whatever their order. Go writes the entries of a map
    /// (labels, annotations) in another order each time.
    pub(super) fn digest(&self, mut row: &[u8], is_read: fn(&Field, &[u8]) -> bool) -> Digest {
        let mut sum = Digest::default();
        while let Ok(field) = wire::field(row) {
            let (whole, later) = row.split_at_checked(field.value.end).unwrap_or((row, &[]));
            if is_read(&field, whole.get(field.value.clone()).unwrap_or_default()) {
                sum = sum.wrapping_add(self.hash(whole));
            }
            row = later;
        }
        // Bytes that are no field make no row; whoever decodes them says so.
        sum.wrapping_add(self.hash(row))
    }

    fn hash(&self, field: &[u8]) -> Digest {
        let mut hasher = self.key;
        hasher.write(field);
        hasher.finish128().as_u128()
    }

    /// Returns the row that came as the same bytes.
    pub(super) fn get(&mut self, digest: Digest) -> Option<M> {
        let known = self.rows.get_mut(&digest)?;
        known.list = self.list;
        Some(known.row.clone())
    }

    pub(super) fn insert(&mut self, digest: Digest, row: M) {
        let list = self.list;
        self.rows.insert(digest, Known { row, list });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_known_until_a_list_lacks_it() {
        let mut known = KnownRows::default();
        let digest = known.digest(b"row", |_, _| true);
        assert_ne!(digest, known.digest(b"rov", |_, _| true));
        known.begin();
        known.insert(digest, "row");
        known.begin();
        assert_eq!(known.get(digest), Some("row"));
        known.begin();
        assert_eq!(known.get(digest), Some("row"), "the list before had it");
        known.begin();
        known.begin();
        assert_eq!(known.get(digest), None);
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn the_order_of_fields_makes_no_difference_and_any_other_change_does() {
        let known = KnownRows::<u8>::default();
        // Two texts of field 8 and a number of field 6.
        let (a, b, state) = (&b"\x42\x01a"[..], &b"\x42\x01b"[..], &b"\x30\x02"[..]);
        let digest = |fields: &[&[u8]]| known.digest(&fields.concat(), |_, _| true);
        let row = digest(&[state, a, b]);
        assert_eq!(row, digest(&[b, state, a]));
        for other in [
            digest(&[state, a]),
            digest(&[state, a, a]),
            digest(&[state, a, b, b]),
            digest(&[b"\x30\x01", a, b]),
            digest(&[state, b"\x4a\x01a", b]),
            digest(&[state, b"\x42\x02ab"]),
            digest(&[state, a, b, b"\x42"]),
        ] {
            assert_ne!(row, other);
        }
    }

    #[test]
    fn two_sets_of_rows_have_keys_of_their_own() {
        let (one, other) = (KnownRows::<u8>::default(), KnownRows::<u8>::default());
        assert_ne!(
            one.digest(b"row", |_, _| true),
            other.digest(b"row", |_, _| true)
        );
    }
}
