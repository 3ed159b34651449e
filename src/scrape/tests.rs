//! The whole page of a known node, and what must hold of any page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::cri::{self, ListMode, Listed};
use crate::gc::{KeepReason, RemoveReason, Summary, Target};
use crate::model::{
    Container, ContainerId, ContainerState, Filesystem, FilesystemUsage, Image, ImageId, PodRef,
    PodSandbox, PodSandboxId, PodSandboxState, PodUid, Pods, PodsUnknown,
};
use crate::observe::{Filesystems, Timings};
use crate::report::{AlertResult, Cause, Outcome, Pass, PassState, TargetReport, TriggerInfo};

const SECOND: Duration = Duration::from_secs(1);

fn now() -> Timestamp {
    "2026-01-02T03:04:05.678Z".parse().unwrap()
}

fn hours_ago(hours: i64) -> Timestamp {
    now() - SignedDuration::from_hours(hours)
}

/// An error as a runtime that is down gives it.
fn refused() -> cri::Error {
    cri::Error::Status {
        method: "Any",
        status: Box::new(tonic::Status::unavailable("down")),
    }
}

fn id(number: usize) -> String {
    format!("{number:064x}")
}

fn container(number: usize, state: ContainerState, namespace: &str, image: &str) -> Container {
    let pod = PodRef {
        uid: PodUid::new(format!("00000000-0000-0000-0000-{number:012}")).unwrap(),
        namespace: namespace.to_owned(),
        name: format!("pod-{number}"),
    };
    Container {
        id: ContainerId::new(id(number)).unwrap(),
        sandbox_id: PodSandboxId::new(id(number + 1000)).unwrap(),
        name: "app".to_owned(),
        attempt: 0,
        state,
        created_at: hours_ago(9),
        finished_at: None,
        pod: Some(pod),
        image: image.to_owned(),
        labels: BTreeMap::new(),
    }
}

fn sandbox(number: usize, state: PodSandboxState) -> PodSandbox {
    PodSandbox {
        id: PodSandboxId::new(id(number)).unwrap(),
        pod: None,
        attempt: 0,
        state,
        created_at: hours_ago(9),
        labels: BTreeMap::new(),
    }
}

fn image(name: &str, pinned: bool) -> Image {
    Image {
        id: ImageId::new(format!("sha256:{name}")).unwrap(),
        repo_tags: vec![format!("registry.test/{name}:1")],
        repo_digests: vec![],
        size_bytes: 1,
        pinned,
    }
}

fn filesystem(mountpoint: &str, inodes: u64) -> Filesystem {
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
    }
}

fn listed<T>(rows: Vec<T>, mode: ListMode) -> Listed<T> {
    let response_bytes = 1000 * rows.len() as u64;
    Listed {
        rows,
        malformed: 0,
        response_bytes,
        mode,
        duration: Duration::from_millis(11),
    }
}

fn containers() -> Vec<Container> {
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

fn look() -> Look {
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
    let runtime = cri::Version {
        runtime: "containerd".to_owned(),
        version: "1.7.24".to_owned(),
    };
    Look {
        taken_at: now(),
        started: Instant::now(),
        duration: millis(40),
        runtime: Ok(runtime),
        containers: Ok(listed(containers(), ListMode::Unary)),
        sandboxes: Ok(listed(sandboxes, ListMode::Streaming)),
        images: Ok(listed(images, ListMode::Unary)),
        filesystems: Ok(Filesystems {
            image: vec![
                filesystem("/var/lib/images", 6_400),
                filesystem("/var/lib/images", 6_400),
            ],
            container: vec![filesystem("/var/lib/layers", 0)],
        }),
        pods: Pods::Unknown(PodsUnknown::NoSource),
        exits_unknown: 4,
        timings: Timings {
            runtime: millis(1),
            containers: millis(11),
            sandboxes: millis(10),
            images: millis(5),
            filesystems: millis(2),
            pods: Duration::ZERO,
        },
    }
}

fn plan() -> Plan {
    let containers = Summary {
        remove: [(RemoveReason::Superseded, 40), (RemoveReason::OverCap, 2)].into(),
        keep: [(KeepReason::Running, 1), (KeepReason::Newest, 24)].into(),
    };
    let summary = [
        (Target::Containers, containers),
        (Target::Sandboxes, Summary::default()),
    ];
    Plan {
        taken_at: now(),
        removals: vec![],
        kept: vec![],
        summary: summary.into(),
    }
}

fn pass(outcome: Outcome, dry_run: bool) -> Pass {
    let report = TargetReport {
        already_gone: 3,
        skipped: 1,
        ..TargetReport::default()
    };
    Pass {
        id: "1".to_owned(),
        state: PassState::Done,
        outcome: Some(outcome),
        dry_run,
        trigger: TriggerInfo {
            cause: Cause::Alert,
            alert: None,
        },
        merged_triggers: 0,
        queued_at: now(),
        started_at: Some(now()),
        finished_at: Some(now() + SignedDuration::from_millis(1_250)),
        before: None,
        after: None,
        targets: [
            (Target::Containers, report),
            (Target::Sandboxes, TargetReport::default()),
        ]
        .into(),
        errors: vec![],
    }
}

fn metrics() -> Metrics {
    let metrics = Metrics::new("node-1");
    metrics.pass_finished(&pass(Outcome::Partial, false));
    metrics.pass_finished(&pass(Outcome::Completed, true));
    metrics.removed(
        Target::Containers,
        RemoveReason::Superseded,
        Duration::from_millis(3),
    );
    metrics.removal_failed(Target::Sandboxes, FailureClass::NetworkTeardown, 5 * SECOND);
    metrics.alert(AlertResult::Accepted);
    metrics.http_request(crate::metrics::Endpoint::of_path("/gc"), 403);
    metrics
}

fn quarantined() -> BTreeMap<FailureClass, usize> {
    [(FailureClass::NetworkTeardown, 7)].into()
}

fn page_of(look: Option<&Look>, format: Format) -> String {
    let (metrics, plan, quarantined) = (metrics(), plan(), quarantined());
    let plan = look.is_some().then_some(&plan);
    render(
        &Input {
            look,
            plan,
            quarantined: &quarantined,
            metrics: &metrics,
        },
        format,
    )
}

/// Hides what differs from run to run: the figures of the test's own process, and the build.
fn masked(page: &str) -> String {
    let mask = |line: &str| match line.split_once(' ') {
        Some((name, _)) if name.starts_with("process_") => format!("{name} (masked)\n"),
        Some(_) if line.starts_with("crisweep_build_info{") => {
            "crisweep_build_info{(masked)} 1\n".to_owned()
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(mask).collect()
}

/// Reads a text page as strictly as Prometheus does: each sample belongs to the family that was
/// announced last, none comes twice, and no family twice. Returns the samples.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
    let (mut helped, mut family, mut kind) = ("", "", "");
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !help.ends_with('.'), "{line}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').unwrap();
            assert_eq!(family, helped);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
            assert!(families.insert(family), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let suffix = name
                .strip_prefix(family)
                .unwrap_or_else(|| panic!("{line} in {family}"));
            let allowed: &[&str] = match kind {
                "histogram" => &["_sum", "_count", "_bucket"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            let old = samples.insert(series.to_owned(), value.parse().unwrap());
            assert_eq!(old, None, "twice: {line}");
        }
    }
    samples
}

#[test]
fn openmetrics_page_of_a_known_node() {
    insta::assert_snapshot!(masked(&page_of(Some(&look()), Format::OpenMetrics)));
}

#[test]
fn text_page_of_a_known_node() {
    insta::assert_snapshot!(masked(&page_of(Some(&look()), Format::Text)));
}

#[test]
fn text_page_of_a_node_that_could_not_be_looked_at() {
    insta::assert_snapshot!(masked(&page_of(None, Format::Text)));
}

#[test]
fn both_formats_hold_the_same_samples() {
    let samples = |format| {
        let page = masked(&page_of(Some(&look()), format));
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let text = samples(Format::Text);
    assert!(text.len() > 100);
    assert_eq!(text, samples(Format::OpenMetrics));
}

#[test]
fn text_page_is_well_formed() {
    let samples = parse(&page_of(Some(&look()), Format::Text));
    let hostile = r#"cri_namespace_exited_containers{namespace="a \"quoted\\name\"\nspace"}"#;
    assert!(
        !samples.contains_key(hostile),
        "the eleventh and twelfth namespace do not show"
    );
    assert_eq!(
        samples
            .keys()
            .filter(|name| name.starts_with("cri_namespace"))
            .count(),
        10
    );
    assert!(samples["process_resident_memory_bytes"] > 1e6);
    assert!(samples["process_cpu_seconds_total"] >= 0.0);
    assert!(samples["process_open_fds"] >= 3.0);
    let age = Timestamp::now().as_second() as f64 - samples["process_start_time_seconds"];
    assert!(
        (-60.0..86_400.0).contains(&age),
        "the process is {age} s old"
    );
}

#[test]
fn label_values_from_outside_are_escaped() {
    let mut look = look();
    look.containers.as_mut().unwrap().rows.truncate(3);
    let samples = parse(&page_of(Some(&look), Format::Text));
    let escaped = r#"cri_namespace_exited_containers{namespace="a \"quoted\\name\"\nspace"}"#;
    assert_eq!(samples.get(escaped), Some(&1.0));
}

#[test]
fn what_could_not_be_read_is_absent_and_said_so() {
    let mut look = look();
    look.containers = Err(refused());
    look.filesystems.as_mut().unwrap().container[0].usage = None;
    look.pods = Pods::Unknown(PodsUnknown::Settling);
    let samples = parse(&page_of(Some(&look), Format::Text));
    let success = |name| samples[&format!("crisweep_collector_success{{collector=\"{name}\"}}")];
    let collectors = [
        "runtime",
        "containers",
        "sandboxes",
        "images",
        "filesystems",
        "pods",
    ];
    assert_eq!(collectors.map(success), [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let shows = |prefix: &str| samples.keys().any(|name| name.starts_with(prefix));
    for prefix in [
        "cri_containers",
        "cri_oldest_exited",
        "cri_namespace",
        "cri_list_response_bytes{list=\"containers\"}",
        "cri_list_duration_seconds{list=\"containers\"}",
        "cri_list_mode{list=\"containers\"",
        "cri_images{state=\"used\"}",
        "cri_images{state=\"unused\"}",
        "cri_container_fs_used",
    ] {
        assert!(!shows(prefix), "{prefix}");
    }
    assert!(shows("cri_images{state=\"pinned\"}") && shows("cri_image_fs_used_bytes"));
}

#[test]
fn an_empty_node_reads_zero_and_has_no_oldest_container() {
    let mut look = look();
    look.containers = Ok(listed(vec![], ListMode::Unary));
    let samples = parse(&page_of(Some(&look), Format::Text));
    assert_eq!(samples["cri_containers{state=\"exited\"}"], 0.0);
    assert_eq!(samples["cri_list_response_bytes{list=\"containers\"}"], 0.0);
    assert!(!samples.contains_key("cri_oldest_exited_container_timestamp_seconds"));
}

#[test]
fn a_pass_counts_for_each_of_its_targets_and_a_dry_run_apart() {
    let samples = parse(&page_of(None, Format::Text));
    for target in ["containers", "sandboxes"] {
        let series = |outcome| {
            format!(
                "crisweep_passes_total{{target=\"{target}\",cause=\"alert\",outcome=\"{outcome}\"}}"
            )
        };
        assert_eq!(samples[&series("partial")], 1.0);
        assert_eq!(samples[&series("completed")], 0.0);
    }
    assert_eq!(samples["crisweep_dry_runs_total{cause=\"alert\"}"], 1.0);
    assert_eq!(samples["crisweep_pass_duration_seconds_sum"], 1.25);
    assert_eq!(
        samples["crisweep_last_pass_timestamp_seconds{outcome=\"partial\"}"],
        1_767_323_046.928
    );
    assert!(!samples.contains_key("crisweep_last_pass_timestamp_seconds{outcome=\"completed\"}"));
}

fn arbitrary_container() -> impl Strategy<Value = Container> {
    let state = prop::sample::select(ContainerState::ALL.to_vec());
    (
        "[0-9a-f]{64}",
        state,
        "[a-z]{1,3}",
        any::<bool>(),
        0_i64..1000,
    )
        .prop_map(|(id, state, namespace, exit_known, hours)| {
            let mut row = container(1, state, &namespace, &format!("sha256:{id}"));
            row.id = ContainerId::new(id).unwrap();
            row.finished_at = exit_known.then(|| hours_ago(hours));
            row
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_id_is_on_any_page(rows in prop::collection::vec(arbitrary_container(), 0..60)) {
        let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
        let exited = rows.iter().filter(|row| row.state == ContainerState::Exited).count();
        let mut look = look();
        look.containers = Ok(listed(rows, ListMode::Unary));
        let page = page_of(Some(&look), Format::Text);
        prop_assert!(ids.iter().all(|id| !page.contains(id.as_str())));
        let long_hex = |word: &str| word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
        prop_assert!(!page.split(|c: char| !c.is_ascii_alphanumeric()).any(long_hex));
        let samples = parse(&page);
        prop_assert_eq!(samples["cri_containers{state=\"exited\"}"], exited as f64);
        let namespaces = samples.keys().filter(|name| name.starts_with("cri_namespace_")).count();
        prop_assert!(namespaces <= 10);
    }
}
