//! Chooses a source by what is there, anew at each look: files and sockets come and go with
//! upgrades. What is there and fails is not passed over: two sources that disagree in turn would
//! be worse than one that is silent.

use std::path::{Path, PathBuf};

use super::{Server, Source};

/// What `auto` chooses from, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auto {
    /// Where the kubelet's pods socket would be.
    pub kubelet_socket: PathBuf,
    /// The API server, if this is a pod or the configuration names it, and the node's name.
    pub api_server: Option<(Server, String)>,
}

impl Auto {
    /// Returns what is there, and why it was chosen.
    pub(super) async fn choose(&self) -> (Source, String) {
        let socket = &self.kubelet_socket;
        if is_socket(socket).await {
            let why = format!("auto: {} is there", socket.display());
            return (Source::KubeletSocket(socket.clone()), why);
        }
        let no_socket = format!("auto: no kubelet socket at {}", socket.display());
        let Some((server, node)) = &self.api_server else {
            let why = format!("{no_socket}, and no API server (KUBERNETES_SERVICE_HOST)");
            return (Source::None, why);
        };
        if let Some(path) = &server.token_file
            && tokio::fs::metadata(path).await.is_err()
        {
            let why = format!("{no_socket}, and no token at {}", path.display());
            return (Source::None, why);
        }
        let (server, node) = (server.clone(), node.clone());
        let why = format!("{no_socket}; the API server is at {}", server.url);
        (Source::ApiServer { server, node }, why)
    }
}

async fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let metadata = tokio::fs::metadata(path).await;
    metadata.is_ok_and(|metadata| metadata.file_type().is_socket())
}
