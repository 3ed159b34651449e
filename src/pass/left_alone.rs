//! What passes know of sandboxes that failed before.

use parking_lot::MutexGuard;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Runner;
use super::queue::{Held, Known};
use super::tally::now;
use crate::config::BackOff;
use crate::model::{KeepReason, PastFailure, PodSandboxId, Quarantined, Target};
use crate::pass::quarantine::Quarantine;
use crate::pass::record::Record;

impl Runner {
    /// Takes over the failures that processes before this one wrote down.
    pub fn restore(&self, failures: Vec<PastFailure>, back_off: BackOff, now: Timestamp) {
        if failures.is_empty() {
            return;
        }
        let count = failures.len();
        self.quarantine().restore(failures, back_off, now);
        tracing::info!(
            count,
            "sandboxes that failed before are left alone as before"
        );
    }

    /// Returns when each sandbox that failed may be tried again.
    pub fn next_tries(&self, now: Timestamp) -> BTreeMap<PodSandboxId, Timestamp> {
        self.quarantine().next_tries(now)
    }

    /// Returns what is known of a sandbox's failures.
    pub fn quarantined(&self, id: &str) -> Option<Quarantined> {
        let id = PodSandboxId::new(id)?;
        self.quarantine().get(&id).cloned()
    }

    pub(super) fn failed_before(&self, id: &PodSandboxId) -> bool {
        self.quarantine().get(id).is_some()
    }

    /// Returns every sandbox that failed before, by its id.
    pub(super) fn known_failures(&self) -> BTreeMap<String, Known> {
        let quarantine = self.quarantine();
        let known = quarantine.all().into_iter().map(|(id, known)| {
            let (class, failures) = (known.class, known.failures);
            (id.to_string(), Known { class, failures })
        });
        known.collect()
    }

    /// Leaves sandboxes alone until the one that was tried for them is tried again.
    pub(super) fn hold(&self, record: &Record, target: Target, held: &Held) {
        let ids = held.removals.iter();
        let ids: Vec<PodSandboxId> = ids
            .filter_map(|removal| PodSandboxId::new(removal.subject.id.as_str()))
            .collect();
        let now = now(self);
        let until = {
            let mut quarantine = self.quarantine();
            let tried = PodSandboxId::new(held.tried.as_str());
            let until = tried.and_then(|id| Some(quarantine.get(&id)?.next_try));
            let until = until.unwrap_or(now);
            quarantine.hold(&ids, until, now);
            until
        };
        let count = u64::try_from(held.removals.len()).unwrap_or(u64::MAX);
        record.update(|pass| {
            let report = pass.targets.entry(target).or_default();
            report.planned = report.planned.saturating_sub(count);
            *report.kept.entry(KeepReason::Quarantined).or_default() += count;
            report.count_remaining();
        });
        let class = held.class.label();
        let tried = &held.tried;
        tracing::info!(pass.id = %record.id(), class, tried, count, %until, "others of the class wait on");
        record.line(format!(
            "{target}: {count} more that failed before ({class}) stay until {until}: {tried} was tried \
             for them and failed"
        ));
    }

    pub(super) fn quarantine(&self) -> MutexGuard<'_, Quarantine> {
        self.quarantine.lock()
    }
}
