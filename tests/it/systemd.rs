//! What the service tells systemd, and the shipped unit under systemd's own checks.

use std::ffi::OsString;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crisweep_sim::{Fault, Options, Rpc, Sim};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixDatagram;

use crate::support::nodes;
use crate::support::rig::{config, no_harm, write};
use crate::support::service::{Service, program};
use crate::support::wait::{PATIENCE, until_true};

/// A service manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    address: OsString,
}

impl Manager {
    fn at_path(dir: &Path) -> Self {
        let path = dir.join("notify");
        Self {
            socket: UnixDatagram::bind(&path).unwrap(),
            address: path.into(),
        }
    }

    fn abstract_one() -> Self {
        let name = format!("crisweep-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket: UnixDatagram::from_std(socket).unwrap(),
            address: format!("@{name}").into(),
        }
    }

    async fn message(&self) -> String {
        let mut bytes = vec![0; 4096];
        let received = tokio::time::timeout(PATIENCE, self.socket.recv(&mut bytes)).await;
        bytes.truncate(received.expect("the service says something").unwrap());
        String::from_utf8(bytes).unwrap()
    }

    /// Returns the next message that is no sign of life.
    async fn event(&self) -> String {
        loop {
            let message = self.message().await;
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }
}

/// A service under a manager, with the watchdog at one second.
struct Started {
    service: Service,
    manager: Manager,
    sim: Sim,
    settings: Value,
    dir: TempDir,
}

impl Started {
    async fn start(changes: Value, is_down: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::at_path(dir.path());
        Self::start_under(manager, dir, changes, is_down).await
    }

    async fn start_under(manager: Manager, dir: TempDir, changes: Value, is_down: bool) -> Self {
        let options = Options {
            pods_file: Some(dir.path().join("pods.json")),
            ..Options::default()
        };
        let socket = dir.path().join("cri.sock");
        let sim = Sim::start(socket, nodes::litter(4).build(), options).unwrap();
        if is_down {
            sim.stop().await;
        }
        let settings = config(dir.path(), &changes);
        let file = write(dir.path(), &settings);
        let mut command = program();
        command
            .env("NOTIFY_SOCKET", &manager.address)
            .env("WATCHDOG_USEC", "1000000");
        let service = Service::start_as(command, &file).await;
        Self {
            service,
            manager,
            sim,
            settings,
            dir,
        }
    }
}

fn monotonic_micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// Asserts that a reload is announced, with its time, and that its end is.
async fn reloads(started: &Started, since: i64) {
    let message = started.manager.event().await;
    let micros = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let micros: i64 = micros.expect(&message).parse().unwrap();
    assert!((since..=monotonic_micros()).contains(&micros), "{message}");
    assert_eq!(started.manager.event().await, "READY=1");
}

#[tokio::test]
async fn systemd_hears_of_start_reloads_and_end_in_order() {
    let mut started = Started::start(json!({}), false).await;
    assert_eq!(started.manager.message().await, "READY=1");
    assert_eq!(started.service.get("/-/healthy").await.status, 200);

    let since = monotonic_micros();
    started.service.signal(Signal::HUP);
    reloads(&started, since).await;
    let since = monotonic_micros();
    assert_eq!(started.service.post("/-/reload").await.status, 200);
    reloads(&started, since).await;

    started.settings["gc"]["batch_size"] = json!(-1);
    write(started.dir.path(), &started.settings);
    let since = monotonic_micros();
    started.service.signal(Signal::HUP);
    reloads(&started, since).await;

    started.service.signal(Signal::TERM);
    assert_eq!(started.manager.event().await, "STOPPING=1");
    assert_eq!(started.service.exited().await.code(), Some(0));
    let mut rest = [0; 64];
    while let Ok(bytes) = started.manager.socket.try_recv(&mut rest) {
        assert!(!rest[..bytes].starts_with(b"READY"), "after STOPPING");
    }
    no_harm(&started.sim);
}

#[tokio::test]
async fn an_abstract_socket_serves_too() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::abstract_one();
    let started = Started::start_under(manager, dir, json!({}), false).await;
    assert_eq!(started.manager.message().await, "READY=1");
}

#[tokio::test]
async fn a_runtime_that_is_down_holds_up_no_start_and_no_sign_of_life() {
    let started = Started::start(json!({}), true).await;
    assert_eq!(started.manager.message().await, "READY=1");
    alive(&started).await;
    assert_eq!(started.service.get("/-/ready").await.status, 503);
    started.sim.start().unwrap();
    started.service.ready().await;
}

/// Asserts that signs of life come for three times the watchdog's second, none later than it wants.
async fn alive(started: &Started) {
    let mut last = tokio::time::Instant::now();
    let until = last + Duration::from_secs(3);
    while last < until {
        if started.manager.message().await == "WATCHDOG=1" {
            assert!(
                last.elapsed() < Duration::from_secs(1),
                "a late sign of life"
            );
            last = tokio::time::Instant::now();
        }
    }
}

#[tokio::test]
async fn a_pass_that_waits_for_a_hanging_runtime_is_no_reason_for_a_restart() {
    let started = Started::start(json!({}), false).await;
    started.service.ready().await;
    started.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    started.sim.set_fault(Rpc::RemovePodSandbox, Fault::hang());
    started.service.begin_gc("").await;
    until_true("a removal hangs", || started.sim.removals_in_flight() > 0).await;
    started.sim.set_fault(Rpc::Version, Fault::hang());
    alive(&started).await;
    started.service.stop().await;
}

#[tokio::test]
async fn a_manager_that_reads_nothing_holds_up_nothing() {
    let mut started = Started::start(json!({}), false).await;
    started.service.ready().await;
    // Whatever room the kernel has for such a socket.
    let filler = std::os::unix::net::UnixDatagram::unbound().unwrap();
    filler.connect(&started.manager.address).unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send(b"STATUS=full").is_ok() {}
    assert_eq!(started.service.post("/-/reload").await.status, 200);
    assert_eq!(started.service.gc("").await["outcome"], "completed");
    started.service.signal(Signal::TERM);
    assert_eq!(started.service.exited().await.code(), Some(0));
}

#[tokio::test]
async fn without_a_manager_nothing_is_told_and_an_odd_one_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    let sim = Sim::start(
        dir.path().join("cri.sock"),
        nodes::litter(1).build(),
        options,
    )
    .unwrap();
    let file = write(
        dir.path(),
        &config(
            dir.path(),
            &json!({ "pods": { "source": "none", "file": null } }),
        ),
    );
    let mut command = program();
    command
        .env("NOTIFY_SOCKET", "vsock:2:1234")
        .env("WATCHDOG_USEC", "1000000");
    let service = Service::start_as(command, &file).await;
    service.ready().await;
    assert!(service.log_text().contains("NOTIFY_SOCKET cannot be used"));
    service.stop().await;
    no_harm(&sim);
}

/// Runs systemd's checker; `None` where it is not installed.
fn analyze(args: &[&str], unit: &Path) -> Option<Output> {
    let output = Command::new("systemd-analyze")
        .args(args)
        .arg(unit)
        .output();
    if output.is_err() {
        eprintln!("skipped: systemd-analyze is not installed");
    }
    output.ok()
}

/// Returns the shipped unit with this program, which exists.
fn unit(dir: &Path) -> std::path::PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crisweep.service");
    let text = fs::read_to_string(shipped).unwrap();
    let text = text.replace("/usr/local/bin/crisweep", env!("CARGO_BIN_EXE_crisweep"));
    let path = dir.join("crisweep.service");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = analyze(&["verify", "--man=no"], &unit(dir.path())) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_us: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("crisweep"))
        .collect();
    assert!(output.status.success() && about_us.is_empty(), "{said}");
}

#[test]
fn systemd_rates_the_units_exposure_as_low() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["security", "--offline=true", "--threshold=25", "--no-pager"];
    let Some(output) = analyze(&args, &unit(dir.path())) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
}
