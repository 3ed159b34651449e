//! What looks saw of each pod over time: since when good answers lack it, or report it as finished. Uses the
//! monotonic clock. Never decides whether a pod is deleted.

mod exit_steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use self::exit_steps::ExitSteps;
use super::statuses::KNOWN_MAX;
use super::whole_pods::whole_pods;
use super::{ListResult, rows};
use crate::model::{
    ConfigSource, Container, ContainerState, Coverage, Logs, PodHistory, PodList, PodSandbox,
    PodSandboxState, PodUid, pod_uid_of,
};
use crate::pods::{LookStart, PodsAnswer};
use crate::system::maps::{IdMap, IdSet};

/// The pods of which the runtime or the log roots have something.
#[derive(Debug, Default)]
pub(super) struct PodHistories {
    pods: IdMap<PodUid, PodEntry>,
    exits: ExitSteps,
}

#[derive(Clone, Copy, Debug, Default)]
struct PodEntry {
    absent_since: Option<Instant>,
    over_since: Option<Instant>,
    config_source: Option<ConfigSource>,
    /// When the last look began that saw the pod live: it ended later.
    lived_at: Option<Instant>,
}

/// What one look found on the node.
pub(super) struct NodeLists<'a> {
    pub(super) containers: &'a ListResult<Container>,
    pub(super) sandboxes: &'a ListResult<PodSandbox>,
    pub(super) logs: &'a Logs,
    /// The operator declares that a container in state unknown is dead (`include_unknown`).
    pub(super) unknown_is_dead: bool,
}

/// What one good answer says about a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Statement {
    /// It exists, or the answer is not trusted: earlier answers no longer count.
    Exists,
    Finished,
    /// The answer says finished, but parts of the pod may run unseen: only what was seen of its end before
    /// still counts.
    FinishedUnseen,
    Absent,
    /// The look cannot tell whether to trust the answer: earlier answers still count.
    Nothing,
}

impl PodHistories {
    /// Notes an answer for the pods that the look, which began at `started`, found; `last_exits` also has exits of
    /// containers that are gone.
    pub(super) fn note(
        &mut self,
        found: &NodeLists<'_>,
        answer: &PodsAnswer,
        last_exits: &BTreeMap<PodUid, Timestamp>,
        started: Instant,
    ) {
        let of_logs = found.uids_of_logs();
        let shown = found.uids(&of_logs);
        let is_whole = found.is_whole();
        if is_whole || self.pods.len() >= KNOWN_MAX {
            // Keep an unseen static pod: the next look may show only its containers, which do not name the source.
            let stays = |entry: &PodEntry| !is_whole && entry.is_static();
            self.pods
                .retain(|uid, entry| shown.contains(uid) || stays(entry));
        }
        for uid in Vec::from_iter(shown) {
            if !self.pods.contains_key(uid) {
                self.pods.insert(uid.clone(), PodEntry::default());
            }
        }
        self.note_sources(found);
        for uid in Vec::from_iter(found.living()) {
            if let Some(entry) = self.pods.get_mut(uid) {
                entry.lived_at = Some(started);
            }
        }
        let trust = answer.list();
        let trust = trust.map(|list| AnswerTrust::of(found, list, last_exits));
        self.pods.retain(|uid, entry| {
            match (answer.good_since, &trust) {
                // A repeated answer was noted when it arrived.
                _ if answer.is_repeated => {}
                (Some(good_since), Some(trust)) => {
                    // Drop times from another source, or from before a failure.
                    entry.absent_since = entry.absent_since.filter(|since| *since >= good_since);
                    entry.over_since = entry.over_since.filter(|since| *since >= good_since);
                    entry.note(trust.statement(uid, entry.config_source), answer.at);
                }
                // The source may have restarted since.
                _ => entry.note(Statement::Exists, answer.at),
            }
            entry.over_since.is_some() || entry.config_source.is_some() || entry.lived_at.is_some()
        });
    }

    /// Forgets what the source answered; what the runtime and the clocks showed stays.
    pub(super) fn forget_answers(&mut self) {
        let entries = self.pods.values_mut();
        entries.for_each(|entry| (entry.absent_since, entry.over_since) = (None, None));
    }

    /// Remembers the source of each pod, from its sandboxes: the last sandbox may be removed before the
    /// containers. If two differ, the one that keeps more counts.
    fn note_sources(&mut self, found: &NodeLists<'_>) {
        for sandbox in rows(found.sandboxes) {
            if let Some(pod) = &sandbox.pod
                && let Some(entry) = self.pods.get_mut(&pod.uid)
            {
                entry.config_source = entry.config_source.max(sandbox.config_source);
            }
        }
    }

    /// Returns what planning may know at a look. If the look repeats an earlier answer, ages count to that answer, so
    /// that one answer never counts twice.
    pub(super) fn at(&self, look: LookStart, answered_at: Instant) -> BTreeMap<PodUid, PodHistory> {
        // The look's own answer came after its beginning: its age is 0.
        let began = look.began.min(answered_at);
        let then = |at: Instant| LookStart { began, ..look }.wall_time_of(at);
        let history_of = |entry: &PodEntry| PodHistory {
            absent_since: entry.absent_since.map(then),
            over_since: entry.over_since.map(then),
            config_source: entry.config_source,
        };
        let pods = self.pods.iter();
        pods.map(|(uid, entry)| (uid.clone(), history_of(entry)))
            .filter(|(_, history)| *history != PodHistory::default())
            .collect()
    }

    /// Returns when each pod's last container exited, by the wall clock of a look. A pod that lived at a look ended
    /// after it, and no exit gets older than by the time that passed, however far the wall clock stepped since.
    pub(super) fn correct_exits(
        &mut self,
        last_exits: &BTreeMap<PodUid, Timestamp>,
        look: LookStart,
    ) -> BTreeMap<PodUid, Timestamp> {
        let mut exits = self.exits.correct(last_exits, look);
        for (uid, exit) in &mut exits {
            let lived_at = self.pods.get(uid).and_then(|entry| entry.lived_at);
            *exit = lived_at.map_or(*exit, |at| look.wall_time_of(at).max(*exit));
        }
        exits
    }

    /// Says whether the last answer that says something of a pod lacks it.
    pub(super) fn is_absent(&self, uid: &PodUid) -> bool {
        let entry = self.pods.get(uid);
        entry.is_some_and(|entry| entry.absent_since.is_some())
    }

    /// Returns how long until every currently absent pod has been absent for `settle`.
    pub(super) fn unsettled_for(&self, settle: Duration) -> Duration {
        let absent = self.pods.values().filter_map(|entry| entry.absent_since);
        let left = absent.map(|since| settle.saturating_sub(since.elapsed()));
        left.max().unwrap_or_default()
    }
}

impl PodEntry {
    fn is_static(&self) -> bool {
        self.config_source
            .is_some_and(|source| source != ConfigSource::Api)
    }

    fn note(&mut self, statement: Statement, at: Instant) {
        match statement {
            Statement::Exists => (self.absent_since, self.over_since) = (None, None),
            Statement::Finished => {
                self.absent_since = None;
                self.over_since.get_or_insert(at);
            }
            Statement::FinishedUnseen => self.absent_since = None,
            Statement::Absent => {
                self.absent_since.get_or_insert(at);
                self.over_since.get_or_insert(at);
            }
            Statement::Nothing => {}
        }
    }
}

fn coverage_of<T>(part: &ListResult<T>) -> Coverage {
    part.as_ref()
        .map_or(Coverage::Partial, |list| list.coverage)
}

/// How far an answer is trusted, compared with what the same look found.
struct AnswerTrust<'a> {
    list: &'a PodList,
    living: IdSet<&'a PodUid>,
    /// The answer lacks a pod that lives here.
    lacks_living: bool,
    /// A pod may live here unseen.
    blind: bool,
    /// The pods of which a list that was written earlier says nothing: they may have lived after it.
    younger: IdSet<PodUid>,
    /// Something of a pod may be younger than such a list, and unseen,
    younger_unseen: bool,
    /// but not of these pods.
    whole_pods: BTreeSet<PodUid>,
}

impl<'a> AnswerTrust<'a> {
    fn of(
        found: &NodeLists<'a>,
        list: &'a PodList,
        last_exits: &BTreeMap<PodUid, Timestamp>,
    ) -> Self {
        let living = found.living();
        let younger = list.as_of.map(|as_of| found.younger(as_of, last_exits));
        Self {
            list,
            lacks_living: living.iter().any(|uid| !list.pods.contains_key(*uid)),
            blind: found.coverage() < Coverage::Living,
            living,
            younger: younger.unwrap_or_default(),
            younger_unseen: list.as_of.is_some() && found.coverage() < Coverage::Whole,
            whole_pods: whole_pods(found.containers, found.sandboxes),
        }
    }

    fn statement(&self, uid: &PodUid, source: Option<ConfigSource>) -> Statement {
        let source = source.unwrap_or_else(|| ConfigSource::of_shape(uid));
        match self.list.pods.get(uid) {
            Some(pod) if !pod.finished || pod.is_static() => Statement::Exists,
            Some(_) if source != ConfigSource::Api => Statement::Exists,
            Some(_) if self.living.contains(uid) => Statement::Exists,
            Some(_) if self.blind => Statement::FinishedUnseen,
            Some(_) => Statement::Finished,
            None if self.lacks_living => Statement::Exists,
            None if !self.list.vouches_for(source) => Statement::Exists,
            None if self.younger.contains(uid) => Statement::Exists,
            None if self.blind => Statement::Nothing,
            None if self.younger_unseen && !self.whole_pods.contains(uid) => Statement::Nothing,
            None => Statement::Absent,
        }
    }
}

impl<'a> NodeLists<'a> {
    pub(super) fn new(
        unknown_is_dead: bool,
        containers: &'a ListResult<Container>,
        sandboxes: &'a ListResult<PodSandbox>,
        logs: &'a Logs,
    ) -> Self {
        Self {
            containers,
            sandboxes,
            logs,
            unknown_is_dead,
        }
    }

    /// Says whether a list has every pod that lives here.
    pub(super) fn lives_in(&self, list: &PodList) -> bool {
        let mut living = self.living().into_iter();
        living.all(|uid| list.pods.contains_key(uid))
    }

    fn uids<'b>(&self, of_logs: &'b [PodUid]) -> IdSet<&'b PodUid>
    where
        'a: 'b,
    {
        let of_containers = rows(self.containers).iter().map(|it| &it.pod);
        let of_sandboxes = rows(self.sandboxes).iter().map(|it| &it.pod);
        let pods = of_containers.chain(of_sandboxes).flatten();
        pods.map(|pod| &pod.uid).chain(of_logs).collect()
    }

    fn uids_of_logs(&self) -> Vec<PodUid> {
        let names = self.logs.dirs.iter().map(|dir| &dir.name);
        names.filter_map(|name| pod_uid_of(name)).collect()
    }

    /// Finds the pods of which something runs or is ready, or may run.
    fn living(&self) -> IdSet<&'a PodUid> {
        let (containers, sandboxes) = (rows(self.containers), rows(self.sandboxes));
        let running = containers.iter().filter(|it| match it.state {
            ContainerState::Running => true,
            ContainerState::Unknown => !self.unknown_is_dead,
            ContainerState::Created | ContainerState::Exited => false,
        });
        let ready = sandboxes
            .iter()
            .filter(|it| it.state == PodSandboxState::Ready);
        let pods = running.map(|it| &it.pod).chain(ready.map(|it| &it.pod));
        pods.flatten().map(|pod| &pod.uid).collect()
    }

    /// Finds the pods of which something was created or exited at this time or later, or may have.
    fn younger(&self, then: Timestamp, last_exits: &BTreeMap<PodUid, Timestamp>) -> IdSet<PodUid> {
        let containers = rows(self.containers).iter().filter(|it| {
            let has_exited = it.state == ContainerState::Exited;
            it.created_at >= then || has_exited && it.finished_at.is_none_or(|at| at >= then)
        });
        let sandboxes = rows(self.sandboxes).iter();
        let sandboxes = sandboxes.filter(|it| it.created_at >= then);
        let pods = containers
            .map(|it| &it.pod)
            .chain(sandboxes.map(|it| &it.pod));
        let pods = pods.flatten().map(|pod| pod.uid.clone());
        let exits = last_exits.iter().filter(|(_, at)| **at >= then);
        let exits = exits.map(|(uid, _)| uid.clone());
        let dirs = self.logs.dirs.iter().filter(|it| it.modified_at >= then);
        let dirs = dirs.filter_map(|it| pod_uid_of(&it.name));
        pods.chain(exits).chain(dirs).collect()
    }

    fn coverage(&self) -> Coverage {
        coverage_of(self.containers).min(coverage_of(self.sandboxes))
    }

    fn is_whole(&self) -> bool {
        self.coverage() == Coverage::Whole && self.logs.unread.is_empty()
    }
}
