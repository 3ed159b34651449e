//! Every path and method of the router, and some that it does not know, with every credential, from every kind of
//! peer. The snapshot is the table that `docs/security.md` promises; a new path appears in it by itself.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use axum::http::{Method, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crisweep::access::Scope;
use crisweep::http::{routes, scope};
use serde_json::{Value, json};

use super::token_review::{ApiServer, OPERATOR, OUTSIDER, READER, STRANGER};
use super::web_config::{Files, HASH, TLS};
use super::{ACT_TOKEN, READ_TOKEN, token_files};
use crate::support::ca::Ca;
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
    /// Of the CA that the clients are verified with.
    Certificate(&'static str),
    ForeignCertificate,
}

const ACTOR: &str = "actor.example";

const SHOWN: [(&str, Shown); 6] = [
    ("none", Shown::Nothing),
    ("wrong", Shown::Token("token-of-no-file")),
    ("read", Shown::Token(READ_TOKEN)),
    ("act", Shown::Token(ACT_TOKEN)),
    ("wrong password", Shown::Password("wrong")),
    ("password", Shown::Password("secret")),
];

const SHOWN_CERTIFICATES: [(&str, Shown); 4] = [
    ("none", Shown::Nothing),
    ("of another CA", Shown::ForeignCertificate),
    ("another name", Shown::Certificate("other.example")),
    ("a name that may act", Shown::Certificate(ACTOR)),
];

const SHOWN_ACCOUNTS: [(&str, Shown); 5] = [
    ("none", Shown::Nothing),
    ("of no account", Shown::Token(STRANGER)),
    ("without rights", Shown::Token(OUTSIDER)),
    ("may read", Shown::Token(READER)),
    ("may act", Shown::Token(OPERATOR)),
];

/// The credentials that are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Configured {
    Nothing,
    ActTokens,
    BothTokens,
    Users,
    Certificates,
    Accounts,
}

const CONFIGURED: [Configured; 6] = [
    Configured::Nothing,
    Configured::ActTokens,
    Configured::BothTokens,
    Configured::Users,
    Configured::Certificates,
    Configured::Accounts,
];

impl Configured {
    fn shown(self) -> &'static [(&'static str, Shown)] {
        match self {
            Self::Certificates => &SHOWN_CERTIFICATES,
            Self::Accounts => &SHOWN_ACCOUNTS,
            Self::Nothing | Self::ActTokens | Self::BothTokens | Self::Users => &SHOWN,
        }
    }

    /// Says whether its requests can come so: a unix socket speaks no TLS.
    fn takes(self, from: From) -> bool {
        self != Self::Certificates || from != From::UnixSocket
    }
}

/// What the contract says: the status of a refusal, or `None`.
fn expected(configured: Configured, needs: Option<Scope>, from: From, shown: Shown) -> Option<u16> {
    if from == From::Page {
        return Some(403);
    }
    let needs = needs?;
    let guarded = match needs {
        Scope::Read => matches!(
            configured,
            Configured::BothTokens | Configured::Users | Configured::Accounts
        ),
        Scope::Act => true,
    };
    if !guarded || from == From::UnixSocket {
        return None;
    }
    match (configured, shown) {
        (Configured::Nothing, _) => (from == From::Network).then_some(403),
        (Configured::Certificates, Shown::Certificate(ACTOR))
        | (Configured::Accounts, Shown::Token(OPERATOR))
        | (Configured::Users, Shown::Password("secret")) => None,
        (Configured::Certificates, Shown::Certificate(_))
        | (Configured::Accounts, Shown::Token(OUTSIDER)) => Some(403),
        (Configured::Users, _) => Some(401),
        (_, Shown::Token(ACT_TOKEN)) => None,
        (Configured::Accounts, Shown::Token(READER))
        | (Configured::BothTokens, Shown::Token(READ_TOKEN)) => {
            (needs == Scope::Act).then_some(403)
        }
        (_, _) => Some(401),
    }
}

/// Logs of containers are not open to the network where reading is.
fn stays_on_the_node(configured: Configured, path: &str, from: From, shown: Shown) -> Option<u16> {
    let guards_reading = matches!(
        configured,
        Configured::BothTokens | Configured::Users | Configured::Accounts
    );
    let is_log = path.starts_with("/api/v1/evidence/") && path.ends_with("/log");
    let is_known = matches!(shown, Shown::Certificate(_));
    (is_log && !guards_reading && from == From::Network && !is_known).then_some(403)
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
struct RequestSender {
    /// A client for each thing that is shown: a certificate is its connection's.
    clients: Vec<(Shown, reqwest::Client)>,
    /// The URL without a path.
    url: String,
    from: From,
}

impl RequestSender {
    /// `None`: this machine has no such way to the service.
    fn new(rig: &Rig, configured: Configured, from: From, files: &Files) -> Option<Self> {
        let port = rig.address.rsplit_once(':').unwrap().1;
        let address = match from {
            From::Loopback | From::Page | From::UnixSocket => [127, 0, 0, 1].into(),
            From::Network => crate::http::guard::own_address()?,
        };
        let address = SocketAddr::new(address, port.parse().unwrap());
        let is_secure = configured == Configured::Certificates;
        let url = if is_secure {
            format!("https://localhost:{port}")
        } else {
            format!("http://{address}")
        };
        let foreign = Ca::new();
        let client = |shown| {
            let builder = reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .resolve("localhost", address)
                .no_proxy();
            let builder = match shown {
                _ if !is_secure => builder.tls_certs_only([]),
                Shown::Certificate(name) => files.trusting(builder, Some((&files.ca, name))),
                Shown::ForeignCertificate => files.trusting(builder, Some((&foreign, ACTOR))),
                Shown::Nothing | Shown::Token(_) | Shown::Password(_) => {
                    files.trusting(builder, None)
                }
            };
            let builder = match from {
                From::UnixSocket => builder.unix_socket(files.path("crisweep.sock")),
                From::Loopback | From::Network | From::Page => builder,
            };
            builder.build().unwrap()
        };
        let shown = configured.shown().iter();
        let clients = shown.map(|(_, shown)| (*shown, client(*shown)));
        Some(Self {
            clients: clients.collect(),
            url,
            from,
        })
    }

    /// `None`: the handshake fails.
    async fn send(&self, method: &Method, path: &str, shown: Shown) -> Option<Answer> {
        let path = path.replace("{id}", "none").replace("{*id}", "none");
        let (_, client) = self.clients.iter().find(|(it, _)| *it == shown).unwrap();
        let request = client.request(
            method.as_str().parse().unwrap(),
            format!("{}{path}", self.url),
        );
        if shown == Shown::ForeignCertificate {
            assert!(request.send().await.is_err(), "{method} {path}");
            return None;
        }
        let request = match shown {
            Shown::Nothing | Shown::Certificate(_) | Shown::ForeignCertificate => request,
            Shown::Token(token) => request.bearer_auth(token),
            Shown::Password(password) => request.basic_auth("ops", Some(password)),
        };
        let request = match self.from {
            From::Page => request.header("origin", "http://evil.example"),
            From::Loopback | From::Network | From::UnixSocket => request,
        };
        Some(if path == "/api/v1/events" {
            Self::ask_events(request).await
        } else {
            Answer::of(request).await
        })
    }

    /// An answer of the events' path has no end.
    async fn ask_events(request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = if status == 200 {
            String::new()
        } else {
            response.text().await.unwrap()
        };
        Answer {
            status,
            headers,
            text,
        }
    }
}

async fn settings(configured: Configured, of_web: &Files) -> Value {
    let files = token_files(of_web.path("").as_path());
    let socket = of_web.path("crisweep.sock");
    let listen = ["0.0.0.0:0".to_owned(), format!("unix:{}", socket.display())];
    let (mut web, mut pods) = (json!({ "listen": listen }), json!({}));
    match configured {
        Configured::Nothing => {}
        Configured::ActTokens => web["bearer_token_files"] = json!({ "act": files["act"] }),
        Configured::BothTokens => web["bearer_token_files"] = files,
        Configured::Users => {
            let text = format!("basic_auth_users: {{ops: {HASH}}}");
            fs::write(of_web.path("web.yml"), text).unwrap();
            web["config_file"] = json!(of_web.path("web.yml"));
        }
        Configured::Certificates => {
            let clients = "client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.crt";
            fs::write(of_web.path("web.yml"), format!("{TLS}  {clients}\n")).unwrap();
            web["config_file"] = json!(of_web.path("web.yml"));
            web["act_client_sans"] = json!([ACTOR]);
        }
        Configured::Accounts => {
            web["token_review"] = json!({ "enabled": true });
            pods["api_url"] = json!(ApiServer::start().await.url);
        }
    }
    // A look answers many requests.
    json!({ "web": web, "pods": pods, "collect": { "max_age": "60s" } })
}

async fn rows(configured: Configured, from: From, table: &mut BTreeMap<String, Vec<String>>) {
    let files = Files::new("");
    let (built, options) = (nodes::litter(1).build(), crisweep_sim::Options::default());
    let rig = Rig::unready(built, options, settings(configured, &files).await).await;
    let Some(sender) = RequestSender::new(&rig, configured, from, &files) else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    for (method, path) in requests() {
        let needs = scope(&method, path);
        let mut cells = Vec::new();
        for (name, shown) in configured.shown() {
            let Some(answer) = sender.send(&method, path, *shown).await else {
                cells.push("closed".to_owned());
                continue;
            };
            let refused = Some(answer.status).filter(|status| [401, 403].contains(status));
            let wanted = expected(configured, needs, from, *shown)
                .or_else(|| stays_on_the_node(configured, path, from, *shown));
            let what = format!("{configured:?} {from:?} {method} {path} {name}");
            assert_eq!(refused, wanted, "{what}: {}", answer.text);
            assert!(
                answer.header("access-control-allow-origin").is_none(),
                "{what}"
            );
            let challenged = answer.header("www-authenticate").is_some();
            // No header asks for a certificate.
            let may_challenge = configured != Configured::Certificates;
            assert_eq!(challenged, may_challenge && refused == Some(401), "{what}");
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
    for (from, _) in FROM.into_iter().filter(|(from, _)| configured.takes(*from)) {
        rows(configured, from, &mut table).await;
    }
    let lines = table.iter();
    let lines: Vec<String> = lines
        .map(|(row, cells)| format!("{row} | {}", cells.join(" | ")))
        .collect();
    // Without it the rows of the network are missing.
    crate::http::guard::own_address()?;
    let shown = configured.shown().iter();
    let shown: Vec<&str> = shown.map(|(name, _)| *name).collect();
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
async fn every_path_asks_for_the_same_credential_over_http_2() {
    let files = Files::new(&format!("{TLS}basic_auth_users: {{ops: {HASH}}}\n"));
    let rig = files.start(json!({})).await;
    let ca = fs::read_to_string(files.path("ca.crt")).unwrap();
    for (method, path) in requests() {
        let stream = h2_client::connect(&rig.address, &ca, None, &["h2"]).await;
        let client = h2_client::client(stream, 65_535).await;
        for (name, shown) in SHOWN {
            if path == "/api/v1/events" && shown == Shown::Password("secret") {
                // This answer has no end.
                continue;
            }
            let full = path.replace("{id}", "none").replace("{*id}", "none");
            let uri = format!("https://localhost{full}");
            let request = Request::builder().method(&method).uri(uri);
            let request = match shown {
                Shown::Nothing | Shown::Certificate(_) | Shown::ForeignCertificate => request,
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
