//! What is kept of a container before it goes: its status in the runtime's words and in plain ones, and facts about
//! its log. Never its environment and never annotations.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{RemoveReason, labelled};

/// The longest message that is kept. The kubelet reads as much of a termination message.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// The longest name, image, path or label that is kept.
pub const TEXT_BYTES_MAX: usize = 1 << 10;
/// The most labels that are kept.
pub const LABELS_MAX: usize = 32;

/// What is kept of one removed container, but for its log's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Its number: each is greater than all before. 0 until it is stored.
    pub number: u64,
    /// When it was collected: right before the removal.
    pub kept_at: Timestamp,
    /// The container's full id.
    pub container_id: String,
    /// The container's name within its pod.
    pub container: String,
    /// Its attempt: the kubelet's restart count.
    pub attempt: u32,
    /// Its pod; `None` if another tool made it.
    pub pod: Option<EvidencePod>,
    /// What controls the pod; `None` if nothing does or the pod source did not list the pod.
    pub owner: Option<PodOwner>,
    /// The pod's labels that `evidence.labels` selects.
    pub labels: BTreeMap<String, String>,
    /// Its image as it was asked for.
    pub image: String,
    /// The image's digest or id, as the runtime says.
    pub image_ref: String,
    /// How it ended, in a sentence.
    pub ending: String,
    /// Its exit code; `None` if it never ran to an end.
    pub exit_code: Option<i32>,
    /// The runtime's word for its end (`Completed`, `Error`, `OOMKilled`).
    pub reason: String,
    /// The runtime's message about its end.
    pub message: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it started; `None` if it never did.
    pub started_at: Option<Timestamp>,
    /// When it exited; `None` if it did not, or if the runtime does not say.
    pub finished_at: Option<Timestamp>,
    /// Why it is removed.
    pub removed_for: RemoveReason,
    /// The pass that removes it.
    pub pass: String,
    /// Its log.
    pub log: EvidenceLog,
}

/// The pod of a removed container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EvidencePod {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What controls a pod, by its owner references.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PodOwner {
    /// `ReplicaSet`, `DaemonSet`, `Job`, ...
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Facts about the kept end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EvidenceLog {
    /// The log's path, as the runtime names it; empty if it has none.
    pub path: String,
    /// Bytes that are kept.
    pub bytes: u64,
    /// They are the whole log: nothing was before them.
    pub is_whole: bool,
    /// How many of them are masked, because they look like a secret.
    pub masked_bytes: u64,
    /// The files that they are from, oldest first.
    pub files: Vec<String>,
    /// Why the log, or what was before the kept bytes, could not be read; empty if all could.
    pub problem: String,
}

impl EvidenceLog {
    /// Returns why nothing of the log is kept, unless the container wrote none.
    pub fn missing(&self) -> Option<&str> {
        match (self.bytes, &*self.problem, self.is_whole) {
            (1.., ..) | (_, "", true) => None,
            (_, "", false) => Some("nothing of it is kept"),
            (_, problem, _) => Some(problem),
        }
    }
}

labelled! {
    /// Why something of a container's evidence could not be kept.
    pub enum EvidenceFailure {
        /// The log exists and cannot be read.
        Log,
        /// The log's disk does not answer.
        LogTimeout,
        /// The database cannot be written, or has no room.
        Database,
    }
}

/// Says in a sentence how a container ended.
pub fn ending(exit_code: Option<i32>, reason: &str) -> String {
    let Some(code) = exit_code else {
        return "never started".to_owned();
    };
    if reason == "OOMKilled" {
        return format!("killed for using too much memory (OOMKilled, exit code {code})");
    }
    match (code, signal(code)) {
        (0, _) => "completed (exit code 0)".to_owned(),
        (code, Some((name, number))) => {
            format!("killed by {name} (signal {number}, exit code {code})")
        }
        (126, _) => "its command could not be executed (exit code 126)".to_owned(),
        (127, _) => "its command was not found (exit code 127)".to_owned(),
        (128, _) => "could not be started (exit code 128)".to_owned(),
        (code, None) => format!("failed (exit code {code})"),
    }
}

/// Returns the signal that an exit code of 128 and more stands for, as shells and runtimes count.
fn signal(exit_code: i32) -> Option<(&'static str, i32)> {
    let number = exit_code.checked_sub(128)?;
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    };
    Some((name, number))
}

/// Cuts a text to at most `bytes_max` bytes, at a character's end.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut ends = (0..=bytes_max.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_a_container_ended() {
        for (code, reason, wanted) in [
            (None, "", "never started"),
            (Some(0), "Completed", "completed (exit code 0)"),
            (Some(1), "Error", "failed (exit code 1)"),
            (
                Some(137),
                "OOMKilled",
                "killed for using too much memory (OOMKilled, exit code 137)",
            ),
            (
                Some(137),
                "Error",
                "killed by SIGKILL (signal 9, exit code 137)",
            ),
            (
                Some(143),
                "",
                "killed by SIGTERM (signal 15, exit code 143)",
            ),
            (
                Some(139),
                "",
                "killed by SIGSEGV (signal 11, exit code 139)",
            ),
            (Some(127), "", "its command was not found (exit code 127)"),
            (
                Some(128),
                "StartError",
                "could not be started (exit code 128)",
            ),
            (Some(255), "Unknown", "failed (exit code 255)"),
            (Some(i32::MIN), "", "failed (exit code -2147483648)"),
        ] {
            assert_eq!(ending(code, reason), wanted);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aéb", 4), "aéb");
        assert_eq!(cut("aéb", 3), "aé");
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("aéb", 0), "");
    }
}
