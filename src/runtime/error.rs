//! Errors of the runtime, by what the caller should do about them.

mod texts;

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, TimeoutExpired};

use super::defect::{Defect, Oversize, ReadError, cause};
use crate::model::FailureClass;
use texts::{
    ABOUT_ONE_OBJECT, BUSY_TEXTS, DOCKER_AWAY_TEXTS, DOCKER_MISSING_TEXT, DOCKER_TIMEOUT_TEXT,
    NETWORK_TEXTS, NOT_INITIALIZED, PLUGIN_TEXTS, QUESTIONS, REMOVING_TEXTS, UNKNOWN_FILTER_TEXT,
};

/// Longest runtime text that an error repeats, in characters.
const WORDS_CHARS_MAX: usize = 1024;

/// Why the runtime could not be asked, or what it refused.
///
/// The text is complete: it names the RPC and has the runtime's text once, so there is no source to print.
/// Cheap to clone, because all callers share one look.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No connection to the socket, or it broke during the call.
    #[error("{method}: no connection to {}: {why}", endpoint.display())]
    Unreachable {
        /// The RPC.
        method: &'static str,
        /// The socket.
        endpoint: Arc<Path>,
        /// The innermost cause.
        why: String,
    },
    /// No answer before our deadline.
    #[error("{method}: no answer within {}", in_milliseconds(*after))]
    Timeout {
        /// The RPC.
        method: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// It has just started and does not serve yet, or Docker behind cri-dockerd is away: wait, do not alarm.
    #[error("{method}: the runtime is not ready: {}", words(status))]
    NotReady {
        /// The RPC.
        method: &'static str,
        /// The answer.
        status: Box<tonic::Status>,
    },
    /// The answer is larger than its sender may send or than we accept.
    #[error("{method}: an answer of {bytes} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// The RPC.
        method: &'static str,
        /// The weight: of a unary list, the whole list; of a streamed one, that message.
        bytes: u64,
        /// The exceeded limit: the server's or `max_message_bytes`.
        limit: u64,
        /// The limit is `max_message_bytes`: other clients may read the answer.
        is_ours: bool,
    },
    /// The runtime answered with an error of its own.
    #[error("{method}: {:?}: {}", status.code(), words(status))]
    Status {
        /// The RPC.
        method: &'static str,
        /// The answer.
        status: Box<tonic::Status>,
    },
    /// The answer violates the interface.
    #[error("{method}: answer not understood: {defect}")]
    Malformed {
        /// The RPC.
        method: &'static str,
        /// The defect.
        defect: Defect,
    },
}

/// Drops the nanoseconds, which the rest of a look's or a scrape's time has.
fn in_milliseconds(after: Duration) -> humantime::FormattedDuration {
    let milliseconds = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(milliseconds))
}

impl Error {
    /// Classifies an error of the gRPC library for a call of `method` with deadline `after`.
    pub(crate) fn from_status(
        method: &'static str,
        endpoint: &Arc<Path>,
        after: Duration,
        status: tonic::Status,
    ) -> Self {
        // Only a failure on our side of the wire has a source; a server's text has none.
        if let Some(&Oversize { bytes, limit }) = cause(&status) {
            return Self::TooLarge {
                method,
                bytes,
                limit,
                is_ours: true,
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
        if let Some(reset) = cause::<h2::Error>(&status).filter(|it| is_broken_off(it)) {
            let defect = Defect::BrokenOff(reset.to_string());
            return Self::Malformed { method, defect };
        }
        if status.source().is_some() {
            return Self::Unreachable {
                method,
                endpoint: Arc::clone(endpoint),
                why: root_cause(&status),
            };
        }
        if let Some((bytes, limit)) = sizes(method, &status) {
            return Self::TooLarge {
                method,
                bytes,
                limit,
                is_ours: false,
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

    /// Says whether the runtime is away or not ready yet, so that waiting helps.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotReady { .. })
    }

    /// Says whether this call alone was broken off.
    pub(super) fn is_broken_off(&self) -> bool {
        let Self::Malformed { defect, .. } = self else {
            return false;
        };
        matches!(defect, Defect::BrokenOff(_))
    }

    /// Says whether time ran out, here or in the runtime.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
            || self.has_code(Code::DeadlineExceeded)
            || (self.has_code(Code::Unknown) && self.says(&[DOCKER_TIMEOUT_TEXT]))
    }

    /// Says whether the streaming itself may have failed, so that a unary list may work: the transport broke,
    /// or the runtime's streaming has a bug or hangs. containerd returns its own errors without a code, which is
    /// UNKNOWN.
    pub(super) fn may_be_the_streams(&self) -> bool {
        const CODES: [Code; 4] = [
            Code::Unavailable,
            Code::Internal,
            Code::Unknown,
            Code::DeadlineExceeded,
        ];
        match self {
            Self::Unreachable { .. }
            | Self::NotReady { .. }
            | Self::Malformed { .. }
            | Self::Timeout { .. } => true,
            Self::TooLarge { .. } => false,
            Self::Status { status, .. } => CODES.contains(&status.code()),
        }
    }

    /// Returns the failure class of a removal that ends with this error.
    pub fn class(&self) -> FailureClass {
        let says = |texts: &[&str]| self.says(texts);
        // A missing plugin is also a failed teardown, and more specific. Then the network: a teardown that
        // times out is a network failure.
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

    /// Says whether the runtime already removes the object for another client.
    pub(crate) fn is_being_removed(&self) -> bool {
        self.says(&REMOVING_TEXTS)
    }

    /// Says whether the runtime answered with one of these texts.
    fn says(&self, texts: &[&str]) -> bool {
        let says = |status: &tonic::Status| texts.iter().any(|it| status.message().contains(it));
        matches!(self, Self::Status { status, .. } if says(status))
    }

    /// Says whether the runtime answered that the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.has_code(Code::NotFound) || self.is_missing_in_docker()
    }

    /// Says whether a question found no container in Docker. A removal's error may name another object, so after it
    /// the caller asks.
    fn is_missing_in_docker(&self) -> bool {
        matches!(self, Self::Status { method, .. } if QUESTIONS.contains(method))
            && self.has_code(Code::Unknown)
            && self.says(&[DOCKER_MISSING_TEXT])
    }

    /// Says whether the runtime cannot list by the state that was asked for.
    pub(super) fn is_unknown_filter(&self) -> bool {
        self.has_code(Code::Unknown) && self.says(&[UNKNOWN_FILTER_TEXT])
    }

    /// Says whether the runtime lacks the RPC.
    pub(crate) fn is_unimplemented(&self) -> bool {
        // grpc-go sends UNIMPLEMENTED with these texts; a proxy may lose the code.
        let says_so = |status: &tonic::Status| {
            let text = status.message();
            text.starts_with("unknown service") || text.starts_with("unknown method")
        };
        self.has_code(Code::Unimplemented)
            || (self.has_code(Code::Unknown)
                && matches!(self, Self::Status { status, .. } if says_so(status)))
    }

    fn has_code(&self, code: Code) -> bool {
        matches!(self, Self::Status { status, .. } if status.code() == code)
    }
}

/// The deadline travels with the request, and both sides watch it. If the server is first, it answers with
/// these texts, but it is our deadline that passed.
fn is_expired(status: &tonic::Status) -> bool {
    let says_so = || status.code() == Code::Cancelled && status.message() == "Timeout expired";
    cause::<TimeoutExpired>(status).is_some() || (status.source().is_none() && says_so())
}

/// Says whether an error ended one call, and not its connection. A refused call was not begun: the runtime goes away.
fn is_broken_off(error: &h2::Error) -> bool {
    error.is_reset() && error.reason() != Some(h2::Reason::REFUSED_STREAM)
}

fn is_not_ready(method: &str, status: &tonic::Status) -> bool {
    status.message().contains(NOT_INITIALIZED)
        || (status.code() == Code::Unavailable && !ABOUT_ONE_OBJECT.contains(&method))
        || is_docker_away(status)
}

/// A network plugin may say the same of its own: that is no word about the runtime.
fn is_docker_away(status: &tonic::Status) -> bool {
    let says = |texts: &[&str]| texts.iter().any(|it| status.message().contains(it));
    status.code() == Code::Unknown && says(&DOCKER_AWAY_TEXTS) && !says(&NETWORK_TEXTS)
}

/// Reads weight and limit from the two texts that servers use: grpc-go's, and tonic's.
fn sizes(method: &str, status: &tonic::Status) -> Option<(u64, u64)> {
    let text = status.message();
    // A proxy, or containerd where a list that it makes itself is too large, hands grpc-go's text on as UNKNOWN.
    let lost_its_code = status.code() == Code::Unknown && !ABOUT_ONE_OBJECT.contains(&method);
    if status.code() == Code::ResourceExhausted || lost_its_code {
        let (_, pair) = text.split_once("larger than max (")?;
        let (bytes, limit) = pair.split_once(" vs. ")?;
        return Some((bytes.parse().ok()?, leading_number(limit)?));
    }
    if status.code() == Code::OutOfRange {
        // A "decoded" message is our request, which was too long for the server.
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

/// Returns the runtime's text, bounded.
fn words(status: &tonic::Status) -> String {
    let text = status.message().trim();
    match text.char_indices().nth(WORDS_CHARS_MAX) {
        Some(_) => text.chars().take(WORDS_CHARS_MAX).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// Returns the innermost cause: "connection refused" says more than "transport error".
fn root_cause(status: &tonic::Status) -> String {
    let last = std::iter::successors(status.source(), |&error| error.source()).last();
    plain(&last.map_or_else(|| status.message().to_owned(), ToString::to_string))
}

/// Rewrites an operating system error in our style: lower case, without the number.
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

#[cfg(test)]
mod tests;
