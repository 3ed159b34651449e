//! `pods:` - the source of pod knowledge, and which keys each source uses.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::{Auto, KUBELET_SOCKETS, Source};
use crate::kubernetes::ApiServer;
use crate::model::labelled;
use crate::model::setting::{
    AbsolutePath, As, Off, Optional, SocketPath, Time, settings, text_kinds,
};
use crate::outgoing::{TlsConfig, dns_name, is_secure_url};

/// Where Kubernetes mounts a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const KUBELET_PORT: u16 = 10250;

settings! {
    /// `pods:` - the source of pod knowledge, and when it is believed.
    #[derive(Eq)]
    pub struct Config {
        /// Where knowledge of the pods comes from. `auto`: the kubelet's pods socket if it is there, else the API
        /// server if its URL and token are there, else none; crisweep checks each time that it asks.
        pub source: SourceName = SourceName::Auto,
        /// An unknown pod without a sign of life counts as finished when its last container exited longer ago than
        /// this. A `Never` pod that ended while the kubelet was down would run again.
        #[serde(with = "As::<Off<Time>>")]
        pub assume_finished_after: Option<Duration> = None,
        /// The kubelet's pods socket; with `auto` and `kubelet-socket`. `null`:
        /// `/var/lib/kubelet/pods-api/pods-api.sock`, else `/var/lib/kubelet/pods/kubelet.sock`.
        #[serde(with = "As::<Optional<SocketPath>>")]
        pub kubelet_socket: Option<PathBuf> = None,
        /// The kubelet's URL, without `/pods`; with `kubelet`. `null`: port 10250 of 127.0.0.1, with a certificate of
        /// the node's name.
        #[serde(with = "As::<Optional<SecureUrl>>")]
        pub kubelet_url: Option<String> = None,
        /// The token to show the kubelet, read at each request; with `kubelet`. `null`: none.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub kubelet_token_file: Option<PathBuf> = None,
        /// The CA of the kubelet's serving certificate in PEM, read at each request; with `kubelet`, and required when
        /// the URL is https.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub kubelet_ca_file: Option<PathBuf> = None,
        /// The client certificate to show the kubelet, in PEM, read at each request; with `kubelet` and
        /// `kubelet_key_file`. `/var/lib/kubelet/pki/kubelet-client-current.pem` holds both.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub kubelet_cert_file: Option<PathBuf> = None,
        /// The private key of `kubelet_cert_file`, in PEM; may be the same file.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub kubelet_key_file: Option<PathBuf> = None,
        /// The API server's URL; with `auto` and `api-server`. `null`: `KUBERNETES_SERVICE_HOST` and `_PORT`.
        #[serde(with = "As::<Optional<SecureUrl>>")]
        pub api_url: Option<String> = None,
        /// The token to show the API server, read at each request; with `auto` and `api-server`. `null`: the pod's
        /// service account's; over http, and with `api_cert_file`, none.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub api_token_file: Option<PathBuf> = None,
        /// The CA of the API server's certificate in PEM, read at each request; with `auto` and `api-server`. `null`:
        /// the pod's service account's.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub api_ca_file: Option<PathBuf> = None,
        /// The client certificate to show the API server, in PEM, read at each request; with `auto` and `api-server`,
        /// and `api_key_file`.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub api_cert_file: Option<PathBuf> = None,
        /// The private key of `api_cert_file`, in PEM; may be the same file.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub api_key_file: Option<PathBuf> = None,
        /// A kubeconfig file with the API server and its credentials, read at each request; with `auto` and
        /// `api-server`, and without the other `api_` keys. kubeadm's kubelet has `/etc/kubernetes/kubelet.conf`.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub api_kubeconfig: Option<PathBuf> = None,
        /// The context of `api_kubeconfig`. `null`: the file's `current-context`.
        #[serde(with = "As::<Optional<ContextName>>")]
        pub api_context: Option<String> = None,
        /// JSON of the shape that the kubelet's `/pods` has; exactly with `source: file`. Replace it often, by rename:
        /// a pod with anything younger than the file is not taken for deleted.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub file: Option<PathBuf> = None,
        /// How long a source must have answered before crisweep believes it, and the least time between two answers
        /// that lack a pod before the pod counts as deleted. 0: one answer is enough.
        #[serde(with = "As::<Time>")]
        pub settle: Duration = Duration::from_secs(10),
        /// How long crisweep must have seen a pod finished or absent before it removes the pod's newest records: the
        /// kubelet may learn of an exit late, and would run the pod again. While a list is over its limit this time is
        /// never enough.
        #[serde(with = "As::<Time>")]
        pub quiet: Duration = Duration::from_secs(60),
        /// The API server in the pod's environment.
        #[serde(skip)]
        pub in_cluster: Option<String> = None,
    }
}

labelled! {
    /// The source as written in the configuration.
    pub enum SourceName {
        /// The available one: the kubelet's pods socket, else the API server, else none.
        Auto,
        /// No source.
        None,
        /// The kubelet's pods socket.
        KubeletSocket,
        /// The kubelet's `/pods`.
        Kubelet,
        /// The API server.
        ApiServer,
        /// A file.
        File,
    }
}

impl Config {
    /// Checks the keys against each other; calls `refuse` with a key and its problem.
    ///
    /// `with_api_server` are further sources beside which the API server is asked, for other things than pods.
    pub fn validate(&self, with_api_server: &[SourceName], refuse: &mut dyn FnMut(&str, String)) {
        use SourceName::{ApiServer, Auto, File, Kubelet, KubeletSocket};
        let api = [&[Auto, ApiServer], with_api_server].concat();
        let keys = serde_json::to_value(self).unwrap_or_default();
        let keys = keys.as_object().into_iter().flatten();
        for (key, _) in keys.filter(|(_, value)| !value.is_null()) {
            let key = key.as_str();
            let sources = match key {
                "file" => &[File][..],
                "kubelet_socket" => &[Auto, KubeletSocket],
                key if key.starts_with("kubelet_") => &[Kubelet],
                key if key.starts_with("api_") => api.as_slice(),
                _ => continue,
            };
            let is_in_kubeconfig =
                key.starts_with("api_") && !["api_kubeconfig", "api_context"].contains(&key);
            if is_in_kubeconfig && self.api_kubeconfig.is_some() {
                // A second place for one of its parts would silently win or lose.
                let text = "is set, and so is pods.api_kubeconfig, which says the same";
                refuse(&format!("pods.{key}"), text.to_owned());
            }
            if !sources.contains(&self.source) {
                let sources: Vec<_> = sources.iter().map(|source| source.label()).collect();
                let others = if key.starts_with("api_") {
                    ", and where web.token_review, events or fleet ask the API server"
                } else {
                    ""
                };
                let text = format!(
                    "is set, but pods.source is {}; it is for {}{others}",
                    self.source.label(),
                    sources.join(" and ")
                );
                refuse(&format!("pods.{key}"), text);
            }
        }
        if self.source == ApiServer && self.api_server().is_none() {
            let text = "is missing, but pods.source is api-server and this is no pod \
                        (KUBERNETES_SERVICE_HOST is not set)";
            refuse("pods.api_url", text.to_owned());
        }
        if self.api_context.is_some() && self.api_kubeconfig.is_none() {
            let text = "is set, but pods.api_kubeconfig is not";
            refuse("pods.api_context", text.to_owned());
        }
        if self.source == File && self.file.is_none() {
            refuse(
                "pods.file",
                "is missing, but pods.source is file".to_owned(),
            );
        }
        if self.source == Kubelet {
            self.validate_kubelet(refuse);
        }
        for (name, tls, url) in [
            ("kubelet", self.kubelet_tls(), &self.kubelet_url),
            ("api", self.api_tls(), &self.api_url),
        ] {
            tls.validate_pair(&format!("pods.{name}_"), refuse);
            if tls.cert_file.is_some() && url.as_deref().is_some_and(is_plain) {
                let text = format!("is set, but pods.{name}_url is http");
                refuse(&format!("pods.{name}_cert_file"), text);
            }
        }
    }

    /// The kubelet needs a certificate from a trusted signer, even on this machine: otherwise a process that
    /// listens on the port could claim which pods are deleted, and would get the token.
    fn validate_kubelet(&self, refuse: &mut dyn FnMut(&str, String)) {
        let is_plain = self.kubelet_url.as_deref().is_some_and(is_plain);
        let text = match &self.kubelet_ca_file {
            None if !is_plain => {
                "is missing, but pods.source is kubelet and its URL is https: name the CA that the \
                 kubelet's serving certificate comes from"
            }
            Some(_) if is_plain => "is set, but pods.kubelet_url is http",
            None | Some(_) => return,
        };
        refuse("pods.kubelet_ca_file", text.to_owned());
    }

    /// Says whether `other` asks the same source with the same settle time.
    pub fn asks_as(&self, other: &Self) -> bool {
        let only_asked = |config: &Self| Self {
            assume_finished_after: None,
            quiet: Duration::ZERO,
            ..config.clone()
        };
        only_asked(self) == only_asked(other)
    }

    /// Returns the source to ask for the pods of a node.
    pub fn source(&self, node: &str) -> Source {
        match self.source {
            SourceName::None => Source::None,
            SourceName::File => self.file.clone().map_or(Source::None, Source::File),
            SourceName::KubeletSocket => Source::KubeletSocket {
                paths: self.sockets(),
                // An operator who configures the socket wants no other source.
                api_server: None,
            },
            SourceName::Kubelet => Source::Kubelet(self.kubelet(node)),
            SourceName::ApiServer => match self.api_server() {
                Some(server) => Source::ApiServer {
                    server,
                    node: node.to_owned(),
                },
                None => Source::None,
            },
            SourceName::Auto => Source::Auto(Auto {
                kubelet_sockets: self.sockets(),
                api_server: self.api_server().map(|server| (server, node.to_owned())),
            }),
        }
    }

    fn sockets(&self) -> Vec<PathBuf> {
        match &self.kubelet_socket {
            Some(path) => vec![path.clone()],
            None => KUBELET_SOCKETS.map(PathBuf::from).to_vec(),
        }
    }

    /// Without a URL the kubelet on this machine is asked, and its certificate must have the node's name,
    /// because no kubelet certificate has the loopback address.
    fn kubelet(&self, node: &str) -> ApiServer {
        let (url, server_name) = match (&self.kubelet_url, dns_name(node)) {
            (Some(url), _) => (url.clone(), None),
            (None, Some(name)) => {
                let here = Ipv4Addr::LOCALHOST;
                (format!("https://{here}:{KUBELET_PORT}"), Some(name))
            }
            // A node that is named by its address.
            (None, None) => (format!("https://{node}:{KUBELET_PORT}"), None),
        };
        let tls = TlsConfig {
            server_name,
            ..self.kubelet_tls()
        };
        ApiServer::kubelet(url, self.kubelet_token_file.clone(), tls)
    }

    fn kubelet_tls(&self) -> TlsConfig {
        TlsConfig {
            ca_file: self.kubelet_ca_file.clone(),
            cert_file: self.kubelet_cert_file.clone(),
            key_file: self.kubelet_key_file.clone(),
            ..TlsConfig::default()
        }
    }

    /// Returns the API server to ask: the configured one, else that of the pod's environment.
    pub fn api_server(&self) -> Option<ApiServer> {
        if let Some(path) = &self.api_kubeconfig {
            return Some(ApiServer::Kubeconfig {
                path: path.clone(),
                context: self.api_context.clone(),
            });
        }
        let url = self.api_url.clone().or_else(|| self.in_cluster.clone())?;
        if is_plain(&url) {
            // The pod's own token is not sent over plain HTTP, which any process could read.
            return Some(ApiServer::new(
                url,
                self.api_token_file.clone(),
                TlsConfig::default(),
            ));
        }
        let of_account = |name: &str| PathBuf::from(SERVICE_ACCOUNT).join(name);
        let mut tls = self.api_tls();
        tls.ca_file.get_or_insert_with(|| of_account("ca.crt"));
        let mut token = self.api_token_file.clone();
        if tls.cert_file.is_none() {
            token.get_or_insert_with(|| of_account("token"));
        }
        Some(ApiServer::new(url, token, tls))
    }

    fn api_tls(&self) -> TlsConfig {
        TlsConfig {
            ca_file: self.api_ca_file.clone(),
            cert_file: self.api_cert_file.clone(),
            key_file: self.api_key_file.clone(),
            ..TlsConfig::default()
        }
    }
}

fn is_plain(url: &str) -> bool {
    url.starts_with("http://")
}

/// Returns the API server from the two environment variables that Kubernetes sets.
pub fn in_cluster(host: Option<String>, port: Option<String>) -> Option<String> {
    let host = host.filter(|host| !host.is_empty())?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let port = port.filter(|port| !port.is_empty());
    let port = port.as_deref().unwrap_or("443");
    Some(format!("https://{host}:{port}"))
}

text_kinds! {
    /// The name of a context.
    ContextName -> String, "the name of a context",
        |text| (!text.is_empty()).then(|| text.to_owned());

    /// The URL of a server that gets a token: `https`, or `http` to this machine only. A path may follow, nothing
    /// else.
    SecureUrl -> String, "an https:// URL, or http:// to this machine alone, without user, query and fragment", |text| {
        let url = in_brackets(text).unwrap_or_else(|| text.to_owned());
        is_secure_url(&url).then_some(url)
    };
}

/// Puts the IPv6 address of a URL with a port into brackets. A pod's template cannot: `status.hostIP` comes without.
fn in_brackets(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (host, port) = rest.rsplit_once(':')?;
    let address: Ipv6Addr = host.parse().ok()?;
    Some(format!("{scheme}://[{address}]:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::setting::TextKind;

    /// The URL of the kubelet, and the name that its certificate must have.
    fn asked(config: &Config, node: &str) -> (String, Option<String>) {
        match config.kubelet(node) {
            ApiServer::Keys { url, tls, .. } => (url, tls.server_name),
            ApiServer::Kubeconfig { .. } => panic!("no keys"),
        }
    }

    #[test]
    fn without_a_url_the_kubelet_here_is_asked_by_the_nodes_name() {
        let (url, name) = asked(&Config::default(), "Node-1");
        assert_eq!(url, "https://127.0.0.1:10250");
        assert_eq!(name.as_deref(), Some("node-1"));
    }

    #[test]
    fn a_node_that_is_named_by_its_address_is_asked_there() {
        let here = ("https://10.0.0.7:10250".to_owned(), None);
        assert_eq!(asked(&Config::default(), "10.0.0.7"), here);
    }

    #[test]
    fn with_a_url_the_certificate_must_be_for_its_host() {
        let config = Config {
            kubelet_url: Some("https://10.0.0.7:10250".to_owned()),
            ..Config::default()
        };
        let there = ("https://10.0.0.7:10250".to_owned(), None);
        assert_eq!(asked(&config, "node-1"), there);
    }

    #[test]
    fn an_ipv6_address_of_a_host_needs_no_brackets() {
        for (text, url) in [
            ("https://fd00:0:0::7:10250", Some("https://[fd00::7]:10250")),
            ("https://[fd00::7]:10250", Some("https://[fd00::7]:10250")),
            ("http://::1:10255", Some("http://[::1]:10255")),
            ("https://10.0.0.7:10250", Some("https://10.0.0.7:10250")),
            ("http://fd00::7:10255", None),
            ("https://fd00::7", None),
            ("https://fd00::7:10250/a?b", None),
        ] {
            assert_eq!(SecureUrl::read(text).as_deref(), url, "{text}");
        }
    }

    #[test]
    fn a_client_certificate_takes_the_place_of_the_accounts_token() {
        let config = Config {
            api_cert_file: Some("/client.pem".into()),
            api_key_file: Some("/client.pem".into()),
            in_cluster: Some("https://10.0.0.1:443".to_owned()),
            ..Config::default()
        };
        let ApiServer::Keys {
            token_file, tls, ..
        } = config.api_server().unwrap()
        else {
            panic!("no keys");
        };
        assert_eq!(token_file, None);
        let ca = PathBuf::from(SERVICE_ACCOUNT).join("ca.crt");
        assert_eq!(tls.ca_file, Some(ca));
    }
}
