use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kubelet::{Configz, Process, assemble};
use super::*;
use crate::config::{Config, Mode};
use crate::gc::Limit;
use crate::model::{
    ConfigSource, Container, ContainerId, ContainerImage, ContainerState, Evidence, EvidenceLog,
    EvidencePod, FailureClass, FilesystemUsage, Image, ImageId, ImageStore, Images, Labels,
    PodList, PodOrigin, PodOwner, PodRef, PodSandbox, PodSandboxId, PodSandboxState, PodUid, Pods,
    PodsUnknown, RemoveReason, SourcePod,
};
use crate::snapshot::{Weight, Weights};
use crate::state::{Past, RemovedOfPod, Status};

const MIB: u64 = 1 << 20;

fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().unwrap()
}

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

/// A node under construction.
struct Node {
    facts: Facts,
    list: PodList,
}

impl Node {
    fn new() -> Self {
        let weight = |bytes| Weight {
            bytes: Some(bytes),
            limit_bytes: 16 * MIB,
        };
        let weights = Weights {
            containers: weight(0),
            sandboxes: weight(0),
            images: weight(0),
        };
        let mut config = Config::default();
        config.node.name = "node-1".to_owned();
        let facts = Facts {
            taken_at: now(),
            config: Arc::new(config),
            containers: Vec::new().into(),
            sandboxes: Vec::new().into(),
            lists_read: ListsRead {
                containers: true,
                sandboxes: true,
            },
            unread: Vec::new(),
            pods: Pods::Unknown(PodsUnknown::NoSource),
            origin: PodOrigin::default(),
            images: Images::default(),
            weights,
            quarantined: BTreeMap::new(),
            state: Status::default(),
            past: Ok(Past::default()),
            ends: BTreeMap::new(),
            latency: None,
            kubelet: assemble(Configz::NotAsked, seen(&[])),
        };
        Self {
            facts,
            list: PodList::default(),
        }
    }

    fn pod(&mut self, name: &str, finished: bool, owner: Option<(&str, &str)>) {
        let uid = PodUid::new(name).unwrap();
        let pod = SourcePod {
            finished,
            config_source: ConfigSource::Api,
        };
        self.list.pods.insert(uid.clone(), pod);
        if let Some((kind, name)) = owner {
            let (kind, name) = (kind.to_owned(), name.to_owned());
            self.list.owners.insert(uid, PodOwner { kind, name });
        }
    }

    /// Adds a container that was created so many minutes ago and, if it is dead, ended right then.
    fn container(
        &mut self,
        pod: &str,
        attempt: u32,
        state: ContainerState,
        minutes: i64,
    ) -> ContainerId {
        let id = ContainerId::new(format!("{pod}-{attempt}")).unwrap();
        self.facts.containers.push(Container {
            id: id.clone(),
            sandbox_id: PodSandboxId::new("s").unwrap(),
            name: "app".into(),
            attempt,
            state,
            created_at: ago(minutes),
            finished_at: (state == ContainerState::Exited).then(|| ago(minutes)),
            pod: Some(reference(pod)),
            image: Arc::new(ContainerImage::default()),
            labels: Labels::default(),
        });
        self.facts.weights.containers.bytes = Some(1000 * self.facts.containers.len() as u64);
        id
    }

    fn dead(&mut self, pod: &str, attempt: u32, minutes: i64) -> ContainerId {
        self.container(pod, attempt, ContainerState::Exited, minutes)
    }

    fn sandbox(&mut self, pod: &str, labels: &[(&str, &str)], minutes: i64) {
        self.facts.sandboxes.push(PodSandbox {
            id: PodSandboxId::new(format!("{pod}-sandbox")).unwrap(),
            pod: Some(reference(pod)),
            attempt: 0,
            state: PodSandboxState::NotReady,
            created_at: ago(minutes),
            config_source: None,
            labels: labels.iter().copied().collect(),
        });
        self.facts.weights.sandboxes.bytes = Some(2000 * self.facts.sandboxes.len() as u64);
    }

    fn config(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.facts.config));
    }

    fn past(&mut self) -> &mut Past {
        self.facts.past.as_mut().unwrap()
    }

    fn report(mut self) -> Report {
        if !self.list.pods.is_empty() {
            self.facts.pods = Pods::Known(self.list);
        }
        diagnose(&self.facts)
    }
}

fn seen(args: &[&str]) -> Process {
    let args = std::iter::once("kubelet").chain(args.iter().copied());
    Process::Seen {
        pid: 1,
        args: args.map(str::to_owned).collect(),
        files: Vec::new(),
        problem: None,
    }
}

fn reference(pod: &str) -> Arc<PodRef> {
    Arc::new(PodRef {
        uid: PodUid::new(pod).unwrap(),
        namespace: "shop".into(),
        name: pod.into(),
    })
}

fn found<'a>(report: &'a Report, id: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|it| it.id == id)
}

fn severity(report: &Report, id: &str) -> Option<Severity> {
    found(report, id).map(|it| it.severity)
}

fn owners(report: &Report) -> Vec<(&str, &str, u64)> {
    let rows = report.top.owners.iter();
    rows.map(|it| {
        let (kind, name) = (it.kind.as_deref().unwrap(), it.name.as_deref().unwrap());
        (kind, name, it.counts.objects())
    })
    .collect()
}

#[test]
fn a_node_without_litter_is_told_in_one_sentence() {
    let mut node = Node::new();
    node.pod("web", false, None);
    let report = node.report();
    assert_eq!(
        report.summary,
        "Nothing is wrong: 0 dead containers and 0 not-ready sandboxes, 0 came in the last 24 h."
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
    assert_eq!(counts.dead_containers, Some(4));
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
fn litter_is_a_finding_from_20_on_and_advice_from_200_on() {
    for (count, wanted) in [
        (19, None),
        (20, Some(Severity::Info)),
        (199, Some(Severity::Info)),
        (200, Some(Severity::Advice)),
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

/// A name with attempts at these minutes ago, the last one first; the last one runs.
fn looping(attempts: u32, minutes: &[i64]) -> Node {
    let mut node = Node::new();
    node.pod("web-1", false, Some(("ReplicaSet", "web-7f")));
    for (number, minutes) in minutes.iter().enumerate() {
        let attempt = attempts - u32::try_from(number).unwrap();
        let state = if number == 0 {
            ContainerState::Running
        } else {
            ContainerState::Exited
        };
        node.container("web-1", attempt, state, *minutes);
    }
    node
}

#[test]
fn a_loop_is_many_restarts_in_short_time() {
    for (attempts, minutes, is_loop) in [
        // Three restarts within the hour.
        (3, &[1, 10, 30, 90][..], true),
        (2, &[1, 10, 30], false),
        // Two that are known to be in the hour, of few attempts.
        (4, &[10, 50, 90], false),
        // Five in the day.
        (9, &[50, 200, 600, 900, 1200], true),
        (9, &[50, 200, 600, 900, 2000], false),
        // The kubelet's back-off shows.
        (47, &[1, 11], true),
        (47, &[1, 12], false),
        (4, &[1, 6], false),
        // It was one, and runs.
        (47, &[61, 66, 71, 76, 81], false),
    ] {
        let report = looping(attempts, minutes).report();
        let found = found(&report, "crash-loop").is_some();
        assert_eq!(found, is_loop, "{attempts} {minutes:?}");
    }
    // All restarts of a young pod are of today.
    let mut young = looping(5, &[50]);
    young.sandbox("web-1", &[], 600);
    assert_eq!(
        found(&young.report(), "crash-loop").unwrap().details["restarts_24h"],
        5
    );
}

fn evidence(attempt: u32, exit_code: i32, reason: &str, minutes: i64) -> Evidence {
    Evidence {
        number: u64::from(attempt) + 100,
        kept_at: ago(minutes),
        container_id: format!("gone-{attempt}"),
        container: "app".to_owned(),
        attempt,
        pod: Some(EvidencePod {
            uid: "web-1".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
        }),
        owner: None,
        labels: BTreeMap::new(),
        image: String::new(),
        image_ref: String::new(),
        ending: String::new(),
        exit_code: Some(exit_code),
        reason: reason.to_owned(),
        message: String::new(),
        created_at: ago(minutes),
        started_at: None,
        finished_at: Some(ago(minutes)),
        removed_for: RemoveReason::Superseded,
        pass: String::new(),
        log: EvidenceLog {
            bytes: 80,
            ..EvidenceLog::default()
        },
    }
}

#[test]
fn a_loop_tells_how_it_ends_since_when_and_where_to_read_more() {
    let mut node = looping(6, &[1, 5]);
    let last = ContainerId::new("web-1-5").unwrap();
    let end = End {
        exit_code: 137,
        reason: "OOMKilled".to_owned(),
    };
    node.facts.ends.insert(last, end);
    node.past().ends = vec![
        evidence(4, 137, "OOMKilled", 9),
        evidence(3, 1, "Error", 12),
        evidence(2, 0, "Completed", 15),
    ];
    let report = node.report();
    let it = found(&report, "crash-loop").unwrap();
    assert_eq!(
        it.summary,
        "Container app of ReplicaSet shop/web-7f was restarted at least 5 times in the last 24 h, last 5m ago: it was \
         killed for using too much memory (OOMKilled, exit code 137)."
    );
    assert_eq!(
        it.change,
        "raise spec.template.spec.containers[name=app].resources.limits.memory in ReplicaSet shop/web-7f, or have it \
         use less"
    );
    assert_eq!(it.severity, Severity::Problem);
    assert_eq!(it.details["failures_in_a_row"], 3);
    assert_eq!(it.details["first_failure"], ago(12).to_string());
    assert_eq!(it.details["evidence"], "crisweep evidence show 104");
}

#[test]
fn last_lines_are_promised_only_where_they_are_kept() {
    let of = |exit_code, logs: &[u64]| {
        let mut node = looping(6, &[1, 5]);
        let kept = logs.iter().zip([4, 3]).map(|(bytes, attempt)| {
            let mut kept = evidence(attempt, exit_code, "Error", 9);
            kept.log.bytes = *bytes;
            kept
        });
        node.past().ends = kept.collect();
        found(&node.report(), "crash-loop").unwrap().change.clone()
    };
    let kubectl = "kubectl -n shop logs web-1 -c app --previous has its last lines";
    for (exit_code, logs, wanted) in [
        (
            1,
            &[80, 80][..],
            "crisweep evidence show 104 has its last lines",
        ),
        (1, &[0, 80], "crisweep evidence show 103 has its last lines"),
        (1, &[0, 0], kubectl),
        // The runtime's message is kept beside the log.
        (
            128,
            &[0, 0],
            "crisweep evidence show 104 has the runtime's message",
        ),
    ] {
        let change = of(exit_code, logs);
        assert!(change.ends_with(wanted), "{logs:?}: {change}");
    }
}

#[test]
fn the_change_of_a_loop_follows_from_how_it_ends() {
    for (code, reason, level, words) in [
        (0, "Completed", Severity::Advice, "run it as a Job"),
        (
            127,
            "Error",
            Severity::Problem,
            "containers[name=app].command",
        ),
        (137, "Error", Severity::Problem, "livenessProbe"),
        (
            1,
            "Error",
            Severity::Problem,
            "mend what it fails on: crisweep evidence show 105",
        ),
    ] {
        let mut node = looping(6, &[1]);
        node.past().ends = vec![evidence(5, code, reason, 4)];
        let report = node.report();
        let it = found(&report, "crash-loop").unwrap();
        assert!(it.change.contains(words), "{}", it.change);
        assert_eq!(it.severity, level, "{code}");
    }
    let report = looping(6, &[1, 3]).report();
    let it = found(&report, "crash-loop").unwrap();
    assert!(
        it.summary.ends_with("it is not known how it ended."),
        "{}",
        it.summary
    );
    assert!(
        it.change
            .contains("kubectl -n shop logs web-1 -c app --previous"),
        "{}",
        it.change
    );
}

#[test]
fn loops_of_one_owner_are_one_finding_and_others_are_bounded() {
    let mut node = Node::new();
    for number in 0..30 {
        let (pod, owner) = (format!("p{number:02}"), format!("d{:02}", number / 2));
        node.pod(&pod, false, Some(("DaemonSet", &owner)));
        for attempt in 4..=6 {
            node.dead(&pod, attempt, i64::from(7 - attempt));
        }
    }
    let report = node.report();
    let loops: Vec<_> = report
        .findings
        .iter()
        .filter(|it| it.id == "crash-loop")
        .collect();
    assert_eq!(loops.len(), FINDINGS_MAX);
    assert!(loops.iter().all(|it| it.details["pods"] == 2));
    assert_eq!(
        found(&report, "crash-loops-more").unwrap().details["more"],
        5
    );
}

#[test]
fn finished_pods_are_counted_by_owner_and_their_jobs_are_not_guessed() {
    for (pods, wanted) in [(49, Severity::Info), (50, Severity::Advice)] {
        let mut node = Node::new();
        for number in 0..pods {
            let pod = format!("p{number}");
            node.pod(&pod, true, Some(("Job", "import")));
            node.dead(&pod, 0, 3000);
            node.sandbox(&pod, &[], 3000);
        }
        node.pod("elsewhere", true, None);
        node.pod("runs", false, None);
        node.dead("runs", 0, 3000);
        let report = node.report();
        let it = found(&report, "finished-pods").unwrap();
        assert_eq!(it.severity, wanted);
        assert_eq!(
            (&it.details["pods"], &it.details["without_records_here"]),
            (&pods.into(), &1.into())
        );
        assert_eq!(it.details["owners"][0]["containers"], pods);
        assert_eq!(it.details["owners"][0]["list_bytes"], pods * 3000);
        assert_eq!(it.details["jobs_specs_read"], false);
        assert!(
            it.change.contains("kubectl -n shop get job import"),
            "{}",
            it.change
        );
    }
    let mut none = Node::new();
    none.pod("runs", false, None);
    assert!(found(&none.report(), "finished-pods").is_none());
}

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
fn the_kubelets_settings_are_findings_on_each_side_of_their_edge() {
    let with = |args: &[&str], dead: u32| {
        let mut node = Node::new();
        (0..dead).for_each(|attempt| drop(node.dead("web", attempt, 3000)));
        node.facts.kubelet = assemble(Configz::NotAsked, seen(args));
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
    for (evicts, wanted) in [
        ("15%", None),
        ("16%", Some(Severity::Advice)),
        ("14%", None),
    ] {
        let report = with(&[&format!("--eviction-hard=imagefs.available<{evicts}")], 0);
        assert_eq!(
            severity(&report, "eviction-before-images"),
            wanted,
            "{evicts}"
        );
    }
}

#[test]
fn an_unseen_kubelet_is_told_with_what_would_show_it() {
    let mut node = Node::new();
    node.facts.kubelet = assemble(Configz::NotAsked, Process::Hidden);
    let report = node.report();
    let it = found(&report, "kubelet-unknown").unwrap();
    assert!(
        it.change.contains("hostPID") && it.change.contains("nodes/configz"),
        "{}",
        it.change
    );
    assert_eq!(it.severity, Severity::Info);
    let mut node = Node::new();
    node.facts.kubelet = assemble(Configz::NotAsked, Process::Within("k3s"));
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
    let Process::Seen {
        pid, args, problem, ..
    } = seen(&[])
    else {
        unreachable!()
    };
    let files = vec![kubelet::ConfigFile {
        path: "/k.yaml".to_owned(),
        content: Ok("kind: KubeletConfiguration\nmaximumDeadContainers: 100\n".to_owned()),
    }];
    let process = Process::Seen {
        pid,
        args,
        files,
        problem,
    };
    node.facts.kubelet = assemble(Configz::NotAsked, process);
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

#[test]
fn pods_state_and_caps_are_told() {
    let mut node = Node::new();
    node.facts.pods = Pods::Unknown(PodsUnknown::Failed("refused".to_owned()));
    node.facts
        .state
        .errors
        .insert("journal", "no space".to_owned());
    node.config(|config| config.policy.containers.max_dead = Limit::None);
    node.dead("web", 0, 3000);
    node.facts.containers[0].pod = None;
    let report = node.report();
    for (id, wanted) in [
        ("pods-unknown", Severity::Problem),
        ("state-not-writable", Severity::Problem),
        ("no-cap", Severity::Advice),
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
    for (available, wanted) in [(16, None), (15, Some(Severity::Advice))] {
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
            capacity_bytes: 100,
            available_bytes: available,
            used_bytes: 100 - available,
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
            assert_eq!(
                (&it.details["unused_images"], &it.details["unused_bytes"]),
                (&1.into(), &(10 * MIB).into())
            );
        }
    }
}
