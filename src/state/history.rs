//! The passes stored in a journal. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::entry::Entry;
use super::ring::Records;
use crate::model::{Outcome, Pass, PassState, PastFailure, RemovalOutcome, Target};

/// The most passes taken from a journal; the newest.
const PASSES_MAX: usize = 100;
/// The most failed sandboxes taken from a journal; those with the latest failures.
const FAILURES_MAX: usize = 4096;

/// The passes stored in a journal, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Ended passes.
    pub ended: Vec<Pass>,
    /// Passes whose process ended before them, as far as they are known.
    pub interrupted: Vec<Pass>,
    /// Sandboxes whose removal failed and that have not been seen to go since, with their last failure;
    /// earliest failure first.
    pub failures: Vec<PastFailure>,
}

/// Marks a pass as interrupted by the end of its process.
pub fn interrupt(pass: &mut Pass, now: Timestamp) {
    pass.state = PassState::Done;
    pass.outcome = Some(Outcome::Interrupted);
    pass.finished_at = Some(now);
}

/// A pass as read so far.
struct Track {
    pass: Pass,
    ended: bool,
    /// Removals that were intended and have no recorded end.
    open: BTreeSet<(Target, String)>,
    /// Position of its last record: processes and gaps before it.
    place: (u64, u64),
}

#[derive(Default)]
struct Reader {
    tracks: BTreeMap<String, Track>,
    /// Pass ids in the order of their first record.
    order: Vec<String>,
    /// Position: processes that opened the journal so far, and gaps between records.
    place: (u64, u64),
    failures: Failures,
}

/// Failed sandboxes, each with the number of its last failure.
#[derive(Default)]
struct Failures {
    by_id: BTreeMap<String, (u64, PastFailure)>,
    by_age: BTreeMap<u64, String>,
    next: u64,
}

/// Reads the records.
pub(super) fn read(records: &Records) -> History {
    let mut reader = Reader::default();
    let mut expected = None;
    for (sequence, payload) in records.iter() {
        if expected.is_some_and(|expected| expected != sequence) {
            reader.place.1 += 1;
        }
        expected = sequence.checked_add(1);
        // Skips records of later versions.
        if let Some(entry) = Entry::decode(payload) {
            reader.take(entry);
        }
    }
    reader.history()
}

impl Reader {
    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Opened { .. } => self.place.0 += 1,
            Entry::Begun { pass } | Entry::Progress { pass } => self.put(*pass, false),
            Entry::Ended { pass } => self.put(*pass, true),
            Entry::Intended { pass_id, object } => {
                let place = self.place;
                if let Some(track) = self.tracks.get_mut(&pass_id) {
                    track.open.insert((object.target, object.id));
                    track.place = place;
                }
            }
            Entry::Tried {
                pass_id,
                target,
                id,
                outcome,
                ..
            } => {
                let place = self.place;
                if target == Target::Sandboxes {
                    self.failures.tried(&id, &outcome);
                }
                if let Some(track) = self.tracks.get_mut(&pass_id) {
                    track.tried(target, id, &outcome);
                    track.place = place;
                }
            }
        }
    }

    /// Passes run one at a time: if one runs, earlier passes have ended, unless a new process came in
    /// between. Their ends could not be written, or were lost.
    fn forget_lost_ends(&mut self, runs: &str) {
        let (process, gaps) = self.place;
        self.tracks.retain(|id, track| {
            let cut_off = track.place.0 < process && track.place.1 == gaps;
            track.ended || cut_off || id == runs
        });
    }

    fn put(&mut self, pass: Pass, ended: bool) {
        let id = pass.id.clone();
        // A pass that never began may end while another runs.
        if pass.started_at.is_some() {
            self.forget_lost_ends(&id);
        }
        let mut open = BTreeSet::new();
        match self.tracks.remove(&id) {
            Some(track) if !ended => open = track.open,
            Some(_) => {}
            None => self.order.push(id.clone()),
        }
        let place = self.place;
        let track = Track {
            pass,
            ended,
            open,
            place,
        };
        self.tracks.insert(id, track);
    }

    fn history(mut self) -> History {
        let mut history = History {
            failures: self.failures.in_order(),
            ..History::default()
        };
        for id in self.order {
            match self.tracks.remove(&id) {
                Some(track) if track.ended => history.ended.push(track.pass),
                Some(track) => history.interrupted.push(track.unfinished()),
                None => {}
            }
        }
        for passes in [&mut history.ended, &mut history.interrupted] {
            let surplus = passes.len().saturating_sub(PASSES_MAX);
            passes.drain(..surplus);
        }
        history
    }
}

impl Failures {
    fn tried(&mut self, id: &str, outcome: &RemovalOutcome) {
        let before = match outcome {
            // Neither says whether a removal would succeed.
            RemovalOutcome::Skipped { .. }
            | RemovalOutcome::Lost { .. }
            | RemovalOutcome::NotBegun => return,
            RemovalOutcome::Removed { .. }
            | RemovalOutcome::AlreadyGone
            | RemovalOutcome::Failed { .. } => self.by_id.remove(id),
        };
        if let Some((number, _)) = &before {
            self.by_age.remove(number);
        }
        let RemovalOutcome::Failed {
            class,
            why,
            at,
            failures,
        } = outcome
        else {
            return;
        };
        let before = before.map_or(0, |(_, failure)| failure.failures);
        let failure = PastFailure {
            id: id.to_owned(),
            failures: failures.unwrap_or(before.saturating_add(1)),
            class: *class,
            error: why.clone(),
            at: *at,
        };
        if self.by_id.len() >= FAILURES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_id.remove(&oldest);
        }
        self.by_id.insert(id.to_owned(), (self.next, failure));
        self.by_age.insert(self.next, id.to_owned());
        self.next += 1;
    }

    fn in_order(mut self) -> Vec<PastFailure> {
        let ids = std::mem::take(&mut self.by_age).into_values();
        ids.filter_map(|id| Some(self.by_id.remove(&id)?.1))
            .collect()
    }
}

impl Track {
    fn tried(&mut self, target: Target, id: String, outcome: &RemovalOutcome) {
        if self.ended {
            return;
        }
        if let RemovalOutcome::Lost { .. } = outcome {
            // It stays among the passes without a known end.
            return;
        }
        self.pass
            .targets
            .entry(target)
            .or_default()
            .count(outcome, None);
        self.open.remove(&(target, id));
    }

    fn unfinished(mut self) -> Pass {
        let mut text = "the process ended in mid-pass".to_owned();
        if !self.open.is_empty() {
            text.push_str(&format!(
                "; {} more removals were about to begin or under way, and their results are not \
                 known",
                self.open.len()
            ));
        }
        // After it moved to a new file it is read again.
        if !self
            .pass
            .errors
            .iter()
            .any(|error| error.starts_with("the process ended in mid-pass"))
        {
            self.pass.errors.push(text);
        }
        self.pass
    }
}
