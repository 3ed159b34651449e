use std::sync::Arc;

use super::*;
use crate::gc::explain::Explanation;
use crate::gc::{Plan, Policy};
use crate::model::{
    ConfigSource, Container, ContainerId, Coverage, FilesystemUsage, ImageStore, Images, Labels,
    ListCoverage, PodList, PodRef, PodSandbox, PodSandboxId, PodSandboxState, PodSourceKind,
    PodUid, Pods, Snapshot, Text,
};

fn subject(target: Target, pod_state: PodKnowledge) -> Subject {
    let pod = PodRef {
        uid: PodUid::new("0d5f6a2c-1111-4222-8333-0123456789ab").unwrap(),
        namespace: "shop".into(),
        name: "web".into(),
    };
    Subject {
        target,
        id: Text::from("0123456789abcdef"),
        name: "app".into(),
        pod: Some(pod.into()),
        pod_state,
        attempt: 0,
        created_at: Timestamp::UNIX_EPOCH,
        age_seconds: 0,
        image: None,
    }
}

/// A container of its pod.
fn container(subject: &Subject, state: ContainerState) -> Container {
    Container {
        id: ContainerId::new("c".repeat(64)).unwrap(),
        sandbox_id: PodSandboxId::new("s".repeat(64)).unwrap(),
        name: "app".into(),
        attempt: 0,
        state,
        created_at: Timestamp::UNIX_EPOCH,
        finished_at: (state == ContainerState::Exited).then_some(Timestamp::UNIX_EPOCH),
        exit_undated: false,
        pod: subject.pod.clone(),
        image: Arc::default(),
        labels: Labels::default(),
    }
}

fn change(subject: &Subject, verdict: Verdict) -> Vec<String> {
    let filesystem = FilesystemUsage {
        capacity_bytes: 100,
        available_bytes: 50,
        used_bytes: 50,
        inodes: 0,
        inodes_free: 0,
    };
    let store = ImageStore {
        filesystem: Some(filesystem),
        ..ImageStore::default()
    };
    let snapshot = Snapshot {
        images: Images::Known(store),
        ..Snapshot::empty(Timestamp::UNIX_EPOCH)
    };
    change_on(&snapshot, subject, verdict)
}

fn change_on(snapshot: &Snapshot, subject: &Subject, verdict: Verdict) -> Vec<String> {
    change_with(&Policy::default(), snapshot, subject, verdict)
}

fn change_with(
    policy: &Policy,
    snapshot: &Snapshot,
    subject: &Subject,
    verdict: Verdict,
) -> Vec<String> {
    let plan: Plan = plan(snapshot, policy, &Targets::all().0);
    let facts = PlanFacts::of(snapshot, policy, &plan);
    let explainer = Explainer::of(&facts, &plan, PodSourceKind::Kubelet);
    let judged = JudgedObject { subject, verdict };
    let changes = explainer.would_change(judged, &[], &[]);
    changes.into_iter().map(|change| change.what).collect()
}

/// What the objects of each target can be kept for.
const KEPT: [(Target, &str); 4] = [
    (
        Target::Containers,
        "running starting state-unknown too-young newest within-limits unmanaged protected quarantined",
    ),
    (
        Target::Sandboxes,
        "ready has-containers too-young newest within-limits unmanaged protected quarantined",
    ),
    (
        Target::Logs,
        "pod-exists has-containers foreign-name too-young target-exists not-asked pods-unknown protected",
    ),
    (
        Target::Images,
        "in-use unknown-user pinned sandbox-image keep too-young below-threshold",
    ),
];

#[test]
fn each_reason_says_what_would_change_it() {
    let mut lines = Vec::new();
    for (target, kept) in KEPT {
        let active = subject(target, PodKnowledge::Active);
        for word in kept.split(' ') {
            let reason = KeepReason::ALL.into_iter().find(|it| it.label() == word);
            let reason = reason.unwrap();
            let changes = change(&active, Verdict::Keep(reason)).join(" | or ");
            lines.push(format!("{target} {}: {changes}", reason.label()));
        }
        for reason in RemoveReason::all(target) {
            let changes = change(&active, Verdict::Remove(*reason)).join(" | or ");
            lines.push(format!("{target} {}: {changes}", reason.label()));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn what_must_become_of_the_pod_depends_on_what_is_known_of_it() {
    for (state, words) in [
        (
            PodKnowledge::Active,
            "must be deleted for pods.settle (10s) and pods.quiet (1m); or a newer record",
        ),
        (
            PodKnowledge::Unknown,
            "or pass assume_finished_after and max_dead to POST /gc",
        ),
    ] {
        let subject = subject(Target::Containers, state);
        let snapshot = Snapshot {
            containers: vec![container(&subject, ContainerState::Exited)].into(),
            ..Snapshot::empty(Timestamp::UNIX_EPOCH)
        };
        let changes = change_on(&snapshot, &subject, Verdict::Keep(KeepReason::Newest)).join(" | ");
        assert!(changes.contains(words), "{changes}");
    }
}
/// A pod list of another source, or none, and a list of sandboxes that is incomplete.
#[test]
fn what_would_show_the_end_of_an_unknown_pod_depends_on_the_doubt() {
    let sandbox = PodSandbox {
        id: PodSandboxId::new("s".repeat(64)).unwrap(),
        pod: subject(Target::Sandboxes, PodKnowledge::Unknown).pod,
        attempt: 0,
        state: PodSandboxState::NotReady,
        created_at: Timestamp::UNIX_EPOCH,
        config_source: Some(ConfigSource::Api),
        labels: Labels::default(),
    };
    let subject = subject(Target::Sandboxes, PodKnowledge::Unknown);
    let snapshot = Snapshot {
        containers: vec![container(&subject, ContainerState::Exited)].into(),
        sandboxes: vec![sandbox].into(),
        pods: Pods::Known(PodList::default()),
        ..Snapshot::empty(Timestamp::UNIX_EPOCH)
    };
    let incomplete = Snapshot {
        seen: ListCoverage {
            sandboxes: Coverage::Partial,
            ..ListCoverage::default()
        },
        ..snapshot.clone()
    };
    let verdict = Verdict::Keep(KeepReason::Newest);
    let changes = change_on(&snapshot, &subject, verdict).join(" | ");
    assert!(
        changes.contains("another source may know more"),
        "{changes}"
    );
    let changes = change_on(&incomplete, &subject, verdict).join(" | ");
    assert!(
        changes.contains("when the runtime answers whole lists"),
        "{changes}"
    );
    assert!(!changes.contains("assume_finished_after"), "{changes}");
}

#[test]
fn no_assumption_is_offered_that_cannot_be_made_or_is_made() {
    let subject = subject(Target::Containers, PodKnowledge::Unknown);
    let with = |policy: &Policy, state| {
        let snapshot = Snapshot {
            containers: vec![container(&subject, state)].into(),
            ..Snapshot::empty(Timestamp::UNIX_EPOCH)
        };
        let newest = Verdict::Keep(KeepReason::Newest);
        change_with(policy, &snapshot, &subject, newest).join(" | ")
    };
    let running = with(&Policy::default(), ContainerState::Running);
    assert!(!running.contains("assume"), "{running}");
    let assuming = Policy {
        assume_finished_after: Some(Duration::from_secs(3600)),
        ..Policy::default()
    };
    let young = with(&assuming, ContainerState::Exited);
    assert!(
        young.contains("pass an assume_finished_after below 1h"),
        "{young}"
    );
    let mut of_static = subject.clone();
    of_static.pod = Some(Arc::new(PodRef {
        uid: PodUid::new("0d5f6a2c111142228333012345678901").unwrap(),
        namespace: "kube-system".into(),
        name: "etcd".into(),
    }));
    let snapshot = Snapshot {
        containers: vec![container(&of_static, ContainerState::Exited)].into(),
        ..Snapshot::empty(Timestamp::UNIX_EPOCH)
    };
    let changes = change_on(&snapshot, &of_static, Verdict::Keep(KeepReason::Newest));
    assert!(!changes.join(" | ").contains("assume"), "{changes:?}");
}

/// Explains a container without a time of creation.
fn explained(container: Container) -> Explanation {
    let mut policy = Policy::default();
    policy.containers.include_unknown = true;
    let lost = Container {
        created_at: Timestamp::MAX,
        ..container
    };
    let snapshot = Snapshot {
        containers: vec![lost].into(),
        ..Snapshot::empty(Timestamp::UNIX_EPOCH)
    };
    let plan = plan(&snapshot, &policy, &Targets::all().0);
    let facts = PlanFacts::of(&snapshot, &policy, &plan);
    let explainer = Explainer::of(&facts, &plan, PodSourceKind::Kubelet);
    explainer.explain(explainer.judged().next().unwrap())
}

#[test]
fn what_has_no_time_of_creation_waits_for_that_and_not_for_thousands_of_years() {
    let subject = subject(Target::Containers, PodKnowledge::Active);
    for state in [
        ContainerState::Created,
        ContainerState::Unknown,
        ContainerState::Exited,
    ] {
        let told = explained(container(&subject, state));
        let untold = "the runtime has not told yet when it was created";
        assert!(told.summary.contains(untold), "{}", told.summary);
        let changes = told.would_change.iter().map(|it| it.what.as_str());
        let changes: Vec<&str> = changes.collect();
        assert_eq!(changes, ["the runtime must say when it was created"]);
    }
}

#[test]
fn a_dead_container_of_which_no_time_is_known_is_dead_since_no_year() {
    let subject = subject(Target::Containers, PodKnowledge::Active);
    let told = explained(Container {
        finished_at: None,
        ..container(&subject, ContainerState::Exited)
    });
    assert_eq!(told.since, None);
}

#[test]
fn what_makes_an_image_go_includes_the_switch() {
    let mut policy = Policy::default();
    policy.images.enabled = false;
    let image = subject(Target::Images, PodKnowledge::Unknown);
    let snapshot = Snapshot::empty(Timestamp::UNIX_EPOCH);
    let stays = Verdict::Keep(KeepReason::BelowThreshold);
    for what in change_with(&policy, &snapshot, &image, stays) {
        assert!(
            what.ends_with(", and set policy.images.enabled: true"),
            "{what}"
        );
    }
}

#[test]
fn a_disk_that_is_full_changes_nothing_while_it_cannot_be_measured() {
    let image = subject(Target::Images, PodKnowledge::Unknown);
    let snapshot = Snapshot::empty(Timestamp::UNIX_EPOCH);
    let stays = Verdict::Keep(KeepReason::BelowThreshold);
    let changes = change_on(&snapshot, &image, stays);
    let words = "crisweep must be able to measure the image file system, which must be 85 % full";
    assert!(changes[0].starts_with(words), "{changes:?}");
}

#[test]
fn the_cap_that_is_named_removes_it() {
    let subject = subject(Target::Containers, PodKnowledge::Assumed);
    let of_pod = |number: u32| {
        let mut other = container(&subject, ContainerState::Exited);
        other.id = ContainerId::new(format!("{number:064}")).unwrap();
        let uid = PodUid::new(format!("0d5f6a2c-1111-4222-8333-{number:012}")).unwrap();
        let pod = PodRef {
            uid,
            ..(*subject.pod.clone().unwrap()).clone()
        };
        other.pod = Some(pod.into());
        other.finished_at = Some(Timestamp::from_second(i64::from(number)).unwrap());
        other
    };
    let now = Timestamp::from_second(86_400).unwrap();
    let snapshot = Snapshot {
        containers: (0..9).map(of_pod).collect::<Vec<_>>().into(),
        ..Snapshot::empty(now)
    };
    let policy = Policy {
        assume_finished_after: Some(Duration::from_secs(1)),
        ..Policy::default()
    };
    let mut third = subject.clone();
    third.id = snapshot.containers[2].id.text().clone();
    let newest = Verdict::Keep(KeepReason::Newest);
    let changes = change_with(&policy, &snapshot, &third, newest);
    assert_eq!(
        changes.last().unwrap(),
        "set policy.containers.max_dead to 6 (the oldest go first)"
    );
}
