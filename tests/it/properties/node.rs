//! Generated nodes of realistic shape: pods that crash, finish, leak and vanish, clock steps, partial lists,
//! and objects of other tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crisweep::gc::{
    AgeFrom, ContainerPolicy, Limit, LogPolicy, PodPolicy, Policy, Protect, SandboxPolicy,
};
use crisweep::model::{
    ConfigSource, Container, ContainerId, ContainerState, Labels, Outage, PodHistory, PodList,
    PodRef, PodSandbox, PodSandboxId, PodSandboxState, PodUid, Pods, PodsUnknown, Snapshot,
    SourcePod,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

use super::store;

/// A node and a policy for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) snapshot: Snapshot,
    pub(crate) policy: Policy,
}

/// How many oddities a node may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// Anything ever seen in the field.
    Any,
    /// Clocks run forwards, and nothing is protected, quarantined, uncertain or another tool's.
    None,
}

/// One attempt: seconds since the one before, its run time in seconds (negative: unknown), and a number that
/// selects its state.
type Attempt = (i64, i64, u32);

#[derive(Clone, Debug)]
struct PodSpec {
    listed: u32,
    /// Selects what is known of it besides the list.
    known: u32,
    namespace: u32,
    labelled: bool,
    start: i64,
    clock_step: i64,
    sandboxes: Vec<Attempt>,
    containers: Vec<Vec<Attempt>>,
}

/// Generates nodes.
pub(crate) fn nodes(oddity: Oddity) -> impl Strategy<Value = Node> {
    let pods = prop::collection::vec(pod(oddity), 1..7);
    let others = if oddity == Oddity::None {
        0..1_usize
    } else {
        0..4_usize
    };
    let images = store::stores(oddity);
    (
        pods,
        others,
        (0..10_u32, 0..8_u32, outage(oddity)),
        any::<bool>(),
        policies(oddity),
        images,
    )
        .prop_map(
            move |(pods, others, (source, booted, outage), peers, policy, images)| {
                let mut snapshot = Snapshot::empty(now());
                snapshot.pods = source_of(source, peers, oddity);
                snapshot.outage = outage;
                if booted == 0 && oddity == Oddity::Any {
                    snapshot.uptime = Duration::from_secs(899);
                }
                for (index, pod) in pods.iter().enumerate() {
                    add_pod(&mut snapshot, index, pod, oddity);
                }
                for index in 0..others {
                    add_foreign(&mut snapshot, index);
                }
                store::fill(&mut snapshot, &images, oddity);
                Node { snapshot, policy }
            },
        )
}

pub(crate) fn now() -> Timestamp {
    "2026-01-02T12:00:00Z".parse().unwrap()
}

pub(crate) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// An outage: it lasts, has just ended, or ended a while ago; seconds.
fn outage(oddity: Oddity) -> impl Strategy<Value = Option<Outage>> {
    let outages = match oddity {
        Oddity::None => vec![None],
        Oddity::Any => vec![
            None,
            None,
            Some((0, 0, None)),
            Some((601, 0, None)),
            Some((7200, 0, None)),
            Some((120, 30, Some(14))),
            Some((7200, 30, Some(15))),
            Some((7200, 6000, Some(5999))),
        ],
    };
    let told = |(first, last, fits): (i64, i64, Option<i64>)| Outage {
        first_seen: ago(first),
        last_seen: ago(last),
        fits_since: fits.map(ago),
    };
    select(outages).prop_map(move |outage| outage.map(told))
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let gap = select(vec![0, 1, 30, 60, 300, 600, 601, 3600, 7200]);
    (gap, select(vec![-1, 0, 1, 59, 60, 600, 3600]), 0..100_u32)
}

fn pod(oddity: Oddity) -> impl Strategy<Value = PodSpec> {
    let start = select(vec![59, 60, 600, 3599, 3600, 7200, 18_000, 90_000]);
    let steps = if oddity == Oddity::None {
        vec![0]
    } else {
        vec![0, 0, 0, 0, 3600, 20_000, -7200]
    };
    let containers = prop::collection::vec(prop::collection::vec(attempt(), 0..6), 0..4);
    let sandboxes = prop::collection::vec(attempt(), 0..4);
    (
        (0..12_u32, 0..30_u32),
        0..6_u32,
        any::<bool>(),
        start,
        select(steps),
        sandboxes,
        containers,
    )
        .prop_map(
            |((listed, known), namespace, labelled, start, clock_step, sandboxes, containers)| {
                PodSpec {
                    listed,
                    known,
                    namespace,
                    labelled,
                    start,
                    clock_step,
                    sandboxes,
                    containers,
                }
            },
        )
}

fn source_of(source: u32, peers: bool, oddity: Oddity) -> Pods {
    match source {
        0 if oddity == Oddity::Any => Pods::Unknown(PodsUnknown::NoSource),
        1 if oddity == Oddity::Any => Pods::Unknown(PodsUnknown::Settling),
        2 if oddity == Oddity::Any => Pods::Unknown(PodsUnknown::Failed("refused".into())),
        _ => {
            let mut list = PodList {
                by_mirrors: source == 3 && oddity == Oddity::Any,
                ..PodList::default()
            };
            if peers || oddity == Oddity::None {
                let peer = SourcePod {
                    finished: false,
                    config_source: ConfigSource::Api,
                };
                list.pods.insert(uid(98, false), peer);
                list.pods.insert(
                    uid(99, true),
                    SourcePod {
                        config_source: ConfigSource::File,
                        ..peer
                    },
                );
            }
            Pods::Known(list)
        }
    }
}

pub(crate) fn uid(index: usize, is_static: bool) -> PodUid {
    let uid = if is_static {
        format!("{index:032x}")
    } else {
        format!("{index:08x}-0000-4000-8000-000000000000")
    };
    PodUid::new(uid).unwrap()
}

#[expect(
    clippy::too_many_lines,
    reason = "one draw after another, none of them deep"
)]
fn add_pod(snapshot: &mut Snapshot, index: usize, spec: &PodSpec, oddity: Oddity) {
    let is_static = spec.listed >= 9;
    let uid = uid(index, is_static);
    let listed = match spec.listed {
        0..=3 | 9 => Some(false),
        4 | 5 | 10 => Some(true),
        _ => None,
    };
    let lives = |attempts: &[Attempt]| attempts.iter().any(|(_, _, draw)| *draw < 20);
    let partial = lives(&spec.sandboxes) || spec.containers.iter().any(|name| lives(name));
    // Usually a living pod is listed; without oddity always.
    let listed = match listed {
        None if partial && (oddity == Oddity::None || spec.namespace > 0) => Some(false),
        listed => listed,
    };
    let said = said_source(spec, &uid, oddity);
    if let (Pods::Known(list), Some(finished)) = (&mut snapshot.pods, listed) {
        list.pods.insert(
            uid.clone(),
            SourcePod {
                finished,
                config_source: said.unwrap_or_else(|| ConfigSource::of_shape(&uid)),
            },
        );
    }
    if oddity == Oddity::Any {
        let absent_since = [None, Some(0), Some(9), Some(10), Some(3600)][spec.known as usize % 5];
        let absent_since = absent_since.filter(|_| listed.is_none()).map(ago);
        let over_since = match spec.known / 5 {
            0 => Some(59),
            1 => Some(60),
            2 => Some(600),
            _ => None,
        };
        let over_since = over_since.filter(|_| listed != Some(false)).map(ago);
        let history = PodHistory {
            absent_since,
            over_since: over_since.or(absent_since),
            // It is remembered, or no look saw its sandbox.
            config_source: said.filter(|_| spec.known.is_multiple_of(2)),
        };
        Arc::make_mut(&mut snapshot.pod_history).insert(uid.clone(), history);
    }
    let namespace = match spec.namespace {
        0 => "",
        1 => "vault",
        _ => "default",
    };
    let pod = PodRef {
        uid: uid.clone(),
        namespace: namespace.into(),
        name: format!("pod{index}").into(),
    };
    let labels: BTreeMap<_, _> = spec
        .labelled
        .then(|| ("keep".to_owned(), "yes".to_owned()))
        .into_iter()
        .collect();
    let mut clock = Clock::new(spec);
    for (number, (gap, _, draw)) in (0_u32..).zip(&spec.sandboxes) {
        let sandbox = PodSandbox {
            id: PodSandboxId::new(format!("s{index}-{number}")).unwrap(),
            pod: Some(pod.clone().into()),
            attempt: number,
            state: if *draw < 20 {
                PodSandboxState::Ready
            } else {
                PodSandboxState::NotReady
            },
            created_at: clock.tick(*gap),
            config_source: said,
            labels: labels.clone().into(),
        };
        if oddity == Oddity::Any && *draw > 90 {
            let until = ago(95 - i64::from(*draw));
            snapshot.quarantine.insert(sandbox.id.clone(), until);
        }
        snapshot.sandboxes.push(sandbox);
    }
    for (name, attempts) in spec.containers.iter().enumerate() {
        let mut clock = Clock::new(spec);
        for (number, attempt) in (0_u32..).zip(attempts) {
            let created_at = clock.tick(attempt.0);
            let id = format!("c{index}-{name}-{number}");
            snapshot
                .containers
                .push(container(id, &pod, number, attempt, created_at, oddity));
        }
    }
    if oddity == Oddity::Any && spec.labelled {
        Arc::make_mut(&mut snapshot.last_exits).insert(uid, ago(spec.start / 2));
    }
}

/// The source that the pod's sandboxes name.
fn said_source(spec: &PodSpec, uid: &PodUid, oddity: Oddity) -> Option<ConfigSource> {
    match spec.known {
        _ if oddity == Oddity::None => Some(ConfigSource::of_shape(uid)),
        0..6 => None,
        6..9 => Some(ConfigSource::File),
        9 => Some(ConfigSource::Http),
        10 => Some(ConfigSource::Other),
        11 => Some(ConfigSource::Api),
        _ => Some(ConfigSource::of_shape(uid)),
    }
}

/// The clock of a pod's node, which may step once, after the second tick.
struct Clock {
    at: i64,
    ticks: u32,
    step: i64,
}

impl Clock {
    fn new(spec: &PodSpec) -> Self {
        Self {
            at: spec.start,
            ticks: 0,
            step: spec.clock_step,
        }
    }

    fn tick(&mut self, gap: i64) -> Timestamp {
        self.ticks += 1;
        self.at -= gap;
        if self.ticks == 3 {
            self.at += self.step;
        }
        ago(self.at)
    }
}

fn container(
    id: String,
    pod: &PodRef,
    number: u32,
    (gap, ran, draw): &Attempt,
    created_at: Timestamp,
    oddity: Oddity,
) -> Container {
    let state = match draw {
        0..20 => ContainerState::Running,
        20..25 if oddity == Oddity::Any => ContainerState::Created,
        25..30 if oddity == Oddity::Any => ContainerState::Unknown,
        _ => ContainerState::Exited,
    };
    let finished_at = (state == ContainerState::Exited && (*ran >= 0 || oddity == Oddity::None))
        .then(|| created_at + SignedDuration::from_secs((*ran).max(0)));
    let label = ("keep".to_owned(), "no".to_owned());
    let sandbox = match draw {
        // As the client names that of a row which names none.
        98 if oddity == Oddity::Any => "(no id)".to_owned(),
        _ => format!("s{}-{}", &pod.name[3..], draw % 4),
    };
    Container {
        sandbox_id: PodSandboxId::new(sandbox).unwrap(),
        name: id.split('-').nth(1).unwrap().into(),
        id: ContainerId::new(id).unwrap(),
        // Sometimes a record with its predecessor's attempt.
        attempt: if *gap == 1 {
            number.saturating_sub(1)
        } else {
            number
        },
        state,
        created_at,
        finished_at,
        exit_undated: false,
        pod: Some(pod.clone().into()),
        image: Arc::default(),
        labels: if *draw == 99 {
            [label].into_iter().collect()
        } else {
            Labels::default()
        },
    }
}

fn add_foreign(snapshot: &mut Snapshot, index: usize) {
    let created_at = ago(7200 - 60 * i64::try_from(index).unwrap());
    // The third names none.
    let sandbox = if index == 2 { "(no id)" } else { "s0-0" };
    snapshot.containers.push(Container {
        id: ContainerId::new(format!("foreign{index}")).unwrap(),
        sandbox_id: PodSandboxId::new(sandbox).unwrap(),
        name: "tool".into(),
        attempt: 0,
        state: ContainerState::Exited,
        created_at,
        finished_at: Some(created_at),
        exit_undated: false,
        pod: None,
        image: Arc::default(),
        labels: Labels::default(),
    });
    snapshot.sandboxes.push(PodSandbox {
        id: PodSandboxId::new(format!("foreign-s{index}")).unwrap(),
        pod: None,
        attempt: 0,
        state: PodSandboxState::NotReady,
        created_at,
        config_source: None,
        labels: Labels::default(),
    });
}

fn believed_after(settle: u64, quiet: u64) -> PodPolicy {
    PodPolicy {
        settle: Duration::from_secs(settle),
        quiet: Duration::from_secs(quiet),
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "one draw after another, none of them deep"
)]
fn policies(oddity: Oddity) -> impl Strategy<Value = Policy> {
    let ages = || select(vec![0, 60, 600, 3600]).prop_map(Duration::from_secs);
    let per_name = if oddity == Oddity::None {
        vec![-1, 1, 2, 3]
    } else {
        vec![-1, 0, 1, 1, 2, 3]
    };
    let caps = || select(vec![-1, 0, 1, 2, 3, 5, 8, 200]).prop_map(Limit::from_config);
    let containers = (
        ages(),
        select(per_name),
        caps(),
        ages(),
        any::<[bool; 3]>(),
        0..20_u32,
    );
    let protect = if oddity == Oddity::None {
        0..1_u32
    } else {
        0..8_u32
    };
    let settle = if oddity == Oddity::None {
        vec![0]
    } else {
        vec![0, 0, 10]
    };
    // The kubelet model would remove unsynced records all the same.
    let quiet = if oddity == Oddity::None {
        vec![0]
    } else {
        vec![0, 60, 600]
    };
    let lever = if oddity == Oddity::None {
        vec![None]
    } else {
        vec![None, None, Some(60), Some(7200)]
    };
    let images = store::policies(oddity);
    (
        containers,
        ages(),
        caps(),
        protect,
        (select(lever), select(settle), select(quiet)),
        images,
    )
        .prop_map(
            move |(
                containers,
                sandbox_age,
                sandbox_cap,
                protect,
                (lever, settle, quiet),
                images,
            )| {
                let (min_age, per_name, max_dead, grace, [created, unknown, first], on) =
                    containers;
                let plain = oddity == Oddity::None;
                let namespaces = (protect & 1 > 0)
                    .then(|| "vault".to_owned())
                    .into_iter()
                    .collect();
                let labels = match protect {
                    2 | 3 => vec![("keep".to_owned(), None)],
                    4 => vec![("keep".to_owned(), Some("yes".to_owned()))],
                    _ => Vec::new(),
                };
                Policy {
                    containers: ContainerPolicy {
                        enabled: plain || on > 0,
                        min_age,
                        max_per_container: Limit::from_config(per_name),
                        max_dead,
                        created_grace: grace,
                        age_from: if plain || created {
                            AgeFrom::Created
                        } else {
                            AgeFrom::Finished
                        },
                        keep_first: first && !plain,
                        include_unknown: unknown,
                    },
                    sandboxes: SandboxPolicy {
                        enabled: plain || on > 1,
                        min_age: if plain { Duration::ZERO } else { sandbox_age },
                        max_dead: if plain { Limit::None } else { sandbox_cap },
                    },
                    images,
                    protect: Protect { namespaces, labels },
                    pods: believed_after(settle, quiet),
                    assume_finished_after: lever.map(Duration::from_secs),
                    // Logs have their own nodes.
                    logs: LogPolicy {
                        enabled: false,
                        ..Policy::default().logs
                    },
                }
            },
        )
}
