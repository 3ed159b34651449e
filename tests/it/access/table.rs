//! Every path and method of the router, and some that it does not know, with every credential, from every kind of
//! peer. The snapshot is the table that `docs/security.md` promises; a new path appears in it by itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use axum::http::{Method, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crisweep::access::Scope;
use crisweep::http::{routes, scope};
use serde_json::{Value, json};

use super::web_config::{Files, HASH, TLS};
use super::{ACT_TOKEN, READ_TOKEN, token_files};
use crate::support::{Answer, Rig, h2_client, nodes};

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Loopback,
    Network,
    Page,
    /// Of the service's own user.
    UnixSocket,
}

const FROM: [(From, &str); 4] = [
    (From::Loopback, "loopback"),
    (From::Network, "network"),
    (From::Page, "page of another site"),
    (From::UnixSocket, "unix socket"),
];

/// What a request shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    Token(&'static str),
    Password(&'static str),
}

const SHOWN: [(&str, Shown); 6] = [
    ("none", Shown::Nothing),
    ("wrong", Shown::Token("token-of-no-file")),
    ("read", Shown::Token(READ_TOKEN)),
    ("act", Shown::Token(ACT_TOKEN)),
    ("wrong password", Shown::Password("wrong")),
    ("password", Shown::Password("secret")),
];

/// The credentials that are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Configured {
    Nothing,
    ActTokens,
    BothTokens,
    Users,
}

const CONFIGURED: [Configured; 4] = [
    Configured::Nothing,
    Configured::ActTokens,
    Configured::BothTokens,
    Configured::Users,
];

/// What the contract says: the status of a refusal, or `None`.
fn expected(configured: Configured, needs: Option<Scope>, from: From, shown: Shown) -> Option<u16> {
    if from == From::Page {
        return Some(403);
    }
    let needs = needs?;
    let guarded = match needs {
        Scope::Read => matches!(configured, Configured::BothTokens | Configured::Users),
        Scope::Act => true,
    };
    if !guarded || from == From::UnixSocket {
        return None;
    }
    match (configured, shown) {
        (Configured::Nothing, _) => (from == From::Network).then_some(403),
        (Configured::Users, Shown::Password("secret")) => None,
        (Configured::Users, _) => Some(401),
        (_, Shown::Token(ACT_TOKEN)) => None,
        (Configured::BothTokens, Shown::Token(READ_TOKEN)) => (needs == Scope::Act).then_some(403),
        (_, _) => Some(401),
    }
}

fn requests() -> Vec<(Method, &'static str)> {
    let mut requests: Vec<_> = routes()
        .into_iter()
        .map(|it| (it.method, it.path))
        .collect();
    for path in ["/nowhere", "/gc", "/metrics", "/-/healthy"] {
        for method in [
            Method::GET,
            Method::HEAD,
            Method::OPTIONS,
            Method::PUT,
            Method::POST,
        ] {
            requests.push((method, path));
        }
    }
    requests.sort_by_key(|(method, path)| (*path, method.to_string()));
    requests.dedup();
    requests
}

/// Where requests go, and by which client.
struct Asker {
    client: reqwest::Client,
    address: String,
    from: From,
}

impl Asker {
    /// `None`: this machine has no such way to the service.
    fn new(rig: &Rig, from: From, socket: &Path) -> Option<Self> {
        let port = rig.address.rsplit_once(':').unwrap().1;
        let address = match from {
            From::Loopback | From::Page | From::UnixSocket => format!("127.0.0.1:{port}"),
            From::Network => format!("{}:{port}", crate::http::guard::own_address()?),
        };
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        let builder = match from {
            From::UnixSocket => builder.unix_socket(socket),
            From::Loopback | From::Network | From::Page => builder,
        };
        let client = builder.build().unwrap();
        Some(Self {
            client,
            address,
            from,
        })
    }

    async fn ask(&self, method: &Method, path: &str, shown: Shown) -> Answer {
        let path = path.replace("{id}", "none").replace("{*id}", "none");
        let url = format!("http://{}{path}", self.address);
        let request = self.client.request(method.as_str().parse().unwrap(), url);
        let request = match shown {
            Shown::Nothing => request,
            Shown::Token(token) => request.bearer_auth(token),
            Shown::Password(password) => request.basic_auth("ops", Some(password)),
        };
        Answer::of(match self.from {
            From::Page => request.header("origin", "http://evil.example"),
            From::Loopback | From::Network | From::UnixSocket => request,
        })
        .await
    }
}

fn settings(configured: Configured, dir: &Path) -> Value {
    let files = token_files(dir);
    let listen = [
        "0.0.0.0:0".to_owned(),
        format!("unix:{}", socket(dir).display()),
    ];
    let mut web = json!({ "listen": listen });
    match configured {
        Configured::Nothing => {}
        Configured::ActTokens => web["bearer_token_files"] = json!({ "act": files["act"] }),
        Configured::BothTokens => web["bearer_token_files"] = files,
        Configured::Users => {
            let file = dir.join("web.yml");
            fs::write(&file, format!("basic_auth_users: {{ops: {HASH}}}")).unwrap();
            web["config_file"] = json!(file);
        }
    }
    json!({ "web": web })
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("crisweep.sock")
}

async fn rows(configured: Configured, from: From, table: &mut BTreeMap<String, Vec<String>>) {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::start(nodes::litter(1), settings(configured, dir.path())).await;
    let Some(asker) = Asker::new(&rig, from, &socket(dir.path())) else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    for (method, path) in requests() {
        let needs = scope(&method, path);
        let mut cells = Vec::new();
        for (name, shown) in SHOWN {
            let answer = asker.ask(&method, path, shown).await;
            let refused = Some(answer.status).filter(|status| [401, 403].contains(status));
            let wanted = expected(configured, needs, from, shown);
            let what = format!("{configured:?} {from:?} {method} {path} {name}");
            assert_eq!(refused, wanted, "{what}: {}", answer.text);
            assert!(
                answer.header("access-control-allow-origin").is_none(),
                "{what}"
            );
            let challenged = answer.header("www-authenticate").is_some();
            assert_eq!(challenged, refused == Some(401), "{what}");
            assert!(!(300..400).contains(&answer.status), "{what}");
            cells.push(refused.map_or("-".to_owned(), |status| status.to_string()));
        }
        let of = FROM.iter().find(|(it, _)| *it == from).unwrap().1;
        let needs = needs.map_or("nothing", Scope::label);
        let row = format!(
            "{:8} {path:26} needs {needs:7} from {of:20}",
            method.as_str()
        );
        let cells = cells.join(" ");
        table
            .entry(row)
            .or_default()
            .push(format!("{configured:?}: {cells}"));
    }
}

/// The rows of one configuration.
async fn table(configured: Configured) -> Option<String> {
    let mut table = BTreeMap::new();
    for (from, _) in FROM {
        rows(configured, from, &mut table).await;
    }
    let lines = table.iter();
    let lines: Vec<String> = lines
        .map(|(row, cells)| format!("{row} | {}", cells.join(" | ")))
        .collect();
    // Without it the rows of the network are missing.
    crate::http::guard::own_address()?;
    let shown: Vec<&str> = SHOWN.iter().map(|(name, _)| *name).collect();
    Some(format!("shown: {}\n{}", shown.join(", "), lines.join("\n")))
}

#[tokio::test]
async fn every_path_asks_every_peer_for_the_credential_that_it_needs() {
    let mut tables = Vec::new();
    for configured in CONFIGURED {
        tables.extend(table(configured).await);
    }
    if tables.len() == CONFIGURED.len() {
        insta::assert_snapshot!(tables.join("\n\n"));
    }
}

#[tokio::test]
async fn the_table_holds_over_http_2() {
    let files = Files::new(&format!("{TLS}basic_auth_users: {{ops: {HASH}}}\n"));
    let rig = files.start(json!({})).await;
    let ca = fs::read_to_string(files.path("ca.crt")).unwrap();
    for (method, path) in requests() {
        let stream = h2_client::connect(&rig.address, &ca, None, &["h2"]).await;
        let client = h2_client::client(stream, 65_535).await;
        for (name, shown) in SHOWN {
            let full = path.replace("{id}", "none").replace("{*id}", "none");
            let uri = format!("https://localhost{full}");
            let request = Request::builder().method(&method).uri(uri);
            let request = match shown {
                Shown::Nothing => request,
                Shown::Token(token) => request.header("authorization", format!("Bearer {token}")),
                Shown::Password(password) => {
                    let encoded = STANDARD.encode(format!("ops:{password}"));
                    request.header("authorization", format!("Basic {encoded}"))
                }
            };
            let (head, text) = h2_client::ask(&client, request).await;
            let status = head.status.as_u16();
            let refused = Some(status).filter(|status| [401, 403].contains(status));
            let wanted = expected(
                Configured::Users,
                scope(&method, path),
                From::Loopback,
                shown,
            );
            assert_eq!(refused, wanted, "{method} {path} {name}: {text}");
            assert!(method != Method::HEAD || text.is_empty(), "{path}: {text}");
        }
    }
}
