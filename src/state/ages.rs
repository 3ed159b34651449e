//! When images were first seen and last used; the kubelet forgets this when it restarts.
//!
//! Never reads a clock. Unknown ages count as young, so that nothing is removed too early.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;

use crate::model::{ImageAge, is_set};

/// The most images remembered. Images above it are not remembered, so they stay young.
pub const ENTRIES_MAX: usize = 4096;
/// The longest key: a digest has 71 bytes, the rest is for a runtime handler's name.
pub const KEY_MAX_BYTES: usize = 112;
/// The smallest step of the wall clock that counts: two clocks are never read at once.
const STEP_LEAST: SignedDuration = SignedDuration::from_secs(5);
/// How much of the time between two runs counts: they save the ages every five minutes.
const REST_COUNTS: SignedDuration = SignedDuration::from_hours(1);

/// All images' times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageAges {
    entries: BTreeMap<String, ImageAge>,
}

impl ImageAges {
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
        if !is_set(now) {
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

    /// Makes every image younger by as much as the wall clock stepped forward between two looks, `passed` apart: only
    /// time that passed makes an image older. The time for which the machine slept counts as such a step.
    pub(crate) fn keep_pace(
        &mut self,
        before: Timestamp,
        now: Timestamp,
        passed: Duration,
    ) -> bool {
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let step = now.duration_since(before).saturating_sub(passed);
        if step < STEP_LEAST {
            return false;
        }
        // By a clock that was not set nothing was noted: all is of an earlier run.
        if !is_set(before) {
            return self.rest_until(now);
        }
        self.make_younger(step, now);
        !self.entries.is_empty()
    }

    /// Makes every image younger by the time for which no look was noted, but for [`REST_COUNTS`]: the clock of an
    /// earlier run may have been wrong. Says whether there is such time.
    pub(crate) fn rest_until(&mut self, now: Timestamp) -> bool {
        let times = self.entries.values();
        let times = times.flat_map(|age| [Some(age.first_seen), age.last_used]);
        let Some(last) = times.flatten().max() else {
            return false;
        };
        let rest = now.duration_since(last).saturating_sub(REST_COUNTS);
        let rests = rest.is_positive() && is_set(now);
        if rests {
            self.make_younger(rest, now);
        }
        rests
    }

    fn make_younger(&mut self, step: SignedDuration, now: Timestamp) {
        let later = |time: Timestamp| time.checked_add(step).unwrap_or(now);
        for age in self.entries.values_mut() {
            age.first_seen = later(age.first_seen);
            age.last_used = age.last_used.map(later);
        }
    }

    /// Adds what an earlier run knew. An image that both know was first seen then.
    pub(crate) fn add_earlier(&mut self, earlier: Self) {
        for (key, earlier) in earlier.entries {
            let age = self.entries.entry(key).or_insert(earlier);
            age.first_seen = earlier.first_seen;
            age.last_used = age.last_used.max(earlier.last_used);
        }
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

    /// Writes the ages in place of those in the database.
    pub(super) fn write(&self, sql: &Connection) -> rusqlite::Result<()> {
        let keys: Vec<String> = sql
            .prepare_cached("SELECT key FROM image_ages")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let mut gone = sql.prepare_cached("DELETE FROM image_ages WHERE key = ?")?;
        for key in keys.iter().filter(|key| !self.entries.contains_key(*key)) {
            gone.execute([key])?;
        }
        let mut put = sql.prepare_cached(
            "INSERT INTO image_ages (key, first_seen, last_used, sum) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE SET \
             first_seen = ?2, last_used = ?3, sum = ?4 WHERE first_seen IS NOT ?2 OR last_used IS NOT ?3 OR sum IS NOT ?4",
        )?;
        for (key, age) in &self.entries {
            let seen = age.first_seen.as_millisecond();
            let used = age.last_used.map(Timestamp::as_millisecond);
            put.execute((key, seen, used, sum(key, seen, used)))?;
        }
        Ok(())
    }

    /// Reads the ages of the database; skips what [`Self::touch`] would not have accepted, and rows that were damaged.
    pub(super) fn read(sql: &Connection) -> rusqlite::Result<Self> {
        let mut ages = Self::default();
        let mut all =
            sql.prepare("SELECT key, first_seen, last_used, sum FROM image_ages LIMIT ?")?;
        let mut rows = all.query([ENTRIES_MAX])?;
        while let Some(row) = rows.next()? {
            let (key, seen, used): (String, _, _) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let written: Option<i64> = row.get(3)?;
            if written.is_none_or(|written| written == sum(&key, seen, used)) {
                ages.put(key, seen, used);
            }
        }
        Ok(ages)
    }

    /// Adds an image with times in milliseconds.
    fn put(&mut self, key: String, first_seen: i64, last_used: Option<i64>) {
        if (1..=KEY_MAX_BYTES).contains(&key.len()) && self.entries.len() < ENTRIES_MAX {
            let age = ImageAge {
                first_seen: time(first_seen),
                last_used: last_used.map(time),
            };
            self.entries.insert(key, age);
        }
    }
}

/// The sum that shows a flipped bit.
fn sum(key: &str, first_seen: i64, last_used: Option<i64>) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&first_seen.to_le_bytes());
    sum.update(&last_used.unwrap_or(i64::MIN).to_le_bytes());
    sum.update(key.as_bytes());
    sum.finalize().into()
}

fn sane(time: Timestamp, now: Timestamp) -> Timestamp {
    if is_set(time) { time.min(now) } else { now }
}

/// An invalid time becomes one that [`sane`] rejects.
fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::CLOCK_SET_SECONDS;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(CLOCK_SET_SECONDS + seconds).unwrap()
    }

    #[test]
    fn remembers_the_first_sight_and_the_last_use() {
        let mut ages = ImageAges::default();
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
        let mut ages = ImageAges::default();
        ages.touch("a", true, at(10));
        ages.retain(|key| key != "a");
        ages.touch("a", false, at(50));
        let age = ages.get("a", at(50)).unwrap();
        assert_eq!((age.first_seen, age.last_used), (at(50), None));
    }

    #[test]
    fn an_image_of_an_earlier_run_is_as_old_as_it_was_then() {
        let (mut earlier, mut ages) = (ImageAges::default(), ImageAges::default());
        earlier.touch("both", true, at(10));
        earlier.touch("unused", false, at(10));
        earlier.touch("theirs", true, at(10));
        ages.touch("both", true, at(50));
        ages.touch("unused", false, at(50));
        ages.touch("ours", false, at(50));
        ages.add_earlier(earlier);
        let times = |key: &str| {
            let age = ages.get(key, at(60)).unwrap();
            (age.first_seen, age.last_used)
        };
        assert_eq!(times("both"), (at(10), Some(at(50))));
        assert_eq!(times("unused"), (at(10), None));
        assert_eq!(times("theirs"), (at(10), Some(at(10))));
        assert_eq!(times("ours"), (at(50), None));
    }

    #[test]
    fn of_the_time_between_two_runs_an_hour_counts() {
        let ages = |rest: i64| {
            let mut ages = ImageAges::default();
            ages.touch("unused", false, at(0));
            ages.touch("used", true, at(600));
            ages.rest_until(at(600 + rest));
            ["unused", "used"].map(|key| {
                let age = ages.get(key, at(600 + rest)).unwrap();
                600 + rest - age.last_used.unwrap_or(age.first_seen).as_second() + CLOCK_SET_SECONDS
            })
        };
        assert_eq!(ages(3_600), [4_200, 3_600]);
        // The node was off for three years, or the clock of the earlier run was so far behind.
        assert_eq!(ages(3 * 365 * 86_400), [4_200, 3_600]);
        assert_eq!(ages(-300), [300, 0]);
        let (mut ages, boot) = (ImageAges::default(), Timestamp::from_second(60).unwrap());
        ages.rest_until(at(0));
        ages.touch("a", true, at(10));
        ages.rest_until(boot);
        assert_eq!(ages.get("a", at(20)).unwrap().first_seen, at(10));
    }

    #[test]
    fn a_time_in_the_future_is_now() {
        let mut ages = ImageAges::default();
        ages.touch("a", true, at(1000));
        let age = ages.get("a", at(5)).unwrap();
        assert_eq!((age.first_seen, age.last_used), (at(5), Some(at(5))));
        // Seen again, it stays as young as before.
        ages.touch("a", false, at(5));
        assert_eq!(ages.get("a", at(2000)).unwrap().first_seen, at(5));
    }

    #[test]
    fn a_clock_that_is_not_set_makes_nothing_old_and_loses_nothing() {
        let mut ages = ImageAges::default();
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
        let mut forged = ImageAges::default();
        forged.put("c".to_owned(), 5, None);
        assert_eq!(forged.get("c", at(7)).unwrap().first_seen, at(7));
    }

    #[test]
    fn a_clock_that_steps_forward_makes_nothing_older_than_the_time_that_passed() {
        let minute = Duration::from_secs(60);
        let mut ages = ImageAges::default();
        ages.touch("a", true, at(0));
        assert!(
            !ages.keep_pace(at(0), at(64), minute),
            "read a moment apart"
        );
        assert!(ages.keep_pace(at(64), at(9_124), minute));
        let age = ages.get("a", at(9_124)).unwrap();
        assert_eq!(
            (age.first_seen, age.last_used),
            (at(9_000), Some(at(9_000)))
        );
        // Back and forth again: younger, never older.
        assert!(!ages.keep_pace(at(9_124), at(184), minute));
        ages.touch("a", false, at(184));
        assert!(ages.keep_pace(at(184), at(9_244), minute));
        assert_eq!(ages.get("a", at(9_244)).unwrap().first_seen, at(9_184));
        // The end of a clock that was not set is no step of times that were noted by a good one.
        let unset = Timestamp::from_second(60).unwrap();
        assert!(!ages.keep_pace(unset, at(9_300), minute));
        assert_eq!(ages.get("a", at(9_300)).unwrap().first_seen, at(9_184));
        assert!(ages.keep_pace(at(9_300), Timestamp::MAX, Duration::ZERO));
        assert_eq!(
            ages.get("a", Timestamp::MAX)
                .unwrap()
                .first_seen
                .as_second(),
            Timestamp::MAX.as_second() - 116
        );
    }

    #[test]
    fn ages_beyond_the_bound_stay_unknown() {
        let mut ages = ImageAges::default();
        for n in 0..=ENTRIES_MAX {
            ages.touch(&format!("{n:0112}"), true, at(1));
        }
        ages.touch(&"k".repeat(KEY_MAX_BYTES + 1), true, at(1));
        assert_eq!(ages.len(), ENTRIES_MAX);
    }

    proptest! {
        #[test]
        fn any_times_on_disk_are_sane(times: Vec<(i64, Option<i64>)>, now in 0..99_999_i64) {
            let now = at(now);
            let mut ages = ImageAges::default();
            for (number, (first, used)) in times.into_iter().enumerate() {
                ages.put(format!("sha256:{number}"), first, used);
            }
            for age in ages.all(now).values() {
                for time in [Some(age.first_seen), age.last_used].into_iter().flatten() {
                    prop_assert!(now.duration_since(time) >= SignedDuration::ZERO);
                    prop_assert!(time.as_second() >= CLOCK_SET_SECONDS);
                }
            }
        }
    }
}
