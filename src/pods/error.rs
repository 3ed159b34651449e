//! Errors of pod sources, with advice. Never contains a token.

use std::path::PathBuf;
use std::time::Duration;

use super::ParseError;
use crate::{kubernetes, telemetry};

/// Why a source returned no pod list.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A required file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The answer is not a complete pod list.
    #[error("{what}")]
    NotPods {
        /// The file or the answer.
        what: String,
        /// The cause.
        #[source]
        source: ParseError,
    },
    /// The file claims a time of writing in the future.
    #[error("{}: it is dated in the future", .0.display())]
    Ahead(PathBuf),
    /// The file changed under the reader.
    #[error("{}: it was written while it was read", .0.display())]
    Changed(PathBuf),
    /// There was no answer.
    #[error("{what}")]
    Request {
        /// The request.
        what: String,
        /// The cause.
        #[source]
        source: kubernetes::Error,
    },
    /// A status other than 200.
    #[error("{what}: {status}: {advice}")]
    Refused {
        /// The request.
        what: String,
        /// The status.
        status: reqwest::StatusCode,
        /// What to do about it.
        advice: String,
    },
    /// The socket does not exist, or no process listens on it.
    #[error("cannot connect to {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kubelet refused the call.
    #[error("ListPods on {}: {advice}", path.display())]
    Call {
        /// The socket.
        path: PathBuf,
        /// The kubelet's text, or what to do about it.
        advice: String,
    },
    /// The source was too slow.
    #[error("{what} gave no answer in {} (runtime.timeout)", humantime::format_duration(*after))]
    Timeout {
        /// The source.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
}

impl Error {
    /// Returns the text for readers.
    pub(super) fn shown(&self) -> String {
        let text = self.text();
        if let Self::Request { source, .. } = self {
            source.hide(text)
        } else {
            text
        }
    }

    /// Returns the error with its causes, in one line, for the log.
    pub(super) fn text(&self) -> String {
        let mut text = telemetry::chain(self);
        if text.contains("CaUsedAsEndEntity") {
            text.push_str(
                ": the server's certificate is its own CA, as `openssl req -x509` makes it. Make it with \
                 `-addext basicConstraints=critical,CA:FALSE`, or let a CA of your own sign it",
            );
        }
        text
    }
}
