//! Images that are never removed, however long they are unused.

use crisweep_sim::{
    ContainerSpec, DEFAULT_IMAGE, Fault, Options, PodSpec, Rpc, SANDBOX_IMAGE, hours,
};
use serde_json::json;
use tonic::Code;

use super::{MIB, idle, is_there, judged, plan, prune, removed, tag};
use crate::support::wait::until;
use crate::support::{Rig, nodes};

/// Waits until both images are removed: failed calls are repeated after a while.
async fn images_go(rig: &Rig) {
    until("the images go", || async {
        let pass = rig.gc("target=images").await;
        (pass["targets"]["images"]["removed"] == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn images_in_use_mounted_or_for_sandboxes_stay_and_all_others_are_removed() {
    let user = PodSpec::new("users")
        .container(ContainerSpec::exited("dead", 0, hours(1)).image(&tag(0)))
        .container(ContainerSpec::created("new", 0, hours(0)).image(&tag(1)))
        .container(ContainerSpec::running("volume", 0, hours(1)).image_volume(&tag(2)));
    let unpinned = idle(4)
        .edit_image(SANDBOX_IMAGE, |it| it.pinned = false)
        .image("registry.example/pinned:1", MIB)
        .edit_image("registry.example/pinned:1", |it| it.pinned = true)
        .pod(user)
        // For later sandboxes; existing ones were made from the earlier image.
        .sandbox_image("registry.example/pause:4", MIB);
    let rig = Rig::start(unpinned, prune()).await;
    let first = plan(&rig).await;
    for (tag, reason) in [
        (tag(0).as_str(), "in-use"),
        (&tag(1), "in-use"),
        (&tag(2), "in-use"),
        (DEFAULT_IMAGE, "in-use"),
        (SANDBOX_IMAGE, "sandbox-image"),
        ("registry.example/pause:4", "sandbox-image"),
        ("registry.example/pinned:1", "pinned"),
    ] {
        let (list, why, _) = judged(&first, tag);
        assert_eq!((list, why.as_str()), ("kept", reason), "{tag}");
    }
    let page = rig.metrics().await;
    page.is("cri_images{state=\"used\"}", 6.0);
    page.is("cri_images{state=\"pinned\"}", 1.0);
    page.is("cri_images{state=\"unused\"}", 1.0);
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    assert_eq!(removed(&rig), [tag(3)]);
    assert_eq!(rig.sim.images().len(), 7);
}

#[tokio::test]
async fn while_a_containers_mounts_are_unknown_every_image_stays() {
    let rig = Rig::unready(idle(2).build(), Options::default(), prune()).await;
    rig.ready().await;
    rig.sim
        .set_fault(Rpc::ContainerStatus, Fault::fail(Code::Unknown, "broken"));
    let silent = rig.sim.add_pod(&PodSpec::new("silent").running("app", 0));
    let silent = silent.containers[0].as_str();
    for dry_run in [true, false] {
        let pass = rig.gc(&format!("target=images&dry_run={dry_run}")).await;
        assert_eq!(pass["outcome"], "partial", "{pass}");
        assert_eq!(pass["targets"]["images"]["kept"]["unknown-user"], 2);
        let error = pass["errors"][0].as_str().unwrap();
        assert!(error.starts_with("images: 2 images stay: "), "{error}");
        assert!(error.contains(silent), "{error}");
    }
    rig.nothing_was_touched();
    // Plan and explanation name it too.
    let (list, reason, row) = judged(&plan(&rig).await, &tag(0));
    assert_eq!((list, reason.as_str()), ("kept", "unknown-user"));
    assert!(row["detail"].as_str().unwrap().contains(silent), "{row}");
    let path = format!("/api/v1/explain/{}", rig.sim.image_id(&tag(0)).unwrap());
    let why = rig.get(&path).await.json();
    assert!(why["detail"].as_str().unwrap().contains(silent), "{why}");
    let page = rig.metrics().await;
    page.is(
        "crisweep_kept{target=\"images\",reason=\"unknown-user\"}",
        2.0,
    );
    rig.sim.clear_faults();
    images_go(&rig).await;
}

#[tokio::test]
async fn while_sandbox_images_are_unknown_every_image_stays() {
    for question in [Rpc::Status, Rpc::PodSandboxStatus] {
        let rig = Rig::start(idle(2), prune()).await;
        rig.sim
            .set_fault(question, Fault::fail(Code::Unknown, "broken"));
        rig.sim.add_pod(&PodSpec::new("silent").running("app", 0));
        let pass = rig.gc("target=images").await;
        assert_eq!(pass["outcome"], "partial", "{question:?}: {pass}");
        rig.nothing_was_touched();
        rig.sim.clear_faults();
        images_go(&rig).await;
    }
}

#[tokio::test]
async fn each_container_and_each_ready_sandbox_is_asked_once() {
    let rig = Rig::start(idle(1), prune()).await;
    let asked = || {
        let count = |rpc| rig.sim.call_count(rpc);
        (count(Rpc::ContainerStatus), count(Rpc::PodSandboxStatus))
    };
    plan(&rig).await;
    let before = asked();
    for _ in 0..3 {
        plan(&rig).await;
    }
    assert_eq!(asked(), before);
    let pod = rig.sim.add_pod(&PodSpec::new("more").running("app", 0));
    plan(&rig).await;
    plan(&rig).await;
    assert_eq!(asked(), (before.0 + 1, before.1 + 1));
    // Asked once more for its exit; its mounts are known.
    rig.sim
        .change(|node| node.exit_container(&pod.containers[0], 0));
    plan(&rig).await;
    plan(&rig).await;
    assert_eq!(asked(), (before.0 + 2, before.1 + 1));
}

#[tokio::test]
async fn without_the_list_of_images_the_other_targets_go_on() {
    let rig = Rig::start(nodes::litter(3), prune()).await;
    rig.sim.set_fault(
        Rpc::ListImages,
        Fault::fail(Code::Unknown, "no images today"),
    );
    let dry = rig.gc("dry_run=true").await;
    assert_eq!(dry["outcome"], "partial", "{dry}");
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass}");
    let errors = pass["errors"].to_string();
    assert!(
        errors.contains("images: ") && errors.contains("no images today"),
        "{errors}"
    );
    assert_eq!(pass["targets"]["containers"]["removed"], 3);
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 3);
    assert!(is_there(&rig, DEFAULT_IMAGE));
    let other = rig.gc("target=containers").await;
    assert_eq!(other["errors"], json!([]), "nobody asked for images");
}

#[tokio::test]
async fn switched_off_images_stay_without_an_error() {
    let mut changes = prune();
    changes["policy"]["images"]["enabled"] = json!(false);
    let rig = Rig::start(idle(2), changes).await;
    rig.sim.set_fault(
        Rpc::ListImages,
        Fault::fail(Code::Unknown, "no images today"),
    );
    assert_eq!(rig.gc("target=images").await["outcome"], "nothing-to-do");
    rig.sim.clear_faults();
    assert_eq!(rig.gc("target=images").await["outcome"], "nothing-to-do");
    rig.nothing_was_touched();
}
