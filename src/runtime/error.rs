//! How a runtime fails, told apart by what a caller would do about it.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, TimeoutExpired};

use super::defect::{Defect, Oversize, ReadError, cause};
use crate::model::FailureClass;

/// Longest text of the runtime that an error repeats, in characters.
const WORDS_CHARS_MAX: usize = 1024;

/// What containerd 1.6 and 1.7 (as UNKNOWN) and 2.x (as UNAVAILABLE) say for a moment after they
/// start, to Version too.
const NOT_INITIALIZED: &str = "server is not initialized yet";

/// RPCs about one object. For them UNAVAILABLE can mean that something behind that object is down
/// (its shim, a proxy snapshotter), not the runtime.
const ABOUT_ONE_OBJECT: [&str; 7] = [
    "ContainerStatus",
    "PodSandboxStatus",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
    "RemoveImage",
];

/// What a failed teardown of a sandbox's network looks like.
const NETWORK_TEXTS: [&str; 2] = ["failed to destroy network", "failed to teardown network"];

/// What it looks like where there is no plugin at all: the CNI library's text for a program that is
/// not there, containerd's and CRI-O's for a configuration that is not.
const PLUGIN_TEXTS: [&str; 3] = [
    "failed to find plugin",
    "cni plugin not initialized",
    "CNI configuration file in",
];

/// What a runtime says while it removes the object already, for another client.
const REMOVING_TEXTS: [&str; 4] = [
    "already in removing state",
    "is in removing state",
    "is being removed",
    "is already in progress",
];

/// What a runtime says while another holds the object.
const BUSY_TEXTS: [&str; 3] = ["in starting state", "is in use", "device or resource busy"];

/// Why the runtime could not be asked, or what it refused.
///
/// The text is whole: it names the RPC and repeats the runtime's words once, so there is no source
/// to print after it. It is cheap to clone: one look at the node is shared by all who ask.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No connection to the socket, or it broke during the call.
    #[error("{method}: no connection to {}: {why}", endpoint.display())]
    Unreachable {
        /// The RPC.
        method: &'static str,
        /// The socket.
        endpoint: Arc<Path>,
        /// The cause at the bottom.
        why: String,
    },
    /// No answer before our deadline.
    #[error("{method}: no answer within {}", humantime::format_duration(*after))]
    Timeout {
        /// The RPC.
        method: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// It has just been started and does not serve yet: a restart, not an alarm.
    #[error("{method}: the runtime is not ready: {}", words(status))]
    NotReady {
        /// The RPC.
        method: &'static str,
        /// What came back.
        status: Box<tonic::Status>,
    },
    /// The answer is bigger than its sender may send or than we take.
    #[error("{method}: an answer of {bytes} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// The RPC.
        method: &'static str,
        /// What the message weighs: of a unary list, all of it; of a streamed one, that message.
        bytes: u64,
        /// The limit that it passed: the server's or `max_message_bytes`.
        limit: u64,
    },
    /// The runtime answered with an error of its own.
    #[error("{method}: {}: {}", code_label(status.code()), words(status))]
    Status {
        /// The RPC.
        method: &'static str,
        /// What came back.
        status: Box<tonic::Status>,
    },
    /// The answer is not what the interface says it should be.
    #[error("{method}: answer not understood: {defect}")]
    Malformed {
        /// The RPC.
        method: &'static str,
        /// What is wrong with it.
        defect: Defect,
    },
}

impl Error {
    /// Sorts what the gRPC library reports about a call of `method` with deadline `after`.
    pub(crate) fn from_status(
        method: &'static str,
        endpoint: &Arc<Path>,
        after: Duration,
        status: tonic::Status,
    ) -> Self {
        // Only what failed on our side of the wire has a source; a server's words have none.
        if let Some(&Oversize { bytes, limit }) = cause(&status) {
            return Self::TooLarge {
                method,
                bytes,
                limit,
            };
        }
        if let Some(defect) = cause::<Defect>(&status).cloned() {
            return Self::Malformed { method, defect };
        }
        if let Some(error) = cause::<prost::DecodeError>(&status).cloned() {
            let defect = ReadError::from(error).into();
            return Self::Malformed { method, defect };
        }
        if is_expired(&status) {
            return Self::Timeout { method, after };
        }
        if status.source().is_some() {
            return Self::Unreachable {
                method,
                endpoint: Arc::clone(endpoint),
                why: root_cause(&status),
            };
        }
        if let Some((bytes, limit)) = sizes(&status) {
            return Self::TooLarge {
                method,
                bytes,
                limit,
            };
        }
        if is_not_ready(method, &status) {
            return Self::NotReady {
                method,
                status: Box::new(status),
            };
        }
        Self::Status {
            method,
            status: Box::new(status),
        }
    }

    /// Returns the kind of error as metrics and logs write it: one of a closed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::NotReady { .. } => "not-ready",
            Self::TooLarge { .. } => "too-large",
            Self::Status { status, .. } => code_label(status.code()),
            Self::Malformed { .. } => "malformed",
        }
    }

    /// Says whether the runtime went away or is not ready yet: worth waiting for.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotReady { .. })
    }

    /// Says whether time ran out, here or at the runtime.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Status { status, .. } => status.code() == Code::DeadlineExceeded,
            Self::Unreachable { .. }
            | Self::NotReady { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => false,
        }
    }

    /// Says whether this may have ended a stream for the stream's own sake, so that the same list may come in one
    /// answer: what carries the stream broke, or the runtime's streaming has a bug. containerd writes errors of
    /// its own without a code, which is UNKNOWN.
    pub(super) fn may_be_the_streams(&self) -> bool {
        const CODES: [Code; 3] = [Code::Unavailable, Code::Internal, Code::Unknown];
        match self {
            Self::Unreachable { .. } | Self::NotReady { .. } | Self::Malformed { .. } => true,
            Self::Timeout { .. } | Self::TooLarge { .. } => false,
            Self::Status { status, .. } => CODES.contains(&status.code()),
        }
    }

    /// Returns the class of failure that this is when a removal ends with it.
    pub fn class(&self) -> FailureClass {
        let says = |texts: &[&str]| self.says(texts);
        // The missing plugin is a failed teardown too, and says more. Then the network: a teardown that
        // runs out of time is the network's fault.
        if says(&PLUGIN_TEXTS) {
            FailureClass::PluginMissing
        } else if says(&NETWORK_TEXTS) {
            FailureClass::NetworkTeardown
        } else if says(&REMOVING_TEXTS) || says(&BUSY_TEXTS) {
            FailureClass::Busy
        } else if self.is_timeout() {
            FailureClass::Timeout
        } else {
            FailureClass::Other
        }
    }

    /// Says whether the runtime already removes the object, for another client.
    pub(crate) fn is_being_removed(&self) -> bool {
        self.says(&REMOVING_TEXTS)
    }

    /// Says whether the runtime answered with one of these texts.
    fn says(&self, texts: &[&str]) -> bool {
        match self {
            Self::Status { status, .. } => texts.iter().any(|text| status.message().contains(text)),
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::NotReady { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => false,
        }
    }

    /// Says whether the runtime answered that there is no such object.
    pub(crate) fn is_not_found(&self) -> bool {
        self.has_code(Code::NotFound)
    }

    /// Says whether the runtime does not have the RPC.
    pub(crate) fn is_unimplemented(&self) -> bool {
        // grpc-go sends UNIMPLEMENTED with these texts; a proxy in between may lose the code.
        let says_so = |status: &tonic::Status| {
            let text = status.message();
            text.starts_with("unknown service") || text.starts_with("unknown method")
        };
        match self {
            Self::Status { status, .. } => {
                status.code() == Code::Unimplemented
                    || (status.code() == Code::Unknown && says_so(status))
            }
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::NotReady { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => false,
        }
    }

    fn has_code(&self, code: Code) -> bool {
        matches!(self, Self::Status { status, .. } if status.code() == code)
    }
}

/// The deadline also travels with the request, and the library watches it on both ends: the side that is
/// first, it is our deadline that passed. A server that is made with it says so in these words.
fn is_expired(status: &tonic::Status) -> bool {
    let says_so = || status.code() == Code::Cancelled && status.message() == "Timeout expired";
    cause::<TimeoutExpired>(status).is_some() || (status.source().is_none() && says_so())
}

fn is_not_ready(method: &str, status: &tonic::Status) -> bool {
    status.message().contains(NOT_INITIALIZED)
        || (status.code() == Code::Unavailable && !ABOUT_ONE_OBJECT.contains(&method))
}

/// Reads "it would weigh so much, the limit is so much" from the two texts in which servers say it: those
/// made with Go's library, and those made with the one that we use.
fn sizes(status: &tonic::Status) -> Option<(u64, u64)> {
    let text = status.message();
    if status.code() == Code::ResourceExhausted {
        let (_, pair) = text.split_once("larger than max (")?;
        let (bytes, limit) = pair.split_once(" vs. ")?;
        return Some((bytes.parse().ok()?, leading_number(limit)?));
    }
    if status.code() == Code::OutOfRange {
        // A "decoded" one is our question, which was too long for the server.
        let (_, rest) = text.split_once("encoded message length too large: found ")?;
        let (bytes, limit) = rest.split_once(" bytes, the limit is: ")?;
        return Some((bytes.parse().ok()?, leading_number(limit)?));
    }
    None
}

fn leading_number(text: &str) -> Option<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Returns the runtime's own words, bounded.
fn words(status: &tonic::Status) -> String {
    let text = status.message().trim();
    match text.char_indices().nth(WORDS_CHARS_MAX) {
        Some(_) => text.chars().take(WORDS_CHARS_MAX).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// Returns the innermost cause: "connection refused" says more than "transport error".
fn root_cause(status: &tonic::Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    plain(&text)
}

/// Rewrites an operating system's error text the way ours are: lower case, without the number.
pub(crate) fn plain(text: &str) -> String {
    let text = text.split(" (os error").next().unwrap_or(text);
    if text.eq_ignore_ascii_case("permission denied") {
        return "permission denied: run crisweep as root, or in the group that owns the socket"
            .to_owned();
    }
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().chain(letters).collect())
        .unwrap_or_default()
}

fn code_label(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid-argument",
        Code::DeadlineExceeded => "deadline-exceeded",
        Code::NotFound => "not-found",
        Code::AlreadyExists => "already-exists",
        Code::PermissionDenied => "permission-denied",
        Code::ResourceExhausted => "resource-exhausted",
        Code::FailedPrecondition => "failed-precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out-of-range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data-loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

#[cfg(test)]
mod tests;
