//! A sequence of looks, and what they record of each pod.

use jiff::SignedDuration;

use super::*;
use crate::model::{
    ContainerId, ContainerImage, Labels, PodLogDir, PodOrigin, PodRef, PodSandboxId, Pods,
    PodsUnknown, Rows, SourcePod,
};
use crate::runtime::{self, ListMode};

const SECOND: Duration = Duration::from_secs(1);

fn uid(name: &str) -> PodUid {
    PodUid::new(name).unwrap()
}

/// Looks at a node with a settable clock, and notes the source's answers.
struct Observer {
    histories: PodHistories,
    good_since: Option<Instant>,
    clock: Timestamp,
    coverage: Coverage,
    whole_pods: BTreeSet<PodUid>,
    containers: Vec<Container>,
    logs: Logs,
    last_exits: BTreeMap<PodUid, Timestamp>,
    unknown_is_dead: bool,
    /// The source of every sandbox's pod, as the sandbox says.
    config_source: Option<ConfigSource>,
    /// When the source gave the answer that it repeats now.
    repeated_at: Option<Instant>,
    /// The date of the source's list.
    as_of: Option<Timestamp>,
}

impl Observer {
    fn new() -> Self {
        Self {
            histories: PodHistories::default(),
            good_since: None,
            clock: "2026-01-02T03:04:05Z".parse().unwrap(),
            coverage: Coverage::Whole,
            whole_pods: BTreeSet::new(),
            containers: Vec::new(),
            logs: Logs::default(),
            last_exits: BTreeMap::new(),
            unknown_is_dead: false,
            config_source: None,
            repeated_at: None,
            as_of: None,
        }
    }

    /// Looks at `sandboxes` (upper case: ready) while the source names `pods` (upper case: finished).
    fn look(&mut self, sandboxes: &str, pods: &str) -> BTreeMap<PodUid, PodHistory> {
        let started = Instant::now();
        let good_since = *self.good_since.get_or_insert(started);
        let pods = pods.chars().map(|name| {
            let pod = SourcePod {
                finished: name.is_uppercase(),
                config_source: ConfigSource::Api,
            };
            (uid(&name.to_lowercase().to_string()), pod)
        });
        let list = PodList {
            pods: pods.collect(),
            as_of: self.as_of,
            ..PodList::default()
        };
        self.note(sandboxes, Pods::Known(list), Some(good_since))
    }

    /// Looks at `sandboxes` while the source repeats an earlier answer that names `pods`.
    fn repeat(&mut self, sandboxes: &str, pods: &str, at: Instant) -> BTreeMap<PodUid, PodHistory> {
        self.repeated_at = Some(at);
        let seen = self.look(sandboxes, pods);
        self.repeated_at = None;
        seen
    }

    fn fail(&mut self, sandboxes: &str) -> BTreeMap<PodUid, PodHistory> {
        self.good_since = None;
        let failed = PodsUnknown::Failed("no route".into());
        self.note(sandboxes, Pods::Unknown(failed), None)
    }

    fn note(
        &mut self,
        sandboxes: &str,
        pods: Pods,
        good_since: Option<Instant>,
    ) -> BTreeMap<PodUid, PodHistory> {
        let started = Instant::now();
        let answer = PodsAnswer {
            pods,
            unsettled: None,
            origin: PodOrigin::default(),
            at: self.repeated_at.unwrap_or(started),
            good_since,
            is_repeated: self.repeated_at.is_some(),
        };
        let rows = sandboxes.chars().map(|name| PodSandbox {
            config_source: self.config_source,
            ..sandbox(name)
        });
        let rows: Vec<PodSandbox> = rows.collect();
        let sandboxes = runtime::Listing {
            whole_pods: self.whole_pods.clone(),
            ..listed(rows, self.coverage)
        };
        let found = NodeLists {
            containers: &Ok(listed(self.containers.clone(), Coverage::Whole)),
            sandboxes: &Ok(sandboxes),
            logs: &self.logs,
            unknown_is_dead: self.unknown_is_dead,
        };
        self.histories
            .note(&found, &answer, &self.last_exits, started);
        let look = LookStart {
            at: self.clock,
            began: started,
        };
        self.histories.at(look, started)
    }

    fn looks_now(&self) -> LookStart {
        let began = Instant::now();
        LookStart {
            at: self.clock,
            began,
        }
    }

    /// Returns for how many seconds the pod has been absent and finished.
    fn ages(&self, histories: &BTreeMap<PodUid, PodHistory>, name: &str) -> [Option<i64>; 2] {
        let history = histories.get(&uid(name)).copied().unwrap_or_default();
        let age = |at: Timestamp| self.clock.duration_since(at).as_secs();
        [history.absent_since, history.over_since].map(|at| at.map(age))
    }
}

fn sandbox(name: char) -> PodSandbox {
    let state = if name.is_uppercase() {
        PodSandboxState::Ready
    } else {
        PodSandboxState::NotReady
    };
    let name = name.to_lowercase().to_string();
    PodSandbox {
        id: PodSandboxId::new(format!("sandbox-{name}")).unwrap(),
        pod: Some(
            PodRef {
                uid: uid(&name),
                namespace: "default".into(),
                name: name.into(),
            }
            .into(),
        ),
        attempt: 0,
        state,
        created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        config_source: None,
        labels: Labels::default(),
    }
}

fn exited(pod: char, finished_at: Option<Timestamp>) -> Container {
    Container {
        state: ContainerState::Exited,
        finished_at,
        ..container_in_state_unknown(pod)
    }
}

fn container_in_state_unknown(pod: char) -> Container {
    let of = sandbox(pod);
    Container {
        id: ContainerId::new(format!("container-{pod}")).unwrap(),
        sandbox_id: of.id,
        name: "app".into(),
        attempt: 0,
        state: ContainerState::Unknown,
        created_at: of.created_at,
        finished_at: None,
        exit_undated: false,
        pod: of.pod,
        image: ContainerImage::default().into(),
        labels: Labels::default(),
    }
}

fn listed<T>(rows: Vec<T>, coverage: Coverage) -> runtime::Listing<T> {
    runtime::Listing {
        rows: Rows::from(rows),
        malformed: 0,
        mounted: BTreeMap::new(),
        odd: 0,
        coverage,
        whole_pods: BTreeSet::new(),
        cut_short: false,
        response_bytes: 0,
        limit_bytes: None,
        mode: ListMode::Unary,
    }
}

#[tokio::test(start_paused = true)]
async fn absence_counts_from_the_first_answer_that_lacks_the_pod() {
    let mut node = Observer::new();
    let seen = node.look("ab", "ab");
    assert_eq!(node.ages(&seen, "a"), [None, None]);
    tokio::time::advance(SECOND).await;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
    tokio::time::advance(7 * SECOND).await;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(7), Some(7)]);
    assert_eq!(node.histories.unsettled_for(10 * SECOND), 3 * SECOND);
    // Seen again: forgotten.
    let seen = node.look("ab", "ab");
    assert_eq!(node.ages(&seen, "a"), [None, None]);
    tokio::time::advance(SECOND).await;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_finishes_and_is_then_deleted_is_over_since_its_end() {
    let mut node = Observer::new();
    node.look("ab", "Ab");
    tokio::time::advance(5 * SECOND).await;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(5)]);
    // It is back, and finished.
    let seen = node.look("ab", "Ab");
    assert_eq!(node.ages(&seen, "a"), [None, Some(5)]);
    // A part of it runs.
    let seen = node.look("Ab", "Ab");
    assert_eq!(node.ages(&seen, "a"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_answer_and_another_source_begin_anew() {
    let mut node = Observer::new();
    node.look("ab", "b");
    tokio::time::advance(9 * SECOND).await;
    let seen = node.fail("ab");
    assert_eq!(node.ages(&seen, "a"), [None, None]);
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
    tokio::time::advance(9 * SECOND).await;
    node.good_since = None;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_repeated_says_nothing_of_a_pod_that_came_after_it() {
    let mut node = Observer::new();
    let at = Instant::now();
    node.look("ab", "b");
    tokio::time::advance(9 * SECOND).await;
    let seen = node.repeat("abc", "b", at);
    assert_eq!(node.ages(&seen, "a"), [Some(9), Some(9)]);
    assert_eq!(node.ages(&seen, "c"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_sandboxes_differ_stays_known_as_static() {
    let mut node = Observer::new();
    for source in [ConfigSource::File, ConfigSource::Api] {
        node.config_source = Some(source);
        let seen = node.look("a", "b");
        let known = seen[&uid("a")];
        assert_eq!(known.config_source, Some(ConfigSource::File));
        assert_eq!(known.absent_since, None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_lacks_a_living_pod_or_names_none_of_the_kind_begins_anew() {
    let mut node = Observer::new();
    for (sandboxes, pods) in [("abC", "b"), ("ab", "")] {
        node.look("ab", "b");
        tokio::time::advance(SECOND).await;
        let seen = node.look(sandboxes, pods);
        assert_eq!(node.ages(&seen, "a"), [None, None], "{sandboxes} {pods}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_container_may_run_its_pod_is_neither_absent_nor_over() {
    let mut node = Observer::new();
    node.containers = vec![container_in_state_unknown('a')];
    for pods in ["b", "Ab"] {
        let seen = node.look("ab", pods);
        assert_eq!(node.ages(&seen, "a"), [None, None], "{pods}");
    }
    // The list lacks a pod that may live: it says nothing of others either.
    let seen = node.look("abc", "b");
    assert_eq!(node.ages(&seen, "c"), [None, None]);
    // The operator declares it dead.
    node.unknown_is_dead = true;
    let seen = node.look("abc", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
    assert_eq!(node.ages(&seen, "c"), [Some(0), Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_may_lack_living_pods_neither_begins_nor_ends_an_absence() {
    let mut node = Observer::new();
    node.look("ab", "bc");
    tokio::time::advance(SECOND).await;
    node.coverage = Coverage::Partial;
    let seen = node.look("bc", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(1), Some(1)]);
    assert_eq!(node.ages(&seen, "c"), [None, None]);
    // Even a pod that the look does not show is seen again.
    let seen = node.look("bc", "abc");
    assert_eq!(node.ages(&seen, "a"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_look_starts_no_finished_since_of_a_pod() {
    let mut node = Observer::new();
    node.look("ab", "bc");
    node.coverage = Coverage::Partial;
    tokio::time::advance(SECOND).await;
    let seen = node.look("abc", "bC");
    assert_eq!(node.ages(&seen, "c"), [None, None]);
    // The source names it again, so it is no longer absent; its end as seen by a complete look still counts.
    let seen = node.look("abc", "AbC");
    assert_eq!(node.ages(&seen, "a"), [None, Some(1)]);
    node.coverage = Coverage::Living;
    tokio::time::advance(SECOND).await;
    let seen = node.look("abc", "AbC");
    assert_eq!(node.ages(&seen, "a"), [None, Some(2)]);
    assert_eq!(node.ages(&seen, "c"), [None, Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_objects_is_forgotten() {
    let mut node = Observer::new();
    node.look("ab", "b");
    node.coverage = Coverage::Living;
    node.look("b", "b");
    assert_eq!(node.histories.pods.len(), 1);
    node.coverage = Coverage::Whole;
    node.look("b", "b");
    assert_eq!(node.histories.pods.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_step_makes_no_pod_absent_for_longer() {
    let mut node = Observer::new();
    node.look("ab", "b");
    tokio::time::advance(SECOND).await;
    node.clock += SignedDuration::from_hours(5);
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(1), Some(1)]);
    node.clock -= SignedDuration::from_hours(9);
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(1), Some(1)]);
}

/// A list from a file. It may be short: a kubelet that has just started lists some of its pods.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_older_than_the_pods_end_starts_no_absence() {
    type Change = fn(&mut Observer, Timestamp);
    let written: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
    let later = written + SignedDuration::from_secs(1);
    let changes: [Change; 4] = [
        |node, at| node.containers = vec![exited('a', Some(at))],
        |node, at| {
            node.containers = vec![exited('a', None)];
            node.containers[0].created_at = at - SignedDuration::from_hours(1);
        },
        |node, at| {
            node.last_exits.insert(uid("a"), at);
        },
        |node, at| {
            node.containers = vec![exited('a', Some(at))];
            node.containers[0].created_at = at;
        },
    ];
    for change in changes {
        let mut node = Observer::new();
        change(&mut node, later);
        node.as_of = Some(written);
        let seen = node.look("ab", "b");
        assert_eq!(node.ages(&seen, "a"), [None, None]);
        tokio::time::advance(60 * SECOND).await;
        // The first list that says something of the pod.
        node.containers.retain(|it| it.finished_at.is_some());
        node.as_of = Some(later + SignedDuration::from_secs(1));
        let seen = node.look("ab", "b");
        assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
        // The pod came back under its UID, and ended after that list.
        tokio::time::advance(SECOND).await;
        node.containers = vec![exited('a', Some(later + SignedDuration::from_secs(2)))];
        let seen = node.look("ab", "b");
        assert_eq!(node.ages(&seen, "a"), [None, None]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_older_than_a_log_directory_starts_no_absence_of_its_pod() {
    const UID: &str = "0d5f6a2c-1111-4222-8333-0123456789ab";
    let written: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
    let dir = |modified_at| PodLogDir {
        name: format!("default_a_{UID}"),
        path: "/the/dir".into(),
        is_dir: true,
        inode: 7,
        modified_at,
        orphan_since: None,
    };
    for (modified_at, age) in [
        (written, None),
        (written - SignedDuration::from_secs(1), Some(0)),
    ] {
        let mut node = Observer::new();
        node.logs.dirs = vec![dir(modified_at)].into();
        node.as_of = Some(written);
        let seen = node.look("b", "b");
        assert_eq!(node.ages(&seen, UID), [age, age], "{modified_at}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_list_says_nothing_of_absent_pods_while_records_may_be_unseen() {
    let mut node = Observer::new();
    node.as_of = Some("2026-01-02T03:00:00Z".parse().unwrap());
    node.coverage = Coverage::Living;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [None, None]);
    node.coverage = Coverage::Whole;
    let seen = node.look("ab", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn an_older_list_shows_the_absence_of_a_pod_of_which_no_record_is_unseen() {
    let mut node = Observer::new();
    node.as_of = Some("2026-01-02T03:00:00Z".parse().unwrap());
    node.coverage = Coverage::Living;
    node.whole_pods = [uid("a")].into();
    let seen = node.look("abc", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(0), Some(0)]);
    assert_eq!(node.ages(&seen, "c"), [None, None]);
    // Not read again by a later look: what was seen still counts.
    node.whole_pods.clear();
    tokio::time::advance(SECOND).await;
    let seen = node.look("abc", "b");
    assert_eq!(node.ages(&seen, "a"), [Some(1), Some(1)]);
}

/// A clock that steps forward by an hour must not make an exit of a moment ago an hour old.
#[tokio::test(start_paused = true)]
async fn an_exit_is_later_than_the_last_look_that_saw_the_pod_live() {
    let mut node = Observer::new();
    let exit = node.clock;
    node.look("Ab", "ab");
    node.last_exits = [(uid("a"), exit)].into();
    for _ in 0..3 {
        tokio::time::advance(SECOND).await;
        node.look("ab", "ab");
    }
    node.clock += SignedDuration::from_hours(1);
    let (exits, look) = (&node.last_exits, node.looks_now());
    let exits = node.histories.correct_exits(exits, look);
    let age = |exits: &BTreeMap<PodUid, Timestamp>, name| {
        node.clock.duration_since(exits[&uid(name)]).as_secs()
    };
    assert_eq!(age(&exits, "a"), 3);
    // An exit that is known to be later counts.
    node.last_exits.insert(uid("a"), node.clock - SECOND);
    let exits = node.histories.correct_exits(&node.last_exits, look);
    assert_eq!(exits[&uid("a")], node.clock - SECOND);
}

#[tokio::test(start_paused = true)]
async fn another_source_ends_what_the_last_one_said_and_makes_no_exit_older() {
    let mut node = Observer::new();
    node.last_exits.insert(uid("a"), node.clock - SECOND);
    node.look("a", "");
    let exits = node.last_exits.clone();
    node.histories.correct_exits(&exits, node.looks_now());
    node.clock += SignedDuration::from_hours(1);
    let look = node.looks_now();
    node.histories.correct_exits(&exits, look);
    node.histories.forget_answers();
    let known = node.histories.at(look, look.began);
    assert_eq!(node.ages(&known, "a"), [None, None]);
    let exits = node.histories.correct_exits(&exits, look);
    assert_eq!(exits[&uid("a")], node.clock - SECOND);
}

fn of_pod(uid: PodUid) -> PodRef {
    let (namespace, name) = ("default".into(), "short".into());
    PodRef {
        uid,
        namespace,
        name,
    }
}

/// So many containers, each of a pod of its own.
fn containers(numbers: std::ops::Range<usize>) -> Vec<Container> {
    let of = container_in_state_unknown('a');
    let of_number = |number: usize| Container {
        pod: Some(of_pod(uid(&number.to_string())).into()),
        ..of.clone()
    };
    numbers.map(of_number).collect()
}

/// One list may be over its limit for weeks.
#[tokio::test(start_paused = true)]
async fn pods_that_incomplete_looks_no_longer_show_are_bounded() {
    let mut node = Observer::new();
    node.coverage = Coverage::Living;
    for half in [0..KNOWN_MAX / 2, KNOWN_MAX / 2..KNOWN_MAX] {
        node.containers = containers(half);
        node.look("", "");
    }
    assert_eq!(node.histories.pods.len(), KNOWN_MAX);
    node.look("", "");
    assert_eq!(node.histories.pods.len(), KNOWN_MAX / 2);
}

#[tokio::test(start_paused = true)]
async fn above_that_bound_a_pod_that_was_static_stays_known_as_static() {
    let mut node = Observer::new();
    node.coverage = Coverage::Living;
    node.look("ab", "b");
    let entry = node.histories.pods.get_mut(&uid("a")).unwrap();
    entry.config_source = Some(ConfigSource::File);
    node.containers = containers(0..KNOWN_MAX);
    node.look("", "b");
    let seen = node.look("", "b");
    assert_eq!(seen[&uid("a")].config_source, Some(ConfigSource::File));
    assert!(!seen.contains_key(&uid("b")));
}

#[test]
fn an_incomplete_look_has_every_record_only_of_pods_of_the_api_server_with_their_sandboxes() {
    let is_whole = |sandboxes: Vec<PodSandbox>, containers: Vec<Container>, malformed| {
        let sandboxes = runtime::Listing {
            whole_pods: [uid("a")].into(),
            malformed,
            ..listed(sandboxes, Coverage::Living)
        };
        let containers = listed(containers, Coverage::Whole);
        whole_pods(&Ok(containers), &Ok(sandboxes)).contains(&uid("a"))
    };
    let of = |source| PodSandbox {
        config_source: Some(source),
        ..sandbox('a')
    };
    let (api, file) = (of(ConfigSource::Api), of(ConfigSource::File));
    let inside = exited('a', None);
    let elsewhere = Container {
        sandbox_id: PodSandboxId::new("unseen").unwrap(),
        ..inside.clone()
    };
    assert!(is_whole(vec![api.clone()], vec![inside.clone()], 0));
    assert!(!is_whole(vec![api.clone()], vec![inside], 1));
    assert!(!is_whole(vec![api.clone()], vec![elsewhere], 0));
    assert!(!is_whole(vec![file.clone(), api], Vec::new(), 0));
    assert!(!is_whole(vec![file], Vec::new(), 0));
    assert!(!is_whole(Vec::new(), Vec::new(), 0));
}
