//! When images were first seen and last used; the kubelet forgets this when it restarts.
//!
//! Never reads a clock. Unknown ages count as young, so that nothing is removed too early.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::ImageAge;

/// The most images remembered. Images above it are not remembered, so they stay young.
pub const ENTRIES_MAX: usize = 4096;
/// The longest key: a digest has 71 bytes, the rest is for a runtime handler's name.
pub const KEY_MAX_BYTES: usize = 112;
/// Size of an entry without its key.
const FIXED_BYTES: usize = 1 + 8 + 8;
/// Size of all entries, encoded.
pub(super) const ENCODED_MAX_BYTES: usize = ENTRIES_MAX * (FIXED_BYTES + KEY_MAX_BYTES);
/// A time before 2020 comes from a clock that was not set.
const CLOCK_SET_SECONDS: i64 = 1_577_836_800;
/// "Never used" on disk.
const NEVER: i64 = i64::MIN;

/// All images' times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    entries: BTreeMap<String, ImageAge>,
}

impl Ages {
    /// Returns an image's times. Future times, and times of a clock that was not set, count as `now`: a clock
    /// step makes images younger, never older.
    pub fn get(&self, key: &str, now: Timestamp) -> Option<ImageAge> {
        let age = self.entries.get(key)?;
        Some(ImageAge {
            first_seen: sane(age.first_seen, now),
            last_used: age.last_used.map(|used| sane(used, now)),
        })
    }

    /// Notes that an image exists, and whether a container uses it. Does nothing while the clock is not set,
    /// so that good times are not lost.
    pub fn touch(&mut self, key: &str, used: bool, now: Timestamp) {
        if now.as_second() < CLOCK_SET_SECONDS {
            return;
        }
        let known = self.get(key, now);
        let full = self.entries.len() >= ENTRIES_MAX || key.len() > KEY_MAX_BYTES;
        if known.is_none() && (full || key.is_empty()) {
            return;
        }
        let mut age = known.unwrap_or(ImageAge {
            first_seen: now,
            last_used: None,
        });
        if used {
            age.last_used = Some(now);
        }
        self.entries.insert(key.to_owned(), age);
    }

    /// Returns every image's times, as [`Self::get`] does.
    pub fn all(&self, now: Timestamp) -> BTreeMap<String, ImageAge> {
        let keys = self.entries.keys();
        keys.filter_map(|key| Some((key.clone(), self.get(key, now)?)))
            .collect()
    }

    /// Forgets removed images: one that comes back is new.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.entries.retain(|key, _| exists(key));
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * (FIXED_BYTES + 72));
        for (key, age) in &self.entries {
            let used = age.last_used.map_or(NEVER, Timestamp::as_millisecond);
            // `touch` and `decode` accept no longer key.
            bytes.push(u8::try_from(key.len()).unwrap_or(0));
            bytes.extend_from_slice(&age.first_seen.as_millisecond().to_le_bytes());
            bytes.extend_from_slice(&used.to_le_bytes());
            bytes.extend_from_slice(key.as_bytes());
        }
        bytes
    }

    /// Decodes the output of [`Self::encode`]; `None` if it is invalid.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut entries = BTreeMap::new();
        while let Some((length, rest)) = bytes.split_first() {
            let (first_seen, rest) = rest.split_first_chunk::<8>()?;
            let (used, rest) = rest.split_first_chunk::<8>()?;
            let (key, rest) = rest.split_at_checked(usize::from(*length))?;
            let key = std::str::from_utf8(key).ok()?;
            if !(1..=KEY_MAX_BYTES).contains(&key.len()) || entries.len() >= ENTRIES_MAX {
                return None;
            }
            let used = i64::from_le_bytes(*used);
            let age = ImageAge {
                first_seen: time(i64::from_le_bytes(*first_seen)),
                last_used: (used != NEVER).then(|| time(used)),
            };
            entries.insert(key.to_owned(), age);
            bytes = rest;
        }
        Some(Self { entries })
    }
}

fn sane(time: Timestamp, now: Timestamp) -> Timestamp {
    if time.as_second() < CLOCK_SET_SECONDS {
        now
    } else {
        time.min(now)
    }
}

/// An invalid time becomes one that [`sane`] rejects.
fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(CLOCK_SET_SECONDS + seconds).unwrap()
    }

    #[test]
    fn remembers_the_first_sight_and_the_last_use() {
        let mut ages = Ages::default();
        ages.touch("a", false, at(10));
        assert_eq!(ages.get("a", at(11)).unwrap().last_used, None);
        ages.touch("a", true, at(20));
        ages.touch("a", false, at(30));
        let age = ages.get("a", at(40)).unwrap();
        assert_eq!((age.first_seen, age.last_used), (at(10), Some(at(20))));
        assert_eq!(ages.get("b", at(40)), None, "never seen");
    }

    #[test]
    fn an_image_pulled_again_is_new() {
        let mut ages = Ages::default();
        ages.touch("a", true, at(10));
        ages.retain(|key| key != "a");
        ages.touch("a", false, at(50));
        let age = ages.get("a", at(50)).unwrap();
        assert_eq!((age.first_seen, age.last_used), (at(50), None));
    }

    #[test]
    fn a_time_in_the_future_is_now() {
        let mut ages = Ages::default();
        ages.touch("a", true, at(1000));
        let age = ages.get("a", at(5)).unwrap();
        assert_eq!((age.first_seen, age.last_used), (at(5), Some(at(5))));
        // Seen again, it stays as young as before.
        ages.touch("a", false, at(5));
        assert_eq!(ages.get("a", at(2000)).unwrap().first_seen, at(5));
    }

    #[test]
    fn a_clock_that_is_not_set_makes_nothing_old_and_loses_nothing() {
        let mut ages = Ages::default();
        ages.touch("a", true, at(10));
        let boot = Timestamp::from_second(60).unwrap();
        ages.touch("a", false, boot);
        ages.touch("b", true, boot);
        assert_eq!(
            ages.get("a", boot).unwrap().first_seen,
            boot,
            "young just now"
        );
        assert_eq!(
            ages.get("a", at(20)).unwrap().first_seen,
            at(10),
            "and old again"
        );
        assert_eq!(ages.get("b", at(20)), None);
        let forged =
            Ages::decode(&[&[1][..], &5_i64.to_le_bytes(), &NEVER.to_le_bytes(), b"c"].concat());
        assert_eq!(forged.unwrap().get("c", at(7)).unwrap().first_seen, at(7));
    }

    #[test]
    fn ages_beyond_the_bound_stay_unknown() {
        let mut ages = Ages::default();
        for n in 0..=ENTRIES_MAX {
            ages.touch(&format!("{n:0112}"), true, at(1));
        }
        ages.touch(&"k".repeat(KEY_MAX_BYTES + 1), true, at(1));
        assert_eq!(ages.len(), ENTRIES_MAX);
        assert_eq!(ages.encode().len(), ENCODED_MAX_BYTES);
        assert_eq!(Ages::decode(&ages.encode()), Some(ages));
    }

    proptest! {
        #[test]
        fn reads_back_what_was_written(keys in prop::collection::btree_map("[a-z:0-9]{1,112}", (0..9999_i64, prop::option::of(0..9999_i64)), 0..40)) {
            let entries = keys.into_iter().map(|(key, (first, used))| {
                (key, ImageAge { first_seen: at(first), last_used: used.map(at) })
            });
            let ages = Ages { entries: entries.collect() };
            prop_assert_eq!(Ages::decode(&ages.encode()), Some(ages));
        }

        #[test]
        fn any_bytes_give_sane_times_or_nothing(bytes: Vec<u8>, now in 0..99_999_i64) {
            let now = at(now);
            for (key, _) in Ages::decode(&bytes).unwrap_or_default().entries.clone() {
                let age = Ages::decode(&bytes).unwrap().get(&key, now).unwrap();
                for time in [Some(age.first_seen), age.last_used].into_iter().flatten() {
                    let age = now.duration_since(time);
                    prop_assert!(age >= SignedDuration::ZERO);
                    prop_assert!(time.as_second() >= CLOCK_SET_SECONDS);
                }
            }
        }
    }
}
