//! The order in which a pass tries what is due. Pure.
//!
//! What never failed comes first, oldest creation first. Sandboxes that failed before come after it,
//! class by class: one of each is tried alone, and only if that one goes are the others of its class
//! tried. Whatever keeps a crowd from going (a CNI plugin that is down) then costs one removal for
//! each back-off, not hundreds.

use std::collections::{BTreeMap, VecDeque};

use crate::gc::Removal;
use crate::model::{FailureClass, RemovalOutcome};

/// So many failures in a row, after the one that went, say that the cause in common is back.
const CROWD_FAILURES_MAX: usize = 5;

/// What is known of a sandbox that failed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownFailure {
    pub(super) class: FailureClass,
    pub(super) failures: u32,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// These.
    Batch(Vec<Removal>),
    /// Nothing before one in flight has ended.
    Wait,
    /// Nothing more.
    Done,
}

/// Sandboxes that stay for now, because the one that was tried for them did not go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldCrowd {
    pub(super) class: FailureClass,
    /// The one that was tried.
    pub(super) tried: String,
    pub(super) removals: Vec<Removal>,
}

/// What is due.
#[derive(Debug, Default)]
pub(super) struct Queue {
    fresh: VecDeque<Removal>,
    crowds: BTreeMap<FailureClass, Crowd>,
    known: BTreeMap<String, KnownFailure>,
}

#[derive(Debug, Default)]
struct Crowd {
    waiting: VecDeque<Removal>,
    probe: Probe,
    failures_in_a_row: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Probe {
    /// One is to be tried for all.
    #[default]
    Wanted,
    /// This one is being tried.
    Tried(String),
    /// One went.
    Went,
}

impl Queue {
    /// Returns the queue of what a plan removes; `known` has the sandboxes that failed before.
    pub(super) fn new(removals: Vec<Removal>, known: BTreeMap<String, KnownFailure>) -> Self {
        let mut queue = Self {
            known,
            ..Self::default()
        };
        queue.put(removals);
        queue
    }

    /// Says whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.crowds.values().all(|crowd| crowd.waiting.is_empty())
    }

    /// Takes out all that waits, to be looked at anew.
    pub(super) fn take(&mut self) -> Vec<Removal> {
        // Not a copy: of a large node each is megabytes.
        let mut all: Vec<Removal> = std::mem::take(&mut self.fresh).into();
        let crowds = self.crowds.values_mut();
        all.extend(crowds.flat_map(|crowd| crowd.waiting.drain(..)));
        all
    }

    /// Lets removals wait, behind those that do.
    pub(super) fn put(&mut self, mut removals: Vec<Removal>) {
        let known = &self.known;
        let has_failed = |removal: &mut Removal| known.contains_key(removal.subject.id.as_str());
        for removal in removals.extract_if(.., has_failed) {
            if let Some(known) = known.get(removal.subject.id.as_str()) {
                let crowd = self.crowds.entry(known.class).or_default();
                crowd.waiting.push_back(removal);
            }
        }
        if self.fresh.is_empty() {
            self.fresh = removals.into();
        } else {
            self.fresh.extend(removals);
        }
    }

    /// Takes back what was handed out and not tried to its end, before all that waits.
    pub(super) fn give_back(&mut self, removals: Vec<Removal>) {
        for removal in removals.into_iter().rev() {
            match self.known.get(removal.subject.id.as_str()) {
                None => self.fresh.push_front(removal),
                Some(known) => {
                    let crowd = self.crowds.entry(known.class).or_default();
                    if crowd.probe == Probe::Tried(removal.subject.id.to_string()) {
                        crowd.probe = Probe::Wanted;
                    }
                    crowd.waiting.push_front(removal);
                }
            }
        }
    }

    /// Returns what to try next, at most `size`.
    pub(super) fn next(&mut self, size: usize) -> Next {
        if !self.fresh.is_empty() {
            let size = size.min(self.fresh.len());
            return Next::Batch(self.fresh.drain(..size).collect());
        }
        let probes: Vec<Removal> = self.probes(size);
        if !probes.is_empty() {
            return Next::Batch(probes);
        }
        let mut waiting = self.crowds.values_mut();
        let ready = waiting.find(|c| c.probe == Probe::Went && !c.waiting.is_empty());
        if let Some(crowd) = ready {
            let size = size.min(crowd.waiting.len());
            return Next::Batch(crowd.waiting.drain(..size).collect());
        }
        if self.is_empty() {
            Next::Done
        } else {
            Next::Wait
        }
    }

    /// Of each class that needs one, the sandbox that failed least: one that cannot go for a reason
    /// of its own does not speak for the others twice.
    fn probes(&mut self, size: usize) -> Vec<Removal> {
        let known = &self.known;
        let crowds = self.crowds.values_mut();
        let wanted = crowds.filter(|crowd| crowd.probe == Probe::Wanted);
        let probes = wanted.filter_map(|crowd| {
            let failures = |r: &Removal| known.get(r.subject.id.as_str()).map_or(0, |k| k.failures);
            let least = crowd.waiting.iter().enumerate();
            let (index, _) = least.min_by_key(|(_, removal)| failures(removal))?;
            let probe = crowd.waiting.remove(index)?;
            crowd.probe = Probe::Tried(probe.subject.id.to_string());
            Some(probe)
        });
        probes.take(size).collect()
    }

    /// Takes note of how one ended; returns those that stay because of it. An object that stayed, or that
    /// another client removed, says nothing of the others.
    pub(super) fn ended(&mut self, id: &str, outcome: &RemovalOutcome) -> Option<HeldCrowd> {
        let class = self.known.get(id)?.class;
        let crowd = self.crowds.get_mut(&class)?;
        let is_probe = crowd.probe == Probe::Tried(id.to_owned());
        match (outcome, is_probe) {
            (RemovalOutcome::Removed { .. }, true) => crowd.probe = Probe::Went,
            (RemovalOutcome::Removed { .. }, false) => crowd.failures_in_a_row = 0,
            (RemovalOutcome::Failed { .. }, true) => return crowd.hold(class, id),
            (RemovalOutcome::Failed { .. }, false) => {
                crowd.failures_in_a_row += 1;
                if crowd.failures_in_a_row >= CROWD_FAILURES_MAX {
                    return crowd.hold(class, id);
                }
            }
            (RemovalOutcome::AlreadyGone | RemovalOutcome::Skipped { .. }, true) => {
                crowd.probe = Probe::Wanted;
            }
            (RemovalOutcome::AlreadyGone | RemovalOutcome::Skipped { .. }, false)
            // These are given back.
            | (RemovalOutcome::Lost { .. } | RemovalOutcome::NotBegun, _) => {}
        }
        None
    }
}

impl Crowd {
    fn hold(&mut self, class: FailureClass, tried: &str) -> Option<HeldCrowd> {
        let removals: Vec<Removal> = self.waiting.drain(..).collect();
        (!removals.is_empty()).then(|| HeldCrowd {
            class,
            tried: tried.to_owned(),
            removals,
        })
    }
}

#[cfg(test)]
mod tests;
