//! Crowds: slow readers, waiting callers, silent connections. Each class has its own limit, and none blocks
//! probes and scrapes.

use std::time::{Duration, Instant};

use crisweep_sim::{Fault, Rpc};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::support::raw::{connect, exchange, read_to_end, split};
use crate::support::wait::PATIENCE;
use crate::support::{Answer, Rig, nodes, until};

/// Probes must be answered within 1 s; this machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Sooner than a peer that reads nothing is taken for dead (30 s).
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// The most memory that slow readers may add.
const GROWTH_MAX_KIB: u64 = 64 << 10;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

/// Raises this process's limit of open files, if it is lower; the process ends with the test.
fn raise_open_files(wanted: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}

/// Asserts that probes and scrapes are answered at once, each on its own connection.
async fn probes_and_scrapes_are_answered(rig: &Rig) {
    for path in ["/-/healthy", "/-/ready", "/metrics"] {
        let began = Instant::now();
        let (status, body) = exchange(&rig.address, get(path).as_bytes()).await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(began.elapsed() < AT_ONCE, "{path}: {:?}", began.elapsed());
    }
}

/// Reads only an answer's status.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut head = [0; 12];
    let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await;
    read.expect("an answer begins").unwrap();
    let word = String::from_utf8_lossy(&head[9..]).into_owned();
    word.parse().unwrap()
}

/// Connects with a tiny receive buffer, and sends requests of which it reads no answer.
async fn slow_reader(address: &str, requests: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    stream.write_all(requests.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn slow_readers_of_plans_share_one_and_block_no_others() {
    let changes = json!({ "collect": { "max_age": "10m" }, "runtime": { "timeout": "60s" } });
    let rig = Rig::start(nodes::litter(4_000), changes).await;
    // A complete plan first, so that the memory of planning does not count as growth.
    assert_eq!(rig.get("/api/v1/plan").await.status, 200);
    let before = rig.anonymous_kib();
    let mut readers = Vec::new();
    for _ in 0..240 {
        readers.push(slow_reader(&rig.address, &get("/api/v1/plan")).await);
    }
    let (mut taken, mut refused) = (0, 0);
    for reader in &mut readers {
        match status(reader).await {
            200 => taken += 1,
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    let after = rig.anonymous_kib();
    println!("{taken} taken, {refused} refused; {before} KiB before, {after} after");
    assert!((1..=8).contains(&taken), "{taken} plans at a time");
    assert!(after < before + GROWTH_MAX_KIB, "{before} KiB, {after} KiB");
    probes_and_scrapes_are_answered(&rig).await;
    let answer = rig.get("/api/v1/plan").await;
    answer.refused(503, "plans are already being answered");
    assert!(answer.header("retry-after").is_some());
    assert_eq!(rig.get("/api/v1/status").await.status, 200);
    drop(readers);
    until("there is room again", || async {
        (rig.get("/api/v1/plan").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn readers_that_do_not_read_take_no_place_from_scrapes_and_from_the_person_on_call() {
    let rig = Rig::start(nodes::litter(100), json!({})).await;
    for (path, readers) in [("/", 80), ("/metrics", 40)] {
        // More than the kernel keeps for a client that does not read.
        let requests = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(6);
        let (mut open, mut in_a_row) = (Vec::new(), 0);
        let began = Instant::now();
        // More than twice the places.
        while open.len() < readers {
            let mut reader = slow_reader(&rig.address, &requests).await;
            if status(&mut reader).await == 200 {
                open.push(reader);
            }
            assert!(began.elapsed() < CLOSED_WITHIN, "{path}: {}", open.len());
        }
        while in_a_row < 50 {
            let status = rig.get(path).await.status;
            in_a_row = if status == 200 { in_a_row + 1 } else { 0 };
            assert!(began.elapsed() < CLOSED_WITHIN, "{path}: {status}");
        }
    }
}

#[tokio::test]
async fn clients_that_ask_again_and_again_take_turns_with_scrapes_and_the_person_on_call() {
    let rig = Rig::start(nodes::litter(100), json!({})).await;
    for path in ["/metrics", "/api/v1/status"] {
        let mut crowd = JoinSet::new();
        // More than twice the places.
        for _ in 0..80 {
            let again = rig.request("GET", path).timeout(PATIENCE);
            crowd.spawn(async move {
                while let Ok(answer) = again.try_clone().unwrap().send().await {
                    drop(answer.bytes().await);
                }
            });
        }
        for _ in 0..30 {
            let answer = rig.get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
        crowd.abort_all();
    }
}

#[tokio::test]
async fn callers_that_take_all_places_of_ready_leave_healthy_its_own() {
    let changes = json!({ "collect": { "max_age": "0s" }, "runtime": { "timeout": "60s" } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    // Readiness now waits for a look, as long as a probe may.
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    let mut crowd = JoinSet::new();
    for _ in 0..64 {
        let request = || rig.request("GET", "/-/ready").timeout(PATIENCE);
        let (mut next, again) = (request(), request());
        crowd.spawn(async move {
            while let Ok(answer) = next.send().await {
                drop(answer.bytes().await);
                next = again.try_clone().unwrap();
            }
        });
    }
    until("readiness has no place left", || async {
        let answer = rig.get("/-/ready").await;
        let is_full = answer.text.contains("probes are already being answered");
        is_full.then_some(())
    })
    .await;
    for _ in 0..100 {
        let answer = rig.get("/-/healthy").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    crowd.abort_all();
}

#[tokio::test]
async fn callers_that_wait_are_bounded_and_block_no_others() {
    let changes = json!({ "runtime": { "timeout": "60s", "removal_timeout": "60s" } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let mut callers = JoinSet::new();
    for _ in 0..300 {
        let request = rig.request("POST", "/gc?wait=60s");
        callers.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    for _ in 0..200 {
        let ended = tokio::time::timeout(PATIENCE, callers.join_next()).await;
        let ended = ended.expect("those over the bound are refused at once");
        assert_eq!(ended.unwrap().unwrap(), 503);
    }
    probes_and_scrapes_are_answered(&rig).await;
    // A caller that does not wait is not refused because others wait.
    assert_eq!(rig.post("/gc?dry_run=true").await.status, 202);
    rig.sim.clear_faults();
    while let Some(status) = callers.join_next().await {
        assert!([200, 202, 503].contains(&status.unwrap()));
    }
    assert_eq!(rig.gc("").await["state"], "done");
}

#[tokio::test]
async fn idle_connections_make_room_oldest_first_and_delay_no_probe() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let mut idle = Vec::new();
    // Only now, so that the service has the usual limit.
    raise_open_files(4_096);
    for number in 0..2_500 {
        let begun: &[u8] = if number % 2 == 0 { b"" } else { b"GET /metr" };
        idle.push(connect(&rig.address, begun).await);
    }
    probes_and_scrapes_are_answered(&rig).await;
    let mut newest = idle.pop().unwrap();
    newest
        .write_all(b"ics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(split(&read_to_end(newest).await).0, 200);
    let mut oldest = idle.swap_remove(0);
    let mut rest = Vec::new();
    let read = tokio::time::timeout(AT_ONCE, oldest.read_to_end(&mut rest)).await;
    // The end or a reset.
    drop(read.expect("it was closed"));
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_kept_connection_serves_many_requests() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let mut stream = TcpStream::connect(&rig.address).await.unwrap();
    for _ in 0..200 {
        let request = b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"healthy\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    }
    let answer = Answer::of(rig.request("GET", "/-/healthy")).await;
    assert_eq!(answer.status, 200);
}
