//! Images: which ones are removed for space or age, and which ones stay.

mod ages;
mod races;
mod room;
mod stay;
mod unmeasured;

use crisweep_sim::{ContainerSpec, DEFAULT_IMAGE, Fault, NodeBuilder, PodSpec, Rpc, hours};
use serde_json::{Value, json};

use crate::support::Rig;
use crate::support::wait::until_true;

const MIB: u64 = 1 << 20;

/// Returns a tag.
fn tag(number: usize) -> String {
    format!("registry.example/idle-{number}:1")
}

/// A node whose one pod uses the default image, with unused images.
fn idle(images: usize) -> NodeBuilder {
    let node = NodeBuilder::new()
        .image(DEFAULT_IMAGE, MIB)
        .pod(PodSpec::new("web").running("app", 0));
    (0..images).fold(node, |node, number| node.image(&tag(number), 4 * MIB))
}

/// Configuration that removes every unused image, whatever the disk's usage.
fn prune() -> Value {
    // By age alone, however full this machine's disk is.
    let (high, low) = (100, 99);
    json!({ "policy": { "images": {
        "min_age": "0s",
        "max_age": "1ms",
        "high_threshold_percent": high,
        "low_threshold_percent": low,
    } } })
}

/// Runs a container from an image during one look, and removes it.
async fn use_once(rig: &Rig, image: &str) {
    let container = ContainerSpec::running("app", 0, hours(1)).image(image);
    let pod = rig.sim.add_pod(&PodSpec::new("once").container(container));
    plan(rig).await;
    rig.sim.change(|node| {
        assert!(node.delete_pod("default/once"));
        assert!(node.vanish_sandbox(&pod.sandboxes[0]));
    });
}

/// Uses so many images one after another, and begins a pass that hangs in the removal of the second; returns its id.
async fn hang_in_the_second_of(rig: &Rig, images: usize) -> String {
    for number in 0..images {
        use_once(rig, &tag(number)).await;
    }
    rig.sim
        .set_removal_fault(&rig.sim.image_id(&tag(1)).unwrap(), Fault::hang());
    let id = rig.begin_gc("target=images").await;
    until_true("the second is under way", || removed(rig).len() == 2).await;
    id
}

/// Returns the plan for images, made on a new look.
async fn plan(rig: &Rig) -> Value {
    let answer = rig.get("/api/v1/plan?target=images").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// Returns the list, the reason and the row of the image with this tag in a plan.
fn judged(plan: &Value, tag: &str) -> (&'static str, String, Value) {
    for list in ["removals", "kept"] {
        let rows = plan[list].as_array().unwrap();
        if let Some(row) = rows.iter().find(|row| row["name"] == tag) {
            return (
                list,
                row["reason"].as_str().unwrap().to_owned(),
                row.clone(),
            );
        }
    }
    panic!("{tag} is not in {plan}");
}

/// Returns the tags of the removed images, in order.
fn removed(rig: &Rig) -> Vec<String> {
    rig.subjects(Rpc::RemoveImage)
}

/// Says whether the node still has an image.
fn is_there(rig: &Rig, tag: &str) -> bool {
    rig.sim.image_id(tag).is_some()
}
