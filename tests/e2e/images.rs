//! A real containerd whose small disk is full of images.

use std::collections::BTreeSet;

use crisweep::model::PodSandboxId;
use crisweep::runtime;
use serde_json::{Value, json};

use crate::support::crisweep::Crisweep;
use crate::support::node::{Node, PAUSE_IMAGE};
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::wait::PATIENCE;

const SIZE_MIB: u32 = 192;
/// Unique content of each image. It is stored twice: as a layer and unpacked.
const EACH_BYTES: u64 = 4 << 20;
const IMAGES: u32 = 10;
/// The thresholds, percent.
const HIGH: u32 = 60;
const LOW: u32 = 45;
/// Image numbers, longest unused first.
const BY_USE: [u32; 9] = [3, 8, 1, 6, 4, 0, 9, 2, 7];
/// The image of a running pod.
const IN_USE: u32 = 5;

fn tag(number: u32) -> String {
    format!("crisweep.test/big-{number}:1")
}

fn pod(number: u32, image: u32, end: End) -> PodPlan {
    let pod = PodPlan::new(number, format!("user-{number}"), Known::Active);
    pod.with_image(&tag(image))
        .sandbox(Fate::Ready, &[("app", 0, end)])
}

#[tokio::test]
async fn a_full_image_file_system_is_brought_below_the_low_threshold() {
    let node = Node::start_on_small_disk(SIZE_MIB).await;
    let tags: Vec<String> = (0..IMAGES).map(tag).collect();
    node.import_big_images(EACH_BYTES, &tags).await;
    let living = Population::make(&node, vec![pod(1, IN_USE, End::Runs)]).await;
    let pods_file = node.dir().join("pods.json");
    living.write_pods_file(&pods_file);
    let crisweep = Crisweep::start_with(&node, &pods_file, changes(&node)).await;
    sandbox_statuses_name_their_image(&node).await;
    use_each(&node, &crisweep).await;
    let process = node.cgroups().processes(running(&living));
    assert_eq!(process.len(), 1);

    let (status, pass) = crisweep.post("/gc?target=images&wait=60s").await;
    let log = crisweep.log_tail();
    assert_eq!(
        (status.as_u16(), &pass["outcome"]),
        (200, &json!("completed")),
        "{pass}\n{log}"
    );
    let ratio = |when: &str| pass[when]["image_fs_used_ratio"].as_f64().unwrap();
    assert!(ratio("before") >= f64::from(HIGH) / 100.0, "{pass}");
    assert!(ratio("after") <= f64::from(LOW) / 100.0, "{pass}");
    // The runtime's sizes understate the space of an image here, but the disk is measured after each batch,
    // so the pass frees at most one batch too much.
    assert!(ratio("after") > f64::from(LOW) / 100.0 - 0.15, "{pass}");

    let count = pass["targets"]["images"]["removed"].as_u64().unwrap();
    let count = usize::try_from(count).unwrap();
    // No container ever used busybox, so it was removed first.
    let stay = BY_USE[count - 1..].iter().copied().chain([IN_USE]);
    let stay: BTreeSet<String> = stay.map(tag).chain([PAUSE_IMAGE.to_owned()]).collect();
    assert_eq!(images(&node).await, stay, "{pass}");
    assert_eq!(
        node.cgroups().processes(running(&living)),
        process,
        "it runs on"
    );
    // The pause image still works, and so does a kept image.
    Population::make(&node, vec![pod(99, BY_USE[8], End::Runs)]).await;
    let (_, again) = crisweep.post("/gc?target=images&wait=60s").await;
    assert_eq!(again["outcome"], "nothing-to-do", "{again}");
}

/// `statvfs` must see the file system as the node does, inside its mount namespace.
fn changes(node: &Node) -> Value {
    json!({
        "runtime": {
            "endpoint": format!("unix://{}", node.socket().display()),
            "host_root": node.host_root(),
        },
        "collect": { "max_age": "0s" },
        "policy": { "images": {
            "min_age": "0s", "high_threshold_percent": HIGH, "low_threshold_percent": LOW,
        } },
        "gc": { "batch_size": 2 },
    })
}

fn running(population: &Population) -> &str {
    let (_, container) = population.containers().next().unwrap();
    &container.id
}

/// Lets a short-lived container use each image, with a look in between.
async fn use_each(node: &Node, crisweep: &Crisweep) {
    let cri = node.cri().await;
    for (number, image) in (10..).zip(BY_USE) {
        let user = Population::make(node, vec![pod(number, image, End::Created)]).await;
        crisweep.get("/api/v1/plan?target=images").await.unwrap();
        let (_, sandbox) = user.sandboxes().next().unwrap();
        cri.remove_sandbox(&sandbox.id).await;
    }
}

async fn images(node: &Node) -> BTreeSet<String> {
    let images = node.cri().await.images().await;
    images
        .into_iter()
        .flat_map(|image| image.repo_tags)
        .collect()
}

/// The basis of the pause image's protection on runtimes that do not pin it.
async fn sandbox_statuses_name_their_image(node: &Node) {
    let client = runtime::Client::new(runtime::Settings {
        endpoint: node.socket(),
        image_endpoint: None,
        timeout: PATIENCE,
        removal_timeout: PATIENCE,
        max_message_bytes: 16 << 20,
        log_roots: runtime::LogRoots::default(),
    });
    let configured = client.sandbox_images().await.unwrap();
    let images = node.cri().await.images().await;
    // containerd 2 does not say it, and pins the image.
    let pinned = images
        .iter()
        .any(|it| it.pinned && it.repo_tags == [PAUSE_IMAGE]);
    assert!(
        pinned || configured == [PAUSE_IMAGE],
        "{configured:?}, {images:?}"
    );
    for sandbox in node.cri().await.sandboxes().await {
        let id = PodSandboxId::new(sandbox.id).unwrap();
        let image = client.sandbox_made_from(&id).await.unwrap();
        assert_eq!(image.as_deref(), Some(PAUSE_IMAGE));
    }
}
