//! What can go wrong with a pod source, and what to do about it. Never holds a token.

use std::path::PathBuf;
use std::time::Duration;

use super::{ANSWER_MAX_BYTES, ParseError};

/// Why a source gave no pod list.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that is needed cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// More than any node has, or a file that cannot be what it is said to be.
    #[error("{what} is larger than {max} bytes")]
    TooBig {
        /// The file or the answer.
        what: String,
        /// The bound.
        max: u64,
    },
    /// The answer is no whole pod list.
    #[error("{what}")]
    NotPods {
        /// The file or the answer.
        what: String,
        /// Why.
        #[source]
        source: ParseError,
    },
    /// The file says of itself that it was written later than now.
    #[error("{}: it is dated in the future", .0.display())]
    Ahead(PathBuf),
    /// The file changed under the reader.
    #[error("{}: it was written while it was read", .0.display())]
    Changed(PathBuf),
    /// There is no token in a token file.
    #[error("{} holds no token", .0.display())]
    NoToken(PathBuf),
    /// There is no certificate in a CA file.
    #[error("{} holds no CA certificate in PEM", .0.display())]
    NoCa(PathBuf),
    /// The client for it cannot be made.
    #[error("no TLS client")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer came.
    #[error("GET {url}")]
    Request {
        /// What was asked.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// Another answer than 200 came.
    #[error("GET {url}: {status}: {advice}")]
    Refused {
        /// What was asked.
        url: String,
        /// The answer.
        status: reqwest::StatusCode,
        /// What to do about it.
        advice: String,
    },
    /// The socket is not there, or no process listens.
    #[error("cannot connect to {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kubelet refused the call.
    #[error("ListPods on {}: {advice}", path.display())]
    Call {
        /// The socket.
        path: PathBuf,
        /// What it said, or what to do about it.
        advice: String,
    },
    /// Too slow.
    #[error("{what} gave no answer in {} (runtime.timeout)", humantime::format_duration(*after))]
    Timeout {
        /// Who.
        what: &'static str,
        /// How long it was waited.
        after: Duration,
    },
}

impl Error {
    pub(super) fn too_big(what: impl Into<String>) -> Self {
        Self::TooBig {
            what: what.into(),
            max: ANSWER_MAX_BYTES,
        }
    }

    /// Returns the error with its causes, in one line.
    pub(super) fn text(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let said = error.to_string();
            // Some say their cause themselves.
            if !text.ends_with(&said) {
                text = format!("{text}: {said}");
            }
            cause = error.source();
        }
        if text.contains("CaUsedAsEndEntity") {
            text.push_str(
                ": the server's certificate is its own CA, as `openssl req -x509` makes it. Make it with \
                 `-addext basicConstraints=critical,CA:FALSE`, or let a CA of your own sign it",
            );
        }
        text
    }
}
