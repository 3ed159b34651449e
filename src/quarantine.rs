//! Sandboxes that failed to go: each is left alone for a time that doubles with every failure, so
//! that a pass spends its time on what can go. Never reads a clock.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::model::PodSandboxId;
use crate::report::FailureClass;

/// Sandboxes remembered at most; the one to be tried soonest is forgotten first, so it is simply
/// tried again.
pub const QUARANTINE_MAX: usize = 4096;

/// How long a failed sandbox is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// After the first failure.
    pub base: Duration,
    /// At most.
    pub max: Duration,
}

/// A sandbox that is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// How often it failed in a row.
    pub failures: u32,
    /// How it failed last.
    pub class: FailureClass,
    /// The runtime's words.
    pub error: String,
    /// When it may be tried again.
    pub next_try: Timestamp,
}

/// All sandboxes that are left alone.
#[derive(Clone, Debug, Default)]
pub struct Quarantine {
    entries: BTreeMap<PodSandboxId, Entry>,
}

impl Quarantine {
    /// Notes a failure.
    pub fn failed(
        &mut self,
        id: &PodSandboxId,
        class: FailureClass,
        error: String,
        back_off: BackOff,
        now: Timestamp,
    ) {
        let failures = self
            .entries
            .get(id)
            .map_or(0, |entry| entry.failures)
            .saturating_add(1);
        let factor = 1_u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
        let wait = back_off.base.saturating_mul(factor).min(back_off.max);
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        let next_try = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        self.make_room(id);
        self.entries.insert(
            id.clone(),
            Entry {
                failures,
                class,
                error,
                next_try,
            },
        );
    }

    /// Forgets a sandbox: it went.
    pub fn gone(&mut self, id: &PodSandboxId) {
        self.entries.remove(id);
    }

    /// Forgets the sandboxes that the runtime no longer has.
    pub fn retain(&mut self, exists: impl Fn(&PodSandboxId) -> bool) {
        self.entries.retain(|id, _| exists(id));
    }

    /// Returns when each may be tried again.
    pub fn next_tries(&self) -> BTreeMap<PodSandboxId, Timestamp> {
        self.entries
            .iter()
            .map(|(id, entry)| (id.clone(), entry.next_try))
            .collect()
    }

    /// Counts the sandboxes by how they failed last.
    pub fn by_class(&self) -> BTreeMap<FailureClass, usize> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.values() {
            *counts.entry(entry.class).or_default() += 1;
        }
        counts
    }

    /// Returns what is known of a sandbox's failures.
    pub fn get(&self, id: &PodSandboxId) -> Option<&Entry> {
        self.entries.get(id)
    }

    fn make_room(&mut self, id: &PodSandboxId) {
        if self.entries.len() < QUARANTINE_MAX || self.entries.contains_key(id) {
            return;
        }
        let soonest = self.entries.iter().min_by_key(|(_, entry)| entry.next_try);
        if let Some(soonest) = soonest.map(|(id, _)| id.clone()) {
            self.entries.remove(&soonest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACK_OFF: BackOff = BackOff {
        base: Duration::from_secs(60),
        max: Duration::from_secs(3600),
    };

    fn fail(quarantine: &mut Quarantine, id: &str, now: Timestamp) -> i64 {
        let id = PodSandboxId::new(id).unwrap();
        quarantine.failed(&id, FailureClass::Other, "no".into(), BACK_OFF, now);
        quarantine
            .get(&id)
            .unwrap()
            .next_try
            .duration_since(now)
            .as_secs()
    }

    #[test]
    fn doubles_from_base_to_max() {
        let mut quarantine = Quarantine::default();
        let waits: Vec<i64> = (0..9)
            .map(|_| fail(&mut quarantine, "a", Timestamp::UNIX_EPOCH))
            .collect();
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        for _ in 0..100 {
            assert!(fail(&mut quarantine, "a", Timestamp::MAX) >= 0);
        }
    }

    #[test]
    fn begins_anew_once_it_went() {
        let mut quarantine = Quarantine::default();
        fail(&mut quarantine, "a", Timestamp::UNIX_EPOCH);
        quarantine.gone(&PodSandboxId::new("a").unwrap());
        assert_eq!(fail(&mut quarantine, "a", Timestamp::UNIX_EPOCH), 60);
    }

    #[test]
    fn never_remembers_more_than_its_bound() {
        let mut quarantine = Quarantine::default();
        for n in 0..=QUARANTINE_MAX {
            let now = Timestamp::from_second(i64::try_from(n).unwrap()).unwrap();
            fail(&mut quarantine, &format!("{n}"), now);
        }
        assert_eq!(quarantine.next_tries().len(), QUARANTINE_MAX);
        assert!(quarantine.get(&PodSandboxId::new("0").unwrap()).is_none());
    }
}
