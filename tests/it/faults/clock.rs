//! Wall-clock jumps in both directions. Runs the real program with a preloaded library that moves its clock.

use std::path::{Path, PathBuf};
use std::process::Command;

use crisweep_sim::{Cni, DEFAULT_IMAGE, Fault, NodeBuilder, PodSpec, Rpc, hours, seconds};
use jiff::{Timestamp, ToSpan};
use serde_json::json;

use super::{answers, cleans};
use crate::alerts::hook::{asks, pass_of, sent};
use crate::support::service::{Service, program};
use crate::support::{Rig, nodes};

const YEAR: i64 = 365 * 24 * 3600;

/// A service whose clock can be moved.
struct Moved {
    rig: Rig,
    file: PathBuf,
    dir: tempfile::TempDir,
}

fn command(dir: &Path) -> tokio::process::Command {
    let mut command = program();
    command
        .env("LD_PRELOAD", dir.join("clock_shim.so"))
        .env("CLOCK_SHIM_FILE", dir.join("seconds"));
    command
}

/// Builds the library; `None` without a compiler.
fn shim(dir: &Path) -> Option<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/faults/clock_shim.rs");
    let library = dir.join("clock_shim.so");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "--crate-type", "cdylib", "-o"])
        .arg(&library)
        .arg(source)
        .output();
    let Ok(built) = built else {
        println!("skipped: no rustc to build the moved clock with");
        return None;
    };
    let words = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{words}");
    Some(())
}

impl Moved {
    async fn start(node: NodeBuilder, changes: serde_json::Value) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        shim(dir.path())?;
        let file = dir.path().join("seconds");
        let mut rig = Rig::start(node, changes).await;
        rig.kill().await;
        rig.service = Service::start_as(command(dir.path()), &rig.config_file()).await;
        rig.ready().await;
        Some(Self { rig, file, dir })
    }

    /// Stops the service, and starts it with the clock so many seconds from the true time.
    async fn restart(&mut self, seconds: i64) {
        self.rig.service.signal(rustix::process::Signal::TERM);
        assert!(self.rig.service.exited().await.success());
        std::fs::write(&self.file, seconds.to_string()).unwrap();
        let config = self.rig.config_file();
        self.rig.service = Service::start_as(command(self.dir.path()), &config).await;
        self.rig.ready().await;
    }

    /// Sets the clock this many seconds from the true time, and waits until the service has noticed.
    async fn to(&self, seconds: i64) {
        std::fs::write(&self.file, seconds.to_string()).unwrap();
        let status = self.rig.get("/api/v1/status").await.json();
        let taken: Timestamp = status["look"]["taken_at"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        #[expect(clippy::disallowed_methods, reason = "the true time, to compare with")]
        let wanted = Timestamp::now().checked_add(seconds.seconds()).unwrap();
        let off = taken.duration_since(wanted).abs();
        assert!(
            off.as_secs() < 3600,
            "the clock was not moved: {taken} {wanted}"
        );
    }
}

/// Deleted pods, and a crash-looping one.
fn node() -> NodeBuilder {
    let crashing = PodSpec::new("crashing")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2))
        .running("app", 2);
    nodes::litter(3).pod(crashing)
}

#[tokio::test]
async fn a_clock_set_back_makes_nothing_old_and_one_set_forward_removes_only_surplus() {
    let Some(moved) = Moved::start(node(), json!({})).await else {
        return;
    };
    let rig = &moved.rig;
    moved.to(-YEAR).await;
    answers(rig).await;
    let pass = rig.gc("").await;
    println!("set back: {} {}", pass["outcome"], pass["errors"]);
    rig.nothing_was_touched();
    moved.to(10 * YEAR).await;
    answers(rig).await;
    let pass = rig.gc("").await;
    println!("set forward: {} {}", pass["outcome"], pass["errors"]);
    moved.to(0).await;
    rig.gc("").await;
    // The newest record of a living pod stays.
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (1, 0));
}

/// The kubelet has yet to sync the end of a pod that ended a moment ago, whatever the clock says.
#[tokio::test]
async fn set_forward_right_after_an_exit_it_ends_no_quiet() {
    let cap = json!({ "max_dead": 0 });
    let changes = json!({
        "policy": { "containers": cap, "sandboxes": cap },
        "pods": { "quiet": "1m" },
    });
    let early = PodSpec::new("early").exited("app", 0, seconds(5));
    let node = nodes::healthy()
        .pod(PodSpec::new("job").running("app", 0))
        .pod(early.succeeded());
    let Some(moved) = Moved::start(node, changes).await else {
        return;
    };
    let rig = &moved.rig;
    moved.to(0).await;
    assert!(rig.sim.change(|node| node.finish_pod("default/job", 0)));
    moved.to(YEAR).await;
    let pass = rig.gc("").await;
    rig.nothing_was_touched();
    // The first look saw the other one at its end.
    let kept = &pass["targets"]["containers"]["kept"];
    assert_eq!(kept["too-young"], 2, "{pass:#}");
}

/// A board that boots at the date of its disk image, and cannot ask for the time, notes images by that clock.
#[tokio::test]
async fn after_a_run_with_a_clock_that_was_years_behind_no_image_is_old() {
    // By age alone, however full this machine's disk is.
    let images = json!({
        "min_age": "0s",
        "max_age": "7d",
        "high_threshold_percent": 100,
        "low_threshold_percent": 99,
    });
    let node = nodes::healthy()
        .image(DEFAULT_IMAGE, 1 << 20)
        .image("registry.example/spare:1", 1 << 20);
    let changes = json!({ "policy": { "images": images } });
    let Some(mut moved) = Moved::start(node, changes).await else {
        return;
    };
    moved.to(-3 * YEAR).await;
    moved.restart(0).await;
    let pass = moved.rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    moved.rig.nothing_was_touched();
}

#[tokio::test]
async fn jumps_in_mid_pass_end_it_neither_early_nor_never() {
    let Some(moved) = Moved::start(nodes::litter(8), json!({})).await else {
        return;
    };
    let rig = &moved.rig;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let pass = rig.begin_gc("").await;
    rig.removing().await;
    // The pass's deadline (10 minutes) and its removals' (10 s) do not use the wall clock.
    moved.to(YEAR).await;
    moved.to(-YEAR).await;
    moved.to(0).await;
    rig.sim.clear_faults();
    assert_eq!(rig.finished(&pass).await["outcome"], "completed");
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    let sum = rig
        .metrics()
        .await
        .get("crisweep_pass_duration_seconds_sum");
    assert!(sum.unwrap() >= 0.0);
}

#[tokio::test]
async fn jumps_release_no_brake_and_hold_none() {
    let brakes = json!({ "brakes": { "cooldown": "1h", "max_passes_per_hour": 1 } });
    let Some(moved) = Moved::start(nodes::litter(3), brakes).await else {
        return;
    };
    let rig = &moved.rig;
    let body = sent(rig, asks("containers"), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    for (jump, second) in [(YEAR, 1), (-YEAR, 2), (0, 3)] {
        moved.to(jump).await;
        let mut alert = asks("containers");
        alert["startsAt"] = json!(format!("2026-03-01T00:00:{second:02}Z"));
        sent(rig, alert, 200, "braked").await;
    }
    // A manual pass works whatever the clock says.
    cleans(rig).await;
}

#[tokio::test]
async fn set_back_the_passes_keep_their_order_through_a_restart() {
    let Some(mut moved) = Moved::start(nodes::litter(2), json!({})).await else {
        return;
    };
    let first = moved.rig.gc("").await;
    moved.to(-3600).await;
    let second = moved.rig.gc("").await;
    moved.rig.crash().await;
    let passes = moved.rig.passes().await;
    let ids: Vec<_> = passes.iter().map(|pass| &pass["id"]).collect();
    assert_eq!(ids, [&second["id"], &first["id"]]);
}

#[tokio::test]
async fn set_back_no_failed_sandbox_is_quarantined_for_longer() {
    let changes = json!({ "quarantine": { "base": "1s", "max": "1s" } });
    let Some(moved) = Moved::start(nodes::leaks(1), changes).await else {
        return;
    };
    let rig = &moved.rig;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    rig.gc("").await;
    moved.to(-60).await;
    rig.sim.heal_cni();
    crate::support::until("it is tried again", || async {
        rig.gc("").await;
        (rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_saved_plan_that_expires_while_its_pass_waits_removes_nothing() {
    let Some(moved) = Moved::start(nodes::litter(8), json!({})).await else {
        return;
    };
    let rig = &moved.rig;
    let plan = rig.post("/api/v1/plans").await.json();
    let id = plan["id"].as_str().unwrap();
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let first = rig.begin_gc("target=containers&max_removals=1").await;
    rig.removing().await;
    let late = rig.begin_gc(&format!("plan={id}")).await;
    moved.to(2 * 3600).await;
    rig.sim.clear_faults();
    rig.finished(&first).await;
    let left = rig.exited_containers();
    let pass = rig.finished(&late).await;
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("expired at"),
        "{pass:#}"
    );
    assert_eq!(rig.exited_containers(), left);
    // Whoever comes later hears it at once.
    let path = format!("/api/v1/plans/{id}");
    rig.get(&path).await.refused(410, "expired at");
    rig.delete(&path).await.refused(410, "save a new one");
    rig.post(&format!("/gc?plan={id}"))
        .await
        .refused(410, "expired at");
    let list = rig.get("/api/v1/plans").await.json();
    assert_eq!(list["plans"], json!([]));
    moved.to(0).await;
    cleans(rig).await;
}
