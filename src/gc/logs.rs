//! The verdict on each entry of the log roots, and on the logs of removed containers.
//!
//! Never judges names without the kubelet's format, and never treats an unseen pod as gone: a directory needs
//! a complete list, a link needs the runtime's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::containers::protects_pod;
use super::index::RowSet;
use super::knowledge::Knowledge;
use super::{Expected, PodKnowledge, Policy, Subject, Verdict, at_least, first_said, keep};
use crate::model::{
    Container, ContainerId, ContainerState, Coverage, KeepReason, LinkTarget, LinkedContainer,
    LogLink, PodLogDir, PodRef, PodUid, RemoveReason, RemovedContainer, Snapshot, Target,
    container_id_of, id_in_link, log_dir_name, pod_of_dir,
};

/// Something below the log roots that gets a verdict.
#[derive(Clone)]
pub(super) enum LogObject<'a> {
    /// A pod's directory.
    Dir(&'a PodLogDir),
    /// A link to a container's log.
    Link(&'a LogLink),
    /// The log of a container that was removed, or is removed earlier in the same pass.
    Container(RemovedContainer),
}

/// Judges every entry, and the logs of containers that were removed (`snapshot.removed`) or are planned to be
/// removed earlier in the same pass (`gone`).
pub(super) fn judge<'a>(knowledge: &Knowledge<'a>, gone: &RowSet) -> Vec<(LogObject<'a>, Verdict)> {
    let (snapshot, policy) = (knowledge.index.snapshot, knowledge.policy);
    let mut judged = Vec::new();
    let (states, off) = (states(snapshot), policy.off(Target::Logs));
    for dir in &snapshot.logs.dirs {
        let judge = LogDirJudge::new(knowledge, dir);
        let verdict = first_said(|rule| judge.ask(rule), KeepReason::PodsUnknown);
        judged.push((LogObject::Dir(dir), verdict.unless(off)));
    }
    for link in &snapshot.logs.links {
        let judge = LogLinkJudge::new(policy, &states, link);
        let verdict = first_said(|rule| judge.ask(rule), KeepReason::NotAsked);
        judged.push((LogObject::Link(link), verdict.unless(off)));
    }
    let none_foreseen = snapshot.logs.dirs.is_empty() || gone.iter().next().is_none();
    // While logs are switched off, passes do not note removed containers.
    if !policy.logs.enabled || snapshot.removed.is_empty() && none_foreseen {
        return judged;
    }
    // After a manual removal of a record two containers can share a log file; it is removed once, as the older one's.
    let mut seen = BTreeSet::new();
    let containers = knowledge.index.oldest_containers();
    let (going, staying): (Vec<_>, Vec<_>) = containers.partition(|(place, _)| gone.has(*place));
    let with_logs = snapshot.logs.dir_names();
    let planned = going.into_iter();
    let planned = planned.filter_map(|(_, container)| foreseen(&with_logs, policy, container));
    let writers = LogWriters::of(snapshot, staying.iter().map(|(_, container)| *container));
    for container in snapshot.removed.iter().cloned().chain(planned) {
        if seen.insert(container.log_path.clone()) {
            let verdict = container_verdict(&writers, policy, &container);
            judged.push((LogObject::Container(container), verdict));
        }
    }
    judged
}

/// The remaining containers, by id and by log file.
struct LogWriters<'a> {
    /// There may be unseen ones.
    unseen: bool,
    ids: BTreeSet<&'a ContainerId>,
    files: BTreeSet<(&'a PodUid, &'a str, u32)>,
}

impl<'a> LogWriters<'a> {
    fn of(snapshot: &Snapshot, staying: impl Iterator<Item = &'a Container> + Clone) -> Self {
        let file = |it: &'a Container| {
            let pod = it.pod.as_ref()?;
            Some((&pod.uid, it.name.as_str(), it.attempt))
        };
        Self {
            unseen: snapshot.seen.containers != Coverage::Whole,
            ids: staying.clone().map(|it| &it.id).collect(),
            files: staying.filter_map(file).collect(),
        }
    }

    /// Says whether the container is still there, or another record writes to the same file.
    fn include(&self, container: &RemovedContainer) -> bool {
        let file = (
            &container.pod.uid,
            container.name.as_str(),
            container.attempt,
        );
        self.unseen || self.ids.contains(&container.id) || self.files.contains(&file)
    }
}

/// By the containers' ids.
pub(super) type States<'a> = BTreeMap<&'a str, ContainerState>;

/// Returns the states of the containers of dead links, which alone ask for them.
pub(super) fn states(snapshot: &Snapshot) -> States<'_> {
    let links = snapshot.logs.links.iter();
    let dead = links.filter(|link| link.target == LinkTarget::Missing);
    let named: BTreeSet<&str> = dead.filter_map(|link| id_in_link(&link.name)).collect();
    let rows = snapshot.containers.iter();
    let rows = rows.map(|it| (it.id.as_str(), it.state));
    rows.filter(|(id, _)| named.contains(id)).collect()
}

/// The rules for a pod's directory, in the order in which they are asked: the first that says something is the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum LogDirRule {
    /// Keeps what the kubelet did not make.
    ForeignName,
    /// Keeps what `policy.protect` names.
    Protect,
    /// Keeps what the runtime has something of.
    Containers,
    /// Keeps everything while something of the pod may be unseen.
    ListsComplete,
    /// Keeps the logs of a pod that exists.
    PodExists,
    /// Keeps the logs of an unknown pod.
    PodUnknown,
    /// Keeps the logs of a pod that is absent for a short time.
    Settle,
    /// Keeps what changed a short time ago.
    Grace,
    /// Removes the logs of a deleted pod.
    PodDeleted,
}

/// What the rules look at for a pod's directory.
pub(super) struct LogDirJudge<'a> {
    knowledge: &'a Knowledge<'a>,
    dir: &'a PodLogDir,
    pod: Option<PodRef>,
}

impl<'a> LogDirJudge<'a> {
    pub(super) fn new(knowledge: &'a Knowledge<'a>, dir: &'a PodLogDir) -> Self {
        Self {
            knowledge,
            dir,
            pod: pod_of_dir(&dir.name).filter(|_| dir.is_dir),
        }
    }

    /// Returns what one rule says; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: LogDirRule) -> Option<Verdict> {
        use LogDirRule as Rule;
        let Some(pod) = &self.pod else {
            return keep(KeepReason::ForeignName, rule == Rule::ForeignName);
        };
        let (index, policy) = (&self.knowledge.index, self.knowledge.policy);
        let state = || self.knowledge.get_or_absent(&pod.uid, self.dir.modified_at);
        match rule {
            Rule::ForeignName => None,
            Rule::Protect => keep(KeepReason::Protected, protects_pod(&policy.protect, pod)),
            Rule::Containers => keep(KeepReason::HasContainers, index.pod(&pod.uid).is_some()),
            Rule::ListsComplete => keep(KeepReason::PodsUnknown, !index.snapshot.seen.is_all()),
            Rule::PodExists => {
                let exists = matches!(state(), PodKnowledge::Active | PodKnowledge::Terminated);
                keep(KeepReason::PodExists, exists)
            }
            Rule::PodUnknown => {
                let unknown = matches!(state(), PodKnowledge::Assumed | PodKnowledge::Unknown);
                keep(KeepReason::PodsUnknown, unknown)
            }
            Rule::Settle => keep(KeepReason::TooYoung, state() == PodKnowledge::Absent),
            Rule::Grace => {
                let old = |since| at_least(index.snapshot.age(since), policy.logs.grace);
                let is_old = old(self.dir.modified_at) && self.dir.orphan_since.is_some_and(old);
                keep(KeepReason::TooYoung, !is_old)
            }
            Rule::PodDeleted => (state() == PodKnowledge::Deleted)
                .then_some(Verdict::Remove(RemoveReason::PodDeleted)),
        }
    }
}

/// The rules for a link, in the order in which they are asked: the first that says something is the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum LogLinkRule {
    /// Keeps what the kubelet did not make.
    ForeignName,
    /// Keeps what `policy.protect` names.
    Protect,
    /// Keeps a link whose log may exist.
    TargetExists,
    /// Keeps a link of whose container nothing is known.
    ContainerAsked,
    /// Keeps a link whose container lives.
    Containers,
    /// Removes the rest.
    DeadLink,
}

/// What the rules look at for a link.
pub(super) struct LogLinkJudge<'a> {
    policy: &'a Policy,
    link: &'a LogLink,
    is_the_kubelets: bool,
    container: LinkedContainer,
}

impl<'a> LogLinkJudge<'a> {
    pub(super) fn new(policy: &'a Policy, states: &States<'_>, link: &'a LogLink) -> Self {
        let id = id_in_link(&link.name).filter(|_| link.is_link);
        // A rotation renames the log and reopens it a moment later: for that moment the link of a running
        // container is dead.
        let container = match id.and_then(|id| states.get(id)) {
            Some(ContainerState::Exited) => LinkedContainer::Exited,
            Some(ContainerState::Created | ContainerState::Running | ContainerState::Unknown) => {
                LinkedContainer::Lives
            }
            None => link.container,
        };
        Self {
            policy,
            link,
            is_the_kubelets: id.is_some(),
            container,
        }
    }

    /// Returns what one rule says; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: LogLinkRule) -> Option<Verdict> {
        use LogLinkRule as Rule;
        match rule {
            Rule::ForeignName => keep(KeepReason::ForeignName, !self.is_the_kubelets),
            Rule::Protect => keep(
                KeepReason::Protected,
                protects_link(self.policy, &self.link.name),
            ),
            Rule::TargetExists => {
                let missing = self.link.target == LinkTarget::Missing;
                keep(KeepReason::TargetExists, !missing)
            }
            Rule::ContainerAsked => {
                let unknown = self.container == LinkedContainer::NotAsked;
                keep(KeepReason::NotAsked, unknown)
            }
            Rule::Containers => {
                let lives = self.container == LinkedContainer::Lives;
                keep(KeepReason::HasContainers, lives)
            }
            Rule::DeadLink => match self.container {
                LinkedContainer::NotFound | LinkedContainer::Exited => {
                    Some(Verdict::Remove(RemoveReason::DeadLink))
                }
                LinkedContainer::NotAsked | LinkedContainer::Lives => None,
            },
        }
    }
}

/// The parts of the name are pod, namespace, and container with id; if they cannot be found, any protection counts.
fn protects_link(policy: &Policy, name: &str) -> bool {
    let protect = &policy.protect;
    let mut parts = name.split('_');
    let (Some(pod), Some(namespace), Some(log), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return !protect.namespaces.is_empty() || protect.has_label_of_link(Default::default());
    };
    let container = log
        .rsplit_once('-')
        .map_or("", |(container, _id)| container);
    protect.namespaces.contains(namespace) || protect.has_label_of_link([pod, namespace, container])
}

/// The rules for the log of a removed container, in the order in which they are asked: the first that says something is
/// the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum ContainerLogRule {
    /// Keeps what does not lie where the kubelet puts logs.
    ForeignName,
    /// Keeps what `policy.protect` names.
    Protect,
    /// Keeps what a container may write to.
    Containers,
    /// Removes the rest: as for the kubelet, the log goes with its container, whatever the pod's state.
    ContainerRemoved,
}

impl ContainerLogRule {
    /// Returns the verdict if the rule says something.
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::ForeignName => Verdict::Keep(KeepReason::ForeignName),
            Self::Protect => Verdict::Keep(KeepReason::Protected),
            Self::Containers => Verdict::Keep(KeepReason::HasContainers),
            Self::ContainerRemoved => Verdict::Remove(RemoveReason::ContainerRemoved),
        }
    }
}

fn container_verdict(
    writers: &LogWriters<'_>,
    policy: &Policy,
    container: &RemovedContainer,
) -> Verdict {
    let ask = |rule: ContainerLogRule| {
        let holds = match rule {
            ContainerLogRule::ForeignName => !lies_in_pods_dir(policy, container),
            ContainerLogRule::Protect => protects_pod(&policy.protect, &container.pod),
            ContainerLogRule::Containers => writers.include(container),
            ContainerLogRule::ContainerRemoved => true,
        };
        holds.then(|| rule.verdict())
    };
    first_said(ask, KeepReason::HasContainers)
}

/// Only a file in the directory of that pod is its log, whatever path a runtime names.
fn lies_in_pods_dir(policy: &Policy, container: &RemovedContainer) -> bool {
    let below = log_dir_name(&container.pod)
        .zip(policy.logs.pods_root.to_str())
        .and_then(|(dir, root)| {
            let below = container
                .log_path
                .strip_prefix(root.trim_end_matches('/'))?;
            let below = below.strip_prefix('/')?.strip_prefix(&dir)?;
            below.strip_prefix('/')
        });
    below.is_some_and(|below| {
        below
            .split('/')
            .all(|part| !["", ".", ".."].contains(&part) && !part.chars().any(char::is_control))
    })
}

/// Returns the expected log of a container that is about to be removed, by the kubelet's naming; the runtime
/// is asked for the path right before the removal. Without a directory of its pod there is no log.
fn foreseen(
    with_logs: &BTreeSet<&str>,
    policy: &Policy,
    container: &Container,
) -> Option<RemovedContainer> {
    let pod = container.pod.as_ref()?;
    let dir = log_dir_name(pod).filter(|dir| with_logs.contains(dir.as_str()))?;
    let root = policy.logs.pods_root.to_str()?.trim_end_matches('/');
    let (name, attempt) = (container.name.as_str(), container.attempt.to_string());
    let log_path = [root, "/", &dir, "/", name, "/", &attempt, ".log"].concat();
    Some(RemovedContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        pod: pod.clone(),
        created_at: container.created_at,
        log_path: log_path.into(),
    })
}

/// Returns an entry as plans show it, and what it is planned as; `None` for a foreign name.
pub(super) fn subject(
    knowledge: &Knowledge<'_>,
    log: LogObject<'_>,
) -> (Subject, Option<Expected>) {
    let (created_at, path) = match &log {
        LogObject::Dir(dir) => (dir.modified_at, dir.path.clone()),
        LogObject::Link(link) => (link.modified_at, link.path.clone()),
        LogObject::Container(container) => (container.created_at, container.log_path.clone()),
    };
    let (pod, expected) = match log {
        LogObject::Dir(dir) => {
            let pod = pod_of_dir(&dir.name);
            let expected = pod.as_ref().map(|pod| Expected::PodLogDir {
                uid: pod.uid.clone(),
                inode: dir.inode,
                modified_at: dir.modified_at,
            });
            (pod.map(Arc::new), expected)
        }
        LogObject::Link(link) => (None, container_id_of(&link.name).map(Expected::LogLink)),
        LogObject::Container(container) => (
            Some(container.pod.clone()),
            Some(Expected::ContainerLog(Box::new(container))),
        ),
    };
    let subject = Subject {
        target: Target::Logs,
        name: path.rsplit('/').next().unwrap_or_default().into(),
        id: path,
        pod_state: pod.as_ref().map_or(PodKnowledge::Unknown, |pod| {
            knowledge.get_or_absent(&pod.uid, created_at)
        }),
        pod,
        attempt: 0,
        created_at,
        age_seconds: knowledge.index.snapshot.age(created_at).as_secs().max(0),
        image: None,
    };
    (subject, expected)
}
