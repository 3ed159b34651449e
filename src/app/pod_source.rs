//! From the configured source of pod knowledge to the one that is asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::{ApiServer, Config, Kubelet, PodSource};
use crate::pods::{Auto, KUBELET_SOCKETS, Server, Source};

const KUBELET_PORT: u16 = 10250;

/// Returns what is asked for the pods.
pub(super) fn of(config: &Config) -> Source {
    match &config.pods.source {
        PodSource::None => Source::None,
        PodSource::File(path) => Source::File(path.clone()),
        PodSource::KubeletSocket(path) => Source::KubeletSocket {
            paths: sockets(path.as_deref()),
            // An operator who names the socket alone wants no other source to be asked.
            api_server: None,
        },
        PodSource::Kubelet(given) => Source::Kubelet(kubelet(given, &config.node_name)),
        PodSource::ApiServer(given) => Source::ApiServer {
            server: api_server(given),
            node: config.node_name.clone(),
        },
        PodSource::Auto {
            kubelet_socket,
            api_server: given,
        } => Source::Auto(Auto {
            kubelet_sockets: sockets(kubelet_socket.as_deref()),
            api_server: given
                .as_ref()
                .map(|given| (api_server(given), config.node_name.clone())),
        }),
    }
}

/// Returns the configuration's word for a source.
pub(super) fn word(source: &PodSource) -> &'static str {
    match source {
        PodSource::Auto { .. } => "auto",
        PodSource::None => "none",
        PodSource::File(_) => "file",
        PodSource::KubeletSocket(_) => "kubelet-socket",
        PodSource::Kubelet(_) => "kubelet",
        PodSource::ApiServer(_) => "api-server",
    }
}

fn sockets(given: Option<&Path>) -> Vec<PathBuf> {
    match given {
        Some(path) => vec![path.to_owned()],
        None => KUBELET_SOCKETS.map(PathBuf::from).to_vec(),
    }
}

fn api_server(given: &ApiServer) -> Server {
    Server {
        url: given.url.clone(),
        pinned: None,
        token_file: given.token_file.clone(),
        ca_file: given.ca_file.clone(),
    }
}

/// Without a URL the kubelet is asked on this machine, and its certificate must be the node's: no
/// kubelet's certificate has the loopback address in it.
fn kubelet(given: &Kubelet, node: &str) -> Server {
    let (url, pinned) = given.url.clone().map_or_else(
        || {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, KUBELET_PORT));
            let node = node.to_lowercase();
            let url = format!("https://{node}:{KUBELET_PORT}");
            (url, Some((node, address)))
        },
        |url| (url, None),
    );
    Server {
        url,
        pinned,
        token_file: given.token_file.clone(),
        ca_file: given.ca_file.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_url_the_kubelet_here_is_asked_by_the_nodes_name() {
        let server = kubelet(&Kubelet::default(), "Node-1");
        assert_eq!(server.url, "https://node-1:10250");
        let here = "127.0.0.1:10250".parse().unwrap();
        assert_eq!(server.pinned, Some(("node-1".to_owned(), here)));
    }

    #[test]
    fn with_a_url_nothing_is_pinned() {
        let given = Kubelet {
            url: Some("https://10.0.0.7:10250".to_owned()),
            ..Kubelet::default()
        };
        let server = kubelet(&given, "node-1");
        assert_eq!(server.url, "https://10.0.0.7:10250");
        assert_eq!(server.pinned, None);
    }
}
