//! Chooses a source by what is there, anew at each look: files and sockets come and go with
//! upgrades. What is there and fails is not passed over: two sources that disagree in turn would
//! be worse than one that is silent.

use std::path::{Path, PathBuf};

use super::kubelet_socket::is_socket;
use super::{Error, Server, Source, file};
use crate::system::blocking::BlockingPool;

/// What `auto` chooses from, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auto {
    /// Where the kubelet's pods socket may be.
    pub kubelet_sockets: Vec<PathBuf>,
    /// The API server, if this is a pod or the configuration names it, and the node's name.
    pub api_server: Option<(Server, String)>,
}

impl Auto {
    /// Returns what is there, and why it was chosen.
    ///
    /// # Errors
    /// If the disk does not answer: then nothing is chosen.
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
        if let Some(path) = &server.token_file
            && !is_there(disk, path).await?
        {
            let why = format!("{no_socket}, and no token at {}", path.display());
            return Ok((Source::None, why));
        }
        let (server, node) = (server.clone(), node.clone());
        let why = format!("{no_socket}; the API server is at {}", server.url);
        Ok((Source::ApiServer { server, node }, why))
    }
}

async fn is_there(disk: &BlockingPool, path: &Path) -> Result<bool, Error> {
    file::within_timeout(disk, path, |path| Ok(std::fs::metadata(path).is_ok())).await
}
