//! Every path and method of the router, and some that it does not know, with every credential, from every kind of
//! peer. The snapshot is the table that `docs/security.md` promises; a new path appears in it by itself.

use std::collections::BTreeMap;

use axum::http::Method;
use crisweep::access::Scope;
use crisweep::http::{routes, scope};
use serde_json::{Value, json};

use super::{ACT_TOKEN, READ_TOKEN, token_files};
use crate::support::{Answer, Rig, nodes};

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Loopback,
    Network,
    Page,
}

const FROM: [(From, &str); 3] = [
    (From::Loopback, "loopback"),
    (From::Network, "network"),
    (From::Page, "page of another site"),
];

const TOKENS: [(&str, Option<&str>); 4] = [
    ("none", None),
    ("wrong", Some("token-that-nobody-has")),
    ("read", Some(READ_TOKEN)),
    ("act", Some(ACT_TOKEN)),
];

/// The credentials that are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Configured {
    Nothing,
    ActTokens,
    BothTokens,
}

const CONFIGURED: [Configured; 3] = [
    Configured::Nothing,
    Configured::ActTokens,
    Configured::BothTokens,
];

/// What the contract says: the status of a refusal, or `None`.
fn expected(
    configured: Configured,
    needs: Option<Scope>,
    from: From,
    token: Option<&str>,
) -> Option<u16> {
    if from == From::Page {
        return Some(403);
    }
    let needs = needs?;
    let guarded = match needs {
        Scope::Read => configured == Configured::BothTokens,
        Scope::Act => true,
    };
    if !guarded {
        return None;
    }
    match (configured, token) {
        (Configured::Nothing, _) => (from == From::Network).then_some(403),
        (_, Some(ACT_TOKEN)) => None,
        (Configured::BothTokens, Some(READ_TOKEN)) => (needs == Scope::Act).then_some(403),
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

async fn ask(rig: &Rig, method: &Method, path: &str, from: From, token: Option<&str>) -> Answer {
    let path = path.replace("{id}", "none").replace("{*id}", "none");
    let mut request = rig.request(method.as_str(), &path);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if from == From::Page {
        request = request.header("origin", "http://evil.example");
    }
    Answer::of(request).await
}

async fn rows(configured: Configured, from: From, table: &mut BTreeMap<String, Vec<String>>) {
    let dir = tempfile::tempdir().unwrap();
    let files = token_files(dir.path());
    let files: Value = match configured {
        Configured::Nothing => json!({}),
        Configured::ActTokens => json!({ "act": files["act"] }),
        Configured::BothTokens => files,
    };
    let changes = json!({ "web": { "listen": ["0.0.0.0:0"], "bearer_token_files": files } });
    let mut rig = Rig::start(nodes::litter(1), changes).await;
    let port = rig.address.rsplit_once(':').unwrap().1.to_owned();
    rig.service.address = match from {
        From::Loopback | From::Page => format!("127.0.0.1:{port}"),
        From::Network => {
            let Some(own) = crate::http::guard::own_address() else {
                println!("skipped: this machine has no address but loopback");
                return;
            };
            format!("{own}:{port}")
        }
    };
    for (method, path) in requests() {
        let needs = scope(&method, path);
        let mut cells = Vec::new();
        for (name, token) in TOKENS {
            let answer = ask(&rig, &method, path, from, token).await;
            let refused = Some(answer.status).filter(|status| [401, 403].contains(status));
            let wanted = expected(configured, needs, from, token);
            let what = format!("{configured:?} {from:?} {method} {path} token {name}");
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
        table
            .entry(row)
            .or_default()
            .push(format!("{configured:?}: {}", cells.join(" ")));
    }
}

#[tokio::test]
async fn every_path_asks_every_peer_for_the_credential_that_it_needs() {
    let mut table = BTreeMap::new();
    for configured in CONFIGURED {
        for (from, _) in FROM {
            rows(configured, from, &mut table).await;
        }
    }
    let lines = table.iter();
    let lines: Vec<String> = lines
        .map(|(row, cells)| format!("{row} | {}", cells.join(" | ")))
        .collect();
    let text = lines.join("\n");
    if crate::http::guard::own_address().is_some() {
        insta::assert_snapshot!(text);
    }
}
