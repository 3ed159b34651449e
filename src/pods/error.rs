//! Errors of pod sources, with advice. Never contains a token.

use std::error::Error as StdError;

use crate::{kubernetes, telemetry};

/// Why a source returned no pod list: only a text, because no caller tells one reason from another.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// What was attempted, and what to do about the failure.
    what: String,
    #[source]
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(super) fn new(what: String) -> Self {
        Self { what, cause: None }
    }

    pub(super) fn caused(what: String, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let cause = Some(cause.into());
        Self { what, cause }
    }

    /// Returns the text for readers.
    pub(super) fn shown(&self) -> String {
        let text = self.text();
        let cause = self.cause.as_deref();
        match cause.and_then(|it| it.downcast_ref::<kubernetes::Error>()) {
            Some(cause) => cause.hide(text),
            None => text,
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
