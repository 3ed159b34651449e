//! Generated nodes with log trees: directories, links and removed containers of pods that live, ended,
//! vanished or never existed.

use std::collections::BTreeMap;
use std::time::Duration;

use crisweep::gc::LogPolicy;
use crisweep::model::{
    ContainerId, ContainerState, LinkTarget, LinkedContainer, LogLink, PodLogDir, PodRef, Pods,
    RemovedContainer, Snapshot,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::node::{Node, Oddity, ago, nodes, uid};

const PODS_ROOT: &str = "/var/log/pods";

/// A directory: its pod's number, whether the pod is static, seconds since its last change and since it was
/// first seen as an orphan, and a number that selects oddities.
type Dir = (usize, bool, i64, Option<i64>, u32);
/// A link: the container's number, seconds since it was made, and two random numbers.
type Link = (usize, i64, u32, u32);
/// A removed container: its pod's number, its attempt, and a random number.
type Removed = (usize, u32, u32);

/// Generates nodes with logs.
pub(crate) fn log_nodes() -> impl Strategy<Value = Node> {
    let ages = || select(vec![-60, 0, 299, 300, 301, 3600, 90_000]);
    let dir = (
        0..10_usize,
        any::<bool>(),
        ages(),
        prop::option::of(ages()),
        0..100_u32,
    );
    let link = (0..30_usize, ages(), 0..100_u32, 0..100_u32);
    let removed = (0..10_usize, 0..3_u32, 0..100_u32);
    let list = (0..12_u32, 0..20_u32, select(vec![0, 300, 3600]));
    (
        nodes(Oddity::Any),
        prop::collection::vec(dir, 0..8),
        prop::collection::vec(link, 0..8),
        prop::collection::vec(removed, 0..6),
        list,
    )
        .prop_map(|(mut node, dirs, links, removed, (list, on, grace))| {
            node.policy.logs = LogPolicy {
                enabled: on > 0,
                grace: Duration::from_secs(grace),
                ..node.policy.logs
            };
            if let Pods::Known(known) = &mut node.snapshot.pods {
                known.as_of = (list == 2).then(|| ago(400));
            }
            for container in node.snapshot.containers.iter_mut() {
                container.id = full(container.id.as_str());
            }
            add(&mut node.snapshot, &dirs, &links, &removed);
            node
        })
}

/// Makes a container's id as long as a real one.
pub(crate) fn full(id: &str) -> ContainerId {
    use std::fmt::Write;
    let mut hex = String::new();
    for byte in id.bytes() {
        write!(hex, "{byte:02x}").unwrap();
    }
    ContainerId::new(format!("{hex:0<64}")).unwrap()
}

fn pod(number: usize, is_static: bool, draw: u32) -> PodRef {
    let namespace = if draw.is_multiple_of(7) {
        "vault"
    } else {
        "default"
    };
    PodRef {
        uid: uid(number, is_static),
        namespace: namespace.into(),
        name: format!("pod{number}").into(),
    }
}

fn dir_name(pod: &PodRef) -> String {
    format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

fn add(snapshot: &mut Snapshot, dirs: &[Dir], links: &[Link], removed: &[Removed]) {
    let mut by_name = BTreeMap::new();
    for &(number, is_static, age, orphan, draw) in dirs {
        let name = dir_name(&pod(number, is_static, draw));
        let name = match draw {
            90..94 => format!("{name}.bak"),
            94..97 => uid(number, is_static).to_string(),
            97..100 => format!("lost+found{number}"),
            _ => name,
        };
        let dir = PodLogDir {
            path: format!("{PODS_ROOT}/{name}").into(),
            name: name.clone(),
            is_dir: draw > 3,
            inode: u64::from(draw),
            modified_at: ago(age),
            orphan_since: orphan.map(ago),
        };
        by_name.insert(name, dir);
    }
    snapshot.logs.dirs = by_name.into_values().collect::<Vec<_>>().into();
    let mut by_name = BTreeMap::new();
    for link in links {
        let link = link_of(snapshot, *link);
        by_name.insert(link.name.clone(), link);
    }
    snapshot.logs.links = by_name.into_values().collect::<Vec<_>>().into();
    for &(number, attempt, draw) in removed {
        let pod = pod(number, draw.is_multiple_of(5), draw);
        let dir = dir_name(&pod);
        let log_path = match draw {
            0..5 => format!("{PODS_ROOT}/{dir}/../x/{attempt}.log"),
            5..10 => format!(
                "{PODS_ROOT}/{}/0.log",
                dir_name(&self::pod(99, false, draw))
            ),
            _ => format!("{PODS_ROOT}/{dir}/{}/{attempt}.log", draw % 3),
        };
        let removed = RemovedContainer {
            id: full(&format!("g{number}-{attempt}-{draw}")),
            name: (draw % 3).to_string().into(),
            attempt,
            pod: pod.into(),
            created_at: ago(i64::from(draw) * 60),
            log_path: log_path.into(),
        };
        let twice = |it: &RemovedContainer| it.id == removed.id;
        if !snapshot.removed.iter().any(twice) {
            snapshot.removed.push(removed);
        }
    }
}

fn link_of(snapshot: &Snapshot, (which, age, target, draw): Link) -> LogLink {
    let listed = snapshot.containers.get(which);
    let id = listed.map_or_else(|| full(&format!("x{which}")), |it| it.id.clone());
    let namespace = if draw.is_multiple_of(7) {
        "vault"
    } else {
        "default"
    };
    let name = match draw {
        0..5 => format!("{namespace}-{}.log", &id.as_str()[1..]),
        5..10 => format!("notes-{id}.txt"),
        10..15 => format!("odd-{id}.log"),
        _ => format!("pod_{namespace}_app-{id}.log"),
    };
    LogLink {
        path: format!("/var/log/containers/{name}").into(),
        name: name.into(),
        is_link: draw < 97,
        target: match target {
            0..15 => LinkTarget::Exists,
            15..25 => LinkTarget::Unknown,
            _ => LinkTarget::Missing,
        },
        container: match draw % 4 {
            0 => LinkedContainer::NotAsked,
            1 => LinkedContainer::Lives,
            2 => LinkedContainer::Exited,
            _ => LinkedContainer::NotFound,
        },
        modified_at: ago(age),
    }
}

/// Returns a container's state in the list; `None` if it is missing.
pub(crate) fn state_of(snapshot: &Snapshot, id: &str) -> Option<ContainerState> {
    let found = snapshot.containers.iter().find(|it| it.id.as_str() == id);
    found.map(|it| it.state)
}

/// Wraps an id as it is.
pub(crate) fn id(text: &str) -> ContainerId {
    ContainerId::new(text).unwrap()
}
