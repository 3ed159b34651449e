//! Names below the log roots that somebody else chose: control characters, bytes that are no text, the longest names,
//! names that lead elsewhere.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use crisweep_sim::PodSpec;
use serde_json::json;

use super::tree::{Tree, verdict};
use crate::support::Rig;

const UID: &str = "0d5f6a2c-1111-4222-8333-0123456789ab";
const NAME_BYTES_MAX: usize = 255;

/// Names that are no directory of a pod and no link to a log.
fn hostile() -> Vec<Vec<u8>> {
    let id = "a".repeat(64);
    let names = [
        format!("default_gone\n_{UID}"),
        format!("default_gone_{UID}\nFORGED"),
        format!("default_\u{1b}[31mgone_{UID}"),
        format!("default_\u{202e}gone_{UID}"),
        format!("default_.._{UID}"),
        format!(".._.._{UID}"),
        format!("default_gone_{UID}."),
        "...".to_owned(),
        "é".repeat(NAME_BYTES_MAX / 2) + "x",
        format!("x_default_app\n-{id}.log"),
        format!("..-{id}.log\n"),
    ];
    let mut names: Vec<Vec<u8>> = names.map(String::into_bytes).into();
    names.push([b"default_gone\xff_", UID.as_bytes()].concat());
    names.push(vec![0xff; NAME_BYTES_MAX]);
    names
}

fn is_tame(text: &str) -> bool {
    let wild = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    !text.contains(wild)
        && !text
            .lines()
            .any(|line| line.trim_start().starts_with("FORGED"))
}

#[tokio::test]
async fn hostile_entries_of_the_log_roots_are_kept_and_shown_escaped() {
    let tree = Tree::plain();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let roots = [
        tree.real(&tree.pods_root()),
        tree.real(&tree.containers_root()),
    ];
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("keep"), "kept").unwrap();
    // Old enough to be removed, had they the right shape.
    let mut entries = Vec::new();
    for (at, name) in hostile().into_iter().enumerate() {
        for root in &roots {
            let entry = root.join(OsStr::from_bytes(&name));
            if at % 2 == 0 {
                fs::create_dir(&entry).unwrap();
            } else {
                symlink(outside.path(), &entry).unwrap();
            }
            entries.push(entry);
        }
    }
    let linked = roots[0].join(format!("default_linked_{UID}"));
    symlink(outside.path(), &linked).unwrap();
    entries.push(linked);

    let rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let plan = rig.get("/api/v1/plan?target=logs").await;
    assert!(is_tame(&plan.text), "{}", plan.text);
    let plan = plan.json();
    assert_eq!(plan["removals"], json!([]), "{plan:#}");
    let kept = plan["kept"].as_array().unwrap();
    let foreign = kept.iter().filter(|it| it["reason"] == "foreign-name");
    assert_eq!(foreign.count(), entries.len(), "{plan:#}");
    let page = rig.get("/").await.text;
    assert!(is_tame(&page), "{page}");
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    for entry in &entries {
        assert!(entry.symlink_metadata().is_ok(), "{entry:?}");
    }
    assert!(outside.path().join("keep").exists());
    assert!(is_tame(&rig.log_text()), "{}", rig.log_text());
}

#[tokio::test]
async fn the_longest_names_of_the_kubelet_are_removed_like_others() {
    let tree = Tree::plain();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let name = "n".repeat(NAME_BYTES_MAX - "default__".len() - UID.len());
    let dir = tree.dir(&format!("default_{name}_{UID}"));
    let rest = "a".repeat(NAME_BYTES_MAX - "-.log".len() - 64);
    let link = tree.dead_link(&format!("{rest}-{}.log", "b".repeat(64)));
    let plan = rig.get("/api/v1/plan?target=logs").await.json();
    assert_eq!(verdict(&plan, &dir), ("remove", "pod-deleted".into()));
    assert_eq!(verdict(&plan, &link), ("remove", "dead-link".into()));
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert!(!tree.has(&dir) && !tree.has(&link));
}

/// A container with a mount of its log directory chooses the names in it.
#[tokio::test]
async fn a_directory_with_hostile_content_is_removed_without_touching_anything_else() {
    let tree = Tree::plain();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let before = tree.files();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("keep"), "kept").unwrap();
    let gone = tree.dir(&format!("default_gone_{UID}"));
    let inside = tree.real(&gone).join("app");
    for (at, name) in hostile().iter().enumerate() {
        let entry = inside.join(OsStr::from_bytes(name));
        match at % 3 {
            0 => {
                fs::create_dir(&entry).unwrap();
                fs::write(entry.join(OsStr::from_bytes(name)), "a line\n").unwrap();
            }
            1 => symlink(outside.path(), &entry).unwrap(),
            _ => fs::write(&entry, "a line\n").unwrap(),
        }
    }
    let above =
        Path::new("../../../../../../../../../..").join(outside.path().strip_prefix("/").unwrap());
    symlink(above, inside.join("above")).unwrap();
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert!(!tree.has(&gone));
    assert_eq!(tree.files(), before);
    assert!(outside.path().join("keep").exists());
    assert!(is_tame(&rig.log_text()), "{}", rig.log_text());
}

/// The runtime names each container's log file; the name may come from a broken or hostile client of the runtime.
#[tokio::test]
async fn a_log_path_that_leads_out_of_the_root_is_kept() {
    let tree = Tree::plain();
    let outside = format!("{}/../../elsewhere", tree.pods_root());
    let gone = PodSpec::new("gone").exited("app", 0, crisweep_sim::hours(3));
    let node = tree.node().log_root(&outside).pod(gone.deleted());
    let node = node.pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let id = rig.sim.container_id("default/gone/app#0").unwrap();
    let log = rig.sim.container(&id).unwrap().log_path;
    assert!(log.contains("/../../") && tree.has(&log), "{log}");
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["removed"], 0, "{pass:#}");
    assert!(tree.has(&log));
}
