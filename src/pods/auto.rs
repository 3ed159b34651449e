//! Chooses the available source, again at each look, because files and sockets come and go with upgrades. A
//! source that is available but fails is not skipped: alternating between two sources that disagree would be
//! worse than no answer.

use std::path::{Path, PathBuf};

use super::kubelet_socket::is_socket;
use super::{Error, Source, file};
use crate::kubernetes::ApiServer;
use crate::system::blocking::BlockingPool;

/// The choices of `auto`, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auto {
    /// Possible paths of the kubelet's pods socket.
    pub kubelet_sockets: Vec<PathBuf>,
    /// The API server, if this process runs in a pod or the configuration names it, and the node's name.
    pub api_server: Option<(ApiServer, String)>,
}

impl Auto {
    /// Returns the available source, and why it was chosen.
    ///
    /// # Errors
    /// If the disk does not answer; then nothing is chosen.
    pub(super) async fn choose(&self, disk: &BlockingPool) -> Result<(Source, String), Error> {
        for socket in &self.kubelet_sockets {
            if is_socket(disk, socket).await? {
                let why = format!("auto: {} is there", socket.display());
                let paths = vec![socket.clone()];
                let api_server = self.api_server.clone();
                return Ok((Source::KubeletSocket { paths, api_server }, why));
            }
        }
        let sockets = self.kubelet_sockets.iter();
        let sockets: Vec<String> = sockets.map(|path| path.display().to_string()).collect();
        let no_socket = format!("auto: no kubelet socket at {}", sockets.join(" or "));
        let Some((server, node)) = &self.api_server else {
            let why = format!("{no_socket}, and no API server (KUBERNETES_SERVICE_HOST)");
            return Ok((Source::None, why));
        };
        for (what, path) in server.credentials() {
            if !is_there(disk, path).await? {
                let why = format!("{no_socket}, and no {what} at {}", path.display());
                return Ok((Source::None, why));
            }
        }
        let (server, node) = (server.clone(), node.clone());
        let why = format!("{no_socket}; the API server is at {}", server.place_text());
        Ok((Source::ApiServer { server, node }, why))
    }
}

async fn is_there(disk: &BlockingPool, path: &Path) -> Result<bool, Error> {
    file::within_timeout(disk, path, |path| Ok(std::fs::metadata(path).is_ok())).await
}
