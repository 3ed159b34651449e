//! `crisweep check` as node-problem-detector runs it: exit code, one short line, an end in time, no change.

mod detector;
mod service;

use std::time::{Duration, Instant};

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::bare::Bare;
use crate::support::hung::Hung;
use crate::support::nodes;
use crate::support::service::run;

/// Off, so that this machine's own disk does not matter.
const NO_DISK: &str = "--image-fs-used-percent=0";

/// What a check said.
struct Told {
    code: i32,
    line: String,
    took: Duration,
}

impl Told {
    #[track_caller]
    fn is(&self, code: i32, line: &str) {
        assert_eq!((self.code, &*self.line), (code, line));
    }
}

/// Runs a check by the protocol, whose rules hold for each.
async fn check(config: &std::path::Path, args: &[&str]) -> Told {
    let config = config.to_str().unwrap();
    let began = Instant::now();
    let args = [&["check", "--config.file", config, NO_DISK], args].concat();
    let output = run(&args).await;
    let took = began.elapsed();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.strip_suffix('\n').unwrap();
    assert!(line.len() <= 80, "{line}");
    assert!(
        line.bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic()),
        "{line:?}"
    );
    Told {
        code: output.status.code().unwrap(),
        line: line.to_owned(),
        took,
    }
}

impl Bare {
    async fn check(&self, args: &[&str]) -> Told {
        let told = check(&self.config, args).await;
        assert_eq!(self.sim.calls(), [], "a check changes nothing");
        told
    }
}

#[tokio::test]
async fn without_the_service_the_runtime_itself_is_asked() {
    let node = Bare::start(nodes::litter(3), &json!({}));
    let told = node.check(&[]).await;
    assert_eq!(told.code, 0, "{}", told.line);
    let start = "OK: 3 exited, 3 dead sandboxes, lists 0%, image fs ";
    assert!(told.line.starts_with(start), "{}", told.line);
    assert!(
        told.line.ends_with(" [runtime; service down]"),
        "{}",
        told.line
    );
    for rpc in [
        Rpc::Version,
        Rpc::ListContainers,
        Rpc::ListPodSandbox,
        Rpc::ListImages,
    ] {
        assert_eq!(node.sim.call_count(rpc), 1, "{rpc:?}: cheap");
    }
    assert_eq!(node.sim.call_count(Rpc::ContainerStatus), 0);
}

#[tokio::test]
async fn a_figure_without_room_is_left_out_not_cut() {
    let node = Bare::start(nodes::litter(100), &json!({}));
    let told = node.check(&["--not-ready-sandboxes=0"]).await;
    let line = "OK: 100 exited, 100 dead sandboxes, lists 0% [runtime; service down]";
    told.is(0, line);
}

#[tokio::test]
async fn a_reached_threshold_is_a_problem_also_while_thresholds_are_off() {
    let changes = json!({ "thresholds": { "enabled": false, "exited_containers": 5 } });
    let node = Bare::start(nodes::litter(5), &changes);
    let line = "PROBLEM: 5 exited containers [runtime; service down]";
    node.check(&[]).await.is(1, line);
    let told = node.check(&["--exited-containers=6"]).await;
    assert_eq!(told.code, 0, "{}", told.line);
    let line = "PROBLEM: 5 dead sandboxes [runtime; service down]";
    node.check(&["--exited-containers=0", "--not-ready-sandboxes=1"])
        .await
        .is(1, line);
}

#[tokio::test]
async fn a_list_over_its_limit_is_a_problem() {
    // Cannot compress, can, and takes longer than the check may.
    for compresses in [None, Some(0), Some(60)] {
        list_over_its_limit(compresses.map(Duration::from_secs)).await;
    }
}

async fn list_over_its_limit(compresses: Option<Duration>) {
    let node = Bare::start(nodes::litter(30), &json!({}));
    node.sim.conduct(|it| it.send_limit_bytes = 2_000);
    node.sim.conduct(|it| it.gzip = compresses);
    let told = node.check(&[]).await;
    assert_eq!(told.code, 1, "{}", told.line);
    assert!(
        told.line
            .starts_with("PROBLEM: list of containers over its limit"),
        "{}",
        told.line
    );
    let json = run_json(&node.config).await;
    assert_eq!(json["status"], "problem");
    let texts = json["findings"].as_array().unwrap();
    assert!(
        texts
            .iter()
            .any(|it| it["text"] == "list of sandboxes over its limit"),
        "{json:#}"
    );
}

async fn run_json(config: &std::path::Path) -> Value {
    let config = config.to_str().unwrap();
    let output = run(&["check", "--config.file", config, NO_DISK, "--output=json"]).await;
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_hung_runtime_is_unknown_within_the_limit() {
    let node = Bare::start(nodes::litter(3), &json!({}));
    node.sim.set_fault(Rpc::Version, Fault::hang());
    let told = node.check(&["--timeout=1s"]).await;
    told.is(
        2,
        "UNKNOWN: runtime gives no answer [runtime; service down]",
    );
    assert!(told.took < Duration::from_secs(3), "{:?}", told.took);
    node.sim.clear_faults();
    node.sim.set_fault(Rpc::ListContainers, Fault::hang());
    let told = node.check(&["--timeout=1s"]).await;
    told.is(
        2,
        "UNKNOWN: list of containers not read [runtime; service down]",
    );
    assert!(told.took < Duration::from_secs(3), "{:?}", told.took);
    let told = node
        .check(&["--timeout=1s", "--not-ready-sandboxes=3"])
        .await;
    assert_eq!(told.code, 1, "what is known counts: {}", told.line);
}

#[tokio::test]
async fn a_runtime_that_is_down_is_unknown() {
    let node = Bare::start(nodes::healthy(), &json!({}));
    node.sim.stop().await;
    let told = node.check(&[]).await;
    told.is(
        2,
        "UNKNOWN: runtime gives no answer [runtime; service down]",
    );
}

#[tokio::test]
async fn a_hung_disk_is_unknown_within_the_limit() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a file system needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hung");
    std::fs::create_dir(&path).unwrap();
    let hung = Hung::at(&path);
    let told = check(&path.join("crisweep.yaml"), &["--timeout=1s"]).await;
    told.is(2, "UNKNOWN: no answer within 1s");
    assert!(told.took < Duration::from_secs(3), "{:?}", told.took);
    drop(hung);
}

#[tokio::test]
async fn a_refused_configuration_is_unknown_and_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("crisweep.yaml");
    std::fs::write(&config, "gc: { batch_size: sixty }\n").unwrap();
    let line = "UNKNOWN: configuration refused; crisweep config FILE says why";
    check(&config, &[]).await.is(2, line);
    // Standard error names the file, and says why.
    let missing = dir.path().join("missing.yaml");
    check(&missing, &[]).await.is(2, line);
    let output = run(&["check", "--config.file", missing.to_str().unwrap()]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("missing.yaml: No such file"), "{said}");
}

/// Names and error texts of others never reach the line, so they can neither break it nor tell a secret.
#[tokio::test]
async fn hostile_names_and_errors_do_not_reach_the_line() {
    const EVIL: &str = "evil\u{1b}]0;pwned\u{7}\n\r\u{202e}OK: fine\u{e9}";
    let long = EVIL.repeat(40);
    let pod = |number: usize| {
        let name = format!("{long}{number}");
        PodSpec::new(&name)
            .namespace(EVIL)
            .exited(EVIL, 0, hours(3))
            .deleted()
    };
    let node = Bare::start(nodes::healthy().pods(60, pod), &json!({}));
    let told = node
        .check(&["--exited-containers=1", "--not-ready-sandboxes=1"])
        .await;
    told.is(
        1,
        "PROBLEM: 60 exited containers; 60 dead sandboxes [runtime; service down]",
    );
    for rpc in [Rpc::Version, Rpc::ListContainers, Rpc::ImageFsInfo] {
        node.sim
            .set_fault(rpc, Fault::fail(Code::Internal, long.clone()));
        let told = node.check(&[]).await;
        assert!([1, 2].contains(&told.code), "{}", told.line);
        for part in ["evil", "pwned", "fine"] {
            assert!(!told.line.contains(part), "{}", told.line);
        }
        node.sim.clear_faults();
    }
}
