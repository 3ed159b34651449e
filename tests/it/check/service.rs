//! The service is asked first, where it runs.

use std::fs;
use std::time::Duration;

use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, hours};
use rustix::process::Signal;
use serde_json::json;

use super::{Told, check};
use crate::support::ca::Ca;
use crate::support::service::Service;
use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

/// Checks a rig over its address, which the kernel chose.
async fn over_tcp(rig: &Rig, args: &[&str]) -> Told {
    let address = format!("--web.listen-address={}", rig.address);
    check(&rig.config_file(), &[&[&*address], args].concat()).await
}

#[tokio::test]
async fn the_service_is_asked_over_its_unix_socket() {
    let (rig, _dir) = Rig::with_socket(nodes::litter(5), json!({})).await;
    let config = rig.config_file();
    let asked = rig.sim.call_count(Rpc::ListImages);
    let told = check(
        &config,
        &["--exited-containers=5", "--not-ready-sandboxes=6"],
    )
    .await;
    let line = "PROBLEM: 5 exited containers (containers.max_dead keeps up to 200) [service]";
    told.is(1, line);
    let more = rig.sim.call_count(Rpc::ListImages) - asked;
    assert!(
        more <= 1,
        "the service's look is shared, not doubled: {more}"
    );
    check(&config, &["--self"])
        .await
        .is(0, "OK: service is healthy and ready [service]");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn over_loopback_a_healthy_node_is_ok_and_a_failing_pod_source_unknown() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let told = over_tcp(&rig, &[]).await;
    assert_eq!(told.code, 0, "{}", told.line);
    assert!(
        told.line.starts_with("OK: 2 exited, 2 dead sandboxes, "),
        "{}",
        told.line
    );
    assert!(told.line.ends_with(" [service]"), "{}", told.line);
    fs::write(rig.pods_file(), "no list").unwrap();
    over_tcp(&rig, &[])
        .await
        .is(2, "UNKNOWN: pod source failed [service]");
    let told = over_tcp(&rig, &["--exited-containers=1"]).await;
    told.is(
        1,
        "PROBLEM: 2 exited containers; pod source failed [service]",
    );
}

#[tokio::test]
async fn the_service_tells_that_the_runtime_hangs() {
    let changes = json!({ "runtime": { "timeout": "20s" } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    rig.sim.set_fault(Rpc::Version, Fault::hang());
    // Longer than the service itself waits for a look; it then tells its last one.
    let told = over_tcp(&rig, &["--timeout=20s"]).await;
    told.is(2, "UNKNOWN: runtime slow or hung [service]");
    let told = over_tcp(&rig, &["--timeout=20s", "--exited-containers=2"]).await;
    told.is(
        1,
        "PROBLEM: 2 exited containers; runtime slow or hung [service]",
    );
    let told = over_tcp(&rig, &[]).await;
    assert_eq!(told.code, 2, "{}", told.line);
    assert!(told.took < Duration::from_secs(6), "{:?}", told.took);
    rig.sim.clear_faults();
}

#[tokio::test]
async fn the_service_tells_of_a_list_over_its_limit() {
    let rig = Rig::start(nodes::litter(30), json!({})).await;
    rig.sim.conduct(|it| it.send_limit_bytes = 2_000);
    let told = over_tcp(&rig, &["--timeout=20s"]).await;
    assert_eq!(told.code, 1, "{}", told.line);
    let start = "PROBLEM: list of containers over its limit";
    assert!(told.line.starts_with(start), "{}", told.line);
    assert!(told.line.ends_with("[service]"), "{}", told.line);
}

/// Sandboxes come up, and each container fails to be created: an empty list could as well be one that was lost.
#[tokio::test]
async fn a_node_whose_empty_list_is_not_believed_is_not_called_well() {
    let node = NodeBuilder::new().pod(PodSpec::new("web").leaked_sandbox(1, hours(3)).sandbox(2));
    let rig = Rig::with(node.build(), Options::cri_o(), json!({})).await;
    let told = over_tcp(&rig, &[]).await;
    let finding = "list of containers incomplete";
    let line = format!("UNKNOWN: {finding} (much stays; status says why) [service]");
    told.is(2, &line);
    let status = rig.get("/api/v1/status").await.json();
    let why = status["lists"]["containers"]["why"].as_str().unwrap();
    assert!(why.contains("the runtime lists none"), "{status:#}");
    let page = rig.get("/").await.text;
    assert!(page.contains(why), "{page}");
    let address = format!("--web.listen-address={}", rig.address);
    for command in ["status", "plan", "doctor"] {
        let said = rig.command(&[command, &address]).await;
        let said = String::from_utf8(said.stdout).unwrap();
        let said: Vec<&str> = said.split_whitespace().collect();
        assert!(said.join(" ").contains(why), "{command}: {said:?}");
    }
    // The same without the service.
    let endpoint = format!("--runtime-endpoint={}", rig.sim.endpoint());
    let line = format!("UNKNOWN: {finding} (much stays; status says why) [runtime]");
    over_tcp(&rig, &[&endpoint]).await.is(2, &line);
    assert_eq!(rig.gc("").await["outcome"], "partial");
    rig.sim.add_pod(&PodSpec::new("new").running("app", 0));
    assert_eq!(over_tcp(&rig, &[]).await.code, 0);
}

#[tokio::test]
async fn a_stopped_service_is_silent_and_the_runtime_is_asked() {
    let mut rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.signal(Signal::STOP);
    let told = over_tcp(&rig, &[]).await;
    told.is(
        2,
        "UNKNOWN: service gives no answer [runtime; service silent]",
    );
    let told = over_tcp(&rig, &["--exited-containers=2"]).await;
    assert_eq!(told.code, 1, "{}", told.line);
    over_tcp(&rig, &["--self"])
        .await
        .is(1, "PROBLEM: service gives no answer [service]");
    rig.signal(Signal::CONT);
    rig.kill().await;
    let line = "PROBLEM: no crisweep answers; crisweep status says more [service]";
    over_tcp(&rig, &["--self"]).await.is(1, line);
    let told = over_tcp(&rig, &[]).await;
    assert_eq!(told.code, 0, "{}", told.line);
    assert!(
        told.line.ends_with("[runtime; service down]"),
        "{}",
        told.line
    );
}

#[tokio::test]
async fn with_a_runtime_that_is_named_no_service_is_asked() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let endpoint = |name: &str| {
        let socket = rig.config_file().with_file_name(name);
        format!("--runtime-endpoint={}", socket.display())
    };
    over_tcp(&rig, &[&endpoint("none.sock")])
        .await
        .is(2, "UNKNOWN: runtime gives no answer [runtime]");
    let told = over_tcp(&rig, &[&endpoint("cri.sock"), "--exited-containers=2"]).await;
    assert_eq!(told.code, 1, "{}", told.line);
    assert!(told.line.ends_with(" [runtime]"), "{}", told.line);
}

#[tokio::test]
async fn a_service_without_its_runtime_is_not_ready() {
    let rig = Rig::without_runtime(nodes::healthy(), json!({})).await;
    let line = "PROBLEM: service is not ready: runtime not reached or not listed yet [service]";
    over_tcp(&rig, &["--self"]).await.is(1, line);
    over_tcp(&rig, &[])
        .await
        .is(2, "UNKNOWN: runtime gives no answer [service]");
}

#[tokio::test]
async fn a_runtime_that_answers_while_a_look_goes_on_is_not_called_silent() {
    let changes = json!({ "runtime": { "timeout": "60s" }, "collect": { "max_age": "0s" } });
    let mut rig = Rig::start(nodes::litter(2), changes).await;
    rig.sim.set_fault(Rpc::ImageFsInfo, Fault::hang());
    // The first look; then one after the runtime was down.
    for is_first in [true, false] {
        rig.kill().await;
        if is_first {
            rig.service = Service::start(&rig.config_file()).await;
        } else {
            rig.sim.stop().await;
            rig.service = Service::start(&rig.config_file()).await;
            over_tcp(&rig, &["--timeout=20s"])
                .await
                .is(2, "UNKNOWN: runtime gives no answer [service]");
            rig.sim.start().unwrap();
        }
        rig.listed().await;
        let (told, status, page) = tokio::join!(
            over_tcp(&rig, &["--timeout=20s"]),
            rig.get("/api/v1/status"),
            rig.get("/")
        );
        let findings = "list of containers not read; list of sandboxes not read +1";
        told.is(2, &format!("UNKNOWN: {findings} [service]"));
        let status = status.json();
        assert_eq!(status["runtime"]["up"], true, "{status:#}");
        assert_eq!(status["runtime"]["name"], "containerd");
        let why = "the runtime answers; the look at the node is not over yet";
        assert_eq!(status["look_error"], why);
        let title = "<title>Not known whether healthy: list of containers not read";
        assert!(page.text.contains(title), "{}", page.text);
    }
}

#[tokio::test]
async fn tls_is_spoken_without_trust_in_the_certificate_and_without_a_credential() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    // Run out, for another name, of an unknown CA.
    Ca::new()
        .expired("elsewhere.example")
        .write(&path("server.crt"), &path("server.key"));
    fs::write(path("act.token"), "token-that-may-act\n").unwrap();
    fs::write(path("read.token"), "token-that-may-read\n").unwrap();
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
    fs::write(path("web.yml"), web).unwrap();
    let changes = json!({ "web": {
        "config_file": path("web.yml"),
        "bearer_token_files": { "read": [path("read.token")], "act": [path("act.token")] },
    } });
    let rig = Rig::unready(nodes::litter(2).build(), Options::default(), changes);
    let rig = rig.await;
    until_true("the service is ready", || {
        rig.sim.call_count(Rpc::ListImages) > 0
    })
    .await;
    until("the probes answer", || async {
        let told = over_tcp(&rig, &["--self"]).await;
        (told.code == 0).then_some(())
    })
    .await;
    let told = over_tcp(&rig, &[]).await;
    assert_eq!(told.code, 0, "{}", told.line);
    assert!(
        told.line.ends_with("[runtime; service refuses]"),
        "{}",
        told.line
    );
}
