//! Turns verdicts into an ordered plan, and finds which removals a fresh look still confirms.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::index::{Newest, RowSet};
use super::knowledge::Knowledge;
use super::logs::LogObject;
use super::{
    Expected, KeptObject, Plan, PlannedObjects, PodDoubt, PodKnowledge, Policy, Removal, Subject,
    Summary, Verdict, containers, images, logs, sandboxes,
};
use crate::model::{
    Container, Image, KeepReason, PodSandbox, PodUid, Quarantined, Snapshot, Target, Text,
};

/// Plans a pass over `targets`: a verdict with its reason for each of their objects, removals target by
/// target, oldest creation first, images least recently used first; containers oldest exit first while a list
/// is over its limit. Later targets are judged as if the removals of earlier ones were done, as in a real
/// pass.
pub fn plan(snapshot: &Snapshot, policy: &Policy, targets: &BTreeSet<Target>) -> Plan {
    plan_within(snapshot, policy, targets, None)
}

/// The same, but keeps what an earlier plan, if there is one, does not remove; later targets are judged as if only the
/// removals that are left were done.
pub fn plan_within(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
    earlier: Option<&PlannedObjects>,
) -> Plan {
    let knowledge = Knowledge::of(snapshot, policy);
    let verdicts = Verdicts::of(&knowledge, targets, earlier);
    let mut plan = Plan {
        taken_at: snapshot.taken_at,
        pods_from_cache: snapshot.pods.is_cached(),
        at_risk: BTreeMap::new(),
        doubts: Vec::new(),
        removals: Vec::new(),
        kept: Vec::new(),
        summary: verdicts.count(targets),
    };
    plan.fill(&knowledge, verdicts);
    if snapshot.outage.is_some_and(|outage| outage.lasts(snapshot)) {
        oldest_exit_first(&mut plan.removals, snapshot);
    }
    plan
}

/// Counts what [`plan`] would return on the knowledge's snapshot, without naming objects: a scrape needs no more.
pub fn summarize(
    knowledge: &Knowledge<'_>,
    targets: &BTreeSet<Target>,
) -> BTreeMap<Target, Summary> {
    Verdicts::of(knowledge, targets, None).count(targets)
}

/// Counts what would be removed under `supposed` of the pods that are unknown in `actual`, by why they are, and whether
/// `assume_finished_after` can be short enough for the pod.
pub(super) fn removable_of_unknown(
    supposed: &Knowledge<'_>,
    actual: &Knowledge<'_>,
    targets: &BTreeSet<Target>,
) -> BTreeMap<(Target, PodDoubt, bool), usize> {
    let verdicts = Verdicts::of(supposed, targets, None);
    let index = &actual.index;
    let mut counts = BTreeMap::new();
    let mut count = |target, pod: Option<usize>, verdict: &Verdict| {
        let unknown = actual.at(pod) == PodKnowledge::Unknown;
        let pod = pod.filter(|_| unknown);
        let doubt =
            pod.and_then(|pod| Some((actual.doubt_at(pod)?, actual.is_assumable(Some(pod)))));
        if let (Verdict::Remove(_), Some((doubt, assumable))) = (verdict, doubt) {
            *counts.entry((target, doubt, assumable)).or_default() += 1;
        }
    };
    for (at, verdict) in verdicts.containers.iter().enumerate() {
        count(Target::Containers, index.pod_of_container(at), verdict);
    }
    for (at, verdict) in verdicts.sandboxes.iter().enumerate() {
        count(Target::Sandboxes, index.pod_of_sandbox(at), verdict);
    }
    counts
}

/// A verdict on each object of some targets; containers and sandboxes in the snapshot's order.
#[derive(Default)]
struct Verdicts<'a> {
    containers: Vec<Verdict>,
    sandboxes: Vec<Verdict>,
    logs: Vec<(LogObject<'a>, Verdict)>,
    images: Vec<(&'a Image, Verdict)>,
}

impl<'a> Verdicts<'a> {
    /// Later targets are judged as if the removals of earlier ones were done.
    fn of(
        knowledge: &Knowledge<'a>,
        targets: &BTreeSet<Target>,
        earlier: Option<&PlannedObjects>,
    ) -> Self {
        let snapshot = knowledge.index.snapshot;
        let mut verdicts = Self::default();
        if targets.contains(&Target::Containers) {
            verdicts.containers = containers::judge(knowledge);
        }
        if let Some(earlier) = earlier {
            let rows = snapshot.containers.iter().zip(&mut verdicts.containers);
            for (row, verdict) in rows {
                let object = || (Target::Containers, row.id.text().clone(), row.created_at);
                earlier.keep_others(verdict, object);
            }
        }
        let gone = RowSet::of(snapshot.containers.len(), |place| {
            matches!(verdicts.containers.get(place), Some(Verdict::Remove(_)))
        });
        if targets.contains(&Target::Sandboxes) {
            verdicts.sandboxes = sandboxes::judge(knowledge, &gone);
        }
        if targets.contains(&Target::Logs) {
            verdicts.logs = logs::judge(knowledge, &gone);
        }
        if targets.contains(&Target::Images) {
            verdicts.images = images::judge(knowledge, &gone);
        }
        if let Some(earlier) = earlier {
            verdicts.keep_to(earlier, knowledge);
        }
        verdicts
    }

    /// Keeps sandboxes, logs and images that the earlier plan does not remove.
    fn keep_to(&mut self, earlier: &PlannedObjects, knowledge: &Knowledge<'a>) {
        let snapshot = knowledge.index.snapshot;
        for (row, verdict) in snapshot.sandboxes.iter().zip(&mut self.sandboxes) {
            let object = || (Target::Sandboxes, row.id.text().clone(), row.created_at);
            earlier.keep_others(verdict, object);
        }
        for (log, verdict) in &mut self.logs {
            earlier.keep_others(verdict, || {
                let (subject, _) = logs::subject(knowledge, log.clone());
                (Target::Logs, subject.id, subject.created_at)
            });
        }
        for (image, verdict) in &mut self.images {
            earlier.keep_others(verdict, || {
                let (subject, _) = images::subject(snapshot, image);
                (Target::Images, subject.id, subject.created_at)
            });
        }
    }

    fn count(&self, targets: &BTreeSet<Target>) -> BTreeMap<Target, Summary> {
        let of = |target| match target {
            Target::Containers => Summary::of(self.containers.iter()),
            Target::Sandboxes => Summary::of(self.sandboxes.iter()),
            Target::Logs => Summary::of(self.logs.iter().map(|(_, verdict)| verdict)),
            Target::Images => Summary::of(self.images.iter().map(|(_, verdict)| verdict)),
        };
        targets
            .iter()
            .map(|target| (*target, of(*target)))
            .collect()
    }
}

/// Parts removals into those that a plan on a fresh look confirms, and the others.
pub fn still_due(due: Vec<Removal>, fresh: &Plan) -> (Vec<Removal>, Vec<Removal>) {
    let fresh = fresh.removals.iter().map(|removal| {
        let subject = &removal.subject;
        ((subject.target, subject.id.as_str()), removal)
    });
    let wanted: BTreeMap<(Target, &str), &Removal> = fresh.collect();
    let (mut confirmed, mut others) = (Vec::new(), Vec::new());
    for mut removal in due {
        let key = (removal.subject.target, removal.subject.id.as_str());
        match wanted.get(&key) {
            Some(fresh) if fresh.expected == removal.expected => {
                removal.superseded_by.clone_from(&fresh.superseded_by);
                confirmed.push(removal);
            }
            Some(_) | None => others.push(removal),
        }
    }
    (confirmed, others)
}

impl Plan {
    /// Adds every object, in order.
    fn fill(&mut self, knowledge: &Knowledge<'_>, verdicts: Verdicts<'_>) {
        let index = &knowledge.index;
        let snapshot = index.snapshot;
        let (removals, kept) = (self.summary.values(), self.summary.values());
        let removals = removals.flat_map(|counts| counts.remove.values());
        let kept = kept.flat_map(|counts| counts.keep.values());
        self.removals.reserve_exact(removals.sum());
        self.kept.reserve_exact(kept.sum());
        let rows = &snapshot.containers;
        let mut newer = NewerIds::of(&index.newest_containers, &verdicts.containers);
        for (place, row) in index.oldest_containers() {
            let Some(verdict) = verdicts.containers.get(place) else {
                continue;
            };
            let state = knowledge.at(index.pod_of_container(place));
            let subject = container_subject(knowledge, state, row);
            let expected = Expected::Container(row.state);
            self.push(subject, Some(expected), *verdict, || {
                newer.ids(index.group_of(place), |at| Some(rows.get(at)?.id.text()))
            });
        }
        let rows = &snapshot.sandboxes;
        let mut newer = NewerIds::of(&index.newest_sandboxes, &verdicts.sandboxes);
        for (place, row) in index.oldest_sandboxes() {
            let Some(verdict) = verdicts.sandboxes.get(place) else {
                continue;
            };
            let pod = index.pod_of_sandbox(place);
            let subject = sandbox_subject(snapshot, knowledge.at(pod), row);
            self.push(subject, Some(Expected::Sandbox), *verdict, || {
                let id = |at: usize| Some(rows.get(at)?.id.text());
                pod.map_or_else(Arc::default, |pod| newer.ids(pod, id))
            });
        }
        let mut logs: Vec<_> = verdicts
            .logs
            .into_iter()
            .map(|(log, verdict)| {
                let (subject, expected) = logs::subject(knowledge, log);
                (subject, expected, verdict)
            })
            .collect();
        logs.sort_by(|(a, ..), (b, ..)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        for (subject, expected, verdict) in logs {
            self.push(subject, expected, verdict, Arc::default);
        }
        for (image, verdict) in verdicts.images {
            let (subject, expected) = images::subject(snapshot, image);
            self.push(subject, Some(expected), verdict, Arc::default);
        }
    }

    fn push(
        &mut self,
        subject: Subject,
        expected: Option<Expected>,
        verdict: Verdict,
        superseded_by: impl FnOnce() -> Arc<[Text]>,
    ) {
        match (verdict, expected) {
            (Verdict::Remove(reason), Some(expected)) => self.removals.push(Removal {
                subject,
                reason,
                detail: Box::default(),
                expected,
                superseded_by: superseded_by(),
            }),
            // No verdict removes an object without a name of the kubelet's.
            (Verdict::Remove(_), None) => {}
            (Verdict::Keep(reason), _) => self.kept.push(KeptObject {
                subject,
                reason,
                detail: Box::default(),
                quarantine: None,
            }),
        }
    }

    /// Keeps only removals of these pods: for them alone `pods.quiet` is given up, so the others are too young.
    pub fn narrow(&mut self, pods: &BTreeSet<PodUid>) {
        let of_them = |it: &Removal| {
            it.subject
                .pod
                .as_ref()
                .is_some_and(|it| pods.contains(&it.uid))
        };
        let all = std::mem::take(&mut self.removals).into_iter();
        let (stay, go): (Vec<Removal>, Vec<Removal>) = all.partition(of_them);
        self.removals = stay;
        for Removal {
            subject, reason, ..
        } in go
        {
            let counts = self.summary.entry(subject.target).or_default();
            let planned = counts.remove.entry(reason).or_default();
            *planned = planned.saturating_sub(1);
            *counts.keep.entry(KeepReason::TooYoung).or_default() += 1;
            let young = Verdict::Keep(KeepReason::TooYoung);
            self.push(subject, None, young, Arc::default);
        }
        for counts in self.summary.values_mut() {
            counts.remove.retain(|_, count| *count > 0);
        }
    }

    /// Adds the failures of each quarantined sandbox.
    pub fn add_quarantine(&mut self, known: impl Fn(&str) -> Option<Quarantined>) {
        for kept in &mut self.kept {
            if kept.reason == KeepReason::Quarantined {
                kept.quarantine = known(&kept.subject.id).map(Box::new);
            }
        }
    }

    /// Returns the removals of one target, in order.
    pub fn removals_of(&self, target: Target) -> impl Iterator<Item = &Removal> {
        self.removals
            .iter()
            .filter(move |removal| removal.subject.target == target)
    }
}

/// The newest records that stay and supersede the removed ones of their group: removals name them, and they are asked
/// for once more. If the newest is removed too, its pod is finished or deleted, and the older ones need no other record.
struct NewerIds<'a> {
    newest: &'a Newest,
    verdicts: &'a [Verdict],
    /// By group: their ids, once a removed record has asked.
    ids: Vec<Option<Arc<[Text]>>>,
}

impl<'a> NewerIds<'a> {
    fn of(newest: &'a Newest, verdicts: &'a [Verdict]) -> Self {
        Self {
            newest,
            verdicts,
            ids: vec![None; newest.groups()],
        }
    }

    /// Returns their ids, which all removed records of the group share.
    fn ids(&mut self, group: usize, id: impl Fn(usize) -> Option<&'a Text>) -> Arc<[Text]> {
        let Some(ids) = self.ids.get_mut(group) else {
            return Arc::default();
        };
        let stays = |at: &usize| {
            self.verdicts
                .get(*at)
                .is_some_and(|it| matches!(it, Verdict::Keep(_)))
        };
        let mut newest = self.newest.of_group(group).filter(stays).peekable();
        if newest.peek().is_none() {
            // The empty list is shared: one for each finished or deleted pod would take memory and time.
            return Arc::default();
        }
        Arc::clone(ids.get_or_insert_with(|| newest.filter_map(id).cloned().collect()))
    }
}

/// Orders the containers by their exits, those without a known one last. Equal ones stay in the order of creation.
fn oldest_exit_first(removals: &mut [Removal], snapshot: &Snapshot) {
    let exits = snapshot.containers.iter();
    let exits: BTreeMap<_, _> = exits.map(|it| (it.id.as_str(), it.finished_at)).collect();
    removals.sort_by_key(|it| {
        let is_container = it.subject.target == Target::Containers;
        let exit = exits.get(it.subject.id.as_str()).filter(|_| is_container);
        let exit = exit.copied().flatten();
        (it.subject.target, exit.is_none(), exit)
    });
}

fn container_subject(
    knowledge: &Knowledge<'_>,
    pod_state: PodKnowledge,
    container: &Container,
) -> Subject {
    let age_from = knowledge.policy.containers.age_from;
    let counts_from = containers::counts_from(age_from, container);
    let counts_from = counts_from.unwrap_or(container.created_at);
    Subject {
        target: Target::Containers,
        id: container.id.text().clone(),
        name: container.name.clone(),
        pod: container.pod.clone(),
        pod_state,
        attempt: container.attempt,
        created_at: container.created_at,
        age_seconds: knowledge.index.snapshot.age(counts_from).as_secs().max(0),
        image: None,
    }
}

fn sandbox_subject(snapshot: &Snapshot, pod_state: PodKnowledge, sandbox: &PodSandbox) -> Subject {
    Subject {
        target: Target::Sandboxes,
        id: sandbox.id.text().clone(),
        name: sandbox
            .pod
            .as_ref()
            .map_or_else(Text::default, |pod| pod.name.clone()),
        pod: sandbox.pod.clone(),
        pod_state,
        attempt: sandbox.attempt,
        created_at: sandbox.created_at,
        age_seconds: snapshot.age(sandbox.created_at).as_secs().max(0),
        image: None,
    }
}
