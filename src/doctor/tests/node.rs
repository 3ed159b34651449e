//! The node as a whole: pods, caps, image file system, and what comes first.

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
fn pods_state_and_foreign_containers_are_told() {
    let mut node = Node::new();
    node.facts.pods = Pods::Unknown(PodsUnknown::Failed("refused".to_owned()));
    node.facts
        .state
        .errors
        .insert("journal", "no space".to_owned());
    node.dead("web", 0, 3000);
    node.facts.containers[0].pod = None;
    let report = node.report();
    for (id, wanted) in [
        ("pods-unknown", Severity::Problem),
        ("state-not-writable", Severity::Problem),
        ("foreign-containers", Severity::Advice),
    ] {
        assert_eq!(severity(&report, id), Some(wanted), "{id}");
    }
    assert_eq!(
        severity(&Node::new().report(), "pods-unknown"),
        Some(Severity::Advice)
    );
    let mut runs = Node::new();
    runs.container("web", 0, ContainerState::Running, 3000);
    runs.facts.containers[0].pod = None;
    assert_eq!(
        severity(&runs.report(), "foreign-containers"),
        Some(Severity::Info)
    );
}

#[test]
fn unused_images_are_told_above_the_mark() {
    // The used share is rounded up: 84.1 % counts as 85.
    for (available, wanted) in [
        (160, None),
        (159, Some(Severity::Advice)),
        (60, Some(Severity::Advice)),
        (59, Some(Severity::Problem)),
    ] {
        let mut node = Node::new();
        let image = |id: &str| Image {
            id: ImageId::new(id).unwrap(),
            repo_tags: vec![format!("{id}:1")],
            repo_digests: vec![],
            size_bytes: 10 * MIB,
            pinned: id == "pinned",
            handler: String::new(),
        };
        let usage = FilesystemUsage {
            capacity_bytes: 1000,
            available_bytes: available,
            used_bytes: 1000 - available,
            inodes: 0,
            inodes_free: 0,
        };
        node.facts.images = Images::Known(ImageStore {
            rows: vec![image("unused"), image("pinned"), image("used")].into(),
            filesystem: Some(usage),
            ..ImageStore::default()
        });
        node.dead("web", 0, 3000);
        node.facts.containers[0].image = Arc::new(ContainerImage {
            names: vec!["used:1".to_owned()],
            handler: String::new(),
        });
        let report = node.report();
        assert_eq!(severity(&report, "unused-images"), wanted, "{available}");
        if let Some(it) = found(&report, "unused-images") {
            let used = 100 - available / 10;
            let says = format!("The image file system is {used} % full (mark 85 %)");
            assert!(it.summary.starts_with(&says), "{}", it.summary);
            assert_eq!(
                (&it.details["unused_images"], &it.details["unused_bytes"]),
                (&1.into(), &(10 * MIB).into())
            );
        }
    }
}

#[test]
fn impossible_sizes_of_images_are_added_without_an_overflow() {
    let mut node = Node::new();
    let image = |id: &str| Image {
        id: ImageId::new(id).unwrap(),
        repo_tags: vec![],
        repo_digests: vec![],
        size_bytes: u64::MAX,
        pinned: false,
        handler: String::new(),
    };
    node.facts.images = Images::Known(ImageStore {
        rows: vec![image("one"), image("two")].into(),
        filesystem: Some(FilesystemUsage {
            capacity_bytes: 1000,
            available_bytes: 10,
            used_bytes: 990,
            inodes: 0,
            inodes_free: 0,
        }),
        ..ImageStore::default()
    });
    let report = node.report();
    let found = found(&report, "unused-images").unwrap();
    assert_eq!(found.details["unused_bytes"], u64::MAX);
}

#[test]
fn a_full_disk_without_unused_images_is_told() {
    let mut node = Node::new();
    let usage = FilesystemUsage {
        capacity_bytes: 1000,
        available_bytes: 10,
        used_bytes: 990,
        inodes: 0,
        inodes_free: 0,
    };
    node.facts.images = Images::Known(ImageStore {
        filesystem: Some(usage),
        ..ImageStore::default()
    });
    let report = node.report();
    let full = severity(&report, "image-disk-full");
    assert_eq!(full, Some(Severity::Problem));
    assert!(!report.summary.starts_with("Nothing"), "{}", report.summary);
}

#[test]
fn inodes_that_run_out_are_called_so() {
    let mut node = Node::new();
    let usage = FilesystemUsage {
        capacity_bytes: 1000,
        available_bytes: 500,
        used_bytes: 500,
        inodes: 100,
        inodes_free: 5,
    };
    node.facts.images = Images::Known(ImageStore {
        filesystem: Some(usage),
        ..ImageStore::default()
    });
    let report = node.report();
    let full = found(&report, "image-disk-full").unwrap();
    let says = "The inodes of the image file system are 95 % used (mark 85 %), and every image";
    assert!(full.summary.starts_with(says), "{}", full.summary);
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
