//! Changes between the plan and the removal, and failures.

use std::time::Duration;

use crisweep_proto::cri::{
    Container, Image, ImageSpec, ListContainersResponse, ListImagesResponse,
};
use crisweep_sim::{ContainerSpec, Fault, Options, PodSpec, Rpc, hours};
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;

use super::{hang_in_the_second_of, idle, is_there, plan, prune, removed, tag, use_once};
use crate::support::Rig;
use crate::support::wait::until_true;

/// Starts a pass over four images, changes the node during the first removal, and continues.
async fn change_during_the_first_removal(rig: &Rig, change: impl FnOnce()) -> Value {
    for number in 0..4 {
        use_once(rig, &tag(number)).await;
    }
    change_then(rig, change).await
}

/// The same over images that were used before.
async fn change_then(rig: &Rig, change: impl FnOnce()) -> Value {
    // No image is young by the millisecond of `max_age`.
    plan(rig).await;
    let first = rig.sim.image_id(&tag(0)).unwrap();
    rig.sim.set_removal_fault(&first, Fault::hang());
    let id = rig.begin_gc("target=images").await;
    until_true("the first is under way", || removed(rig).len() == 1).await;
    change();
    rig.sim.clear_removal_fault(&first);
    rig.finished(&id).await
}

fn counts(pass: &Value) -> [u64; 4] {
    let report = &pass["targets"]["images"];
    ["removed", "already_gone", "skipped", "failed"].map(|key| report[key].as_u64().unwrap())
}

#[tokio::test]
async fn an_image_that_found_a_user_is_skipped() {
    let rig = Rig::start(idle(4), prune()).await;
    let pass = change_during_the_first_removal(&rig, || {
        let user = ContainerSpec::created("app", 0, hours(0)).image(&tag(1));
        rig.sim.add_pod(&PodSpec::new("user").container(user));
        let volume = ContainerSpec::running("app", 0, hours(0)).image_volume(&tag(2));
        rig.sim.add_pod(&PodSpec::new("volume").container(volume));
    })
    .await;
    assert_eq!(pass["outcome"], "partial", "{pass}");
    assert_eq!(counts(&pass), [2, 0, 2, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0), tag(3)]);
    rig.metrics()
        .await
        .is("crisweep_removals_skipped_total{target=\"images\"}", 2.0);
}

/// Lists one container more, whose row is changed.
fn lists_a_new_container(rig: &Rig, change: impl FnOnce(&mut Container)) {
    rig.sim.add_pod(&PodSpec::new("user").running("app", 0));
    let rows = rig.sim.containers().into_iter().map(|it| it.row);
    let mut containers: Vec<Container> = rows.collect();
    let user = rig.sim.container_id("default/user/app#0").unwrap();
    change(containers.iter_mut().find(|it| it.id == user).unwrap());
    let list = ListContainersResponse { containers }.encode_to_vec();
    rig.sim.set_fault(Rpc::ListContainers, Fault::garbage(list));
}

#[tokio::test]
async fn an_image_stays_while_a_new_container_does_not_say_what_it_uses() {
    let rig = Rig::start(idle(4), prune()).await;
    let pass = change_during_the_first_removal(&rig, || {
        lists_a_new_container(&rig, |row| {
            (row.image, row.image_id, row.image_ref) = (None, String::new(), String::new());
        });
    })
    .await;
    assert_eq!(counts(&pass), [1, 0, 3, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0)]);
    rig.sim.clear_faults();
}

/// A row without an id may be about any of them.
#[tokio::test]
async fn an_image_stays_while_a_container_or_an_image_has_no_id() {
    for (names_a_sandbox, expected) in [(true, [1, 0, 3, 0]), (false, [1, 0, 0, 3])] {
        let rig = Rig::start(idle(4), prune()).await;
        let pass = change_during_the_first_removal(&rig, || {
            lists_a_new_container(&rig, |row| {
                row.id.clear();
                if !names_a_sandbox {
                    row.pod_sandbox_id.clear();
                }
            });
        })
        .await;
        assert_eq!(counts(&pass), expected, "{pass}");
        rig.sim.clear_faults();
    }
    let rig = Rig::start(idle(4), prune()).await;
    let pass = change_during_the_first_removal(&rig, || {
        lists_images(&rig, |images| images.push(Image::default()));
    })
    .await;
    assert_eq!(counts(&pass), [1, 0, 0, 3], "{pass}");
    assert_eq!(removed(&rig), [tag(0)]);
}

/// Lists the images without the first, and with a change.
fn lists_images(rig: &Rig, change: impl FnOnce(&mut Vec<Image>)) {
    let mut images = rig.sim.images();
    images.retain(|it| it.repo_tags != [tag(0)]);
    change(&mut images);
    let list = ListImagesResponse { images }.encode_to_vec();
    rig.sim.set_fault(Rpc::ListImages, Fault::garbage(list));
}

/// A removal may remove the id for every handler.
#[tokio::test]
async fn an_image_that_is_pinned_for_another_handler_since_is_left() {
    let rig = Rig::start(idle(4), prune()).await;
    change_during_the_first_removal(&rig, || {
        lists_images(&rig, |images| {
            let image = images.iter().find(|it| it.repo_tags == [tag(1)]);
            let mut other = image.unwrap().clone();
            other.spec.get_or_insert_default().runtime_handler = "kata".to_owned();
            other.pinned = true;
            images.push(other);
        });
    })
    .await;
    assert_eq!(removed(&rig), [tag(0), tag(2), tag(3)]);
}

/// CRI-O before 1.30 says of a container one digest of its repository and no id, and lists an image without a tag by another
/// digest.
#[tokio::test]
async fn an_image_without_a_tag_that_may_have_found_a_user_is_skipped() {
    let rig = Rig::start(idle(2), prune()).await;
    for number in 0..2 {
        use_once(&rig, &tag(number)).await;
    }
    let images = rig.sim.images();
    let mut image = images
        .into_iter()
        .find(|it| it.repo_tags == [tag(1)])
        .unwrap();
    image.repo_tags.clear();
    rig.sim.change(|node| node.pull_image(image));
    let pass = change_then(&rig, || {
        lists_a_new_container(&rig, |row| {
            row.image_ref = format!("registry.example/idle-1@sha256:{}", "f".repeat(64));
            row.image = Some(ImageSpec {
                image: row.image_ref.clone(),
                ..ImageSpec::default()
            });
        });
    })
    .await;
    assert_eq!(counts(&pass), [1, 0, 1, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0)]);
}

#[tokio::test]
async fn an_image_that_finds_a_user_while_another_container_is_asked_is_skipped() {
    let rig = Rig::start(idle(4), prune()).await;
    for number in 0..4 {
        use_once(&rig, &tag(number)).await;
    }
    plan(&rig).await;
    let first = rig.sim.image_id(&tag(0)).unwrap();
    rig.sim.set_removal_fault(&first, Fault::hang());
    let id = rig.begin_gc("target=images").await;
    until_true("the first is under way", || removed(&rig).len() == 1).await;
    // Only its status says which images it has mounted.
    rig.sim.add_pod(&PodSpec::new("new").running("app", 0));
    rig.sim.set_fault(Rpc::ContainerStatus, Fault::hang());
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    rig.sim.clear_removal_fault(&first);
    until_true("the new container is asked", || {
        rig.sim.call_count(Rpc::ContainerStatus) > asked
    })
    .await;
    let user = ContainerSpec::created("app", 0, hours(0)).image(&tag(1));
    rig.sim.add_pod(&PodSpec::new("user").container(user));
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(counts(&pass), [3, 0, 1, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0), tag(2), tag(3)]);
}

#[tokio::test]
async fn an_image_that_was_tagged_pinned_or_removed_since_is_left() {
    let rig = Rig::start(idle(4), prune()).await;
    let pass = change_during_the_first_removal(&rig, || {
        rig.sim.change(|node| {
            node.edit_image(&tag(1), |it| {
                it.repo_tags.push("registry.example/wanted:2".into());
            });
            node.edit_image(&tag(2), |it| it.pinned = true);
            assert!(node.vanish_image(&tag(3)));
        });
    })
    .await;
    assert_eq!(counts(&pass), [1, 1, 2, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0)]);
    assert!(is_there(&rig, &tag(1)) && is_there(&rig, &tag(2)));
}

/// On a disk without a free byte containerd removes the record, and its collection of the content fails.
#[tokio::test]
async fn an_image_whose_removal_fails_after_it_went_counts_as_removed() {
    let rig = Rig::start(idle(2), prune()).await;
    for number in 0..2 {
        use_once(&rig, &tag(number)).await;
    }
    plan(&rig).await;
    let first = rig.sim.image_id(&tag(0)).unwrap();
    let full = "failed to delete image reference: gc failed: no space left on device";
    let late = Fault::fail(Code::Unknown, full).after(Duration::from_millis(300));
    rig.sim.set_removal_fault(&first, late);
    let id = rig.begin_gc("target=images").await;
    until_true("the first is under way", || removed(&rig).len() == 1).await;
    assert!(rig.sim.change(|node| node.vanish_image(&tag(0))));
    let pass = rig.finished(&id).await;
    assert_eq!(counts(&pass), [2, 0, 0, 0], "{pass}");
    assert_eq!(pass["outcome"], "completed", "{pass}");
}

#[tokio::test]
async fn an_image_stays_when_its_users_cannot_be_listed_again() {
    // The images are listed once more after each removal.
    for (question, times) in [(Rpc::ListContainers, 1), (Rpc::ListImages, 2)] {
        let rig = Rig::start(idle(4), prune()).await;
        let pass = change_during_the_first_removal(&rig, || {
            let broken = Fault::fail(Code::Unknown, "not now").times(times);
            rig.sim.set_fault(question, broken);
        })
        .await;
        assert_eq!(counts(&pass), [3, 0, 0, 1], "{question:?}: {pass}");
        assert!(pass["errors"].to_string().contains("not now"), "{pass}");
        assert!(is_there(&rig, &tag(1)));
    }
    let rig = Rig::start(idle(4), prune()).await;
    let pass = change_during_the_first_removal(&rig, || {
        rig.sim.add_pod(&PodSpec::new("new").running("app", 0));
        rig.sim
            .set_fault(Rpc::ContainerStatus, Fault::fail(Code::Unknown, "not now"));
    })
    .await;
    assert_eq!(counts(&pass), [1, 0, 0, 3], "{pass}");
}

/// The containers that run can be listed, and the exited ones are over a limit of 4,000 bytes.
async fn looping(changes: Value) -> Rig {
    let looping = (0..9).fold(PodSpec::new("loop").running("app", 9), |pod, attempt| {
        pod.exited("app", attempt, hours(1))
    });
    let node = idle(4).pod(looping).build();
    Rig::with(node, Options::not_containerd(), changes).await
}

#[tokio::test]
async fn an_image_stays_while_a_part_of_its_users_cannot_be_listed() {
    let rig = looping(prune()).await;
    let pass =
        change_during_the_first_removal(&rig, || rig.sim.conduct(|it| it.send_limit_bytes = 4_000))
            .await;
    assert_eq!(counts(&pass), [1, 0, 3, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0)]);
}

#[tokio::test]
async fn an_image_that_went_is_gone_also_where_a_part_of_its_users_cannot_be_listed() {
    let mut changes = prune();
    changes["gc"] = json!({ "batch_size": 1 });
    let rig = looping(changes).await;
    let pass = change_during_the_first_removal(&rig, || {
        rig.sim.conduct(|it| it.send_limit_bytes = 4_000);
        assert!(rig.sim.change(|node| node.vanish_image(&tag(3))));
    })
    .await;
    assert_eq!(counts(&pass), [1, 1, 2, 0], "{pass}");
}

/// Without containerd's service two empty lists confirm each other; the plan's look knew containers.
#[tokio::test]
async fn an_image_stays_when_all_users_are_gone_at_once() {
    let options = Options::not_containerd();
    let rig = Rig::with(idle(4).build(), options, prune()).await;
    let pass = change_during_the_first_removal(&rig, || {
        let user = ContainerSpec::running("app", 0, hours(0)).image(&tag(2));
        rig.sim.add_pod(&PodSpec::new("user").container(user));
        for rpc in [Rpc::ListContainers, Rpc::ListPodSandbox] {
            rig.sim.set_fault(rpc, Fault::garbage([]));
        }
    })
    .await;
    assert_eq!(counts(&pass), [1, 0, 3, 0], "{pass}");
    assert_eq!(removed(&rig), [tag(0)]);
    rig.sim.clear_faults();
}

#[tokio::test]
async fn one_that_cannot_be_removed_does_not_hold_the_others_back() {
    let rig = Rig::start(idle(4), prune()).await;
    for number in 0..4 {
        use_once(&rig, &tag(number)).await;
    }
    let stuck = rig.sim.image_id(&tag(1)).unwrap();
    rig.sim.set_removal_fault(
        &stuck,
        Fault::fail(Code::Unknown, "device or resource busy"),
    );
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "partial", "{pass}");
    assert_eq!(counts(&pass), [3, 0, 0, 1], "{pass}");
    assert_eq!(
        removed(&rig),
        [tag(0), tag(1), tag(2), tag(3)],
        "each tried once"
    );
    rig.metrics().await.is(
        "crisweep_removal_failures_total{target=\"images\",class=\"busy\"}",
        1.0,
    );
}

/// A removal may remove the id for every handler, so a failure for one is taken for all.
#[tokio::test]
async fn if_one_record_of_an_id_cannot_be_removed_the_other_is_skipped_and_not_called_gone() {
    let mut changes = prune();
    changes["gc"] = json!({ "batch_size": 1 });
    let rig = Rig::start(idle(1), changes).await;
    let mut images = rig.sim.images();
    let idle = images.iter().find(|it| it.repo_tags == [tag(0)]).unwrap();
    let mut other = idle.clone();
    other.spec.get_or_insert_default().runtime_handler = "kata".to_owned();
    let stuck = other.id.clone();
    images.push(other);
    let list = ListImagesResponse { images }.encode_to_vec();
    rig.sim.set_fault(Rpc::ListImages, Fault::garbage(list));
    plan(&rig).await;
    let busy = Fault::fail(Code::Unknown, "device or resource busy");
    rig.sim.set_removal_fault(&stuck, busy);
    let pass = rig.gc("target=images").await;
    assert_eq!(removed(&rig).len(), 1, "{pass}");
    assert_eq!(counts(&pass), [0, 0, 1, 1], "{pass}");
}

#[tokio::test]
async fn an_image_that_stays_although_it_was_removed_is_tried_once() {
    // Its size is unknown: no gain is expected of it, which would end the pass.
    const SIZELESS: &str = "registry.example/sizeless:1";
    let room = json!({ "policy": { "images": {
        "min_age": "0s",
        "high_threshold_percent": 0,
        "low_threshold_percent": 0,
    } } });
    let rig = Rig::start(idle(0).image(SIZELESS, 0), room).await;
    let stuck = rig.sim.image_id(SIZELESS).unwrap();
    rig.sim.set_removal_fault(&stuck, Fault::pretend());
    let pass = rig.gc("target=images").await;
    assert_eq!(removed(&rig), [SIZELESS]);
    assert_eq!(counts(&pass), [0, 0, 0, 1], "{pass}");
    assert_eq!(pass["outcome"], "partial", "{pass}");
    let errors = pass["errors"].to_string();
    assert!(errors.contains("still lists it"), "{errors}");
}

#[tokio::test]
async fn an_image_is_removed_by_id_and_handler_with_all_its_tags() {
    let node = idle(1).edit_image(&tag(0), |it| {
        it.repo_tags.push("registry.example/other:2".to_owned());
        let spec = it.spec.get_or_insert_default();
        spec.runtime_handler = "kata".to_owned();
    });
    let rig = Rig::start(node, prune()).await;
    let id = rig.sim.image_id(&tag(0)).unwrap();
    plan(&rig).await;
    let pass = rig.gc("target=images").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    let calls = rig.sim.calls_of(Rpc::RemoveImage);
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].id, id);
    assert_eq!(calls[0].handler, "kata");
    assert!(!is_there(&rig, "registry.example/other:2"));
}

#[tokio::test]
async fn a_runtime_that_stops_between_removals_is_waited_for() {
    let rig = Rig::start(idle(4), prune()).await;
    let id = hang_in_the_second_of(&rig, 4).await;
    rig.sim.stop().await;
    rig.sim.clear_faults();
    rig.sim.start().unwrap();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    assert_eq!(pass["targets"]["images"]["remaining"], json!(0));
    assert!((0..4).all(|number| !is_there(&rig, &tag(number))));
}
