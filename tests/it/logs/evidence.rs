//! What is kept of a container before it goes.

mod bounds;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crisweep_sim::{ContainerSpec, Options, PodSpec, Rpc, hours};
use serde_json::{Value, json};

use super::tree::Tree;
use crate::support::Rig;
use crate::support::hung::Hung;
use crate::support::service::run;
use crate::support::wait::until_true;

const KEPT: usize = 64 << 10;
const DEAD: &str = "default/web/app#3";

/// A deleted pod's container that was killed.
fn dead(tree: &Tree) -> crisweep_sim::NodeBuilder {
    let spec = ContainerSpec::exited("app", 3, hours(3)).exit_code(137);
    let pod = PodSpec::new("web").container(spec).deleted();
    alive(tree).pod(pod)
}

/// A node whose pod list can prove that another pod is gone.
fn alive(tree: &Tree) -> crisweep_sim::NodeBuilder {
    tree.node().pod(PodSpec::new("alive").running("app", 0))
}

/// The tree's configuration with evidence switched on.
fn on(tree: &Tree, evidence: &Value) -> Value {
    let mut changes = tree.config(&json!({ "grace": "1h" }));
    changes["evidence"] = json!({ "enabled": true });
    for (key, value) in evidence.as_object().unwrap() {
        changes["evidence"][key] = value.clone();
    }
    changes
}

/// Where the dead container's log is.
fn log_of(tree: &Tree, rig: &Rig) -> PathBuf {
    let id = rig.sim.container_id(DEAD).unwrap();
    let all = rig.sim.containers();
    let dead = all.iter().find(|it| it.row.id == id).unwrap();
    let path = tree.real(&dead.log_path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

async fn kept(rig: &Rig, query: &str) -> Vec<Value> {
    let answer = rig.get(&format!("/api/v1/evidence{query}")).await;
    answer.json()["evidence"].as_array().unwrap().clone()
}

/// Some lines in the CRI's format, and what the container wrote.
fn lines(from: usize, to: usize) -> (String, String) {
    let (mut log, mut output) = (String::new(), String::new());
    for number in from..to {
        let time = "2026-01-01T00:00:00.000000001Z";
        log += &format!("{time} stdout P line {number:05}, {time} stdout F its end\n")
            .replacen(", ", "\n", 1);
        output += &format!("line {number:05}its end\n");
    }
    (log, output)
}

#[tokio::test]
async fn the_evidence_of_a_removed_container_is_byte_for_byte_the_tail_of_its_log() {
    for tree in Tree::both() {
        let mut changes = on(&tree, &json!({}));
        changes["runtime"]["host_root"] = tree.config(&json!({}))["runtime"]["host_root"].clone();
        let rig = Rig::start(dead(&tree), changes).await;
        let path = log_of(&tree, &rig);
        let ((old, said_first), (new, said_last)) = (lines(0, 2000), lines(2000, 2500));
        let rotated = format!("{}.20260101-000000", path.display());
        fs::write(&rotated, &old).unwrap();
        let gzip = Command::new("gzip").arg(&rotated).status();
        assert!(gzip.unwrap().success());
        fs::write(&path, &new).unwrap();
        let id = rig.sim.container_id(DEAD).unwrap();

        let pass = rig.gc("target=containers").await;
        assert_eq!(pass["outcome"], "completed", "{pass:#}");
        assert_eq!(rig.exited_containers(), 0);
        assert!(!path.exists());
        let log = old + &new;
        let raw = rig
            .get(&format!("/api/v1/evidence/{id}/log?raw=true"))
            .await;
        assert_eq!(raw.text, log[log.len() - KEPT..]);
        let text = rig
            .get(&format!("/api/v1/evidence/{}/log", &id[..6]))
            .await
            .text;
        assert!((said_first + &said_last).ends_with(&text) && text.len() > KEPT / 8);
        let is_line = text.starts_with("line ") || text.starts_with("its end\n");
        assert!(is_line, "{}", &text[..40]);

        let all = kept(&rig, "").await;
        let one = rig
            .get(&format!("/api/v1/evidence/{}", all[0]["number"]))
            .await
            .json();
        assert_eq!((all.len(), &all[0]), (1, &one));
        assert_eq!(one["container_id"], id);
        assert_eq!(
            (&one["exit_code"], &one["attempt"]),
            (&json!(137), &json!(3))
        );
        assert_eq!(one["ending"], "killed by SIGKILL (signal 9, exit code 137)");
        assert_eq!(
            (&one["pod"]["name"], &one["removed_for"]),
            (&json!("web"), &json!("pod-deleted"))
        );
        assert_eq!(one["pass"], pass["id"]);
        assert_eq!(
            (&one["log"]["bytes"], &one["log"]["is_whole"]),
            (&json!(KEPT), &json!(false))
        );
        assert_eq!(one["log"]["files"].as_array().unwrap().len(), 2);
        let page = rig.metrics().await;
        page.is("crisweep_evidence_kept_total", 1.0);
        assert!(page.get("crisweep_evidence_bytes").unwrap() >= 4096.0);
    }
}

/// The words of a text, without how long ago things happened.
fn ageless(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ages = words.iter().skip(1).map(|next| *next == "ago");
    let words = words.iter().zip(ages.chain([false]));
    let words = words.filter(|(_, is_age)| !is_age);
    words.map(|(word, _)| (*word).to_owned()).collect()
}

#[tokio::test]
async fn the_command_shows_evidence_with_and_without_the_service() {
    let tree = Tree::plain();
    let (mut rig, _dir) = Rig::with_socket(dead(&tree), on(&tree, &json!({}))).await;
    let (log, said) = lines(0, 3);
    fs::write(log_of(&tree, &rig), &log).unwrap();
    let id = rig.sim.container_id(DEAD).unwrap();
    rig.gc("target=containers").await;
    let file = rig.config_file();
    let file = file.to_str().unwrap().to_owned();
    let ask = async |args: &[&str]| {
        let args = [&["--config.file", &file, "evidence"], args].concat();
        let output = run(&args).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let mut shown = Vec::new();
    for who in ["the running service answers", "reads the database"] {
        let (code, list, told) = ask(&[]).await;
        assert!(code == Some(0) && told.contains(who), "{told}");
        assert!(
            list.contains("default/web") && list.contains("137"),
            "{list}"
        );
        let (_, of_other_pod, _) = ask(&["--pod", "api"]).await;
        assert!(!of_other_pod.contains("web"), "{of_other_pod}");
        let (_, one, _) = ask(&["show", &id[..8]]).await;
        assert!(one.contains("killed by SIGKILL"), "{one}");
        assert!(one.contains(said.lines().last().unwrap()), "{one}");
        for name in ["created", "started", "finished"] {
            let mut lines = one.lines();
            let line = lines.find(|line| line.starts_with(name)).unwrap();
            assert_eq!(
                line.len(),
                "finished   2026-01-02T15:00:00Z".len(),
                "{line}"
            );
        }
        let (_, raw, _) = ask(&["show", &id, "--raw"]).await;
        assert_eq!(raw, log);
        let (_, json, _) = ask(&["show", &id, "--output", "json"]).await;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["exit_code"], 137);
        let (code, _, told) = ask(&["show", "ffffff"]).await;
        assert!(code == Some(1) && told.contains("ffffff"), "{told}");
        shown.push((ageless(&list), ageless(&one), json));
        if shown.len() == 1 {
            rig.kill().await;
        }
    }
    assert_eq!(shown[0], shown[1]);
}

#[tokio::test]
async fn evidence_is_found_by_what_it_is_of() {
    let tree = Tree::plain();
    let failed = ContainerSpec::exited("b", 0, hours(3)).exit_code(1);
    let node = alive(&tree)
        .pod(PodSpec::new("one").exited("a", 0, hours(3)).deleted())
        .pod(PodSpec::new("two").container(failed).deleted());
    let rig = Rig::start(node, on(&tree, &json!({}))).await;
    rig.gc("target=containers").await;
    let of = async |query: &str| {
        let rows = kept(&rig, query).await;
        let names = rows
            .iter()
            .map(|row| row["container"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().concat()
    };
    assert_eq!(of("?pod=one").await, "a");
    assert_eq!(of("?container=b&namespace=default").await, "b");
    assert_eq!(of("?exit_code=1").await, "b");
    let rows = kept(&rig, "?container=a").await;
    let id = rows[0]["container_id"].as_str().unwrap();
    assert_eq!(of(&format!("?container={id}")).await, "a");
    assert_eq!(of(&format!("?container={}", &id[..6])).await, "a");
    // A shorter one is a name.
    assert_eq!(of(&format!("?container={}", &id[..5])).await, "");
    assert_eq!(of("?namespace=other").await, "");
    assert_eq!(of("?since=1h").await.len(), 2);
    assert_eq!(of("?until=1h").await, "");
    let first = rig.get("/api/v1/evidence?limit=1").await.json();
    let next = format!("?before={}", first["next"]);
    assert_eq!(of(&next).await.len(), 1);
    rig.get("/api/v1/evidence?pods=x")
        .await
        .refused(400, "unknown parameter \"pods\"");
    rig.get("/api/v1/evidence/0123456789")
        .await
        .refused(404, "no evidence");
    rig.get("/api/v1/evidence/99/log")
        .await
        .refused(404, "no evidence");
    rig.get("/api/v1/evidence/1/log?raw=1")
        .await
        .refused(400, "raw: \"1\" is none of true, false");
    rig.get("/api/v1/evidence/1/log?row=true")
        .await
        .refused(400, "unknown parameter \"row\"");
}

#[tokio::test]
async fn a_container_whose_required_evidence_cannot_be_kept_stays() {
    let tree = Tree::plain();
    let mut rig = Rig::start(dead(&tree), on(&tree, &json!({ "required": true }))).await;
    let path = log_of(&tree, &rig);
    symlink("/etc/hostname", &path).unwrap();
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["skipped"], 1, "{pass:#}");
    let errors = pass["errors"].as_array().unwrap();
    let [error] = &errors[..] else {
        panic!("{pass:#}");
    };
    let error = error.as_str().unwrap();
    assert!(
        error.starts_with("containers: 1 stay because their evidence could not be kept")
            && error.contains("link"),
        "{error}"
    );
    assert_eq!(rig.exited_containers(), 1);
    rig.metrics()
        .await
        .is("crisweep_evidence_failures_total{cause=\"log\"}", 1.0);

    // Where it is not required, the rest is kept, and nothing was read through the link.
    rig.configure(&on(&tree, &json!({ "required": false })));
    rig.post("/-/reload").await;
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.exited_containers(), 0);
    let one = kept(&rig, "").await.remove(0);
    assert!(
        one["log"]["problem"].as_str().unwrap().contains("link"),
        "{one:#}"
    );
    assert_eq!(
        (&one["log"]["bytes"], &one["exit_code"]),
        (&json!(0), &json!(137))
    );
    let log = format!("/api/v1/evidence/{}/log", one["number"]);
    let why = "nothing of the log is kept: its log: ";
    rig.get(&log).await.refused(404, why);
    let raw = rig.get(&format!("{log}?raw=true")).await;
    assert_eq!((raw.status, &*raw.text), (200, ""));
    let page = rig.get(&format!("/?evidence={}", one["number"])).await;
    assert!(page.text.contains("Nothing is kept."), "{}", page.text);
}

#[tokio::test]
async fn a_container_that_stays_for_its_evidence_before_and_after_a_rescue_counts_once() {
    let tree = Tree::plain();
    let old = |number| {
        let pod = PodSpec::new(&format!("old-{number}")).deleted();
        (0..10).fold(pod, |pod, name| {
            pod.exited(&format!("c{name}"), 0, hours(3))
        })
    };
    let options = Options {
        send_limit_bytes: 30_000,
        ..Options::default()
    };
    let mut changes = on(&tree, &json!({ "required": true }));
    changes["pods"]["quiet"] = json!("1s");
    let rig = Rig::with(dead(&tree).pods(4, old).build(), options, changes).await;
    symlink("/etc/hostname", log_of(&tree, &rig)).unwrap();
    rig.write_pods_again();
    let pass = rig.gc("target=containers").await;
    assert_eq!(
        rig.logs(1, "the lists fit; the kubelet may sync")
            .await
            .len(),
        1
    );
    assert_eq!(rig.exited_containers(), 1, "{pass:#}");
    let error = pass["errors"].to_string();
    assert!(error.contains("containers: 1 stay because"), "{pass:#}");
    // It is planned twice.
    let report = &pass["targets"]["containers"];
    let reasons = json!({ "pod-deleted": report["planned"] });
    assert_eq!(report["reasons"], reasons, "{pass:#}");
}

#[tokio::test]
async fn a_hung_log_disk_costs_the_evidence_and_not_the_pass() {
    let tree = Tree::plain();
    let mut node = alive(&tree);
    for number in 0..20 {
        node = node.pod(
            PodSpec::new(&format!("p{number}"))
                .exited("app", 0, hours(3))
                .deleted(),
        );
    }
    let mut changes = on(&tree, &json!({}));
    changes["policy"]["logs"]["enabled"] = json!(false);
    let rig = Rig::start(node, changes).await;
    let hung = Hung::at(&tree.real(&tree.pods_root()));
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.exited_containers(), 0);
    let rows = kept(&rig, "").await;
    assert_eq!(rows.len(), 20, "the rest is kept");
    let page = rig.metrics().await;
    page.is(
        "crisweep_evidence_failures_total{cause=\"log-timeout\"}",
        20.0,
    );
    assert_eq!(
        rig.logged("evidence could not be kept; later failures of this pass are counted only")
            .len(),
        1
    );
    drop(hung);
}

/// Runs a pass over a pod on a node whose log disk hangs, and changes the node while the evidence is read.
async fn change_while_evidence_is_read(pod: PodSpec, change: impl FnOnce(&Rig)) -> (Rig, Value) {
    let tree = Tree::plain();
    let mut changes = on(&tree, &json!({}));
    changes["policy"]["logs"]["enabled"] = json!(false);
    changes["policy"]["containers"] = json!({ "max_per_container": 0 });
    let rig = Rig::start(alive(&tree).pod(pod), changes).await;
    let hung = Hung::at(&tree.real(&tree.pods_root()));
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    let pass = rig.begin_gc("target=containers").await;
    until_true("both records were asked about, and a log is read", || {
        rig.sim.call_count(Rpc::ContainerStatus) == asked + 2
    })
    .await;
    change(&rig);
    let pass = rig.finished(&pass).await;
    drop(hung);
    (rig, pass)
}

#[tokio::test]
async fn an_older_record_stays_when_the_newer_one_goes_while_evidence_is_read() {
    let pod = PodSpec::new("loops")
        .exited("app", 0, hours(3))
        .running("app", 1);
    let change = |rig: &Rig| {
        let newer = rig.sim.container_id("default/loops/app#1").unwrap();
        assert!(rig.sim.change(|node| node.vanish_container(&newer)));
    };
    let (rig, pass) = change_while_evidence_is_read(pod, change).await;
    assert_eq!(pass["targets"]["containers"]["skipped"], 1, "{pass:#}");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_container_that_starts_while_its_evidence_is_read_stays() {
    let pod = PodSpec::new("slow")
        .created("app", 0, hours(3))
        .running("app", 1);
    let change = |rig: &Rig| {
        let id = rig.sim.container_id("default/slow/app#0").unwrap();
        assert!(rig.sim.change(|node| node.start_container(&id)));
    };
    let (rig, pass) = change_while_evidence_is_read(pod, change).await;
    assert_eq!(pass["targets"]["containers"]["skipped"], 1, "{pass:#}");
    rig.nothing_was_touched();
}
