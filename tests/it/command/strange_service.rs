//! What commands say of answers that they cannot use: those of another version, and those of a proxy before the service.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::service::{run, text};
use crate::support::{Rig, nodes};

/// Says that it is a healthy crisweep, and answers all other questions with these bytes.
async fn healthy_and(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let (status, body) = if request[..read].starts_with(b"GET /-/healthy ") {
                ("200 OK", "crisweep is healthy\n")
            } else {
                (status, body)
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _written = stream.write_all((head + body).as_bytes()).await;
        }
    });
    format!("--service.url=http://{address}")
}

/// Commands that show an answer.
const SHOWING: [&[&str]; 6] = [
    &["status"],
    &["doctor"],
    &["plan"],
    &["explain", "abcdef"],
    &["passes"],
    &["evidence"],
];

async fn says(url: &str, words: &str) {
    for args in SHOWING {
        let output = run(&[args, &[url]].concat()).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(text(&output.stdout).is_empty(), "{args:?}: {output:?}");
        assert!(!said.contains("the second line"), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn an_answer_of_another_version_is_not_understood_rather_than_shown_by_half() {
    says(&healthy_and("200 OK", "{}").await, "is not understood").await;
}

#[tokio::test]
async fn the_page_of_a_proxy_is_told_by_its_status_and_first_line() {
    let page = "<html>\n<p>the second line</p>\n</html>";
    let url = healthy_and("502 Bad Gateway", page).await;
    says(&url, "answers 502 Bad Gateway: <html>").await;
}

#[tokio::test]
async fn that_the_service_answers_is_said_once() {
    let evidence = json!({ "evidence": { "enabled": true } });
    let rig = Rig::start(nodes::litter(30), evidence).await;
    let url = format!("--service.url=http://{}", rig.address);
    assert!(run(&["gc", &url]).await.status.success());
    let passes = run(&["passes", "--output=json", &url]).await;
    let passes: serde_json::Value = serde_json::from_slice(&passes.stdout).unwrap();
    let pass = passes["passes"][0]["id"].as_str().unwrap();
    for args in [&["passes", pass][..], &["evidence", "show", "1"]] {
        let output = run(&[args, &[&url]].concat()).await;
        let said = text(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        assert_eq!(
            said.matches("the running service answers").count(),
            1,
            "{said}"
        );
    }
    let list = text(&run(&["evidence", &url]).await.stdout);
    assert!(list.starts_with(" NO. "), "{list}");
    let fits = |line: &str| line.chars().count() <= 80 && line == line.trim_end();
    assert!(list.lines().all(fits), "{list}");
}
