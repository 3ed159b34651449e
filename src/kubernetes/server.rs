//! Which API server or kubelet is asked, and where its credentials are.

use std::path::PathBuf;

use super::Error;
use super::kubeconfig::{self, ClusterAccess};
use crate::outgoing::{FILE_MAX_BYTES, Named, SecretSource, TlsConfig, credentials_text};
use crate::system::blocking::BlockingPool;
use crate::system::file;

/// Which API server or kubelet, and what to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServer {
    /// Its URL and files.
    Keys {
        /// What the keys of the configuration that hold these begin with.
        keys: &'static str,
        /// Its URL, without the path of a request.
        url: String,
        /// The file of the token.
        token_file: Option<PathBuf>,
        /// Whom to trust, and the client certificate.
        tls: TlsConfig,
    },
    /// A context of a kubeconfig file.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; `None`: the file's current one.
        context: Option<String>,
    },
}

impl ApiServer {
    /// Returns the API server at `url`, which gets the token of a file.
    pub fn new(url: String, token_file: Option<PathBuf>, tls: TlsConfig) -> Self {
        Self::Keys {
            keys: "pods.api",
            url,
            token_file,
            tls,
        }
    }

    /// Returns the kubelet at `url`, which is asked in the same way.
    pub fn kubelet(url: String, token_file: Option<PathBuf>, tls: TlsConfig) -> Self {
        Self::Keys {
            keys: "pods.kubelet",
            url,
            token_file,
            tls,
        }
    }

    /// Returns the files with which crisweep proves who it is.
    pub fn credentials(&self) -> Vec<Named<'_>> {
        match self {
            Self::Keys {
                token_file, tls, ..
            } => tls.credentials(token_file.as_ref()),
            Self::Kubeconfig { path, .. } => vec![("kubeconfig", path)],
        }
    }

    /// Returns the credentials' description for error messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Kubeconfig { path, .. } => format!("the user of {}", path.display()),
            Self::Keys { .. } => credentials_text(&self.credentials()),
        }
    }

    /// Returns the settings that hold the credentials.
    pub fn credential_keys(&self) -> String {
        match self {
            Self::Keys { keys, .. } => format!("{keys}_token_file, {keys}_cert_file"),
            Self::Kubeconfig { .. } => "pods.api_kubeconfig".to_owned(),
        }
    }

    /// Returns the setting that holds the address.
    pub fn url_key(&self) -> String {
        match self {
            Self::Keys { keys, .. } => format!("{keys}_url"),
            Self::Kubeconfig { .. } => "pods.api_kubeconfig".to_owned(),
        }
    }

    /// Returns where a setting is: in the key of `pods` that ends with `key`, or in a field of the kubeconfig file.
    pub(super) fn look_at(&self, key: &str, field: &str) -> String {
        match self {
            Self::Keys { keys, .. } => format!("{keys}_{key}"),
            Self::Kubeconfig { path, .. } => format!("{field} in {}", path.display()),
        }
    }

    /// Returns the API server's description.
    pub fn place_text(&self) -> String {
        match self {
            Self::Keys { url, .. } => url.clone(),
            Self::Kubeconfig { path, .. } => format!("the server of {}", path.display()),
        }
    }

    /// Returns a request's description for error messages.
    pub fn line(&self, method: &str, path: &str) -> String {
        match self {
            Self::Keys { url, .. } => format!("{method} {}{path}", url.trim_end_matches('/')),
            Self::Kubeconfig { path: file, .. } => {
                format!("{method} {path} from the server of {}", file.display())
            }
        }
    }

    /// Returns the address and where the credentials are.
    pub(super) async fn place(&self, disk: &BlockingPool) -> Result<ClusterAccess, Error> {
        match self {
            Self::Keys {
                url,
                token_file,
                tls,
                ..
            } => {
                let file = |path: &Option<PathBuf>| path.clone().map(SecretSource::File);
                Ok(ClusterAccess {
                    url: url.clone(),
                    ca: file(&tls.ca_file),
                    identity: tls.identity(),
                    token: file(token_file),
                    plugin: None,
                    tls: tls.clone(),
                })
            }
            Self::Kubeconfig { path, context } => {
                let bytes = file::read(disk, path, FILE_MAX_BYTES).await;
                let bytes = bytes.map_err(|error| error.to_string());
                let place = |bytes: Vec<u8>| kubeconfig::place(path, &bytes, context.as_deref());
                bytes.and_then(place).map_err(|problem| {
                    let path = path.display();
                    Error::NoAnswer(format!("{path}: {problem} (pods.api_kubeconfig)"))
                })
            }
        }
    }
}
