//! An image file system whose usage cannot be read: no room is made, and a pass says so.

use std::fs;

use crisweep_sim::{ContainerSpec, Fault, Options, PodSpec, Rpc, hours};
use serde_json::{Value, json};
use tonic::Code;

use super::{MIB, hang_in_the_second_of, idle, judged, plan, prune, removed, tag};
use crate::support::Rig;
use crate::support::tmpfs::Tmpfs;

const UNMEASURED: &str = "images: the image file system could not be measured";

fn cannot_be_asked(rig: &Rig) {
    let fault = Fault::fail(Code::Internal, "no figures today");
    rig.sim.set_fault(Rpc::ImageFsInfo, fault);
}

/// The only error of a partial pass.
fn error(pass: &Value) -> &str {
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["errors"].as_array().unwrap().len(), 1, "{pass:#}");
    pass["errors"][0].as_str().unwrap()
}

#[tokio::test]
async fn a_pass_that_cannot_measure_the_disk_says_so_and_removes_by_age_alone() {
    let mut rig = Rig::start(
        idle(3),
        json!({ "policy": { "images": { "min_age": "0s" } } }),
    )
    .await;
    cannot_be_asked(&rig);
    for dry_run in [true, false] {
        let pass = rig.gc(&format!("target=images&dry_run={dry_run}")).await;
        let error = error(&pass);
        assert!(error.starts_with(UNMEASURED), "{error}");
        let why = "no figures today), so no image is removed to make room";
        assert!(error.ends_with(why), "{error}");
    }
    rig.nothing_was_touched();
    let other = rig.gc("target=containers").await;
    assert_eq!(other["outcome"], "nothing-to-do", "{other:#}");
    let planned = plan(&rig).await;
    let doubts = planned["doubts"].to_string();
    assert!(doubts.contains("could not be measured"), "{planned:#}");
    let (_, reason, row) = judged(&planned, &tag(0));
    assert_eq!(reason, "below-threshold");
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.contains("could not be measured"), "{detail}");

    // Where nothing but the age decides, nothing is missing.
    rig.configure(&prune());
    assert_eq!(rig.post("/-/reload").await.status, 200);
    assert_eq!(plan(&rig).await["doubts"], Value::Null);
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["targets"]["images"]["removed"], 3, "{pass:#}");
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
}

#[tokio::test]
async fn a_mount_point_that_is_not_there_is_named() {
    let options = Options {
        mountpoint: Some("/nowhere/images".into()),
        ..Options::default()
    };
    let changes = json!({ "policy": { "images": { "min_age": "0s" } } });
    let rig = Rig::with(idle(1).build(), options, changes).await;
    let pass = rig.gc("target=images").await;
    assert!(error(&pass).contains("/nowhere/images"), "{pass:#}");
}

#[tokio::test]
async fn where_every_image_is_needed_no_figure_is_missing() {
    let user = ContainerSpec::exited("app", 0, hours(1)).image(&tag(0));
    let node = idle(1).pod(PodSpec::new("user").container(user));
    let changes = json!({ "policy": { "images": { "min_age": "0s" } } });
    let rig = Rig::start(node, changes).await;
    cannot_be_asked(&rig);
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(pass["errors"], json!([]));
}

#[tokio::test]
async fn a_pass_that_cannot_measure_what_it_freed_does_not_claim_that_it_was_enough() {
    for batch_size in [2, 50] {
        // 10 images of 4 MiB and 1.5 MiB of others, of 64.
        let disk = Tmpfs::mount(64);
        let options = Options {
            mountpoint: Some(disk.path().to_owned()),
            image_files: Some(disk.path().to_owned()),
            ..Options::default()
        };
        let changes = json!({
            "policy": { "images": {
                "min_age": "0s", "high_threshold_percent": 60, "low_threshold_percent": 20,
            } },
            "gc": { "batch_size": batch_size },
        });
        let rig = Rig::with(idle(10).build(), options, changes).await;
        let id = hang_in_the_second_of(&rig, 10).await;
        cannot_be_asked(&rig);
        let second = rig.sim.image_id(&tag(1)).unwrap();
        rig.sim.clear_removal_fault(&second);
        let pass = rig.finished(&id).await;
        let error = error(&pass);
        assert!(error.starts_with(UNMEASURED), "{error}");
        assert!(error.contains("no figures today"), "{error}");
        assert_eq!(removed(&rig), [tag(0), tag(1)], "the rest stays");
    }
}

/// A runtime that frees an image may have no time for an answer.
#[tokio::test]
async fn a_measurement_that_fails_once_costs_no_image_more_than_the_room_needs() {
    // 10 images are listed with 2 MiB and use 4; 1.5 MiB of others, 10 MiB of other data: 80 %.
    let disk = Tmpfs::mount(64);
    fs::write(disk.path().join("filler"), vec![1; 10 << 20]).unwrap();
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        image_files: Some(disk.path().to_owned()),
        image_file_weight: 2,
        ..Options::default()
    };
    let changes = json!({ "policy": { "images": {
        "min_age": "0s", "high_threshold_percent": 75, "low_threshold_percent": 50,
    } } });
    let node = (0..10).fold(idle(0), |node, number| node.image(&tag(number), 2 * MIB));
    let rig = Rig::with(node.build(), options, changes).await;
    let id = hang_in_the_second_of(&rig, 10).await;
    let fault = Fault::fail(Code::Internal, "no figures today");
    rig.sim.set_fault(Rpc::ImageFsInfo, fault.times(1));
    let second = rig.sim.image_id(&tag(1)).unwrap();
    rig.sim.clear_removal_fault(&second);
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    // From 53 to 32 MiB.
    assert_eq!(removed(&rig), (0..6).map(tag).collect::<Vec<_>>());
}
