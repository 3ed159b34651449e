//! The journal's records: each is one JSON object on a line, so that `strings` and `jq` can read them without
//! crisweep. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gc::Removal;
use crate::model::{Pass, PastFailure, RemovalOutcome, RemoveReason, Target};

/// The longest record; unbounded fields are cut.
const ENTRY_MAX_BYTES: usize = 16 << 10;
/// Length to which texts from outside are cut in a record that is too long.
const TEXT_MAX: usize = 200;
/// Errors that a too long record keeps.
const ERRORS_MAX: usize = 20;

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    /// A process took the journal over.
    Opened {
        /// Its id.
        pid: u32,
        /// Its version.
        version: String,
    },
    /// A pass begins.
    Begun {
        /// The pass.
        pass: Box<Pass>,
    },
    /// An object is about to be removed.
    Intended {
        /// The pass.
        pass_id: String,
        /// The object.
        #[serde(flatten)]
        object: Box<Object>,
    },
    /// A removal ended.
    Tried {
        /// The pass.
        pass_id: String,
        /// The object's target.
        target: Target,
        /// The object.
        id: String,
        /// The outcome.
        #[serde(flatten)]
        outcome: RemovalOutcome,
        /// How long it took.
        duration_ms: u64,
    },
    /// A pass as it stands after a batch.
    Progress {
        /// The pass.
        pass: Box<Pass>,
    },
    /// A pass is over.
    Ended {
        /// Its report.
        pass: Box<Pass>,
    },
}

/// An object that is about to be removed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Object {
    batch: u64,
    pub(super) target: Target,
    pub(super) id: String,
    name: String,
    pod_uid: Option<String>,
    pod_namespace: Option<String>,
    pod_name: Option<String>,
    attempt: u32,
    created_at: Timestamp,
    reason: RemoveReason,
}

impl Object {
    pub(super) fn new(batch: u64, removal: &Removal) -> Self {
        let subject = &removal.subject;
        let pod = subject.pod.as_ref();
        Self {
            batch,
            target: subject.target,
            id: cut(&subject.id),
            name: cut(&subject.name),
            pod_uid: pod.map(|pod| cut(pod.uid.as_str())),
            pod_namespace: pod.map(|pod| cut(&pod.namespace)),
            pod_name: pod.map(|pod| cut(&pod.name)),
            attempt: subject.attempt,
            created_at: subject.created_at,
            reason: removal.reason,
        }
    }
}

impl Entry {
    pub(super) fn tried(
        pass_id: &str,
        removal: &Removal,
        outcome: RemovalOutcome,
        duration_ms: u64,
    ) -> Self {
        Self::Tried {
            pass_id: pass_id.to_owned(),
            target: removal.subject.target,
            id: cut(&removal.subject.id),
            outcome,
            duration_ms,
        }
    }

    /// A failure from a pass that is no longer stored.
    pub(super) fn failed_before(failure: &PastFailure) -> Self {
        Self::Tried {
            pass_id: String::new(),
            target: Target::Sandboxes,
            id: failure.id.clone(),
            outcome: RemovalOutcome::Failed {
                class: failure.class,
                why: failure.error.clone(),
                at: failure.at,
                failures: Some(failure.failures),
            },
            duration_ms: 0,
        }
    }

    /// Encodes the record; cuts it if it is too long; `None` if that is not enough.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let fits = |bytes: &Vec<u8>| bytes.len() <= ENTRY_MAX_BYTES;
        self.line()
            .filter(fits)
            .or_else(|| self.shortened().line().filter(fits))
    }

    fn line(&self) -> Option<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).ok()?;
        bytes.push(b'\n');
        Some(bytes)
    }

    fn shortened(&self) -> Self {
        let mut entry = self.clone();
        match &mut entry {
            Self::Begun { pass } | Self::Progress { pass } | Self::Ended { pass } => shorten(pass),
            Self::Tried { outcome, .. } => match outcome {
                RemovalOutcome::Skipped { why }
                | RemovalOutcome::Failed { why, .. }
                | RemovalOutcome::Lost { why } => *why = cut(why),
                RemovalOutcome::Removed { .. }
                | RemovalOutcome::AlreadyGone
                | RemovalOutcome::NotBegun => {}
            },
            // Their texts are bounded when they are made, or are our own.
            Self::Opened { .. } | Self::Intended { .. } => {}
        }
        entry
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

fn shorten(pass: &mut Pass) {
    if pass.errors.len() > ERRORS_MAX {
        pass.errors.truncate(ERRORS_MAX);
        pass.errors
            .push("further errors were in the log".to_owned());
    }
    for error in &mut pass.errors {
        *error = cut(error);
    }
    if let Some(alert) = &mut pass.trigger.alert {
        for text in [
            &mut alert.name,
            &mut alert.fingerprint,
            &mut alert.starts_at,
        ] {
            *text = cut(text);
        }
        alert.receiver = alert.receiver.as_deref().map(cut);
    }
    if let Some(by) = &mut pass.trigger.by {
        by.name = cut(&by.name);
    }
}

fn cut(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(TEXT_MAX).collect();
    cut.push_str("...");
    cut
}
