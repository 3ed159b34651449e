//! `crisweep demo`.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::rig::{config, write};
use crate::support::service::{Service, program};
use crate::support::wait::{PATIENCE, until, until_true};

/// For the simulated pod source the machine's own pods would look deleted.
#[tokio::test]
async fn the_demo_leaves_the_machines_own_logs_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (pods, containers) = (dir.path().join("pods"), dir.path().join("containers"));
    let own = pods.join("default_web_0d5f6a2c-1111-4222-8333-0123456789ab");
    fs::create_dir_all(&own).unwrap();
    fs::create_dir_all(&containers).unwrap();
    let changes = json!({
        "policy": { "logs": { "enabled": true, "grace": "0s", "pods_root": pods, "containers_root": containers } },
    });
    let mut demo = Service::demo(&write(dir.path(), &config(dir.path(), &changes))).await;
    let plan = until("the demo knows its pods", || async {
        let plan = demo.get("/api/v1/plan?target=logs").await;
        let known = plan.status == 200 && plan.json()["removals"] != json!([]);
        known.then(|| plan.json())
    })
    .await;
    let removals = plan["removals"].as_array().unwrap().iter();
    let mut places = removals.chain(plan["kept"].as_array().unwrap());
    assert!(
        places.all(|it| it["id"].as_str().unwrap().contains("/crisweep-demo-")),
        "{plan:#}"
    );
    let pass = demo.gc("target=logs").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert!(own.exists());
    demo.post("/-/reload")
        .await
        .refused(400, "the demo reads its configuration only at its start");
    demo.signal(Signal::TERM);
    assert!(demo.exited().await.success());
}

/// A reader may go away (`| head -1`).
#[tokio::test]
async fn a_greeting_that_is_not_read_ends_no_demo_and_one_that_cannot_be_written_does() {
    let dir = tempfile::tempdir().unwrap();
    let start = |stdout: Stdio, stderr: Stdio| {
        let mut demo = program();
        demo.env("TMPDIR", dir.path())
            .args(["demo", "--web.listen-address=127.0.0.1:0"])
            .stdout(stdout)
            .stderr(stderr);
        demo.spawn().unwrap()
    };
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = start(full.into(), Stdio::piped()).wait_with_output();
    let output = tokio::time::timeout(PATIENCE, ended)
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write standard output"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut log = tempfile::NamedTempFile::new().unwrap();
    let mut demo = start(writer.into(), log.reopen().unwrap().into());
    let mut said = String::new();
    until_true("the demo serves", || {
        log.read_to_string(&mut said).unwrap();
        assert!(!said.contains("panicked"), "{said}");
        said.contains("configuration in force")
    })
    .await;
    let pid = Pid::from_raw(demo.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(demo.wait().await.unwrap().success());
}

#[tokio::test]
async fn the_demo_has_something_to_collect_of_each_kind() {
    let dir = tempfile::tempdir().unwrap();
    let changes = json!({ "policy": {
        "logs": { "enabled": true, "grace": "0s" },
        "images": { "min_age": "0s", "max_age": "1s" },
    } });
    let mut demo = Service::demo(&write(dir.path(), &config(dir.path(), &changes))).await;
    let summary = until("something of each kind would go", || async {
        let plan = demo.get("/api/v1/plan").await;
        let summary = (plan.status == 200).then(|| plan.json()["summary"].clone())?;
        let goes = |target: &str| {
            summary[target]["remove"]
                .as_object()
                .is_some_and(|it| !it.is_empty())
        };
        ["containers", "sandboxes", "images", "logs"]
            .into_iter()
            .all(goes)
            .then(|| summary.clone())
    })
    .await;
    assert_eq!(summary["logs"]["remove"]["dead-link"], 20, "{summary:#}");
    demo.signal(Signal::TERM);
    assert!(demo.exited().await.success());
}

/// The machine's own start, a minute ago, does not matter for the simulated node, whose pods are up.
#[tokio::test]
async fn the_demo_removes_litter_of_deleted_pods_even_right_after_boot() {
    let dir = tempfile::tempdir().unwrap();
    let uptime = dir.path().join("uptime");
    fs::write(&uptime, "61.50 100.00\n").unwrap();
    let mut command = tokio::process::Command::new("unshare");
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("TMPDIR", dir.path())
        .kill_on_drop(true)
        .args(["--mount", "sh", "-c"])
        .arg(r#"mount --bind "$0" /proc/uptime && exec "$@""#)
        .arg(&uptime)
        .args([env!("CARGO_BIN_EXE_crisweep"), "demo"]);
    let config = write(dir.path(), &config(dir.path(), &json!({})));
    let mut demo = Service::start_as(command, &config).await;
    until("deleted pods are known", || async {
        let pass = demo.gc("target=containers").await;
        let deleted = &pass["targets"]["containers"]["reasons"]["pod-deleted"];
        (deleted.as_u64() > Some(0)).then_some(())
    })
    .await;
    demo.signal(Signal::TERM);
    assert!(demo.exited().await.success());
}

#[tokio::test]
async fn the_demos_disk_shrinks_by_its_removed_images() {
    let dir = tempfile::tempdir().unwrap();
    let changes = json!({ "policy": { "images": { "min_age": "0s", "max_age": "1s" } } });
    let mut demo = Service::demo(&write(dir.path(), &config(dir.path(), &changes))).await;
    let pass = until("images went", || async {
        let pass = demo.gc("target=images").await;
        (pass["targets"]["images"]["freed_bytes"].as_u64() > Some(0)).then_some(pass)
    })
    .await;
    let ratio = |when: &str| pass[when]["image_fs_used_ratio"].as_f64().unwrap();
    let freed = pass["targets"]["images"]["freed_bytes"].as_f64().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a share of some gigabytes")]
    let wanted = freed / crisweep_sim::demo::DISK_BYTES as f64;
    let lost = ratio("before") - ratio("after");
    assert!((lost - wanted).abs() < 1e-9, "{lost} {wanted} {pass:#}");
    demo.signal(Signal::TERM);
    assert!(demo.exited().await.success());
}
