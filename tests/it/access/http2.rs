//! HTTP/2 over TLS: who may do what on its streams, and clients that attack it. What takes time is tested beside
//! `http::serve::http2`, where the clock can be moved.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use axum::http::request::Builder;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::web_config::{Files, HASH, TLS};
use crate::support::h2_client::{
    CONTINUATION, END_STREAM_AND_HEADERS, GOAWAY, HEADERS, PREFACE, RST_STREAM, ask, attack,
    client, connect, frame, get,
};
use crate::support::{Rig, until};

const WINDOW: u32 = 65_535;
const H2: &[&str] = &["h2", "http/1.1"];
/// What an attack may add to the memory.
const GROWTH_MAX_KIB: u64 = 32 << 10;

async fn stream(files: &Files, rig: &Rig, own: Option<&str>) -> TlsStream<TcpStream> {
    let ca = fs::read_to_string(files.path("ca.crt")).unwrap();
    let stream = connect(&rig.address, &ca, own, H2).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    stream
}

fn request(method: Method, path: &str) -> Builder {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
}

async fn is_well(files: &Files, rig: &Rig) {
    let client = client(stream(files, rig, None).await, WINDOW).await;
    for path in ["/-/healthy", "/-/ready", "/metrics"] {
        let (head, text) = ask(&client, request(Method::GET, path)).await;
        assert_eq!(head.status, 200, "{path}: {text}");
    }
}

#[tokio::test]
async fn curl_speaks_http_2_unless_the_web_configuration_file_forbids_it() {
    for (line, version) in [("", "2"), ("http_server_config: {http2: false}\n", "1.1")] {
        let files = Files::new(&format!("{TLS}{line}"));
        let rig = files.start(json!({})).await;
        let port = rig.address.rsplit_once(':').unwrap().1;
        let curl = async |arguments: &[&str], path: &str| {
            let output = tokio::process::Command::new("curl")
                .args([
                    "--http2",
                    "-sS",
                    "--max-time",
                    "60",
                    "--noproxy",
                    "*",
                    "--cacert",
                ])
                .arg(files.path("ca.crt"))
                .args(["-o", "/dev/null", "-w", "%{http_version} %{http_code}"])
                .args(arguments)
                .arg(format!("https://localhost:{port}{path}"))
                .stdin(Stdio::null())
                .output()
                .await
                .expect("curl is installed");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?} {path}: {error}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(curl(&[], "/metrics").await, format!("{version} 200"));
        assert_eq!(curl(&["-I"], "/metrics").await, format!("{version} 200"));
        assert_eq!(curl(&[], "/nowhere").await, format!("{version} 404"));
        let follow = "/gc?dry_run=true&follow=true";
        assert_eq!(
            curl(&["-X", "POST"], follow).await,
            format!("{version} 200")
        );
        let long = "x".repeat(2 << 20);
        fs::write(files.path("long"), long).unwrap();
        let data = format!("@{}", files.path("long").display());
        assert_eq!(
            curl(&["--data-binary", &data], "/gc").await,
            format!("{version} 413")
        );
    }
}

#[tokio::test]
async fn each_stream_is_judged_by_its_target_its_host_and_its_credential() {
    let files = Files::new(&format!("{TLS}basic_auth_users: {{ops: {HASH}}}\n"));
    let rig = files.start(json!({})).await;
    let client = client(stream(&files, &rig, None).await, WINDOW).await;
    let status = async |request: Builder| ask(&client, request).await.0.status.as_u16();
    let post = |uri: &str| Request::post(format!("https://{uri}/gc?dry_run=true"));
    let good = ("authorization", "Basic b3BzOnNlY3JldA==");
    let wrong = ("authorization", "Basic b3BzOndyb25n");
    for (request, expected) in [
        (post("localhost"), 401),
        (post("localhost").header(wrong.0, wrong.1), 401),
        (post("localhost").header(good.0, good.1), 202),
        // A credential of another stream counts for nothing.
        (post("localhost"), 401),
        (post("evil.example").header(good.0, good.1), 403),
        (
            post("localhost")
                .header(good.0, good.1)
                .header("host", "evil.example"),
            403,
        ),
        (
            post("evil.example")
                .header(good.0, good.1)
                .header("host", "localhost"),
            403,
        ),
        (
            post("localhost")
                .header(good.0, good.1)
                .header("host", "localhost"),
            202,
        ),
        (
            post("localhost")
                .header(good.0, good.1)
                .header("origin", "https://evil.example"),
            403,
        ),
        (
            post("localhost")
                .header(good.0, good.1)
                .header("origin", "https://localhost"),
            202,
        ),
        (request(Method::GET, "/metrics"), 401),
        (request(Method::GET, "/-/healthy"), 200),
        (Request::get("https://evil.example/-/healthy"), 403),
    ] {
        let shown = format!("{request:?}");
        assert_eq!(status(request).await, expected, "{shown}");
    }
    let connect = Request::connect("localhost:1").header(good.0, good.1);
    assert!((400..500).contains(&status(connect).await));
}

#[tokio::test]
async fn a_client_certificate_is_the_caller_of_each_stream() {
    let web = format!(
        "{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.crt\n  client_allowed_sans: [am.example]\n"
    );
    let files = Files::new(&web);
    let rig = files.start(json!({})).await;
    let pem = files.path("own.pem");
    files.ca.sign("am.example").write(&pem, &pem);
    let own = fs::read_to_string(pem).unwrap();
    let with = client(stream(&files, &rig, Some(&own)).await, WINDOW).await;
    let without = client(stream(&files, &rig, None).await, WINDOW).await;
    let act = || request(Method::POST, "/gc?dry_run=true&wait=60s");
    let ((head, text), (other, _)) = tokio::join!(ask(&with, act()), ask(&with, act()));
    assert_eq!(
        (head.status.as_u16(), other.status.as_u16()),
        (200, 200),
        "{text}"
    );
    let pass: Value = serde_json::from_str(&text).unwrap();
    let by = json!({ "kind": "certificate", "name": "am.example" });
    assert_eq!(pass["trigger"]["by"], by);
    assert_eq!(ask(&without, act()).await.0.status, 401);
}

#[tokio::test]
async fn a_change_of_the_file_ends_an_open_connection_after_its_next_answer() {
    let files = Files::new(TLS);
    let rig = files.start(json!({})).await;
    let old = client(stream(&files, &rig, None).await, WINDOW).await;
    assert_eq!(
        ask(&old, request(Method::GET, "/-/healthy")).await.0.status,
        200
    );
    fs::write(
        files.path("web.yml"),
        format!("{TLS}basic_auth_users: {{ops: {HASH}}}\n"),
    )
    .unwrap();
    let message = "the web configuration file or its certificates were read again";
    until("the file is read again", || async {
        (!rig.logged(message).is_empty()).then_some(())
    })
    .await;
    let (head, _) = ask(&old, request(Method::GET, "/metrics")).await;
    assert_eq!(head.status, 401);
    assert!(!head.headers.contains_key("connection"));
    until("the connection takes no further request", || async {
        old.clone().ready().await.is_err().then_some(())
    })
    .await;
}

#[tokio::test]
async fn attacks_end_their_connection_and_cost_little() {
    let files = Files::new(TLS);
    let rig = files.start(json!({})).await;
    is_well(&files, &rig).await;
    let before = rig.anonymous_kib();
    let with_preface = |frames: Vec<u8>| [PREFACE, &frames].concat();
    let streams = |count: u32| (0..count).map(|number| 2 * number + 1);

    // A header block without an end: 64 MiB.
    let junk = [0x40, 1, b'x', 1, b'y'].repeat(3_000);
    let mut flood = frame(HEADERS, 0, 1, &get("/metrics"));
    for _ in 0..4_400 {
        flood.extend(frame(CONTINUATION, 0, 1, &junk));
    }
    let frames = attack(stream(&files, &rig, None).await, with_preface(flood)).await;
    assert!(
        frames.iter().any(|(kind, _)| *kind == GOAWAY),
        "{}",
        frames.len()
    );

    // Frames that carry nothing.
    let mut flood = frame(HEADERS, 0, 1, &get("/metrics"));
    flood.extend(frame(CONTINUATION, 0, 1, b"").repeat(100_000));
    attack(stream(&files, &rig, None).await, with_preface(flood)).await;

    // Requests that are given up at once.
    let reset: Vec<u8> = streams(20_000)
        .flat_map(|id| {
            let mut both = frame(HEADERS, END_STREAM_AND_HEADERS, id, &get("/api/v1/plan"));
            both.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
            both
        })
        .collect();
    let frames = attack(stream(&files, &rig, None).await, with_preface(reset)).await;
    assert!(
        frames.iter().any(|(kind, _)| *kind == GOAWAY),
        "{}",
        frames.len()
    );

    // More requests at a time than the service told that it takes: a closed window keeps each open.
    let closed = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let many =
        streams(1_000).flat_map(|id| frame(HEADERS, END_STREAM_AND_HEADERS, id, &get("/metrics")));
    let many = with_preface(closed.into_iter().chain(many).collect());
    let frames = attack(stream(&files, &rig, None).await, many).await;
    let refused =
        |(kind, payload): &&(u8, Vec<u8>)| *kind == RST_STREAM && payload == &7_u32.to_be_bytes();
    let refused = frames.iter().filter(refused).count();
    let answered = frames.iter().filter(|(kind, _)| *kind == HEADERS).count();
    assert!(
        answered <= 8 && refused > 0,
        "{answered} answered, {refused} refused"
    );

    is_well(&files, &rig).await;
    let grown = rig.anonymous_kib().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "{grown} KiB");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let files = Files::new(TLS);
    let rig = files.start(json!({})).await;
    let client = client(stream(&files, &rig, None).await, WINDOW).await;
    let large = request(Method::GET, "/metrics").header("x-large", "x".repeat(60 << 10));
    let mut ready = client.clone().ready().await.unwrap();
    let sent = ready.send_request(large.body(()).unwrap(), true);
    let status = match sent {
        Ok((answer, _)) => answer.await.map(|answer| answer.status().as_u16()),
        Err(error) => Err(error),
    };
    assert!(!matches!(status, Ok(200)), "{status:?}");
    is_well(&files, &rig).await;
}

#[tokio::test]
async fn clients_that_read_nothing_keep_only_the_places_of_their_class() {
    let files = Files::new(TLS);
    let rig = files.start(json!({})).await;
    let before = rig.anonymous_kib();
    let mut held = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..20 {
        let client = client(stream(&files, &rig, None).await, 0).await;
        for _ in 0..8 {
            let request = request(Method::GET, "/api/v1/plan").body(()).unwrap();
            let (answer, _) = client
                .clone()
                .ready()
                .await
                .unwrap()
                .send_request(request, true)
                .unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(60), answer)
                .await
                .unwrap()
                .unwrap();
            statuses.push(answer.status().as_u16());
            held.push(answer);
        }
        held.shrink_to_fit();
    }
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        4,
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    is_well(&files, &rig).await;
    let grown = rig.anonymous_kib().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "{grown} KiB");
}
