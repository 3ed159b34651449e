//! Names and error texts from outside with control characters and line breaks: escaped in every output.

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::json;
use tonic::Code;

use crate::support::answer::Follow;
use crate::support::{Rig, nodes, until};

/// A colour, a line break, bidirectional text, a C1 control character.
const NAME: &str = "app\u{1b}[31m\nFORGED\u{202e}\u{9b}2J";
const ERROR: &str = "<b>refused\nFORGED\u{2028}line \u{1b}[2J";

fn is_tame(text: &str) -> bool {
    let wild = ['\u{1b}', '\u{202e}', '\u{9b}', '\u{2028}'];
    !text.contains(wild) && !text.lines().any(|line| line.starts_with("FORGED"))
}

#[tokio::test]
async fn names_and_texts_from_outside_are_escaped_in_every_output() {
    let pod = PodSpec::new(NAME).exited(NAME, 0, hours(3)).deleted();
    let leak = PodSpec::new("leak").without_sandbox();
    let leak = leak.leaked_sandbox(0, hours(3)).deleted();
    let dir = tempfile::tempdir().unwrap();
    let audit = dir.path().join("audit.jsonl");
    let changes = json!({ "state": { "audit_lines": audit } });
    let rig = Rig::start(nodes::healthy().pod(pod).pod(leak), changes).await;
    let fault = || Fault::fail(Code::Internal, ERROR);
    rig.sim.set_fault(Rpc::RemoveContainer, fault());
    rig.sim.set_fault(Rpc::RemovePodSandbox, fault());

    let plan = rig.get("/api/v1/plan").await;
    assert!(is_tame(&plan.text), "{}", plan.text);
    let removals = plan.json()["removals"].clone();
    let mut names = removals.as_array().unwrap().iter().map(|row| &row["name"]);
    assert!(names.any(|name| name == NAME), "JSON means the same");

    let lines = Follow::begin(rig.request("POST", "/gc?follow=true")).await;
    let lines = lines.rest().await;
    assert!(lines.iter().all(|line| is_tame(line)), "{lines:#?}");

    let passes = rig.get("/api/v1/passes").await;
    assert!(is_tame(&passes.text), "{}", passes.text);
    let errors = passes.json()["passes"][0]["errors"].to_string();
    assert!(errors.contains(r"<b>refused\nFORGED"), "{errors}");

    let page = rig.get("/").await.text;
    assert!(is_tame(&page) && !page.contains("<b>refused"), "{page}");
    assert!(
        page.contains(r"&lt;b&gt;refused\nFORGED\u{2028}line \u{1b}[2J"),
        "{page}"
    );

    let failed = rig.logs(1, "removal failed").await;
    let log = rig.log_text();
    assert!(is_tame(&log), "{log}");
    for line in failed {
        assert!(line["error"].as_str().unwrap().contains(ERROR), "{line}");
    }
    let audit = until("the audit has the end of the pass", || async {
        let lines = std::fs::read_to_string(&audit).unwrap_or_default();
        lines.contains(r#""state":"done""#).then_some(lines)
    })
    .await;
    assert!(is_tame(&audit) && audit.contains("FORGED"), "{audit}");
    let path = rig.get("/nowhere/%1b%0aFORGED").await;
    assert!(is_tame(&path.text), "{}", path.text);
}
