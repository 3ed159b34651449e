//! What lies there, and whose it is.

use super::*;

#[test]
fn a_node_without_litter_is_told_in_one_sentence() {
    let mut node = Node::new();
    node.pod("web", false, None);
    let report = node.report();
    assert_eq!(
        report.summary,
        "Nothing here needs a change: 0 dead containers and 0 not-ready sandboxes, 0 came in the last 24 h."
    );
    assert!(
        report
            .findings
            .iter()
            .all(|it| it.severity == Severity::Info),
        "{report:#?}"
    );
}

#[test]
fn a_list_that_could_not_be_read_has_no_count() {
    let with = |containers, sandboxes| {
        let mut node = Node::new();
        node.pod("web", false, None);
        node.facts.lists_read = ListsRead {
            containers,
            sandboxes,
        };
        if containers {
            node.dead("web", 0, 3000);
        }
        if sandboxes {
            node.sandbox("web", &[], 3000);
        }
        node.facts.unread.push("a list: no answer".to_owned());
        node.past().removed.push(RemovedOfPod {
            target: "containers".to_owned(),
            namespace: "shop".to_owned(),
            pod_uid: None,
            came_1h: 0,
            came_24h: 4,
        });
        node.report()
    };
    for (containers, sandboxes, wanted) in [
        (
            true,
            true,
            "1 dead container and 1 not-ready sandbox, 4 came in the last 24 h.",
        ),
        (
            true,
            false,
            "1 dead container; the sandboxes could not be listed.",
        ),
        (
            false,
            true,
            "1 not-ready sandbox; the containers could not be listed.",
        ),
        (
            false,
            false,
            "containers and sandboxes could not be listed.",
        ),
    ] {
        let report = with(containers, sandboxes);
        assert_eq!(report.summary, format!("1 problem: {wanted}"));
        let counts = report.top.namespaces.iter().map(|it| it.counts);
        for counts in counts.chain([report.top.other_owners.counts]) {
            assert_eq!(counts.dead_containers.is_some(), containers, "{counts:?}");
            assert_eq!(
                counts.not_ready_sandboxes.is_some(),
                sandboxes,
                "{counts:?}"
            );
        }
    }
}

#[test]
fn litter_is_counted_by_what_controls_its_pods() {
    let mut node = Node::new();
    let minute = now().as_second() / 60;
    node.pod("web-1", false, Some(("ReplicaSet", "web-7f")));
    node.pod("odd-1", false, Some(("ReplicaSet", "odd-9c")));
    node.pod("report-1", true, Some(("Job", &format!("report-{minute}"))));
    node.pod("job-1", true, Some(("Job", "import")));
    node.pod("bare", false, None);
    for (pod, dead) in [
        ("web-1", 6),
        ("odd-1", 5),
        ("report-1", 4),
        ("job-1", 3),
        ("bare", 2),
        ("gone", 1),
    ] {
        for attempt in 0..dead {
            node.dead(pod, attempt, 300);
        }
    }
    node.sandbox("web-1", &[("pod-template-hash", "7f")], 300);
    node.sandbox("odd-1", &[("pod-template-hash", "other")], 300);
    let report = node.report();
    assert_eq!(
        owners(&report),
        [
            ("Deployment", "web", 7),
            ("ReplicaSet", "odd-9c", 6),
            ("CronJob", "report", 4),
            ("Job", "import", 3),
            ("none", "", 2),
            ("unknown", "", 1),
        ]
    );
    let web = &report.top.owners[0];
    assert!(web.derived && !report.top.owners[1].derived);
    assert_eq!(
        (web.counts.dead_containers, web.counts.list_bytes),
        (Some(6), 6 * 1000 + 2000)
    );
    assert_eq!(report.top.namespaces.len(), 1);
    let litter = found(&report, "litter").unwrap();
    assert!(
        litter
            .summary
            .starts_with("Deployment shop/web has 7 of 23 dead containers"),
        "{}",
        litter.summary
    );
}

#[test]
fn an_owner_is_known_by_evidence_when_its_pod_is_gone() {
    let mut node = Node::new();
    node.pod("other", false, None);
    node.dead("gone", 0, 300);
    let owner = PodOwner {
        kind: "StatefulSet".to_owned(),
        name: "db".to_owned(),
    };
    node.past().owners.insert("gone".to_owned(), owner);
    assert_eq!(owners(&node.report()), [("StatefulSet", "db", 1)]);
}

#[test]
fn static_pods_are_the_nodes() {
    let mut node = Node::new();
    node.dead("etcd", 0, 300);
    node.sandbox("etcd", &[], 300);
    node.facts.sandboxes[0].config_source = Some(ConfigSource::File);
    assert_eq!(owners(&node.report()), [("Node", "node-1", 2)]);
}

#[test]
fn what_came_counts_what_lies_there_and_what_was_removed_since() {
    let mut node = Node::new();
    node.pod("web", false, Some(("DaemonSet", "web")));
    for minutes in [59, 60, 24 * 60 - 1, 24 * 60] {
        node.dead("web", u32::try_from(minutes).unwrap(), minutes);
    }
    // The clock was set back since.
    node.dead("web", 0, -365 * 24 * 60);
    node.dead("web", 1, 0);
    let lost = node.facts.containers.last_mut().unwrap();
    (lost.created_at, lost.finished_at) = (Timestamp::MAX, None);
    let removed = |target: &str| RemovedOfPod {
        target: target.to_owned(),
        pod_uid: Some("web".to_owned()),
        namespace: "shop".to_owned(),
        came_1h: 10,
        came_24h: 20,
    };
    node.past().removed = vec![
        removed("containers"),
        removed("sandboxes"),
        removed("images"),
    ];
    let report = node.report();
    let counts = report.top.owners[0].counts;
    assert_eq!((counts.came_1h, counts.came_24h), (21, 43));
    assert_eq!(counts.dead_containers, Some(6));
}

#[test]
fn lists_are_bounded_and_the_rest_is_summed_up() {
    let mut node = Node::new();
    for number in 0..15 {
        let name = format!("d{number:02}");
        node.pod(&name, false, Some(("DaemonSet", &name)));
        node.dead(&name, 0, 300);
        node.dead(&name, 1, 300);
    }
    let top = node.report().top;
    assert_eq!(top.owners.len(), ROWS_MAX);
    assert_eq!(
        (
            top.other_owners.groups,
            top.other_owners.counts.dead_containers
        ),
        (5, Some(10))
    );
}

#[test]
fn litter_is_a_finding_from_20_on_and_advice_where_it_is_worth_a_pass() {
    for (count, wanted) in [
        (19, None),
        (20, Some(Severity::Info)),
        (499, Some(Severity::Info)),
        (500, Some(Severity::Advice)),
    ] {
        let mut node = Node::new();
        node.pod("web", false, Some(("Job", "import")));
        for attempt in 0..count {
            node.dead("web", attempt, 3000);
        }
        let report = node.report();
        assert_eq!(severity(&report, "litter"), wanted, "{count}");
        if let Some(litter) = found(&report, "litter") {
            assert!(
                litter.change.contains("kubectl -n shop patch job import"),
                "{}",
                litter.change
            );
        }
    }
}

#[test]
fn a_name_that_is_none_of_kubernetes_is_in_no_command() {
    for (name, plain) in [
        ("web", true),
        ("a; rm -rf /", false),
        ("-n", false),
        ("$(id)", false),
    ] {
        let mut node = Node::new();
        node.pod("web", false, Some(("Job", name)));
        (0..20).for_each(|attempt| drop(node.dead("web", attempt, 3000)));
        let report = node.report();
        let change = &found(&report, "litter").unwrap().change;
        assert_eq!(change.contains("kubectl"), plain, "{change}");
        assert!(!change.contains(';') && !change.contains('$'), "{change}");
    }
}

/// Finished pods are a finding of their own; here none is finished.
#[test]
fn pods_without_an_owner_that_run_are_not_to_be_deleted() {
    let mut node = Node::new();
    node.pod("web", false, None);
    (0..20).for_each(|attempt| drop(node.dead("web", attempt, 3000)));
    let report = node.report();
    let litter = found(&report, "litter").unwrap();
    assert!(litter.summary.starts_with("Pods without an owner"));
    assert!(!litter.change.contains("delete"), "{}", litter.change);
}

#[test]
fn a_source_that_is_there_is_not_asked_for() {
    let change = |pods: Pods| {
        let mut node = Node::new();
        (0..30).for_each(|number| drop(node.dead("gone", number, 300)));
        node.facts.pods = pods;
        let report = node.report();
        found(&report, "litter").unwrap().change.clone()
    };
    let none = change(Pods::Unknown(PodsUnknown::NoSource));
    assert!(none.starts_with("set pods.source"), "{none}");
    let settling = change(Pods::Unknown(PodsUnknown::Settling));
    assert!(settling.starts_with("wait"), "{settling}");
    let failed = change(Pods::Unknown(PodsUnknown::Failed("401".into())));
    assert!(failed.starts_with("repair the pod source"), "{failed}");
    let known = change(Pods::Known(PodList::default()));
    assert!(known.ends_with("crisweep plan --all"), "{known}");
}
