//! The unix socket, and the owner of a loopback connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::Uid;
use serde_json::json;

use super::{READ_TOKEN, token_files};
use crate::support::raw::split;
use crate::support::{Rig, nodes};

/// No user of this machine.
const OTHER: u32 = 51_234;

/// Does work as another user, in a thread of its own. `None` without the right to do so.
fn as_other<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(Uid::from_raw(OTHER)).ok()?;
        Some(work())
    });
    let done = thread.join().unwrap();
    if done.is_none() {
        println!("skipped: only root may become another user");
    }
    done
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str, more: &str) -> (u16, String) {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    split(&answer)
}

fn over_tcp(address: &str, method: &str, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    exchange(stream, method, path, "")
}

fn over_unix(socket: &Path, method: &str, path: &str, more: &str) -> (u16, String) {
    let stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    exchange(stream, method, path, more)
}

#[tokio::test]
async fn another_user_of_this_machine_may_read_and_not_act() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let address = rig.address.clone();
    let asked = tokio::task::spawn_blocking(move || {
        as_other(move || {
            let status = over_tcp(&address, "GET", "/api/v1/status").0;
            (status, over_tcp(&address, "POST", "/gc"))
        })
    });
    if let Some((status, (refused, why))) = asked.await.unwrap() {
        assert_eq!((status, refused), (200, 403), "{why}");
        assert!(why.contains(&format!("uid {OTHER} may not")), "{why}");
        assert!(rig.passes().await.is_empty());
    }
    let pass = rig.gc("dry_run=true").await;
    let own = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(pass["trigger"]["by"], json!({ "kind": "uid", "name": own }));
}

#[tokio::test]
async fn a_client_that_closes_its_socket_at_once_may_not_act() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let address = rig.address.clone();
    let request = "POST /gc?dry_run=true HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    let work = move || {
        for _ in 0..50 {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
        }
    };
    if tokio::task::spawn_blocking(move || as_other(work))
        .await
        .unwrap()
        .is_some()
    {
        assert_eq!(rig.gc("dry_run=true").await["merged_triggers"], 0);
        assert_eq!(rig.passes().await.len(), 1, "only the rig's own pass");
    }
}

#[tokio::test]
async fn the_unix_socket_lets_its_own_user_act_beside_tokens_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), None, None).unwrap();
    let socket = dir.path().join("crisweep.sock");
    let changes = json!({ "web": {
        "listen": ["127.0.0.1:0", format!("unix:{}", socket.display())],
        "bearer_token_files": token_files(dir.path()),
    } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    rig.post("/gc").await.refused(401, "needs a credential");
    let path = socket.clone();
    let asked = move || over_unix(&path, "POST", "/gc?dry_run=true&wait=60s", "");
    let (status, pass) = tokio::task::spawn_blocking(asked).await.unwrap();
    assert_eq!(status, 200, "{pass}");
    assert!(pass.contains(r#""kind": "uid""#), "{pass}");
    // What the mode of the socket and its directory would forbid, other users are then refused too.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::clone(&open)).unwrap();
    std::fs::set_permissions(&socket, open).unwrap();
    let asked = move || {
        as_other(move || {
            let token = format!("authorization: bearer {READ_TOKEN}\r\n");
            [
                over_unix(&socket, "POST", "/gc", "").0,
                over_unix(&socket, "GET", "/metrics", "").0,
                over_unix(&socket, "GET", "/metrics", &token).0,
                over_unix(&socket, "POST", "/gc", &token).0,
            ]
        })
    };
    if let Some(statuses) = tokio::task::spawn_blocking(asked).await.unwrap() {
        assert_eq!(statuses, [401, 401, 200, 403]);
    }
}

#[tokio::test]
async fn the_command_asks_the_service_that_holds_the_lock_over_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("crisweep.sock");
    let changes = json!({ "web": {
        "listen": ["127.0.0.1:0", format!("unix:{}", socket.display())],
        "bearer_token_files": { "act": token_files(dir.path())["act"] },
    } });
    let rig = Rig::start(nodes::litter(3), changes).await;
    let config = rig.config_file();
    let gc = [
        "--config.file",
        config.to_str().unwrap(),
        "gc",
        "--target",
        "containers",
    ];
    let output = crate::support::service::run(&[&gc[..], &["--max-removals", "2"]].concat()).await;
    let (out, progress) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        out.contains("partial") && out.contains("containers"),
        "{out}{progress}"
    );
    assert!(progress.contains("begins"), "{progress}");
    let pass = rig.passes().await.remove(0);
    assert_eq!(pass["trigger"]["cause"], "manual");
    assert_eq!(pass["trigger"]["by"]["kind"], "uid");
    assert_eq!(pass["targets"]["containers"]["removed"], 2);
    let json = crate::support::service::run(&[&gc[..], &["--output", "json"]].concat()).await;
    let pass: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(pass["outcome"], "completed");
}
