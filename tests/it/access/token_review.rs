//! Tokens that the API server knows: `web.token_review`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{ACT_TOKEN, token_files, with_token};
use crate::support::{Answer, Rig, nodes};

/// Shaped like service accounts'.
const SCRAPER: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzY3JhcGVyIn0.c2lnbg";
pub(super) const OPERATOR: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJvcGVyYXRvciJ9.c2lnbg";
pub(super) const READER: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJyZWFkZXIifQ.c2lnbg";
/// Of an account without rights.
pub(super) const OUTSIDER: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJvdXRzaWRlciJ9.c2lnbg";
/// Of no account.
pub(super) const STRANGER: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzdHJhbmdlciJ9.c2lnbg";

fn authenticate(review: &Value) -> Value {
    let user = |name: &str| json!({ "authenticated": true, "user": { "username": name } });
    let status = match review["spec"]["token"].as_str() {
        Some(SCRAPER) => user("scraper"),
        Some(OPERATOR) => user("operator"),
        Some(READER) => user("reader"),
        Some(OUTSIDER) => user("outsider"),
        _ => json!({ "authenticated": false }),
    };
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status })
}

fn authorize(review: &Value) -> Value {
    let right = &review["spec"]["nonResourceAttributes"];
    let may = match review["spec"]["user"].as_str() {
        // What every account may do by Kubernetes' `system:discovery`.
        Some(_)
            if right["path"]
                .as_str()
                .is_some_and(|it| it.starts_with("/api/")) =>
        {
            true
        }
        Some("scraper") => *right == json!({ "path": "/metrics", "verb": "get" }),
        Some("reader") => right["verb"] == "get" || right["verb"] == "head",
        Some("operator") => true,
        _ => false,
    };
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "status": { "allowed": may } })
}

/// An API server that reviews tokens.
pub(super) struct ApiServer {
    pub(super) url: String,
    is_up: Arc<AtomicBool>,
    /// The rights that it was asked about.
    rights: Arc<Mutex<Vec<Value>>>,
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        let (is_up, rights) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let answer = |status: fn(&Value) -> Value| {
            let (is_up, rights) = (Arc::clone(&is_up), Arc::clone(&rights));
            post(move |Json(review): Json<Value>| async move {
                let right = &review["spec"]["nonResourceAttributes"];
                let rights: &Mutex<Vec<Value>> = &rights;
                rights
                    .lock()
                    .unwrap()
                    .extend(right.is_object().then(|| right.clone()));
                if is_up.load(Ordering::Relaxed) {
                    (StatusCode::CREATED, Json(status(&review)))
                } else {
                    (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({})))
                }
            })
        };
        let router = Router::new()
            .route(
                "/apis/authentication.k8s.io/v1/tokenreviews",
                answer(authenticate),
            )
            .route(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                answer(authorize),
            );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, is_up, rights }
    }
}

#[tokio::test]
async fn an_account_may_do_what_the_api_server_says_and_a_static_token_works_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let api_server = ApiServer::start().await;
    let changes = json!({
        "pods": { "api_url": api_server.url },
        "web": {
            "token_review": { "enabled": true },
            "bearer_token_files": { "act": token_files(dir.path())["act"] },
        },
    });
    let rig = Rig::unready(
        nodes::litter(1).build(),
        crisweep_sim::Options::default(),
        changes,
    )
    .await;
    let ask = async |method: &str, path: &str, token: &str| {
        Answer::of(with_token(&rig, method, path, token)).await
    };
    assert_eq!(ask("GET", "/metrics", SCRAPER).await.status, 200);
    let denied = ask("POST", "/gc?dry_run=true", SCRAPER).await;
    denied.refused(403, "account scraper has no right to post /gc");
    let denied = ask("GET", "/api/v1/plan", SCRAPER).await;
    denied.refused(403, "no right to get /crisweep/api/v1/plan");
    ask("GET", "/metrics", STRANGER)
        .await
        .refused(401, "the bearer token is not known");
    rig.get("/metrics").await.refused(401, "needs a credential");
    let pass = ask("POST", "/gc?dry_run=true&wait=60s", OPERATOR).await;
    let by = json!({ "kind": "account", "name": "operator" });
    assert_eq!(pass.json()["trigger"]["by"], by, "{}", pass.text);
    api_server.is_up.store(false, Ordering::Relaxed);
    let unknown = ask("GET", "/api/v1/plan", OPERATOR).await;
    unknown.refused(503, "the API server cannot review the token");
    assert_eq!(ask("POST", "/gc?dry_run=true", ACT_TOKEN).await.status, 202);
}

#[tokio::test]
async fn an_account_is_reviewed_once_for_each_route_whatever_it_asks_for() {
    let api_server = ApiServer::start().await;
    let changes = json!({
        "pods": { "api_url": api_server.url },
        "web": { "token_review": { "enabled": true } },
    });
    let (built, options) = (nodes::litter(1).build(), crisweep_sim::Options::default());
    let rig = Rig::unready(built, options, changes).await;
    for number in 0..20 {
        for (method, path, status) in [
            ("GET", format!("/nowhere/{number}"), 404),
            ("GET", format!("/api/v1/passes/{number}"), 404),
            ("GET", format!("/api/v1/explain//var/{number}"), 404),
            ("BREW", format!("/{number}"), 404),
            ("BREW", "/gc".to_owned(), 405),
        ] {
            let answer = Answer::of(with_token(&rig, method, &path, OPERATOR)).await;
            assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        }
    }
    let rights = api_server.rights.lock().unwrap();
    let right = |verb: &str, path: &str| json!({ "verb": verb, "path": path });
    assert_eq!(
        *rights,
        [
            right("get", "/crisweep/unknown"),
            right("get", "/crisweep/api/v1/passes/id"),
            right("get", "/crisweep/api/v1/explain/id"),
            right("unknown", "/crisweep/unknown"),
            right("unknown", "/gc"),
        ]
    );
}

#[tokio::test]
async fn without_an_api_server_the_reload_is_refused() {
    let mut rig = Rig::start(nodes::litter(1), json!({})).await;
    rig.configure(&json!({ "web": { "token_review": { "enabled": true } } }));
    let answer = rig.post("/-/reload").await;
    answer.refused(
        400,
        "web.token_review.enabled: is true, but no API server is known: set pods.api_url",
    );
}
