//! The quarantine of sandboxes whose removal failed: each waits for a time that doubles with every failure, so
//! that a pass spends its time on removable ones. Never reads a clock.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Runner;
use super::queue::{HeldBack, KnownFailure};
use crate::config::BackOff;
use crate::model::{FailureClass, PastFailure, PodSandboxId, Quarantined, Snapshot, is_set};
use crate::snapshot::{Look, NoSnapshot};

/// The most sandboxes in quarantine; above that the one with the earliest next attempt is dropped, and is
/// simply tried again.
pub const QUARANTINE_MAX: usize = 4096;

impl BackOff {
    /// Returns how long a sandbox with this many failures in a row waits.
    fn wait(self, failures: u32) -> SignedDuration {
        let doublings = failures.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let wait = self.base.saturating_mul(factor).min(self.max);
        SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct QuarantineEntry {
    known: Quarantined,
    /// The wait that was last decided, its own or that of its class; the next failure doubles it. If the time until the
    /// next attempt is longer, the clock was set back.
    wait: SignedDuration,
}

/// The quarantined sandboxes.
#[derive(Clone, Debug, Default)]
pub struct Quarantine {
    entries: BTreeMap<PodSandboxId, QuarantineEntry>,
}

impl Quarantine {
    /// Notes a failure; returns the number of failures in a row.
    pub fn failed(
        &mut self,
        id: &PodSandboxId,
        class: FailureClass,
        error: String,
        back_off: BackOff,
        now: Timestamp,
    ) -> u32 {
        let before = self.entries.get(id);
        let failures = before.map_or(0, |entry| entry.known.failures);
        let failures = failures.saturating_add(1);
        let max = SignedDuration::try_from(back_off.max).unwrap_or(SignedDuration::MAX);
        let doubled = before.map_or(SignedDuration::ZERO, |entry| entry.wait.saturating_mul(2));
        let wait = back_off.wait(failures).max(doubled.min(max));
        self.put(id.clone(), (failures, class, error), now, wait);
        failures
    }

    /// Takes over failures that earlier processes wrote down. A failure without a time, or with a time in the
    /// future, counts as a failure now: that postpones the next attempt, but never beyond the longest wait.
    pub fn restore(&mut self, past: Vec<PastFailure>, back_off: BackOff, now: Timestamp) {
        for failure in past {
            let id = PodSandboxId::new(failure.id);
            // A failure of this process is the later one.
            let Some(id) = id.filter(|id| !self.entries.contains_key(id)) else {
                continue;
            };
            let usable = failure.at.filter(|at| is_set(*at));
            let at = usable.map_or(now, |at| at.min(now));
            let failures = failure.failures.max(1);
            let wait = back_off.wait(failures);
            self.put(id, (failures, failure.class, failure.error), at, wait);
        }
    }

    /// Postpones sandboxes of a class without a failure of their own, and returns until when: the next try of the one
    /// that was tried for them, or, if others went, the first wait of a back-off.
    pub(super) fn hold(&mut self, held: &HeldBack, back_off: BackOff, now: Timestamp) -> Timestamp {
        let first = later(now, back_off.wait(1));
        let tried = PodSandboxId::new(held.tried.as_str()).and_then(|id| self.entries.get(&id));
        let tried = tried.filter(|_| !held.others_went);
        let until = tried.map_or(first, |entry| entry.known.next_try);
        let ids = held.removals.iter().map(|it| it.subject.id.as_str());
        for id in ids.filter_map(PodSandboxId::new) {
            if let Some(entry) = self.entries.get_mut(&id)
                && entry.known.next_try < until
            {
                entry.known.next_try = until;
                entry.wait = until.duration_since(now);
            }
        }
        until
    }

    /// Forgets a removed sandbox.
    pub fn gone(&mut self, id: &PodSandboxId) {
        self.entries.remove(id);
    }

    /// Forgets the sandboxes that the runtime no longer has.
    pub fn retain(&mut self, exists: impl Fn(&PodSandboxId) -> bool) {
        self.entries.retain(|id, _| exists(id));
    }

    /// Returns the next attempt of each sandbox. After a clock step back, none waits longer than decided.
    pub fn next_attempts(&mut self, now: Timestamp) -> BTreeMap<PodSandboxId, Timestamp> {
        let entries = self.entries.iter_mut();
        let attempts = entries.map(|(id, entry)| {
            let latest = later(now, entry.wait);
            entry.known.next_try = entry.known.next_try.min(latest);
            (id.clone(), entry.known.next_try)
        });
        attempts.collect()
    }

    /// Returns all sandboxes, earliest next attempt first.
    pub fn all(&self) -> Vec<(&PodSandboxId, &Quarantined)> {
        let entries = self.entries.iter().map(|(id, entry)| (id, &entry.known));
        let mut all: Vec<_> = entries.collect();
        all.sort_by_key(|(_, known)| known.next_try);
        all
    }

    /// Counts the existing sandboxes by their last failure class.
    pub fn by_class(
        &self,
        exists: impl Fn(&PodSandboxId) -> bool,
    ) -> BTreeMap<FailureClass, usize> {
        let mut counts = BTreeMap::new();
        for (_, entry) in self.entries.iter().filter(|(id, _)| exists(id)) {
            *counts.entry(entry.known.class).or_default() += 1;
        }
        counts
    }

    /// Returns a sandbox's entry.
    pub fn get(&self, id: &PodSandboxId) -> Option<&Quarantined> {
        self.entries.get(id).map(|entry| &entry.known)
    }

    pub(super) fn known_failures(&self) -> BTreeMap<String, KnownFailure> {
        let known = self.entries.iter().map(|(id, entry)| {
            let (class, failures) = (entry.known.class, entry.known.failures);
            (id.to_string(), KnownFailure { class, failures })
        });
        known.collect()
    }

    fn put(
        &mut self,
        id: PodSandboxId,
        (failures, class, error): (u32, FailureClass, String),
        at: Timestamp,
        wait: SignedDuration,
    ) {
        self.make_room(&id);
        let known = Quarantined {
            failures,
            class,
            error,
            next_try: later(at, wait),
        };
        self.entries.insert(id, QuarantineEntry { known, wait });
    }

    fn make_room(&mut self, id: &PodSandboxId) {
        if self.entries.len() < QUARANTINE_MAX || self.entries.contains_key(id) {
            return;
        }
        let soonest = self.entries.iter();
        let soonest = soonest.min_by_key(|(_, entry)| entry.known.next_try);
        if let Some(soonest) = soonest.map(|(id, _)| id.clone()) {
            self.entries.remove(&soonest);
        }
    }
}

fn later(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

impl Runner {
    /// Takes over failures that earlier processes wrote down.
    pub fn restore(&self, failures: Vec<PastFailure>, back_off: BackOff, now: Timestamp) {
        if failures.is_empty() {
            return;
        }
        let count = failures.len();
        self.quarantine.lock().restore(failures, back_off, now);
        tracing::info!(count, "sandboxes that failed before stay quarantined");
    }

    /// Converts a look for planning, with the sandboxes that are left alone for now.
    ///
    /// # Errors
    /// If a list could not be read.
    pub fn snapshot(&self, look: &Look) -> Result<Snapshot, NoSnapshot> {
        look.snapshot(self.next_attempts(look.taken_at))
    }

    pub(super) fn next_attempts(&self, now: Timestamp) -> BTreeMap<PodSandboxId, Timestamp> {
        self.quarantine.lock().next_attempts(now)
    }

    /// Returns a sandbox's entry.
    pub fn quarantined(&self, id: &str) -> Option<Quarantined> {
        let id = PodSandboxId::new(id)?;
        self.quarantine.lock().get(&id).cloned()
    }
}

#[cfg(test)]
mod tests;
