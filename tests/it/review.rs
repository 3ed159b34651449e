//! Tokens that the API server reviews: who is allowed, what is asked, what is remembered, and that nothing but a
//! clear answer allows anything.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crisweep::access::review::{Review, Reviewed};
use crisweep::kubernetes;
use crisweep::outgoing::TlsConfig;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::ca::{Ca, replace};
use crate::support::kubelet::{Asked, PodServer, Reply};
use crate::support::until;

const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwcm9tZXRoZXVzIn0.c2lnbmF0dXJl";
const NAME: &str = "system:serviceaccount:monitoring:prometheus";
const TOKENS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";

/// An API server that authenticates every token and allows everything, until it is told otherwise.
struct ApiServer {
    server: PodServer,
    review: Review,
    clients: AtomicUsize,
    _files: TempDir,
}

impl ApiServer {
    async fn start() -> Self {
        let (files, ca) = (tempfile::tempdir().unwrap(), Ca::new());
        let file = |name: &str| files.path().join(name);
        ca.write(&file("ca.crt"));
        replace(&file("token"), "own-secret");
        let server = PodServer::secure(&ca, "localhost").await;
        server.expect_token("own-secret");
        let tls = TlsConfig {
            ca_file: Some(file("ca.crt")),
            ..TlsConfig::default()
        };
        let url = format!("https://{}", server.address);
        let started = Self {
            server,
            review: Review::new(kubernetes::ApiServer::new(url, Some(file("token")), tls)),
            clients: AtomicUsize::new(1),
            _files: files,
        };
        started.tokens(&known());
        started.access(&json!({ "allowed": true }));
        started
    }

    /// Sets the status of token reviews.
    fn tokens(&self, status: &Value) {
        let answer = review("authentication.k8s.io/v1", "TokenReview", status);
        self.server.reply_to(TOKENS, answer);
    }

    /// Sets the status of access reviews.
    fn access(&self, status: &Value) {
        let answer = review("authorization.k8s.io/v1", "SubjectAccessReview", status);
        self.server.reply_to(ACCESS, answer);
    }

    async fn metrics(&self, token: &str) -> Reviewed {
        self.metrics_for(0, token).await
    }

    /// The same for another client.
    async fn metrics_for(&self, client: usize, token: &str) -> Reviewed {
        let review = &self.review;
        review
            .allowed(token, address(client), "get", "/metrics")
            .await
    }

    fn asked(&self, line: &str) -> Vec<Asked> {
        let mut asked = self.server.asked();
        asked.retain(|asked| asked.line == line);
        asked
    }

    /// How many token reviews and access reviews it was asked for.
    fn counts(&self) -> (usize, usize) {
        (self.asked(TOKENS).len(), self.asked(ACCESS).len())
    }

    /// Asserts that a token has no clear answer, for this reason. Each time another client asks: one alone would soon
    /// not be reviewed.
    async fn is_unclear(&self, words: &str) {
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        let reviewed = self.metrics_for(client, TOKEN).await;
        let Reviewed::Unavailable(why) = reviewed else {
            panic!("{words}: {reviewed:?}");
        };
        assert!(why.contains(words), "{words:?} not in {why:?}");
    }
}

fn known() -> Value {
    json!({
        "authenticated": true,
        "user": {
            "username": NAME,
            "uid": "4711",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": { "authentication.kubernetes.io/pod-name": ["prometheus-0"] },
        },
        "audiences": ["https://kubernetes.default.svc"],
    })
}

fn review(version: &str, kind: &str, status: &Value) -> Reply {
    let body = json!({
        "apiVersion": version, "kind": kind,
        "metadata": { "creationTimestamp": null, "managedFields": [{}] },
        "spec": { "token": TOKEN },
        "status": status,
    });
    Reply::of("201 Created", "application/json", &body.to_string())
}

fn allowed() -> Reviewed {
    Reviewed::Allowed(NAME.to_owned())
}

fn denied() -> Reviewed {
    Reviewed::Denied(NAME.to_owned())
}

fn address(client: usize) -> IpAddr {
    IpAddr::V4(u32::try_from(client).unwrap().into())
}

/// Returns a token of its own, without a key that would fit.
fn guess(number: usize) -> String {
    format!("{TOKEN}{number:04}")
}

/// Moves the clock. It is not paused during a call, which is another task's work.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn the_api_server_is_asked_as_kube_rbac_proxy_asks() {
    let api_server = ApiServer::start().await;
    let reviewed = api_server
        .review
        .allowed(TOKEN, address(0), "post", "/gc")
        .await;
    assert_eq!(reviewed, allowed());
    let body = |line: &str| -> Value {
        let asked = api_server.asked(line).remove(0);
        assert_eq!(asked.authorization.as_deref(), Some("Bearer own-secret"));
        serde_json::from_str(&asked.body).unwrap()
    };
    assert_eq!(
        body(TOKENS),
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": TOKEN },
        })
    );
    let user = &known()["user"];
    assert_eq!(
        body(ACCESS),
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": NAME,
                "uid": "4711",
                "groups": user["groups"],
                "extra": user["extra"],
                "nonResourceAttributes": { "path": "/gc", "verb": "post" },
            },
        })
    );
}

#[tokio::test]
async fn a_token_that_belongs_to_no_account_is_unauthenticated_and_no_access_is_asked() {
    for status in [
        json!({ "authenticated": false, "error": "invalid bearer token" }),
        json!({ "user": {} }),
        json!({ "error": "token lookup failed", "user": { "username": NAME } }),
    ] {
        let api_server = ApiServer::start().await;
        api_server.tokens(&status);
        assert_eq!(api_server.metrics(TOKEN).await, Reviewed::Unauthenticated);
        assert_eq!(api_server.counts(), (1, 0));
    }
}

#[tokio::test]
async fn only_allowed_true_allows_and_denied_wins() {
    for (status, expected) in [
        (json!({ "allowed": true, "reason": "RBAC" }), allowed()),
        (json!({ "allowed": true, "denied": false }), allowed()),
        (
            json!({ "allowed": true, "evaluationError": "partly" }),
            allowed(),
        ),
        (json!({ "allowed": true, "denied": true }), denied()),
        (json!({ "allowed": false }), denied()),
        (json!({ "evaluationError": "no such role" }), denied()),
        (json!({}), denied()),
    ] {
        let api_server = ApiServer::start().await;
        api_server.access(&status);
        assert_eq!(api_server.metrics(TOKEN).await, expected, "{status}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_clear_allows_nothing_and_is_not_remembered() {
    let api_server = ApiServer::start().await;
    let of = |body: &str| Reply::json(body);
    let bodies = |version: &str, kind: &str| {
        let whole = |status: &str| {
            format!(r#"{{"apiVersion":"{version}","kind":"{kind}","status":{status}}}"#)
        };
        let right = r#"{"authenticated":true,"user":{"username":"x"},"allowed":true}"#;
        vec![
            of("garbage"),
            of(""),
            of("[]"),
            of(&whole(right).replace(kind, "Status")),
            of(&whole(right).replace(version, "v2")),
            of(&whole("null")),
            of(&whole(r#"{"authenticated":"true","allowed":"true"}"#)),
            of(&whole(r#"{"authenticated":1,"allowed":1}"#)),
            of(&whole(&right.replace(
                '{',
                r#"{"allowed":false,"authenticated":false,"#,
            ))),
            Reply::of("200 OK", "text/html", "<html>login</html>"),
        ]
    };
    for (line, version, kind) in [
        (TOKENS, "authentication.k8s.io/v1", "TokenReview"),
        (ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview"),
    ] {
        for body in bodies(version, kind) {
            api_server.server.reply_to(line, body);
            api_server.is_unclear(&format!("is no {kind}")).await;
        }
        api_server.tokens(&known());
    }
    api_server.access(&json!({ "allowed": true }));
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
}

#[tokio::test]
async fn a_user_without_a_name_is_nobody_who_could_be_allowed() {
    let api_server = ApiServer::start().await;
    for status in [
        json!({ "authenticated": true }),
        json!({ "authenticated": true, "user": { "uid": "1" } }),
        json!({ "authenticated": true, "user": { "username": "" } }),
    ] {
        api_server.tokens(&status);
        api_server.is_unclear("without a name").await;
    }
    assert_eq!(api_server.counts().1, 0);
}

#[tokio::test]
async fn a_failing_api_server_allows_nothing_and_the_reason_says_what_to_do() {
    let api_server = ApiServer::start().await;
    let elsewhere = PodServer::plain().await;
    elsewhere.reply(review("authentication.k8s.io/v1", "TokenReview", &known()));
    let to = format!("http://{}/", elsewhere.address);
    for line in [TOKENS, ACCESS] {
        for (reply, words) in [
            (Reply::status("401 Unauthorized"), "pods.api_token_file"),
            (Reply::status("403 Forbidden"), "system:auth-delegator"),
            (Reply::status("404 Not Found"), "that is no API server"),
            (Reply::status("429 Too Many Requests"), "cannot answer"),
            (Reply::status("500 Internal Server Error"), "cannot answer"),
            (Reply::of("204 No Content", "application/json", ""), "204"),
            (Reply::redirect(&to), "redirects are not followed"),
            (Reply::flood(true), "larger than 65536 bytes"),
            (Reply::flood(false), "larger than 65536 bytes"),
            (Reply::cut(&" ".repeat(100)), "no answer"),
        ] {
            api_server.server.reply_to(line, reply);
            api_server.is_unclear(words).await;
        }
        api_server.tokens(&known());
    }
    assert_eq!(elsewhere.asked().len(), 0, "a redirect was followed");
    api_server.access(&json!({ "allowed": true }));
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
}

#[tokio::test]
async fn a_silent_api_server_is_waited_for_a_few_seconds_and_asked_few_questions_at_a_time() {
    let api_server = ApiServer::start().await;
    api_server.server.reply_to(TOKENS, Reply::silence());
    let began = Instant::now();
    let tokens: Vec<String> = (0..40).map(guess).collect();
    let of_each = tokens.iter().enumerate();
    let asking = of_each.map(|(client, token)| api_server.metrics_for(client, token));
    let reviewed = join_all(asking).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let is_unclear = |it: &&Reviewed| matches!(it, Reviewed::Unavailable(_));
    assert_eq!(reviewed.iter().filter(is_unclear).count(), 40);
    let late = Reviewed::Unavailable("the API server gave no answer in 3s".to_owned());
    assert!(reviewed.contains(&late), "{reviewed:?}");
    // On a busy machine one begins when another one has just ended.
    let asked = api_server.counts().0;
    assert!((8..16).contains(&asked), "{asked}");
}

#[tokio::test]
async fn a_flood_of_forgeries_starves_nobody_whose_token_is_known() {
    let api_server = ApiServer::start().await;
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
    api_server.server.reply_to(TOKENS, Reply::silence());
    let forged: Vec<String> = (0..500).map(guess).collect();
    let of_each = forged.iter().enumerate();
    let flood = of_each.map(|(client, token)| api_server.metrics_for(client, token));
    let flood = join_all(flood);
    // Another path needs a question of its own, while the forgeries hold their places.
    let caller = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let began = Instant::now();
        let reviewed = api_server
            .review
            .allowed(TOKEN, address(0), "get", "/api/v1/plan")
            .await;
        assert_eq!(reviewed, allowed());
        assert!(began.elapsed() < Duration::from_secs(2));
    };
    let (reviewed, ()) = tokio::join!(flood, caller);
    let turned_away =
        |it: &&Reviewed| matches!(it, Reviewed::Unavailable(why) if why.contains("unknown tokens"));
    let turned_away = reviewed.iter().filter(turned_away).count();
    // The bucket gains a place each 100 ms; the known token took one.
    assert!((440..=500 - 31).contains(&turned_away), "{turned_away}");
    // 8 at a time; on a busy machine more follow when the first have waited their time.
    let asked = api_server.counts().0;
    assert!((1 + 8..=1 + 16).contains(&asked), "{asked}");
}

#[tokio::test]
async fn a_client_that_guesses_tokens_delays_no_other_clients_first_one() {
    let api_server = ApiServer::start().await;
    api_server.server.reply_to(TOKENS, Reply::silence());
    let forged: Vec<String> = (0..500).map(guess).collect();
    let flood = join_all(forged.iter().map(|token| api_server.metrics(token)));
    let caller = async {
        // The guesses that may be reviewed hang.
        until("the guesses hang", || async {
            (api_server.counts().0 >= 4).then_some(())
        })
        .await;
        api_server.tokens(&known());
        assert_eq!(api_server.metrics_for(1, TOKEN).await, allowed());
        assert_eq!(api_server.counts().0, 4 + 1);
    };
    tokio::join!(flood, caller);
}

#[tokio::test]
async fn a_known_token_whose_review_is_over_is_asked_about_in_spite_of_a_flood() {
    let api_server = ApiServer::start().await;
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
    later(Duration::from_secs(121)).await;
    api_server.tokens(&json!({ "authenticated": false }));
    let forged: Vec<String> = (0..100).map(guess).collect();
    let of_each = forged.iter().enumerate();
    join_all(of_each.map(|(client, token)| api_server.metrics_for(client, token))).await;
    api_server.tokens(&known());
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
    api_server.tokens(&json!({ "authenticated": false }));
    later(Duration::from_secs(121)).await;
    assert_eq!(api_server.metrics(TOKEN).await, Reviewed::Unauthenticated);
}

#[tokio::test]
async fn a_token_that_is_empty_or_longer_than_any_account_has_costs_no_question() {
    let api_server = ApiServer::start().await;
    let longest = "A".repeat(8 * 1024);
    let longer = format!("{longest}A");
    for token in ["", &longer] {
        let reviewed = api_server.metrics(token).await;
        assert_eq!(reviewed, Reviewed::Unauthenticated, "{token}");
    }
    assert_eq!(api_server.server.asked().len(), 0);
    assert_eq!(api_server.metrics(&longest).await, allowed());
}

#[tokio::test]
async fn an_allowed_token_is_remembered_for_two_minutes_for_that_path_and_verb() {
    let api_server = ApiServer::start().await;
    for _ in 0..3 {
        assert_eq!(api_server.metrics(TOKEN).await, allowed());
    }
    assert_eq!(api_server.counts(), (1, 1));
    later(Duration::from_secs(119)).await;
    api_server.tokens(&json!({ "authenticated": false }));
    api_server.access(&json!({ "allowed": false }));
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
    for (verb, path) in [("post", "/metrics"), ("get", "/gc"), ("get", "/metrics/")] {
        let review = &api_server.review;
        let reviewed = review.allowed(TOKEN, address(0), verb, path).await;
        assert_eq!(reviewed, denied(), "{verb} {path}");
    }
    assert_eq!(api_server.counts(), (1, 4));
    later(Duration::from_secs(2)).await;
    assert_eq!(api_server.metrics(TOKEN).await, Reviewed::Unauthenticated);
}

#[tokio::test]
async fn refusals_are_remembered_for_ten_seconds() {
    let api_server = ApiServer::start().await;
    api_server.access(&json!({ "allowed": false }));
    let stranger = guess(1);
    assert_eq!(api_server.metrics(TOKEN).await, denied());
    api_server.tokens(&json!({ "authenticated": false }));
    assert_eq!(
        api_server.metrics(&stranger).await,
        Reviewed::Unauthenticated
    );
    api_server.tokens(&known());
    api_server.access(&json!({ "allowed": true }));
    later(Duration::from_secs(9)).await;
    assert_eq!(api_server.metrics(TOKEN).await, denied());
    assert_eq!(
        api_server.metrics(&stranger).await,
        Reviewed::Unauthenticated
    );
    assert_eq!(api_server.counts(), (2, 1));
    later(Duration::from_secs(2)).await;
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
    assert_eq!(api_server.metrics(&stranger).await, allowed());
}

#[tokio::test]
async fn one_tokens_answer_is_never_anothers() {
    let api_server = ApiServer::start().await;
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
    api_server.tokens(&json!({ "authenticated": false }));
    assert_eq!(
        api_server.metrics(&guess(1)).await,
        Reviewed::Unauthenticated
    );
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
}

#[tokio::test]
async fn requests_with_one_token_at_a_time_share_its_review() {
    let api_server = Arc::new(ApiServer::start().await);
    let paths = ["/metrics", "/api/v1/plan"];
    let all = (0..40).map(|number| {
        let api_server = Arc::clone(&api_server);
        async move {
            let path = paths[number % paths.len()];
            let review = &api_server.review;
            review.allowed(TOKEN, address(0), "get", path).await
        }
    });
    assert_eq!(join_all(all).await, vec![allowed(); 40]);
    assert_eq!(api_server.counts(), (1, 2));
}

#[tokio::test]
async fn an_api_server_that_comes_back_is_asked_at_once() {
    let api_server = ApiServer::start().await;
    api_server
        .server
        .reply_to(TOKENS, Reply::status("503 Service Unavailable"));
    let all = join_all((0..5).map(|_| api_server.metrics(TOKEN))).await;
    assert!(all.iter().all(|it| matches!(it, Reviewed::Unavailable(_))));
    assert_eq!(api_server.counts(), (1, 0), "a failure is shared too");
    api_server.tokens(&known());
    assert_eq!(api_server.metrics(TOKEN).await, allowed());
}

#[tokio::test]
async fn no_text_shows_a_token() {
    let api_server = ApiServer::start().await;
    api_server
        .server
        .reply_to(TOKENS, Reply::json(&json!({ "status": TOKEN }).to_string()));
    let reviewed = api_server.metrics(TOKEN).await;
    let shown = format!("{reviewed:?} {:?}", api_server.review);
    assert!(
        !shown.contains("eyJ") && !shown.contains("secret"),
        "{shown}"
    );
}
