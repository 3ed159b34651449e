//! The kubelet's own settings.

use super::*;
use crate::doctor::kubelet;

#[test]
fn the_kubelets_settings_are_findings_on_each_side_of_their_edge() {
    let with = |args: &[&str], dead: u32| {
        let mut node = Node::new();
        (0..dead).for_each(|attempt| drop(node.dead("web", attempt, 3000)));
        node.facts.kubelet = assemble(None, seen(args));
        node.report()
    };
    let report = with(&[], 199);
    assert_eq!(severity(&report, "kubelet-no-cap"), Some(Severity::Info));
    assert_eq!(severity(&report, "kubelet-keeps-many"), None);
    assert_eq!(severity(&report, "kubelet-unknown"), None);
    assert_eq!(
        severity(&with(&[], 200), "kubelet-no-cap"),
        Some(Severity::Advice)
    );
    assert_eq!(
        severity(
            &with(&["--maximum-dead-containers=0"], 200),
            "kubelet-no-cap"
        ),
        None
    );
    for (per, wanted) in [
        ("1", None),
        ("2", Some(Severity::Advice)),
        ("-1", Some(Severity::Advice)),
        ("0", None),
    ] {
        let report = with(&["--maximum-dead-containers-per-container", per], 0);
        assert_eq!(severity(&report, "kubelet-keeps-many"), wanted, "{per}");
    }
    let first = with(&[], 0);
    let images = found(&first, "image-collection").unwrap();
    assert!(
        images
            .summary
            .starts_with("The kubelet removes images first: from 85 % on"),
        "{}",
        images.summary
    );
    assert!(
        found(
            &with(&["--image-gc-high-threshold=86"], 0),
            "image-collection"
        )
        .is_none()
    );
    let never = with(&["--image-gc-high-threshold=100"], 0);
    assert!(
        found(&never, "image-collection")
            .unwrap()
            .summary
            .contains("crisweep alone does")
    );
}

#[test]
fn an_unseen_kubelet_is_told_with_what_would_show_it() {
    let mut node = Node::new();
    node.facts.kubelet = assemble(None, Process::Hidden);
    let report = node.report();
    let it = found(&report, "kubelet-unknown").unwrap();
    assert!(
        it.change.contains("hostPID") && it.change.contains("nodes/configz"),
        "{}",
        it.change
    );
    assert_eq!(it.severity, Severity::Info);
    let mut node = Node::new();
    node.facts.kubelet = assemble(None, Process::Within("k3s"));
    let report = node.report();
    assert!(
        found(&report, "kubelet-unknown")
            .unwrap()
            .change
            .contains("/etc/rancher/k3s/config.yaml")
    );
}

#[test]
fn an_ignored_key_is_a_problem_with_the_flag_that_works() {
    let mut node = Node::new();
    let Process::Seen { pid, args, .. } = seen(&[]) else {
        unreachable!()
    };
    let files = vec![kubelet::ConfigFile {
        path: "/k.yaml".to_owned(),
        content: Ok("kind: KubeletConfiguration\nmaximumDeadContainers: 100\n".to_owned()),
    }];
    let process = Process::Seen { pid, args, files };
    node.facts.kubelet = assemble(None, process);
    let report = node.report();
    let it = found(&report, "kubelet-ignored-key").unwrap();
    assert_eq!(it.severity, Severity::Problem);
    assert!(
        it.change
            .starts_with("start the kubelet with --maximum-dead-containers=100"),
        "{}",
        it.change
    );
}
