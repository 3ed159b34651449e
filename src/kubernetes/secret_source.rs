//! A secret or a certificate: in a file, or in the kubeconfig file itself.

use std::path::{Path, PathBuf};

use crate::outgoing::{self, Error};
use crate::system::blocking::BlockingPool;

/// Where a secret or a certificate is. Has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum SecretSource {
    /// In a file, which is read at each request.
    File(PathBuf),
    /// In the kubeconfig file itself.
    Inline {
        /// That file.
        path: PathBuf,
        /// Its content.
        bytes: Vec<u8>,
    },
}

impl SecretSource {
    /// Returns the file for error messages.
    pub(super) fn path(&self) -> &PathBuf {
        match self {
            Self::File(path) | Self::Inline { path, .. } => path,
        }
    }

    pub(super) async fn read(&self, disk: &BlockingPool) -> Result<Vec<u8>, Error> {
        match self {
            Self::File(path) => outgoing::read(disk, path).await,
            Self::Inline { bytes, .. } => Ok(bytes.clone()),
        }
    }
}

/// Returns the path of a file that a kubeconfig names; an absolute one stays.
pub(super) fn beside(kubeconfig: &Path, file: &str) -> PathBuf {
    match kubeconfig.parent() {
        Some(dir) => dir.join(file),
        None => file.into(),
    }
}
