//! Freeing space on a file system that is really full.

use std::fs::{self, File};
use std::path::Path;

use crisweep_sim::{DEFAULT_IMAGE, Fault, NodeBuilder, Options, PodSpec, Rpc};
use serde_json::{Value, json};

use super::{
    MIB, hang_in_the_second_of, idle, is_there, judged, plan, prune, removed, tag, use_once,
};
use crate::support::Rig;
use crate::support::tmpfs::Tmpfs;
use crate::support::wait::{until, until_true};

/// The file system's size.
const SIZE_MIB: u32 = 64;

fn thresholds(high: u8, low: u8, batch_size: usize) -> Value {
    json!({
        "policy": { "images": {
            "min_age": "0s", "high_threshold_percent": high, "low_threshold_percent": low,
        } },
        "gc": { "batch_size": batch_size },
    })
}

/// A node whose images use real space.
async fn rig(node: NodeBuilder, disk: &Tmpfs, changes: Value) -> Rig {
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        image_files: Some(disk.path().to_owned()),
        ..Options::default()
    };
    Rig::with(node.build(), options, changes).await
}

/// Uses space for other data than images.
fn fill(disk: &Path, megabytes: usize) {
    let bytes = vec![1; megabytes << 20];
    fs::write(disk.join("filler"), bytes).unwrap();
}

#[tokio::test]
async fn above_the_high_threshold_the_least_recently_used_are_removed_down_to_the_low_one() {
    // 10 images of 4 MiB, 1.5 MiB of others, 10 MiB of other data: 80 %.
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 10);
    let rig = rig(idle(10), &disk, thresholds(75, 50, 50)).await;
    for number in [7, 2, 9, 0] {
        use_once(&rig, &tag(number)).await;
    }
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    // From 51.5 to 32 MiB: five images, all never used ones except one.
    let report = &pass["targets"]["images"];
    assert_eq!(
        (&report["planned"], &report["removed"]),
        (&json!(5), &json!(5))
    );
    assert_eq!(report["freed_bytes"], 20 * MIB);
    assert_eq!(report["reasons"], json!({ "space": 5 }));
    assert!(pass["before"]["image_fs_used_ratio"].as_f64().unwrap() > 0.75);
    assert!(pass["after"]["image_fs_used_ratio"].as_f64().unwrap() < 0.5);
    for used in [7, 2, 9, 0] {
        assert!(is_there(&rig, &tag(used)), "{used}");
    }
    assert_eq!(rig.sim.peak_removals_in_flight(), 1, "one at a time");
    let page = rig.metrics().await;
    page.is(
        "crisweep_freed_bytes_total{target=\"images\"}",
        20.0 * 1_048_576.0,
    );
    page.is(
        "crisweep_removals_total{target=\"images\",reason=\"space\"}",
        5.0,
    );

    // Full again: now the last never used one is removed, then the others by last use.
    fill(disk.path(), 30);
    let before = removed(&rig).len();
    rig.gc("target=images").await;
    let again = &removed(&rig)[before..];
    assert_eq!(
        again[1..],
        [tag(7), tag(2), tag(9), tag(0)][..again.len() - 1]
    );
    assert!(again.len() > 2, "{again:?}");
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass}");
    assert_eq!(pass["targets"]["images"]["freed_bytes"], Value::Null);
}

/// Measured on containerd 1.6, 1.7 and 2.1: removed images gave twice what was listed; packed layers give more.
#[tokio::test]
async fn images_that_free_more_than_is_listed_go_only_down_to_the_low_mark() {
    // 10 images are listed with 2 MiB and use 4; 1.5 MiB of others, 10 MiB of other data: 80 %.
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 10);
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        image_files: Some(disk.path().to_owned()),
        image_file_weight: 2,
        ..Options::default()
    };
    let node = NodeBuilder::new()
        .image(DEFAULT_IMAGE, MIB)
        .pod(PodSpec::new("web").running("app", 0));
    let node = (0..10).fold(node, |node, number| node.image(&tag(number), 2 * MIB));
    let rig = Rig::with(node.build(), options, thresholds(75, 50, 50)).await;
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    // From 53 to 32 MiB: six images, and by the listed sizes all of them.
    let report = &pass["targets"]["images"];
    assert_eq!(
        (&report["planned"], &report["removed"], &report["skipped"]),
        (&json!(6), &json!(6), &json!(0))
    );
    assert_eq!(removed(&rig).len(), 6);
    // The journal says of the others that they did not go.
    let rows = rig.get("/api/v1/removals").await.json();
    let rows = rows["removals"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["result"] != Value::Null),
        "{rows:?}"
    );
}

/// Room is there after the first one, and by then the others have been unused for `max_age`.
#[tokio::test]
async fn images_that_were_to_make_room_and_are_old_by_now_go_for_their_age() {
    // 10 images are listed with 1 MiB and use 4, others use 6; 10 MiB of other data: 88 %.
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 10);
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        image_files: Some(disk.path().to_owned()),
        image_file_weight: 4,
        ..Options::default()
    };
    let node = (0..10).fold(idle(0), |node, number| node.image(&tag(number), MIB));
    let mut changes = thresholds(84, 84, 50);
    changes["policy"]["images"]["max_age"] = json!("5s");
    let rig = Rig::with(node.build(), options, changes).await;
    rig.sim.set_fault(Rpc::RemoveImage, Fault::hang());
    let id = rig.begin_gc("target=images").await;
    until("all are old", || async {
        let plan = plan(&rig).await;
        let removals = plan["removals"].as_array().unwrap();
        let is_old = |it: &&Value| it["reason"] == "age";
        (removals.iter().filter(is_old).count() == 10).then_some(())
    })
    .await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let report = &pass["targets"]["images"];
    assert_eq!(
        report["reasons"],
        json!({ "space": 1, "age": 9 }),
        "{pass:#}"
    );
    let rows = rig.get("/api/v1/removals").await.json();
    let of_age = rows["removals"].as_array().unwrap().iter();
    let of_age = of_age.filter(|row| row["reason"] == "age");
    assert_eq!(of_age.count(), 9, "{rows:#}");
}

/// Between the marks no image goes for room, also not one that was old when the pass began.
#[tokio::test]
async fn an_image_that_is_used_after_the_plan_stays_where_the_high_mark_was_not_reached() {
    // 2 images of 4 MiB, 1.5 MiB of others, 40 MiB of other data: 77 %.
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 40);
    let mut changes = thresholds(95, 50, 1);
    changes["policy"]["images"]["max_age"] = json!("5s");
    let rig = rig(idle(2), &disk, changes).await;
    until("both are old", || async {
        let plan = plan(&rig).await;
        let removals = plan["removals"].as_array().unwrap();
        (removals.len() == 2).then_some(())
    })
    .await;
    rig.sim.set_fault(Rpc::RemoveImage, Fault::hang());
    let id = rig.begin_gc("target=images").await;
    until_true("the first is under way", || removed(&rig).len() == 1).await;
    let other = usize::from(removed(&rig)[0] == tag(0));
    use_once(&rig, &tag(other)).await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert!(is_there(&rig, &tag(other)), "{pass:#}");
    let report = &pass["targets"]["images"];
    assert_eq!(
        (&report["removed"], &report["skipped"]),
        (&json!(1), &json!(1)),
        "{pass:#}"
    );
}

#[tokio::test]
async fn between_the_thresholds_nothing_is_removed() {
    let disk = Tmpfs::mount(SIZE_MIB);
    let rig = rig(idle(10), &disk, thresholds(70, 50, 50)).await;
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass}");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn inodes_that_run_out_cross_the_threshold_too() {
    // 12 images and the directory have an inode each, of 14; 41.5 MiB of 64 are used.
    let disk = Tmpfs::with(&format!("size={SIZE_MIB}m,nr_inodes=14"));
    let mut changes = thresholds(90, 60, 50);
    changes["thresholds"] =
        json!({ "enabled": true, "interval": "100ms", "image_fs_used_percent": 90 });
    let rig = rig(idle(10), &disk, changes).await;
    // 4 inodes of 13 in use are 12.8 MiB of the 41.5 that the images list.
    until_true("9 inodes are in use, 64 %", || removed(&rig).len() == 4).await;
    let passes = rig.passes().await;
    let by_threshold = |pass: &Value| pass["trigger"]["cause"] == "threshold";
    assert!(passes.iter().all(by_threshold), "{passes:?}");
}

/// Returns what a plan says of the image that was used last.
async fn last_stays_because(filler_mib: usize, high: u8, low: u8, enabled: bool) -> String {
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), filler_mib);
    let mut changes = thresholds(high, low, 50);
    changes["policy"]["images"]["enabled"] = json!(enabled);
    let rig = rig(idle(4), &disk, changes).await;
    for number in 0..4 {
        use_once(&rig, &tag(number)).await;
    }
    let (list, reason, row) = judged(&plan(&rig).await, &tag(3));
    assert_eq!((list, reason.as_str()), ("kept", "below-threshold"));
    row["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_said_of_an_image_that_stays_is_the_rule_that_keeps_it() {
    // 16 MiB of images and 1.5 of others, of 64.
    for (filler_mib, high, low, enabled, words) in [
        (30, 85, 80, true, "is 75 % full; room is made from 85 % on"),
        // 74.2 %: the kubelet rounds up.
        (
            30,
            75,
            72,
            true,
            "images that were unused for longer make it",
        ),
        (
            46,
            100,
            90,
            true,
            "policy.images.high_threshold_percent is 100",
        ),
        (30, 75, 72, false, "policy.images.enabled is off"),
    ] {
        let detail = last_stays_because(filler_mib, high, low, enabled).await;
        assert!(detail.contains(words), "{high}: {detail}");
    }
}

#[tokio::test]
async fn a_pass_stops_when_the_room_is_there_however_it_came() {
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 14);
    let rig = rig(idle(10), &disk, thresholds(80, 40, 2)).await;
    let id = hang_in_the_second_of(&rig, 10).await;
    // 47.5 MiB of 64 are used, and six more are planned. Then 13 MiB of other data are deleted.
    fs::remove_file(disk.path().join("filler")).unwrap();
    fill(disk.path(), 1);
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    let report = &pass["targets"]["images"];
    // 34.5 MiB are used, 25.6 is the low threshold: three of the six are enough.
    assert_eq!(
        (&report["removed"], &report["planned"]),
        (&json!(5), &json!(5))
    );
    assert_eq!(
        (&report["skipped"], &report["remaining"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(removed(&rig), (0..5).map(tag).collect::<Vec<_>>());
}

#[tokio::test]
async fn overstated_image_sizes_lead_to_another_round() {
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 24);
    let rig = rig(idle(8), &disk, thresholds(60, 55, 50)).await;
    // Each file holds a quarter of the listed size, as if the rest were shared layers.
    for file in fs::read_dir(disk.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|suffix| suffix == "image") {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 4).unwrap();
        }
    }
    fill(disk.path(), 32);
    // 40.4 MiB are used, 35.2 is the low threshold: by listed sizes two images are enough. But each frees
    // only one MiB, so each further round removes one more, until the low threshold is reached.
    let pass = rig.gc("target=images").await;
    let report = &pass["targets"]["images"];
    assert_eq!(report["removed"], 6, "{pass}");
    assert_eq!(report["planned"], 6);
    assert_eq!(report["batches"], 5, "five rounds");
    assert_eq!(pass["outcome"], "completed");
    let after = pass["after"]["image_fs_used_ratio"].as_f64().unwrap();
    assert!((0.53..0.55).contains(&after), "below the low mark: {after}");
}

#[tokio::test]
async fn a_disk_full_of_something_else_ends_with_all_that_may_go() {
    for (max_age, reason) in [("0s", "space"), ("1ms", "age")] {
        let disk = Tmpfs::mount(SIZE_MIB);
        fill(disk.path(), 50);
        let mut changes = thresholds(60, 50, 50);
        changes["policy"]["images"]["max_age"] = json!(max_age);
        let rig = rig(idle(3), &disk, changes).await;
        let pass = rig.gc("target=images").await;
        let report = &pass["targets"]["images"];
        assert_eq!(report["removed"], 3, "{pass}");
        assert_eq!(report["reasons"], json!({ reason: 3 }), "{pass}");
        assert_eq!(pass["outcome"], "partial", "{pass}");
        let error = pass["errors"][0].as_str().unwrap();
        assert!(
            error.contains(&format!("freed {} bytes: ", 12 * MIB)),
            "{error}"
        );
        assert!(pass["after"]["image_fs_used_ratio"].as_f64().unwrap() > 0.6);
        assert_eq!(rig.gc("target=images").await["outcome"], "nothing-to-do");
    }
}

#[tokio::test]
async fn a_batch_that_frees_next_to_nothing_is_the_last_one() {
    // The images' sizes count, but removing them frees nothing, as if other data filled the disk.
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 50);
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        ..Options::default()
    };
    let rig = Rig::with(idle(10).build(), options, thresholds(70, 50, 2)).await;
    let pass = rig.gc("target=images").await;
    let report = &pass["targets"]["images"];
    assert_eq!(
        (&report["planned"], &report["removed"]),
        (&json!(5), &json!(2)),
        "{pass}"
    );
    assert_eq!(pass["outcome"], "partial");
    let error = pass["errors"][0].as_str().unwrap();
    assert!(error.contains("something else fills"), "{error}");
}

#[tokio::test]
async fn a_cancel_ends_the_wait_for_a_runtime_that_hangs_while_room_is_measured() {
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 50);
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        ..Options::default()
    };
    let mut changes = thresholds(70, 50, 2);
    changes["runtime"] = json!({ "timeout": "2m" });
    let rig = Rig::with(idle(10).build(), options, changes).await;
    let id = hang_in_the_second_of(&rig, 10).await;
    let measured = || rig.sim.call_count(Rpc::ImageFsInfo);
    let before = measured();
    rig.sim.clear_faults();
    // The look after the batch; then usage is measured again and again, because the images freed nothing.
    until_true("the look has the usage", || measured() > before).await;
    rig.sim.set_fault(Rpc::ImageFsInfo, Fault::hang());
    until_true("it is measured again", || measured() > before + 1).await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    assert_eq!(rig.finished(&id).await["outcome"], "aborted");
}

/// It counts a layer several times that is shared in several combinations: the largest image alone is certain.
#[tokio::test]
async fn what_cri_dockerd_adds_up_does_not_make_a_mount_another_one() {
    for (in_use, high, detail) in [(30, 40, ""), (3, 4, "another file system")] {
        let disk = Tmpfs::mount(SIZE_MIB);
        fill(disk.path(), in_use);
        let options = Options {
            mountpoint: Some(disk.path().to_owned()),
            ..Options::cri_dockerd()
        };
        let rig = Rig::with(idle(10).build(), options, thresholds(high, 2, 50)).await;
        let plan = plan(&rig).await;
        let is_due = plan["removals"].as_array().unwrap().len();
        assert_eq!(is_due > 0, detail.is_empty(), "{plan}");
        let (.., row) = judged(&plan, &tag(0));
        assert!(row["detail"].as_str().unwrap().contains(detail), "{row}");
    }
}

/// CRI-O says OK to the removal of an OCI artifact or of an image of a read-only store, and keeps it.
#[tokio::test]
async fn images_that_the_runtime_keeps_do_not_hold_the_others_back() {
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 10);
    let rig = rig(idle(10), &disk, thresholds(75, 60, 50)).await;
    for number in 0..10 {
        use_once(&rig, &tag(number)).await;
    }
    for number in 0..5 {
        let kept = rig.sim.image_id(&tag(number)).unwrap();
        rig.sim.set_removal_fault(&kept, Fault::pretend());
    }
    // 51.5 MiB are used, 38.4 is the low threshold: four images by listed size, and the runtime keeps them all.
    let pass = rig.gc("target=images").await;
    let report = &pass["targets"]["images"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(4), &json!(5)),
        "{pass}"
    );
    assert_eq!(report["freed_bytes"], 16 * MIB);
    assert_eq!(removed(&rig), (0..9).map(tag).collect::<Vec<_>>());
    assert_eq!(pass["outcome"], "partial");
    let errors = pass["errors"].to_string();
    assert!(errors.contains("still lists it"), "{errors}");
    assert!(!errors.contains("something else fills"), "{errors}");

    // The next pass tries only what may go.
    let (_, reason, row) = judged(&plan(&rig).await, &tag(0));
    assert_eq!(reason, "pinned");
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.contains("still listed it"), "{detail}");
    fill(disk.path(), 30);
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["targets"]["images"]["failed"], 0, "{pass}");
    assert_eq!(removed(&rig).len(), 10);
}

#[tokio::test]
async fn a_mount_with_less_in_use_than_the_images_take_is_another_one() {
    let disk = Tmpfs::mount(SIZE_MIB);
    fill(disk.path(), 30);
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        ..Options::default()
    };
    let rig = Rig::with(idle(10).build(), options, thresholds(40, 20, 50)).await;
    for dry_run in [true, false] {
        let pass = rig.gc(&format!("target=images&dry_run={dry_run}")).await;
        assert_eq!(pass["outcome"], "partial", "{pass}");
        let error = pass["errors"][0].as_str().unwrap();
        assert!(error.contains("it is another file system"), "{error}");
    }
    rig.nothing_was_touched();
    let planned = plan(&rig).await;
    let doubts = planned["doubts"].to_string();
    assert!(doubts.contains("another file system"), "{planned:#}");
    let (_, reason, row) = judged(&planned, &tag(0));
    assert_eq!(reason, "below-threshold");
    let detail = row["detail"].as_str().unwrap();
    assert!(detail.contains("another file system"), "{detail}");
    // Unused images are still removed by age.
    let mut rig = rig;
    rig.configure(&json!({ "policy": { "images": { "max_age": "1ms" } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["targets"]["images"]["removed"], 10, "{pass}");
}

#[tokio::test]
async fn images_that_are_gone_and_freed_nothing_make_a_pass_by_age_partial() {
    // The images use nothing of this disk, and the runtime's claim is not above what is in use.
    let disk = Tmpfs::mount(4 * SIZE_MIB);
    fill(disk.path(), 100);
    let big = |node: NodeBuilder, number| node.image(&tag(number), 40 * MIB);
    let options = Options {
        mountpoint: Some(disk.path().to_owned()),
        ..Options::default()
    };
    let node = (10..12).fold(idle(0), big);
    let rig = Rig::with(node.build(), options, prune()).await;
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["targets"]["images"]["removed"], 2, "{pass:#}");
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let error = pass["errors"][0].as_str().unwrap();
    let numbers = format!("{} bytes of images", 80 * MIB);
    assert!(error.contains(&numbers), "{error}");
    let bytes = |when: &str| pass[when]["image_fs_used_bytes"].as_u64().unwrap();
    assert_eq!(bytes("before"), bytes("after"));
    assert_eq!(rig.gc("target=images").await["outcome"], "nothing-to-do");
}

#[tokio::test]
async fn room_that_comes_a_while_after_images_went_by_age_is_waited_for() {
    let disk = Tmpfs::mount(SIZE_MIB);
    // With 16 MiB of images and 1.5 of others, of 64: 68 %.
    fill(disk.path(), 26);
    let mut changes = thresholds(60, 50, 50);
    changes["policy"]["images"]["max_age"] = json!("4s");
    let rig = rig(idle(4), &disk, changes).await;
    until("the images are old", || async {
        (judged(&plan(&rig).await, &tag(1)).1 == "age").then_some(())
    })
    .await;
    use_once(&rig, &tag(0)).await;
    // The file system keeps the room of a file that is open.
    let files = fs::read_dir(disk.path()).unwrap();
    let files = files.map(|it| File::open(it.unwrap().path()).unwrap());
    let files: Vec<File> = files.collect();
    let id = rig.begin_gc("target=images").await;
    until_true("three are removed", || removed(&rig).len() >= 3).await;
    let asked = rig.sim.call_count(Rpc::ImageFsInfo);
    until_true("it was measured twice", || {
        rig.sim.call_count(Rpc::ImageFsInfo) > asked + 1
    })
    .await;
    drop(files);
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert!(is_there(&rig, &tag(0)), "{pass:#}");
}
