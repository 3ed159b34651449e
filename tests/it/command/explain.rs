//! `crisweep explain`.

use crisweep_sim::{NodeBuilder, PodSpec, hours};
use serde_json::{Value, json};

use crate::support::bare::Bare;
use crate::support::service::text;
use crate::support::{Rig, nodes};

/// A pod that runs again in a new sandbox: the old one is held by the only record of a container.
fn node() -> NodeBuilder {
    let waits = PodSpec::new("waits")
        .namespace("shop")
        .exited("init", 0, hours(2))
        .exited("app", 0, hours(2))
        .exited("app", 1, hours(1))
        .not_ready();
    nodes::litter(1).pod(waits)
}

/// The answer to a person: at most one screen.
fn one_screen(shown: &str) {
    assert!(shown.lines().count() <= 24, "{shown}");
    for line in shown.lines() {
        assert!(
            line.chars().count() <= 100 && line == line.trim_end(),
            "{line:?}"
        );
    }
}

#[tokio::test]
async fn why_a_sandbox_is_still_here_is_answered_on_one_screen() {
    let node = Bare::start(node(), &json!({}));
    let id = node.sim.sandbox_id("shop/waits#0").unwrap();
    let output = node.run(&["explain", &id[..8]]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    one_screen(&shown);
    let holder = &node.sim.container_id("shop/waits/init#0").unwrap()[..12];
    for words in [
        "of pod shop/waits\n",
        "Verdict  stays (has-containers): container ",
        "Since    ",
        &format!(
            "Held by  container {holder} (init attempt 0) of pod shop/waits, stays (newest): "
        ),
        "pod shop/waits is active: the pods file lists it, not finished",
        "(kept: newest) must go first",
        "for that: pod shop/waits must be deleted",
        "* containers        keeps   see Verdict",
        "not reached: unmanaged, protect, min-age,",
    ] {
        assert!(unwrapped(&shown).contains(words), "{words}: {shown}");
    }
    let said = text(&output.stderr);
    assert!(
        said.contains("no service answers") && said.contains("looks for itself"),
        "{said}"
    );
    assert_eq!(node.sim.calls(), []);
}

/// The text without the breaks of its paragraphs.
fn unwrapped(shown: &str) -> String {
    shown.replace("\n         ", " ").replace("  * ", "* ")
}

#[tokio::test]
async fn every_kept_object_fits_one_screen() {
    let node = Bare::start(node(), &json!({}));
    for name in [
        "shop/waits/app#1",
        "shop/waits/init",
        "shop/waits#0",
        "shop/waits",
    ] {
        let output = node.run(&["explain", name]).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        one_screen(&text(&output.stdout));
    }
}

#[tokio::test]
async fn names_ids_and_tags_find_the_same_as_the_api_does() {
    let rig = Rig::start(node(), json!({})).await;
    let node = Bare::start(node(), &json!({}));
    let images = node.sim.images();
    let tag = &images.iter().find(|image| !image.pinned).unwrap().repo_tags[0];
    for (name, kind) in [
        ("shop/waits", "pod"),
        ("shop/waits/app#1", "container"),
        ("shop/waits/init", "container"),
        ("shop/waits#0", "sandbox"),
        (tag.as_str(), "image"),
    ] {
        let output = node.run(&["explain", name, "--output", "json"]).await;
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["kind"], kind, "{name}");
        let path = format!("/api/v1/explain/{}", name.replace('#', "%23"));
        let of_api = rig.get(&path).await.json();
        for field in ["kind", "verdict", "reason", "title", "explanation"] {
            assert_eq!(value[field], of_api[field], "{name}");
        }
    }
}

#[tokio::test]
async fn what_is_unknown_or_ambiguous_fails_with_the_candidates() {
    let node = Bare::start(node(), &json!({}));
    let output = node.run(&["explain", "no-such-thing"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(
        said.contains("nothing on this node has the id or name \"no-such-thing\""),
        "{said}"
    );
    let output = node.run(&["explain", "shop/waits/app"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("\"shop/waits/app\" is ambiguous: 2 ids or names match"),
        "{said}"
    );
    for attempt in ["app#0", "app#1"] {
        let id = node
            .sim
            .container_id(&format!("shop/waits/{attempt}"))
            .unwrap();
        assert!(said.contains(&id[..12]), "{attempt}: {said}");
    }
}

#[tokio::test]
async fn the_running_service_answers_over_its_unix_socket() {
    let (rig, _dir) = Rig::with_socket(node(), json!({})).await;
    let output = rig.command(&["explain", "shop/waits/init"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the running service answers"));
    let shown = text(&output.stdout);
    one_screen(&shown);
    assert!(shown.contains("stays (newest)"), "{shown}");
    let output = rig.command(&["explain", "no-such-thing"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing on this node has the id"));
}

#[tokio::test]
async fn hostile_names_are_shown_escaped() {
    let pod = PodSpec::new("old")
        .exited("\u{1b}[2J\nFORGED\u{202e}", 0, hours(3))
        .not_ready();
    let node = Bare::start(nodes::healthy().pod(pod), &json!({}));
    for args in [
        &["default/old"][..],
        &["default/old#0"],
        &["default/old", "--output", "json"],
    ] {
        let output = node.run(&[&["explain"], args].concat()).await;
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(shown.contains("FORGED"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        assert!(
            !shown.lines().any(|line| line.starts_with("FORGED")),
            "{shown}"
        );
    }
}
