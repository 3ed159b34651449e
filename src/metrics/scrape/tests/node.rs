//! A fully known node, and a service that has done a little.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::config::Thresholds;
use crate::gc::Summary;
use crate::metrics::{HttpEndpoint, Metrics};
use crate::model::{
    AlertResult, Cause, Container, ContainerId, ContainerState, Coverage, FailureClass, Filesystem,
    FilesystemUsage, Filesystems, Image, ImageId, Images, KeepReason, Labels, Logs, NodeFigures,
    Outcome, Pass, PassState, PodOrigin, PodRef, PodSandbox, PodSandboxId, PodSandboxState, PodUid,
    Pods, PodsUnknown, PollResult, RemoveReason, Target, TargetReport,
};
use crate::runtime::{self, ListMode, Listing};
use crate::snapshot::{Look, Timings};

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn now() -> Timestamp {
    "2026-01-02T03:04:05.678Z".parse().unwrap()
}

pub(super) fn hours_ago(hours: i64) -> Timestamp {
    now() - SignedDuration::from_hours(hours)
}

/// The error of a runtime that is down.
pub(super) fn refused() -> runtime::Error {
    runtime::Error::Status {
        method: "Any",
        status: Box::new(tonic::Status::unavailable("down")),
    }
}

pub(super) fn id(number: usize) -> String {
    format!("{number:064x}")
}

pub(super) fn container(
    number: usize,
    state: ContainerState,
    namespace: &str,
    image: &str,
) -> Container {
    let pod = PodRef {
        uid: PodUid::new(format!("00000000-0000-0000-0000-{number:012}")).unwrap(),
        namespace: namespace.into(),
        name: format!("pod-{number}").into(),
    };
    Container {
        id: ContainerId::new(id(number)).unwrap(),
        sandbox_id: PodSandboxId::new(id(number + 1000)).unwrap(),
        name: "app".into(),
        attempt: 0,
        state,
        created_at: hours_ago(9),
        finished_at: None,
        exit_undated: false,
        pod: Some(pod.into()),
        image: std::sync::Arc::new(crate::model::ContainerImage {
            names: vec![image.to_owned()],
            handler: String::new(),
        }),
        labels: Labels::default(),
    }
}

pub(super) fn sandbox(number: usize, state: PodSandboxState) -> PodSandbox {
    PodSandbox {
        id: PodSandboxId::new(id(number)).unwrap(),
        pod: None,
        attempt: 0,
        state,
        created_at: hours_ago(9),
        config_source: None,
        labels: Labels::default(),
    }
}

pub(super) fn image(name: &str, pinned: bool) -> Image {
    Image {
        id: ImageId::new(format!("sha256:{name}")).unwrap(),
        repo_tags: vec![format!("registry.test/{name}:1")],
        repo_digests: vec![],
        size_bytes: 1,
        pinned,
        handler: String::new(),
    }
}

pub(super) fn filesystem(mountpoint: &str, inodes: u64) -> Filesystem {
    let usage = FilesystemUsage {
        capacity_bytes: 100_000_000_000,
        available_bytes: 20_000_000_000,
        used_bytes: 75_000_000_001,
        inodes,
        inodes_free: inodes / 4,
    };
    Filesystem {
        mountpoint: mountpoint.to_owned(),
        runtime_used_bytes: 60_000_000_000,
        usage: Some(usage),
        is_btrfs: false,
    }
}

pub(super) fn listed<T>(rows: Vec<T>, mode: ListMode) -> Listing<T> {
    let response_bytes = 1000 * rows.len() as u64;
    Listing {
        rows: rows.into(),
        malformed: 0,
        mounted: BTreeMap::new(),
        odd: 0,
        coverage: Coverage::Whole,
        whole_pods: BTreeSet::new(),
        cut_short: false,
        limit_bytes: None,
        response_bytes,
        mode,
    }
}

pub(super) fn containers() -> Vec<Container> {
    use ContainerState::{Created, Exited, Running};
    let mut rows = vec![
        container(1, Running, "web", "sha256:used"),
        container(2, Created, "web", "sha256:used"),
        container(
            3,
            Exited,
            "a \"quoted\\name\"\nspace",
            "registry.test/by-tag:1",
        ),
    ];
    // Twelve namespaces with dead containers, ten rows on the page.
    rows.extend((1..=11_usize).flat_map(|namespace| {
        let row = move |n| container(namespace * 100 + n, Exited, &format!("ns-{namespace}"), "-");
        (0..namespace).map(row)
    }));
    rows[2].finished_at = Some(hours_ago(1));
    rows[3].finished_at = Some(hours_ago(30));
    rows
}

pub(super) fn look() -> Look {
    let millis = Duration::from_millis;
    let sandboxes = vec![
        sandbox(2001, PodSandboxState::Ready),
        sandbox(2002, PodSandboxState::NotReady),
        sandbox(2003, PodSandboxState::NotReady),
    ];
    let images = vec![
        image("used", false),
        image("by-tag", false),
        image("old", false),
        image("p", true),
    ];
    let runtime = runtime::Version {
        runtime: "containerd".to_owned(),
        version: "1.7.24".to_owned(),
    };
    Look {
        uptime: Duration::MAX,
        pod_history: std::sync::Arc::default(),
        outage: None,
        taken_at: now(),
        started: Instant::now(),
        duration: millis(40),
        runtime: Ok(runtime),
        containers: Ok(listed(containers(), ListMode::Unary)),
        sandboxes: Ok(listed(sandboxes, ListMode::Streaming)),
        images: Ok(listed(images, ListMode::Unary)),
        store: Images::default(),
        filesystems: Ok(Filesystems {
            image: vec![
                filesystem("/var/lib/images", 6_400),
                filesystem("/var/lib/images", 6_400),
            ],
            container: vec![filesystem("/var/lib/layers", 0)],
        }),
        logs: Logs::default(),
        pods: Pods::Unknown(PodsUnknown::NoSource),
        pod_origin: PodOrigin::default(),
        exits_unknown: 4,
        last_exits: std::sync::Arc::default(),
        timings: Timings {
            statuses: Duration::ZERO,
            runtime: millis(1),
            containers: millis(11),
            sandboxes: millis(10),
            images: millis(5),
            filesystems: millis(2),
            pods: Duration::ZERO,
            logs: millis(3),
        },
    }
}

pub(super) fn plan() -> BTreeMap<Target, Summary> {
    let containers = Summary {
        remove: [(RemoveReason::Superseded, 40), (RemoveReason::OverCap, 2)].into(),
        keep: [(KeepReason::Running, 1), (KeepReason::Newest, 24)].into(),
    };
    [
        (Target::Containers, containers),
        (Target::Sandboxes, Summary::default()),
    ]
    .into()
}

fn figures(dead: u64) -> NodeFigures {
    NodeFigures {
        exited_containers: Some(dead),
        not_ready_sandboxes: Some(dead),
        containers_list_bytes: Some(1000 * dead),
        sandboxes_list_bytes: Some(500 * dead),
        image_fs_inodes_used: Some(1000),
        image_fs_used_bytes: Some(1 << 30),
        image_fs_used_ratio: Some(0.25),
        ..NodeFigures::default()
    }
}

pub(super) fn pass(outcome: Outcome, dry_run: bool) -> Pass {
    let report = TargetReport {
        begun: true,
        remaining: 2,
        already_gone: 3,
        skipped: 1,
        ..TargetReport::default()
    };
    Pass {
        state: PassState::Done,
        outcome: Some(outcome),
        dry_run,
        started_at: Some(now()),
        finished_at: Some(now() + SignedDuration::from_millis(1_250)),
        before: Some(figures(400)),
        after: Some(figures(40)),
        targets: [
            (Target::Containers, report),
            (Target::Sandboxes, TargetReport::default()),
            (
                Target::Images,
                TargetReport {
                    begun: true,
                    ..TargetReport::default()
                },
            ),
        ]
        .into(),
        ..Pass::queued("1".to_owned(), Cause::Alert.into(), [], now())
    }
}

pub(super) fn metrics() -> Metrics {
    let metrics = Metrics::new("node-1");
    metrics.pass_finished(&pass(Outcome::Partial, false));
    metrics.pass_finished(&pass(Outcome::Planned, true));
    metrics.removed(
        Target::Containers,
        RemoveReason::Superseded,
        Duration::from_millis(3),
    );
    metrics.removal_failed(Target::Sandboxes, FailureClass::NetworkTeardown, 5 * SECOND);
    metrics.freed_bytes.add(Target::Images, 12);
    metrics.alerts.count(AlertResult::Accepted);
    metrics.polls.count(PollResult::Ok);
    metrics.http_request(HttpEndpoint::of_path("/gc"), 403);
    let modes = [("enforce", true), ("observe", false)];
    metrics.configured(&modes, "0a1b2c3d", &["state.dir"], hours_ago(1));
    metrics.fleet_read(Some(hours_ago(1)));
    metrics.evidence_takes(Some(0));
    metrics
}

/// A busy service: each target was cleaned for an alert, a poll and a person, with success and failure.
pub(super) fn busy_metrics() -> Metrics {
    let metrics = metrics();
    let begun = TargetReport {
        begun: true,
        ..TargetReport::default()
    };
    let targets = Target::ALL.map(|target| (target, begun.clone()));
    for cause in [Cause::Alert, Cause::Poll, Cause::Manual] {
        for outcome in [Outcome::Completed, Outcome::NothingToDo, Outcome::Partial] {
            let mut pass = pass(outcome, false);
            pass.trigger.cause = cause;
            pass.targets = targets.clone().into();
            metrics.pass_finished(&pass);
        }
    }
    for target in Target::ALL {
        metrics.removed(target, RemoveReason::all(target)[0], SECOND);
        metrics.freed_bytes.add(target, 12);
    }
    for class in FailureClass::ALL {
        metrics.removal_failed(Target::Sandboxes, class, SECOND);
    }
    for path in ["/", "/metrics", "/gc", "/api/v1/plan", "/-/ready"] {
        metrics.http_request(HttpEndpoint::of_path(path), 200);
        metrics.http_request(HttpEndpoint::of_path(path), 404);
    }
    metrics
}

pub(super) fn quarantined() -> BTreeMap<FailureClass, usize> {
    [(FailureClass::NetworkTeardown, 7)].into()
}

/// The contract's.
pub(super) fn thresholds() -> Thresholds {
    Thresholds::default()
}
