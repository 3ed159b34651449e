//! The node as a whole: pods, teardown, clock, and what comes first.

use super::*;

#[test]
fn a_problem_outranks_advice_and_the_costlier_comes_first() {
    let mut node = Node::new();
    node.config(|config| config.mode = Mode::Observe);
    node.facts
        .quarantined
        .insert(FailureClass::NetworkTeardown, 3);
    node.facts.quarantined.insert(FailureClass::Busy, 1);
    node.facts.unread.push("containers: no answer".to_owned());
    let report = node.report();
    let ids: Vec<&str> = report.findings.iter().take(2).map(|it| it.id).collect();
    assert_eq!(ids, ["node-unread", "sandbox-teardown"]);
    let teardown = found(&report, "sandbox-teardown").unwrap();
    assert_eq!(
        teardown.summary,
        "4 sandboxes cannot be removed; of 3, the CNI plugin's teardown fails."
    );
    assert!(report.findings.is_sorted_by_key(|it| it.severity));
    assert_eq!(
        severity(&report, "nothing-is-removed"),
        Some(Severity::Advice)
    );
    assert!(
        report.summary.starts_with("2 problems, "),
        "{}",
        report.summary
    );
}

#[test]
fn litter_that_is_dated_in_the_future_is_told() {
    let mut node = Node::new();
    node.dead("web", 0, -4);
    node.dead("lost", 0, 0);
    let lost = &mut node.facts.containers[1];
    (lost.created_at, lost.finished_at) = (Timestamp::MAX, None);
    assert_eq!(severity(&node.report(), "clock-set-back"), None);
    let mut node = Node::new();
    node.dead("web", 0, 4);
    node.dead("web", 1, -60);
    node.sandbox("web", &[], -70);
    let report = node.report();
    let finding = found(&report, "clock-set-back").unwrap();
    assert_eq!(finding.severity, Severity::Advice);
    let words = format!("2 dead records dated in the future, up to {}:", ago(-70));
    assert!(finding.summary.starts_with(&words), "{}", finding.summary);
}

#[test]
fn an_unknown_pod_list_is_told() {
    let mut node = Node::new();
    assert_eq!(
        severity(&node.report(), "pods-unknown"),
        Some(Severity::Advice)
    );
    node = Node::new();
    node.facts.pods = Pods::Unknown(PodsUnknown::Failed("refused".to_owned()));
    assert_eq!(
        severity(&node.report(), "pods-unknown"),
        Some(Severity::Problem)
    );
}

#[test]
fn a_pod_list_that_lacks_a_living_pod_is_told() {
    let mut node = Node::new();
    node.pod("listed", false, None);
    node.container("listed", 0, ContainerState::Running, 90);
    assert!(found(&node.report(), "pods-unknown").is_none());

    for may_run in [ContainerState::Running, ContainerState::Unknown] {
        let mut node = Node::new();
        node.pod("listed", false, None);
        node.container("lives", 0, may_run, 90);
        let report = node.report();
        let finding = found(&report, "pods-unknown").unwrap();
        assert_eq!(
            (finding.severity, finding.summary.as_str()),
            (
                Severity::Problem,
                "The pod list is incomplete: pod shop/lives lives here and is not in it."
            )
        );
    }
}
