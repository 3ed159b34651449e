//! When images were first seen and last used, across restarts.

use crisweep_sim::{Fault, Rpc, seconds};
use serde_json::{Value, json};

use super::{idle, is_there, judged, plan, prune, tag, use_once};
use crate::state::rows;
use crate::support::service::run;
use crate::support::wait::until_true;
use crate::support::{Rig, until};

/// Returns when an image was first seen and last used.
async fn age(rig: &Rig, tag: &str) -> (Value, Value) {
    let (_, _, image) = judged(&plan(rig).await, tag);
    (image["created_at"].clone(), image["last_used_at"].clone())
}

/// Waits until the service has saved ages.
async fn saved(rig: &Rig) {
    until_true("the ages are saved", || {
        rows(&rig.state_dir(), "image_ages") > 0
    })
    .await;
}

#[tokio::test]
async fn at_the_first_start_every_image_is_young() {
    let images = json!({ "min_age": "1h", "max_age": "1ms" });
    let rig = Rig::start(idle(2), json!({ "policy": { "images": images } })).await;
    let (list, reason, image) = judged(&plan(&rig).await, &tag(0));
    assert_eq!((list, reason.as_str()), ("kept", "too-young"));
    assert_eq!(image.get("last_used_at"), None);
    assert_eq!(rig.gc("target=images").await["outcome"], "nothing-to-do");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn ages_survive_a_stop_with_the_last_use_and_a_crash_with_the_first_sight() {
    let mut rig = Rig::start(idle(2), json!({})).await;
    saved(&rig).await;
    use_once(&rig, &tag(0)).await;
    let (used, unused) = (age(&rig, &tag(0)).await, age(&rig, &tag(1)).await);
    assert!(used.1.is_string() && unused.1.is_null());
    rig.service.signal(rustix::process::Signal::TERM);
    assert!(rig.service.exited().await.success());
    rig.begin().await;
    assert_eq!(millis(&age(&rig, &tag(0)).await), millis(&used));
    assert_eq!(millis(&age(&rig, &tag(1)).await), millis(&unused));
    rig.crash().await;
    assert_eq!(millis(&age(&rig, &tag(0)).await), millis(&used));
    assert_eq!(millis(&age(&rig, &tag(1)).await), millis(&unused));
}

/// Times on disk have milliseconds.
fn millis((first, last): &(Value, Value)) -> (i64, Option<i64>) {
    let parse = |time: &Value| {
        let time: jiff::Timestamp = time.as_str()?.parse().ok()?;
        Some(time.as_millisecond())
    };
    (parse(first).unwrap(), parse(last))
}

#[tokio::test]
async fn a_restart_of_the_runtime_makes_no_image_young() {
    let rig = Rig::start(idle(2), json!({})).await;
    use_once(&rig, &tag(0)).await;
    let before = (age(&rig, &tag(0)).await, age(&rig, &tag(1)).await);
    rig.sim.stop().await;
    // Looks without a runtime see no image, and forget none.
    let page = rig.metrics().await;
    page.is("cri_up", 0.0);
    rig.sim.start().unwrap();
    rig.ready().await;
    until("the runtime is back", || async {
        (rig.metrics().await.get("cri_up") == Some(1.0)).then_some(())
    })
    .await;
    assert_eq!((age(&rig, &tag(0)).await, age(&rig, &tag(1)).await), before);
}

#[tokio::test]
async fn an_image_that_comes_back_is_new() {
    let rig = Rig::start(idle(2), json!({})).await;
    use_once(&rig, &tag(0)).await;
    let before = age(&rig, &tag(0)).await;
    let image = rig.sim.image_id(&tag(0)).unwrap();
    let image = rig
        .sim
        .images()
        .into_iter()
        .find(|i| i.id == image)
        .unwrap();
    assert!(rig.sim.change(|node| node.vanish_image(&tag(0))));
    plan(&rig).await;
    rig.sim.change(|node| node.pull_image(image));
    let after = age(&rig, &tag(0)).await;
    assert!(
        after.0.as_str() > before.0.as_str() && after.1.is_null(),
        "{after:?}"
    );
}

#[tokio::test]
async fn an_image_pulled_again_before_the_look_after_its_removal_is_new() {
    let rig = Rig::start(idle(2), prune()).await;
    let images = rig.sim.images();
    let of = |tag: &String| images.iter().find(|it| it.repo_tags.contains(tag)).cloned();
    // One batch: the next look comes after both were removed.
    rig.sim.set_fault(Rpc::RemoveImage, Fault::slow(seconds(1)));
    let id = rig.begin_gc("target=images").await;
    // One of them was removed, and not listed any more.
    until("one of them went", || async {
        let pass = rig.pass(&id).await;
        (pass["targets"]["images"]["removed"] == 1).then_some(())
    })
    .await;
    let mut tags = [tag(0), tag(1)].into_iter();
    let first = tags.find(|tag| !is_there(&rig, tag)).unwrap();
    let image = of(&first).unwrap();
    rig.sim.change(|node| node.pull_image(image));
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["images"]["removed"], 2, "{pass:#}");
    assert!(is_there(&rig, &first), "{pass:#}");
}

#[tokio::test]
async fn the_command_knows_the_services_ages_and_writes_none() {
    let mut rig = Rig::start(idle(2), json!({})).await;
    saved(&rig).await;
    use_once(&rig, &tag(0)).await;
    let (used, unused) = (age(&rig, &tag(0)).await, age(&rig, &tag(1)).await);
    // Unsaved ages are unknown to the command; they are saved when the service ends.
    let config = rig.config_file();
    let args = [
        "--config.file",
        config.to_str().unwrap(),
        "plan",
        "--target",
        "images",
        "--output",
        "json",
    ];
    let beside: Value = serde_json::from_slice(&run(&args).await.stdout).unwrap();
    let of = |plan: &Value, tag: &str| {
        let (_, _, image) = judged(plan, tag);
        millis(&(image["created_at"].clone(), image["last_used_at"].clone()))
    };
    assert_eq!(of(&beside, &tag(1)), millis(&unused));
    rig.service.signal(rustix::process::Signal::TERM);
    rig.service.exited().await;
    let before = std::fs::read(rig.state_dir().join("crisweep.db")).unwrap();
    let alone: Value = serde_json::from_slice(&run(&args).await.stdout).unwrap();
    assert_eq!(of(&alone, &tag(0)), millis(&used));
    assert_eq!(
        std::fs::read(rig.state_dir().join("crisweep.db")).unwrap(),
        before
    );
    let table = run(&[&args[..5], &["--all"]].concat()).await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("last used") && table.contains(&tag(0)),
        "{table}"
    );
    assert!(
        table.contains("4.0 MiB") && table.contains(" ago") && table.contains("never"),
        "{table}"
    );
    // Damage: everything is young, and nothing fails.
    std::fs::remove_file(rig.state_dir().join("crisweep.db-wal")).unwrap();
    std::fs::write(rig.state_dir().join("crisweep.db"), vec![7; before.len()]).unwrap();
    let torn: Value = serde_json::from_slice(&run(&args).await.stdout).unwrap();
    assert!(of(&torn, &tag(1)).0 > of(&alone, &tag(1)).0);
    rig.begin().await;
}
