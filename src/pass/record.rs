//! One pass as others see it, from the queue to its end: state, progress lines, and cancellation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::gc::Subject;
use crate::model::{Caller, FURTHER_ERRORS, Pass, Target, Text, escape};

/// Progress lines that are kept for followers; later ones are only counted.
pub const LINES_MAX: usize = 2_000;
/// Errors that are kept in a pass.
pub const ERRORS_MAX: usize = 50;
/// ... those of single objects of one target, so that those of the others and why the pass ended are among them.
const REMOVAL_ERRORS_MAX: usize = 10;

/// A pass and its watchers.
#[derive(Debug)]
pub struct PassRecord {
    /// The pass's id.
    pub id: String,
    pass: watch::Sender<Pass>,
    lines: Mutex<Vec<String>>,
    /// The token that [`Self::cancel`] cancels.
    pub cancelled: CancellationToken,
    cancelled_by: OnceLock<Caller>,
    /// The token that [`Self::hold`] cancels.
    pub held: CancellationToken,
    held_why: OnceLock<String>,
    could_not_look: AtomicBool,
    removal_errors: Mutex<BTreeMap<Target, usize>>,
    /// The removals that have begun and not ended: a person who stops the pass sees them.
    pub in_flight: InFlight,
}

impl PassRecord {
    /// Returns the record of a newly queued pass.
    pub fn new(pass: Pass) -> Self {
        Self {
            id: pass.id.clone(),
            pass: watch::Sender::new(pass),
            lines: Mutex::default(),
            cancelled: CancellationToken::new(),
            cancelled_by: OnceLock::new(),
            held: CancellationToken::new(),
            held_why: OnceLock::new(),
            could_not_look: AtomicBool::new(false),
            removal_errors: Mutex::default(),
            in_flight: InFlight::default(),
        }
    }

    /// Returns a copy of the pass.
    pub fn pass(&self) -> Pass {
        self.pass.borrow().clone()
    }

    /// Reads the pass without a copy.
    pub fn read<T>(&self, question: impl FnOnce(&Pass) -> T) -> T {
        question(&self.pass.borrow())
    }

    /// Changes the pass and wakes watchers.
    pub fn update(&self, change: impl FnOnce(&mut Pass)) {
        self.pass.send_modify(change);
    }

    /// Adds why one object stays, within bounds of its own.
    pub fn removal_error(&self, target: Target, text: String) {
        let count = {
            let mut counts = self.removal_errors.lock();
            let count = counts.entry(target).or_default();
            *count += 1;
            *count
        };
        if count <= REMOVAL_ERRORS_MAX {
            self.error(text);
        } else if count == REMOVAL_ERRORS_MAX + 1 {
            self.update(note_further);
        }
    }

    /// Adds an error, within bounds.
    pub fn error(&self, text: String) {
        self.update(|pass| {
            if pass.errors.len() < ERRORS_MAX {
                pass.errors.push(text);
            } else {
                note_further(pass);
            }
        });
    }

    /// Adds an error unless the pass has it; says whether it was new.
    pub(super) fn error_once(&self, text: String) -> bool {
        let is_new = self.read(|pass| !pass.errors.contains(&text));
        if is_new {
            self.error(text);
        }
        is_new
    }

    /// Takes back an error that no longer holds.
    pub fn retract(&self, text: &str) {
        self.update(|pass| pass.errors.retain(|error| error != text));
    }

    /// Adds a progress line, within bounds, and wakes followers. Line breaks in it are escaped.
    pub fn line(&self, text: String) {
        {
            let mut lines = self.lines.lock();
            match lines.len() {
                LINES_MAX.. => return,
                len if len + 1 == LINES_MAX => lines.push("...".to_owned()),
                _ => lines.push(escape::owned_line(text)),
            }
        }
        self.update(|_| ());
    }

    /// Returns the progress lines from index `from` on.
    pub fn lines_from(&self, from: usize) -> Vec<String> {
        let lines = self.lines.lock();
        lines.get(from..).unwrap_or_default().to_vec()
    }

    /// Returns a receiver that sees every later change.
    pub fn watch(&self) -> watch::Receiver<Pass> {
        self.pass.subscribe()
    }

    /// Asks the pass to stop: it starts nothing more; removals in flight end.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Cancels for a caller, and notes who it was, if known.
    pub fn cancel_for(&self, by: Option<Caller>) {
        if let Some(by) = by {
            // The first caller ended the pass.
            let _later = self.cancelled_by.set(by);
        }
        self.cancel();
    }

    /// Says that the pass was cancelled, and by whom, if known.
    pub fn cancel_words(&self) -> String {
        let by = self.cancelled_by.get();
        by.map_or_else(|| "cancelled".to_owned(), |by| format!("cancelled by {by}"))
    }

    /// Ends the pass because a brake holds it now: it starts nothing more; removals in flight end.
    pub fn hold(&self, why: String) {
        // The first reason ended the pass.
        let _later = self.held_why.set(why);
        self.held.cancel();
    }

    /// Returns the reason of [`Self::hold`].
    pub fn held_why(&self) -> Option<&String> {
        self.held_why.get()
    }

    /// Notes that the pass ended because the node could not be observed.
    pub fn could_not_look(&self) {
        self.could_not_look.store(true, Ordering::Relaxed);
    }

    /// Says whether the pass ended because the node could not be observed.
    pub fn has_not_looked(&self) -> bool {
        self.could_not_look.load(Ordering::Relaxed)
    }
}

/// The removals in flight, oldest first. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<BTreeMap<u64, RemovalInFlight>>>);

/// What is being removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalInFlight {
    /// Its kind.
    pub target: Target,
    /// Its id; a log's path.
    pub id: Text,
    /// Its name with its pod's.
    pub name: String,
}

impl InFlight {
    pub(super) fn begin(&self, number: u64, subject: &Subject) {
        let pod = subject.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let name = match (subject.target, pod.is_empty()) {
            (Target::Containers, false) => format!("{pod}/{}#{}", subject.name, subject.attempt),
            (Target::Sandboxes, false) => format!("{pod}#{}", subject.attempt),
            (_, _) => subject.name.to_string(),
        };
        let removing = RemovalInFlight {
            target: subject.target,
            id: subject.id.clone(),
            name,
        };
        self.0.lock().insert(number, removing);
    }

    pub(super) fn end(&self, number: u64) {
        self.0.lock().remove(&number);
    }

    /// Returns them.
    pub fn list(&self) -> Vec<RemovalInFlight> {
        self.0.lock().values().cloned().collect()
    }
}

fn note_further(pass: &mut Pass) {
    if !pass.errors.iter().any(|error| error == FURTHER_ERRORS) {
        pass.errors.push(FURTHER_ERRORS.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::Cause;

    #[test]
    fn many_failures_of_one_target_leave_room_for_those_of_another() {
        let cause = Cause::Manual.into();
        let pass = Pass::queued("1".into(), cause, Target::ALL, Timestamp::UNIX_EPOCH);
        let record = PassRecord::new(pass);
        for (target, count) in [(Target::Containers, 50), (Target::Sandboxes, 12)] {
            for number in 0..count {
                record.removal_error(target, format!("{target} {number}"));
            }
        }
        assert_eq!(record.pass().last_error(), Some("sandboxes 9"));
        record.error("the end".to_owned());
        let errors = record.pass().errors;
        let of = |target: &str| errors.iter().filter(|it| it.starts_with(target)).count();
        assert_eq!((of("containers"), of("sandboxes")), (10, 10));
        assert_eq!((of(FURTHER_ERRORS), of("the end")), (1, 1));
    }
}
