//! A secret or a certificate: in a file, or in the text of another one.

use std::path::PathBuf;

use super::{Error, read};
use crate::system::blocking::BlockingPool;

/// A secret or a certificate, and the file or program that it is from. Has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    /// For error messages.
    pub(crate) from: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Secret {
    /// Returns the text; `what` names it in errors: a token or a password.
    pub(super) fn text(self, what: &'static str) -> Result<String, Error> {
        let text = String::from_utf8(self.bytes).unwrap_or_default();
        let text = Some(text.trim()).filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| Error::lacks(&self.from, what))
    }
}

/// Where a secret or a certificate is. Has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SecretSource {
    /// In a file, which is read at each request.
    File(PathBuf),
    /// It is known already.
    Inline(Secret),
}

impl SecretSource {
    pub(crate) async fn read(&self, disk: &BlockingPool) -> Result<Secret, Error> {
        match self {
            Self::File(path) => read(disk, path).await,
            Self::Inline(secret) => Ok(secret.clone()),
        }
    }
}
