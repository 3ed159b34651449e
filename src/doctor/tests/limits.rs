//! What the lists' size comes to.

use super::*;

#[test]
fn the_next_relist_takes_as_long_as_its_statuses() {
    for (mean, dead, wanted) in [
        (Duration::from_millis(99), 100, Severity::Info),
        (Duration::from_millis(100), 100, Severity::Advice),
        (Duration::from_millis(1790), 100, Severity::Advice),
        (Duration::from_millis(1800), 100, Severity::Problem),
    ] {
        let mut node = Node::new();
        (0..dead).for_each(|attempt| drop(node.dead("web", attempt, 3000)));
        node.facts.latency = Some(Latency { calls: 20, mean });
        assert_eq!(
            severity(&node.report(), "kubelet-restart"),
            Some(wanted),
            "{mean:?}"
        );
    }
    assert_eq!(severity(&Node::new().report(), "kubelet-restart"), None);
}

#[test]
fn a_list_near_its_limit_says_how_long_there_is_room() {
    let report = |bytes: u64, came: u64| {
        let mut node = Node::new();
        node.dead("web", 0, 3000);
        node.facts.weights.containers.bytes = Some(bytes);
        let removed = RemovedOfPod {
            target: "containers".to_owned(),
            pod_uid: None,
            namespace: String::new(),
            came_1h: came,
            came_24h: came,
        };
        node.past().removed.push(removed);
        node.report()
    };
    let of = |report: &Report| {
        let it = report
            .findings
            .iter()
            .find(|it| it.details["list"] == "containers")
            .unwrap();
        (it.id, it.severity, it.details["hours_to_limit"].clone())
    };
    // The one row is the whole list.
    assert_eq!(
        of(&report(MIB, 0)),
        ("list-limit", Severity::Info, Value::Null)
    );
    assert_eq!(of(&report(12 * MIB - 1, 0)).1, Severity::Info);
    assert_eq!(of(&report(12 * MIB, 0)).1, Severity::Advice);
    assert_eq!(of(&report(16 * MIB, 0)).1, Severity::Advice);
    assert_eq!(
        of(&report(16 * MIB + 1, 0)),
        ("list-over-limit", Severity::Problem, Value::Null)
    );
    // 1,599 rows more.
    let (_, level, hours) = of(&report(16 * MIB / 1600, 33));
    assert_eq!((level, hours), (Severity::Info, 48.into()));
    let (_, level, hours) = of(&report(16 * MIB / 1600, 34));
    assert_eq!((level, hours), (Severity::Advice, 47.into()));
}

#[test]
fn a_list_over_its_limit_that_cannot_be_read_needs_a_hand() {
    let mut node = Node::new();
    node.facts.weights.containers.bytes = Some(40 * MIB);
    let finding = |node: Node| found(&node.report(), "list-over-limit").unwrap().clone();
    let mut unread = Node::new();
    unread.facts.weights.containers.bytes = Some(40 * MIB);
    unread.facts.lists_read.containers = false;
    let (read, unread) = (finding(node), finding(unread));
    assert!(read.summary.contains("(250 %)"), "{}", read.summary);
    assert!(read.change.starts_with("crisweep gc"), "{}", read.change);
    assert!(unread.change.contains("by hand"), "{}", unread.change);
}

#[test]
fn a_list_that_lives_is_not_to_be_swept() {
    let change = |dead: u32, polls: bool| {
        let mut node = Node::new();
        (0..20).for_each(|number| {
            let state = if number < dead {
                ContainerState::Exited
            } else {
                ContainerState::Running
            };
            drop(node.container("web", number, state, 3000));
        });
        node.facts.weights.containers.bytes = Some(14 * MIB);
        node.config(|config| config.thresholds.enabled = polls);
        found(&node.report(), "list-limit").unwrap().change.clone()
    };
    assert!(change(1, false).starts_with("what weighs lives"));
    assert!(change(2, false).ends_with("set thresholds.enabled to true"));
    assert!(change(2, true).ends_with("policy.sandboxes.max_dead"));
}
