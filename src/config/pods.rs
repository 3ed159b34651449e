//! `pods:` - the source of pod knowledge: each key's check, and which keys belong to which source.

use std::path::PathBuf;

use super::given::Given;
use super::parse::{self, must};
use super::reader::Reader;
use super::{ApiServer, Kubelet, NodeHints, PodSource, Pods};

/// Where Kubernetes puts a pod's own service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const WORDS: &[&str] = &[
    "auto",
    "none",
    "kubelet-socket",
    "kubelet",
    "api-server",
    "file",
];

/// Which sources a key is for.
const FOR: &[(&str, &[&str])] = &[
    ("pods.kubelet_socket", &["auto", "kubelet-socket"]),
    ("pods.kubelet_url", &["kubelet"]),
    ("pods.kubelet_token_file", &["kubelet"]),
    ("pods.kubelet_ca_file", &["kubelet"]),
    ("pods.api_url", &["auto", "api-server"]),
    ("pods.api_token_file", &["auto", "api-server"]),
    ("pods.api_ca_file", &["auto", "api-server"]),
    ("pods.file", &["file"]),
];

/// What the keys say, each for itself.
struct Keys {
    kubelet_socket: Option<PathBuf>,
    kubelet: Kubelet,
    api_url: Option<String>,
    api_token_file: Option<PathBuf>,
    api_ca_file: Option<PathBuf>,
    file: Option<PathBuf>,
}

pub(super) fn read(r: &mut Reader, hints: &NodeHints) -> Pods {
    let problems = r.problems.len();
    let word: Option<&'static str> = r.get("pods.source", "auto", |given| {
        let is_it = |word: &&&str| matches!(given, Given::Text(text) if text == **word);
        match WORDS.iter().find(is_it) {
            Some(word) => Ok(Some(*word)),
            None => must(given, &format!("one of {}", WORDS.join(", "))),
        }
    });
    let keys = keys(r);
    // What is wrong by itself needs no second complaint.
    let source = match word {
        Some(word) if r.problems.len() == problems => {
            refuse_strangers(r, word);
            source(r, word, keys, hints)
        }
        Some(_) | None => PodSource::None,
    };
    Pods { source }
}

fn keys(r: &mut Reader) -> Keys {
    let socket = |given: &Given| parse::optional(given, parse::socket_path);
    let path = |given: &Given| parse::optional(given, parse::path);
    let url = |given: &Given| parse::optional(given, parse::secure_url);
    Keys {
        kubelet_socket: r.get("pods.kubelet_socket", Given::Null, socket),
        kubelet: Kubelet {
            url: r.get("pods.kubelet_url", Given::Null, url),
            token_file: r.get("pods.kubelet_token_file", Given::Null, path),
            ca_file: r.get("pods.kubelet_ca_file", Given::Null, path),
        },
        api_url: r.get("pods.api_url", Given::Null, url),
        api_token_file: r.get("pods.api_token_file", Given::Null, path),
        api_ca_file: r.get("pods.api_ca_file", Given::Null, path),
        file: r.get("pods.file", Given::Null, path),
    }
}

fn refuse_strangers(r: &mut Reader, word: &str) {
    for (key, sources) in FOR {
        let is_set = r
            .find(key, &Given::Null)
            .is_some_and(|(given, _)| given != Given::Null);
        if is_set && !sources.contains(&word) {
            let text = format!(
                "is set, but pods.source is {word}; it is for {}",
                sources.join(" and ")
            );
            r.problem(key, text);
        }
    }
}

fn source(r: &mut Reader, word: &str, keys: Keys, hints: &NodeHints) -> PodSource {
    match word {
        "auto" => PodSource::Auto {
            api_server: api_server(&keys, hints),
            kubelet_socket: keys.kubelet_socket,
        },
        "kubelet-socket" => PodSource::KubeletSocket(keys.kubelet_socket),
        "kubelet" => {
            check_kubelet(r, &keys.kubelet);
            PodSource::Kubelet(keys.kubelet)
        }
        "api-server" => api_server(&keys, hints).map_or_else(
            || {
                let text = "is missing, but pods.source is api-server and this is no pod \
                            (KUBERNETES_SERVICE_HOST is not set)";
                r.problem("pods.api_url", text);
                PodSource::None
            },
            PodSource::ApiServer,
        ),
        "file" => keys.file.map_or_else(
            || {
                r.problem("pods.file", "is missing, but pods.source is file");
                PodSource::None
            },
            PodSource::File,
        ),
        _ => PodSource::None,
    }
}

/// A certificate without a trusted signer is refused, also from this machine: a process that
/// listens on the port would say which pods are deleted, and be shown the token.
fn check_kubelet(r: &mut Reader, kubelet: &Kubelet) {
    let is_plain = kubelet.url.as_deref().is_some_and(is_plain);
    match &kubelet.ca_file {
        None if !is_plain => r.problem(
            "pods.kubelet_ca_file",
            "is missing, but pods.source is kubelet and its URL is https: name the CA that the \
             kubelet's serving certificate comes from",
        ),
        Some(_) if is_plain => r.problem(
            "pods.kubelet_ca_file",
            "is set, but pods.kubelet_url is http",
        ),
        None | Some(_) => {}
    }
}

fn api_server(keys: &Keys, hints: &NodeHints) -> Option<ApiServer> {
    let url = keys.api_url.clone().or_else(|| hints.api_url.clone())?;
    let of_account = |name: &str| PathBuf::from(SERVICE_ACCOUNT).join(name);
    if is_plain(&url) {
        // The pod's own token is not shown on a line that any process may read.
        return Some(ApiServer {
            url,
            token_file: keys.api_token_file.clone(),
            ca_file: None,
        });
    }
    let or_accounts = |file: &Option<PathBuf>, name| file.clone().or(Some(of_account(name)));
    Some(ApiServer {
        token_file: or_accounts(&keys.api_token_file, "token"),
        ca_file: or_accounts(&keys.api_ca_file, "ca.crt"),
        url,
    })
}

fn is_plain(url: &str) -> bool {
    url.starts_with("http://")
}

/// Returns the API server that Kubernetes tells a pod of.
pub(super) fn in_cluster(host: Option<String>, port: Option<String>) -> Option<String> {
    let host = host.filter(|host| !host.is_empty())?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let port = port.filter(|port| !port.is_empty());
    Some(format!(
        "https://{host}:{}",
        port.as_deref().unwrap_or("443")
    ))
}
