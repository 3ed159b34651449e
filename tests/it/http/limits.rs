//! Too large bodies, and too slow clients.

use std::time::{Duration, Instant};

use crisweep::http::BODY_MAX_BYTES;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::support::raw::{connect, exchange, read_to_end, split};
use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

const PATHS: [&str; 2] = ["/gc", "/webhook/alertmanager"];

fn head(path: &str, framing: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{framing}\r\n\r\n")
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_with_413() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let over = BODY_MAX_BYTES + 1;
    for path in PATHS {
        let mut whole = head(path, &format!("content-length: {over}")).into_bytes();
        whole.resize(whole.len() + over, b' ');
        let (status, body) = exchange(&rig.address, &whole).await;
        assert_eq!(status, 413, "{body}");
        assert!(body.contains(&BODY_MAX_BYTES.to_string()), "{body}");

        let mut chunked = head(path, "transfer-encoding: chunked").into_bytes();
        chunked.extend(format!("{over:x}\r\n").bytes());
        chunked.resize(chunked.len() + over, b' ');
        let (status, body) = exchange(&rig.address, &chunked).await;
        assert_eq!(status, 413, "{body}");
    }
    let page = rig.metrics().await;
    page.is("crisweep_alerts_total{result=\"malformed\"}", 2.0);
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_sent() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let over = format!("content-length: {}", BODY_MAX_BYTES + 1);
    for path in PATHS {
        for framing in [&over, &format!("{over}\r\nexpect: 100-continue")] {
            // The body is never sent.
            let (status, body) = exchange(&rig.address, head(path, framing).as_bytes()).await;
            assert_eq!(status, 413, "{framing}: {body}");
        }
    }
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_connection_whose_body_was_not_read_is_announced_as_closing() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let kept = |framing: &str, body: &str| {
        format!("POST /gc?dry_run=true HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n{body}")
    };
    // A client that keeps its connection would send its next request on a connection that the service closes.
    let over = kept(&format!("content-length: {}", BODY_MAX_BYTES + 1), "");
    let answer = read_to_end(connect(&rig.address, over.as_bytes()).await).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    // After a completely read body it is kept, whatever its framing.
    let chunked = kept("transfer-encoding: chunked", "2\r\n{}\r\n0\r\n\r\n");
    let last = kept("content-length: 2\r\nconnection: close", "{}");
    for first in [&kept("content-length: 2", "{}"), &chunked] {
        let both = format!("{first}{last}");
        let answers = read_to_end(connect(&rig.address, both.as_bytes()).await).await;
        assert_eq!(answers.matches("HTTP/1.1 202").count(), 2, "{answers}");
    }
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_read() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let mut body = br#"{"dry_run": true}"#.to_vec();
    body.resize(BODY_MAX_BYTES, b' ');
    let answer = crate::support::Answer::of(rig.request("POST", "/gc").body(body)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
}

#[tokio::test]
async fn slow_clients_hold_back_no_others() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let mut slow = Vec::new();
    for _ in 0..60 {
        slow.push(connect(&rig.address, b"POST /gc HTTP/1.1\r\nhost: loc").await);
        let started = format!("{}{{\"dry", head("/gc", "content-length: 1000"));
        slow.push(connect(&rig.address, started.as_bytes()).await);
    }
    let began = Instant::now();
    for path in ["/-/healthy", "/-/ready", "/metrics", "/api/v1/status"] {
        assert_eq!(rig.get(path).await.status, 200, "{path}");
    }
    assert_eq!(rig.gc("").await["outcome"], "completed");
    // Long before the slow ones timed out.
    assert!(began.elapsed() < Duration::from_secs(9), "{began:?}");
    let (status, body) = split(&read_to_end(slow.pop().unwrap()).await);
    assert_eq!(status, 408, "{body}");
    assert!(body.contains("did not arrive"), "{body}");
}

#[tokio::test]
async fn more_connections_than_are_kept_lock_no_client_out_for_long() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(connect(&rig.address, b"GET /metr").await);
    }
    let began = Instant::now();
    // On its own connection, as a probe uses.
    let probe = b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(exchange(&rig.address, probe).await.0, 200);
    // An idle connection on an idle service may stay longer than that.
    assert!(began.elapsed() < Duration::from_secs(10), "{began:?}");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let long = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "y".repeat(64 << 10)
    );
    let (status, _) = exchange(&rig.address, long.as_bytes()).await;
    assert_eq!(status, 431);
    assert_eq!(rig.get("/-/healthy").await.status, 200);
}

#[tokio::test]
async fn without_descriptors_the_log_stays_short_and_answers_come_back() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let pid = Pid::from_raw(rig.pid().cast_signed());
    let set = |current| {
        let limit = Rlimit {
            current: Some(current),
            maximum: Some(4_096),
        };
        prlimit(pid, Resource::Nofile, limit).unwrap();
    };
    set(1);
    let waiting = connect(&rig.address, b"").await;
    let failed = || rig.logged("a connection could not be accepted").len();
    until_true("the first failure", || failed() > 0).await;
    // Failures go on ten times a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(failed() <= 5, "{}", rig.log_text());
    set(1_024);
    drop(waiting);
    let (status, _) = exchange(
        &rig.address,
        b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(status, 200);
}
