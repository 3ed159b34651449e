//! Who may act: no remote client, and no page of another web site. Such a page may not read either.

use std::net::{IpAddr, UdpSocket};

use serde_json::json;

use crate::support::raw::exchange;
use crate::support::{Answer, Rig, nodes};

const ACTS: [(&str, &str); 4] = [
    ("POST", "/gc"),
    ("POST", "/webhook/alertmanager"),
    ("POST", "/-/reload"),
    ("DELETE", "/api/v1/passes/any"),
];

#[tokio::test]
async fn pages_from_elsewhere_may_not_act() {
    let changes = json!({ "web": { "trusted_hosts": ["gc.example"] } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    for (method, path) in ACTS {
        for (header, value) in [
            ("host", "evil.example"),
            ("host", "127.0.0.1.evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:1"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let answer = Answer::of(rig.request(method, path).header(header, value)).await;
            answer.refused(403, "");
            assert!(answer.header("access-control-allow-origin").is_none());
        }
    }
    assert!(rig.passes().await.is_empty());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn pages_from_elsewhere_may_not_read_through_a_port_forward() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let paths = ["/", "/metrics", "/-/healthy", "/api/v1/status", "/nowhere"];
    for path in paths {
        for (header, value) in [
            ("host", "evil.example"),
            ("host", "localhost.evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let answer = Answer::of(rig.request("GET", path).header(header, value)).await;
            answer.refused(403, "");
            assert!(answer.header("access-control-allow-origin").is_none());
        }
        let answer = Answer::of(rig.request("GET", path).header("host", "node-1")).await;
        assert_ne!(answer.status, 403, "{path}");
    }
}

#[tokio::test]
async fn garbled_hosts_may_not_act() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    for head in [
        "POST /gc HTTP/1.1\r\n",
        "POST /gc HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n",
        "POST /gc HTTP/1.1\r\nhost:\r\n",
        "POST /gc HTTP/1.0\r\n",
    ] {
        let request = format!("{head}connection: close\r\ncontent-length: 0\r\n\r\n");
        let (status, body) = exchange(&rig.address, request.as_bytes()).await;
        assert!(status == 403 || status == 400, "{head}: {status} {body}");
    }
    rig.nothing_was_touched();
}

#[tokio::test]
async fn requests_to_the_nodes_own_names_may_act() {
    let changes = json!({ "web": { "trusted_hosts": ["gc.example"] } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    for host in ["localhost", "[::1]:20950", "node-1", "gc.example:443"] {
        let request = rig
            .request("POST", "/gc?dry_run=true")
            .header("host", host)
            .header("origin", format!("https://{host}"))
            .header("sec-fetch-site", "same-origin");
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, 202, "{host}: {}", answer.text);
    }
}

/// The machine's own address, as the kernel would choose it; sends no packet.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[tokio::test]
async fn peers_that_are_not_loopback_may_read_and_not_act() {
    let Some(own) = own_address() else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    let changes = json!({ "web": { "listen": ["0.0.0.0:0"] } });
    let mut rig = Rig::start(nodes::litter(1), changes).await;
    let port = rig.address.rsplit_once(':').unwrap().1.to_owned();
    rig.service.address = format!("{own}:{port}");
    assert_eq!(rig.get("/api/v1/status").await.status, 200);
    let named = rig.request("GET", "/metrics").header("host", "any.example");
    assert_eq!(Answer::of(named).await.status, 200);
    for (method, path) in ACTS {
        Answer::of(rig.request(method, path))
            .await
            .refused(403, "only loopback peers may act");
    }
    rig.service.address = format!("127.0.0.1:{port}");
    assert_eq!(rig.post("/gc?dry_run=true").await.status, 202);
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_proxy_that_names_its_client_is_no_client_on_the_node() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    rig.gc("target=containers").await;
    for (header, value) in [
        ("forwarded", "for=192.0.2.1"),
        ("via", "1.1 proxy"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-real-ip", "192.0.2.1"),
    ] {
        let through = |method, path| Answer::of(rig.request(method, path).header(header, value));
        assert_eq!(through("GET", "/metrics").await.status, 200);
        let log = through("GET", "/api/v1/evidence/1/log").await;
        log.refused(403, "");
        for (method, path) in ACTS {
            through(method, path)
                .await
                .refused(403, "a proxy passed this request on");
        }
    }
    assert_eq!(rig.get("/api/v1/evidence/1/log").await.status, 404);
    assert_eq!(rig.post("/gc?dry_run=true").await.status, 202);
}
