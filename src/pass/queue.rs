//! The order in which a pass tries its removals. Pure.
//!
//! Removals that never failed come first, oldest creation first. Then come sandboxes that failed before, class
//! by class: one sandbox of each class is tried first, as a probe, and the others follow only if it succeeds.
//! So a common cause (for example a CNI plugin that is down) costs one removal per back-off, not hundreds.
//!
//! The sandboxes of a class come by failures, the fewest first, then by id. Ids are random: in the order of creation,
//! sandboxes of one incident, each with a cause of its own, would be the probes for hours while the others could go.
//!
//! Those during whose removal the runtime went away come after the ones that never failed, each alone: one of them may
//! be the cause.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::gc::Removal;
use crate::model::{FailureClass, RemovalOutcome, Text};

/// This many failures in a row after a successful probe mean that the common cause is back.
const GROUP_FAILURES_MAX: usize = 5;

/// The failures of a sandbox before this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownFailure {
    pub(super) class: FailureClass,
    pub(super) failures: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Try these.
    Batch(Vec<Removal>),
    /// Wait until one in flight ends.
    Wait,
    /// Nothing is left.
    Done,
}

/// Sandboxes that stay for now because the probe of their class failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldBack {
    pub(super) class: FailureClass,
    /// The probe, or the last one that failed after others had gone.
    pub(super) tried: String,
    /// Others of the class went in this pass.
    pub(super) others_went: bool,
    pub(super) removals: Vec<Removal>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    fresh: VecDeque<Removal>,
    alone: VecDeque<Removal>,
    /// The ids of those that are, or were, tried alone.
    lost: BTreeSet<String>,
    /// The latest batch is such a one.
    is_alone: bool,
    groups: BTreeMap<FailureClass, FailureGroup>,
    known: BTreeMap<String, KnownFailure>,
}

#[derive(Debug, Default)]
struct FailureGroup {
    /// By failures and id.
    waiting: BTreeMap<(u32, Text), Removal>,
    probe: ClassProbe,
    failures_in_a_row: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ClassProbe {
    /// The class needs a probe.
    #[default]
    Wanted,
    /// The probe that is in flight.
    Tried(String),
    /// A probe succeeded.
    Succeeded,
}

impl Queue {
    /// Returns the queue of a plan's removals; `known` holds the sandboxes that failed before.
    pub(super) fn new(removals: Vec<Removal>, known: BTreeMap<String, KnownFailure>) -> Self {
        let mut queue = Self {
            known,
            ..Self::default()
        };
        queue.put(removals);
        queue
    }

    pub(super) fn is_empty(&self) -> bool {
        let first = self.fresh.is_empty() && self.alone.is_empty();
        first && self.groups.values().all(|group| group.waiting.is_empty())
    }

    /// Takes out all waiting removals, to compare them with a new look.
    pub(super) fn take(&mut self) -> Vec<Removal> {
        // Moved, not copied: on a large node each copy is megabytes.
        let mut all: Vec<Removal> = std::mem::take(&mut self.fresh).into();
        all.extend(self.alone.drain(..));
        let groups = self.groups.values_mut();
        all.extend(groups.flat_map(FailureGroup::take));
        all
    }

    pub(super) fn put(&mut self, mut removals: Vec<Removal>) {
        let was_lost = |removal: &mut Removal| self.lost.contains(removal.subject.id.as_str());
        self.alone.extend(removals.extract_if(.., was_lost));
        let known = &self.known;
        let has_failed = |removal: &mut Removal| known.contains_key(removal.subject.id.as_str());
        for removal in removals.extract_if(.., has_failed) {
            if let Some(known) = known.get(removal.subject.id.as_str()) {
                let group = self.groups.entry(known.class).or_default();
                group.add(known.failures, removal);
            }
        }
        if self.fresh.is_empty() {
            self.fresh = removals.into();
        } else {
            self.fresh.extend(removals);
        }
    }

    /// Puts back unfinished removals, in front.
    pub(super) fn give_back(&mut self, removals: Vec<Removal>) {
        for removal in removals.into_iter().rev() {
            match self.untried(&removal) {
                None => self.fresh.push_front(removal),
                Some((group, failures)) => group.add(failures, removal),
            }
        }
    }

    /// Returns the group and the failures of a removal that failed before; the group wants a probe again if this one
    /// was it.
    fn untried(&mut self, removal: &Removal) -> Option<(&mut FailureGroup, u32)> {
        let id = removal.subject.id.as_str();
        let known = self.known.get(id)?;
        let group = self.groups.entry(known.class).or_default();
        if group.probe == ClassProbe::Tried(id.to_owned()) {
            group.probe = ClassProbe::Wanted;
        }
        Some((group, known.failures))
    }

    /// Puts back removals during which the runtime went away.
    pub(super) fn give_back_lost(&mut self, removals: Vec<Removal>) {
        for removal in removals {
            self.untried(&removal);
            self.lost.insert(removal.subject.id.to_string());
            self.alone.push_back(removal);
        }
    }

    /// Says whether the latest batch, or the next one, is to run alone.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone || (self.fresh.is_empty() && !self.alone.is_empty())
    }

    /// Returns what to try next, at most `size`.
    pub(super) fn next(&mut self, size: usize) -> NextStep {
        self.is_alone = false;
        if !self.fresh.is_empty() {
            let size = size.min(self.fresh.len());
            return NextStep::Batch(self.fresh.drain(..size).collect());
        }
        if let Some(removal) = self.alone.pop_front() {
            self.is_alone = true;
            return NextStep::Batch(vec![removal]);
        }
        let probes: Vec<Removal> = self.probes(size);
        if !probes.is_empty() {
            return NextStep::Batch(probes);
        }
        let mut waiting = self.groups.values_mut();
        let ready = waiting.find(|c| c.probe == ClassProbe::Succeeded && !c.waiting.is_empty());
        if let Some(group) = ready {
            return NextStep::Batch(std::iter::from_fn(|| group.pop()).take(size).collect());
        }
        if self.is_empty() {
            NextStep::Done
        } else {
            NextStep::Wait
        }
    }

    /// Takes a probe for each class that needs one.
    fn probes(&mut self, size: usize) -> Vec<Removal> {
        let groups = self.groups.values_mut();
        let wanted = groups.filter(|group| group.probe == ClassProbe::Wanted);
        let probes = wanted.filter_map(|group| {
            let probe = group.pop()?;
            group.probe = ClassProbe::Tried(probe.subject.id.to_string());
            Some(probe)
        });
        probes.take(size).collect()
    }

    /// Notes an outcome; returns the sandboxes that stay because of it. An object that stayed, or that another
    /// client removed, does not count.
    pub(super) fn ended(&mut self, id: &str, outcome: &RemovalOutcome) -> Option<HeldBack> {
        let class = self.known.get(id)?.class;
        let group = self.groups.get_mut(&class)?;
        let is_probe = group.probe == ClassProbe::Tried(id.to_owned());
        match (outcome, is_probe) {
            (RemovalOutcome::Removed { .. }, true) => group.probe = ClassProbe::Succeeded,
            (RemovalOutcome::Removed { .. }, false) => group.failures_in_a_row = 0,
            (RemovalOutcome::Failed { .. }, true) => return group.hold(class, id),
            (RemovalOutcome::Failed { .. }, false) => {
                group.failures_in_a_row += 1;
                if group.failures_in_a_row >= GROUP_FAILURES_MAX {
                    return group.hold(class, id);
                }
            }
            (RemovalOutcome::AlreadyGone | RemovalOutcome::Skipped { .. }, true) => {
                group.probe = ClassProbe::Wanted;
            }
            (RemovalOutcome::AlreadyGone | RemovalOutcome::Skipped { .. }, false)
            // The queue gets these back.
            | (RemovalOutcome::Lost { .. } | RemovalOutcome::NotBegun, _) => {}
        }
        None
    }
}

impl FailureGroup {
    fn add(&mut self, failures: u32, removal: Removal) {
        let key = (failures, removal.subject.id.clone());
        self.waiting.insert(key, removal);
    }

    fn pop(&mut self) -> Option<Removal> {
        self.waiting.pop_first().map(|(_, removal)| removal)
    }

    fn take(&mut self) -> impl Iterator<Item = Removal> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }

    fn hold(&mut self, class: FailureClass, tried: &str) -> Option<HeldBack> {
        let removals: Vec<Removal> = self.take().collect();
        (!removals.is_empty()).then(|| HeldBack {
            class,
            tried: tried.to_owned(),
            others_went: self.probe == ClassProbe::Succeeded,
            removals,
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
