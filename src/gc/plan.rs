//! Verdicts -> an ordered plan; and what of a plan is still due on a fresh look.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::detail::Details;
use super::knowledge::Knowledge;
use super::logs::LogObject;
use super::{
    AgeFrom, Expected, KeepReason, Kept, Plan, PodKnowledge, Policy, Removal, Subject, Summary,
    Target, Verdict, containers, images, logs, sandboxes,
};
use crate::model::{Container, ContainerId, Image, PodRef, PodSandbox, PodUid, Snapshot, Text};
use crate::report::Quarantined;

/// Plans a pass over `targets`: a verdict with its reason for each of their objects, removals target
/// by target, oldest creation first, images least recently used first; containers oldest exit first while
/// a list is over its limit. What comes later is judged as
/// if what comes earlier were gone: that is what one pass does.
pub fn plan(snapshot: &Snapshot, policy: &Policy, targets: &BTreeSet<Target>) -> Plan {
    let knowledge = Knowledge::of(snapshot, policy);
    let mut plan = Plan {
        taken_at: snapshot.taken_at,
        pods_from_cache: snapshot.pods.is_cached(),
        removals: Vec::new(),
        kept: Vec::new(),
        summary: no_counts(targets),
    };
    let newest = (
        containers::Newest::of(&snapshot.containers),
        sandboxes::Newest::of(&snapshot.sandboxes),
    );
    judge(snapshot, policy, &knowledge, targets, |object, verdict| {
        let outdone_by = match (&object, verdict) {
            (Object::Container(container), Verdict::Remove(_)) => newest.0.beside(container),
            (Object::Sandbox(sandbox), Verdict::Remove(_)) => newest.1.beside(sandbox),
            _ => BTreeSet::new(),
        };
        plan.push((snapshot, policy), &knowledge, object, verdict, &outdone_by);
    });
    plan.need_only_what_stays();
    if snapshot.outage.is_some_and(|outage| outage.lasts(snapshot)) {
        let order = |it: &Subject| (it.target, Reverse(exited_for(it)));
        plan.removals.sort_by(|a, b| {
            let by_exit = order(&a.subject).cmp(&order(&b.subject));
            by_exit.then_with(|| self::order(&a.subject).cmp(&self::order(&b.subject)))
        });
    } else {
        plan.removals
            .sort_by(|a, b| order(&a.subject).cmp(&order(&b.subject)));
    }
    plan.kept
        .sort_by(|a, b| order(&a.subject).cmp(&order(&b.subject)));
    plan
}

/// Counts what [`plan`] would say, without naming anyone: that is all that a scrape needs.
pub fn summarize(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> BTreeMap<Target, Summary> {
    let knowledge = Knowledge::of(snapshot, policy);
    let mut counts = no_counts(targets);
    judge(snapshot, policy, &knowledge, targets, |object, verdict| {
        counts.entry(object.target()).or_default().count(verdict);
    });
    counts
}

/// Counts what would go under `knowledge` of pods that `known` says to be unknown.
pub(super) fn removable_of_unknown(
    snapshot: &Snapshot,
    policy: &Policy,
    knowledge: &Knowledge<'_>,
    known: &Knowledge<'_>,
    targets: &BTreeSet<Target>,
) -> BTreeMap<Target, usize> {
    let mut counts = BTreeMap::new();
    judge(snapshot, policy, knowledge, targets, |object, verdict| {
        let pod = match &object {
            Object::Container(it) => it.pod.as_deref(),
            Object::Sandbox(it) => it.pod.as_deref(),
            Object::Log(_) | Object::Image(_) => return,
        };
        let unknown = pod_state(known, pod) == PodKnowledge::Unknown;
        if unknown && matches!(verdict, Verdict::Remove(_)) {
            *counts.entry(object.target()).or_default() += 1;
        }
    });
    counts
}

fn no_counts(targets: &BTreeSet<Target>) -> BTreeMap<Target, Summary> {
    let targets = targets.iter();
    targets
        .map(|target| (*target, Summary::default()))
        .collect()
}

/// Something that gets a verdict.
enum Object<'a> {
    Container(&'a Container),
    Sandbox(&'a PodSandbox),
    Log(LogObject<'a>),
    Image(&'a Image),
}

impl Object<'_> {
    fn target(&self) -> Target {
        match self {
            Self::Container(_) => Target::Containers,
            Self::Sandbox(_) => Target::Sandboxes,
            Self::Log(_) => Target::Logs,
            Self::Image(_) => Target::Images,
        }
    }
}

fn judge<'a>(
    snapshot: &'a Snapshot,
    policy: &Policy,
    knowledge: &Knowledge<'_>,
    targets: &BTreeSet<Target>,
    mut each: impl FnMut(Object<'a>, Verdict),
) {
    let mut gone: BTreeSet<&ContainerId> = BTreeSet::new();
    if targets.contains(&Target::Containers) {
        let verdicts = containers::judge(snapshot, policy, knowledge);
        for (container, verdict) in snapshot.containers.iter().zip(verdicts) {
            let verdict = if_enabled(policy.containers.enabled, verdict);
            if matches!(verdict, Verdict::Remove(_)) {
                gone.insert(&container.id);
            }
            each(Object::Container(container), verdict);
        }
    }
    if targets.contains(&Target::Sandboxes) {
        let verdicts = sandboxes::judge(snapshot, policy, knowledge, &gone);
        for (sandbox, verdict) in snapshot.sandboxes.iter().zip(verdicts) {
            each(
                Object::Sandbox(sandbox),
                if_enabled(policy.sandboxes.enabled, verdict),
            );
        }
    }
    if targets.contains(&Target::Logs) {
        logs::judge(snapshot, policy, knowledge, &gone, |log, verdict| {
            each(Object::Log(log), verdict);
        });
    }
    if targets.contains(&Target::Images) {
        for (image, verdict) in images::judge(snapshot, policy, &gone) {
            each(Object::Image(image), verdict);
        }
    }
}

/// Returns those of `due` that a plan made on a fresh look wants gone as well: removing needs both.
pub fn still_due(due: Vec<Removal>, fresh: &Plan) -> Vec<Removal> {
    let wanted: BTreeMap<(Target, &str), &Removal> = fresh
        .removals
        .iter()
        .map(|removal| {
            (
                (removal.subject.target, removal.subject.id.as_str()),
                removal,
            )
        })
        .collect();
    due.into_iter()
        .filter_map(|mut removal| {
            let key = (removal.subject.target, removal.subject.id.as_str());
            let fresh = wanted.get(&key)?;
            removal.outdone_by.clone_from(&fresh.outdone_by);
            (fresh.expected == removal.expected).then_some(removal)
        })
        .collect()
}

impl Summary {
    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Remove(reason) => *self.remove.entry(reason).or_default() += 1,
            Verdict::Keep(reason) => *self.keep.entry(reason).or_default() += 1,
        }
    }
}

impl Plan {
    fn push(
        &mut self,
        (snapshot, policy): (&Snapshot, &Policy),
        knowledge: &Knowledge<'_>,
        object: Object<'_>,
        verdict: Verdict,
        outdone_by: &BTreeSet<&str>,
    ) {
        self.summary
            .entry(object.target())
            .or_default()
            .count(verdict);
        let (subject, expected) = match object {
            Object::Container(container) => (
                container_subject(snapshot, policy, knowledge, container),
                Some(Expected::Container(container.state)),
            ),
            Object::Sandbox(sandbox) => (
                sandbox_subject(snapshot, knowledge, sandbox),
                Some(Expected::Sandbox),
            ),
            Object::Log(log) => logs::subject(snapshot, knowledge, log),
            Object::Image(image) => {
                let (subject, expected) = images::subject(snapshot, image);
                (subject, Some(expected))
            }
        };
        match (verdict, expected) {
            (Verdict::Remove(reason), Some(expected)) => self.removals.push(Removal {
                subject,
                reason,
                detail: String::new(),
                expected,
                outdone_by: outdone_by.iter().map(|id| (*id).into()).collect(),
            }),
            // Nothing goes whose kind is not known; no verdict says so.
            (Verdict::Remove(_), None) => {}
            (Verdict::Keep(reason), _) => self.kept.push(Kept {
                subject,
                reason,
                detail: String::new(),
                quarantine: None,
            }),
        }
    }

    /// Where the newest goes too, its pod is over: what it outdoes does not need it.
    fn need_only_what_stays(&mut self) {
        let going = |removal: &Removal| (removal.subject.target, removal.subject.id.clone());
        let going: BTreeSet<(Target, Text)> = self.removals.iter().map(going).collect();
        for removal in &mut self.removals {
            let target = removal.subject.target;
            let stays = |id: &Text| !going.contains(&(target, id.clone()));
            removal.outdone_by.retain(stays);
        }
    }

    /// Leaves only removals of these pods.
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
            counts.count(Verdict::Keep(KeepReason::TooYoung));
            self.kept.push(Kept {
                subject,
                reason: KeepReason::TooYoung,
                detail: String::new(),
                quarantine: None,
            });
        }
        for counts in self.summary.values_mut() {
            counts.remove.retain(|_, count| *count > 0);
        }
    }

    /// Tells of each sandbox that is left alone what is known of its failures.
    pub fn tell_quarantine(&mut self, known: impl Fn(&str) -> Option<Quarantined>) {
        for kept in &mut self.kept {
            if kept.reason == KeepReason::Quarantined {
                kept.quarantine = known(&kept.subject.id);
            }
        }
    }

    /// Tells of each object what its verdict rests on; the plan was made of this snapshot. For people: a
    /// pass and a scrape have no use for it.
    pub fn tell_details(&mut self, snapshot: &Snapshot, policy: &Policy) {
        let details = Details::of(snapshot, policy, self);
        for removal in &mut self.removals {
            removal.detail = details.detail(&removal.subject, Verdict::Remove(removal.reason));
        }
        for kept in &mut self.kept {
            kept.detail = details.detail(&kept.subject, Verdict::Keep(kept.reason));
        }
    }

    /// Returns what goes, in order, and lets all else go.
    pub fn into_removals(self) -> Vec<Removal> {
        self.removals
    }

    /// Returns the removals of one target, in order.
    pub fn removals_of(&self, target: Target) -> impl Iterator<Item = &Removal> {
        self.removals
            .iter()
            .filter(move |removal| removal.subject.target == target)
    }
}

/// A target that is switched off is judged like any other, but nothing of it goes.
fn if_enabled(enabled: bool, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Remove(_) if !enabled => Verdict::Keep(KeepReason::WithinLimits),
        Verdict::Remove(_) | Verdict::Keep(_) => verdict,
    }
}

/// Seconds since a container's exit. Of all else the exit is not known; it keeps its own order.
fn exited_for(subject: &Subject) -> i64 {
    match subject.target {
        Target::Containers => subject.age_seconds,
        Target::Sandboxes | Target::Logs | Target::Images => 0,
    }
}

fn order(subject: &Subject) -> impl Ord + '_ {
    // An image never used goes before all that were. Nothing else was ever used.
    (
        subject.target,
        subject.last_used_at,
        subject.created_at,
        subject.attempt,
        subject.id.as_str(),
    )
}

fn pod_state(knowledge: &Knowledge<'_>, pod: Option<&PodRef>) -> PodKnowledge {
    pod.map_or(PodKnowledge::Unknown, |pod| knowledge.get(&pod.uid))
}

fn container_subject(
    snapshot: &Snapshot,
    policy: &Policy,
    knowledge: &Knowledge<'_>,
    container: &Container,
) -> Subject {
    let counts_from = match policy.containers.age_from {
        AgeFrom::Finished => container.finished_at.unwrap_or(container.created_at),
        AgeFrom::Created => container.created_at,
    };
    Subject {
        target: Target::Containers,
        id: container.id.text().clone(),
        name: container.name.clone(),
        pod: container.pod.clone(),
        pod_state: pod_state(knowledge, container.pod.as_deref()),
        attempt: container.attempt,
        created_at: container.created_at,
        first_seen_at: None,
        age_seconds: snapshot.age(counts_from).as_secs().max(0),
        last_used_at: None,
        size_bytes: None,
    }
}

fn sandbox_subject(
    snapshot: &Snapshot,
    knowledge: &Knowledge<'_>,
    sandbox: &PodSandbox,
) -> Subject {
    Subject {
        target: Target::Sandboxes,
        id: sandbox.id.text().clone(),
        name: sandbox
            .pod
            .as_ref()
            .map_or_else(Text::default, |pod| pod.name.clone()),
        pod: sandbox.pod.clone(),
        pod_state: pod_state(knowledge, sandbox.pod.as_deref()),
        attempt: sandbox.attempt,
        created_at: sandbox.created_at,
        first_seen_at: None,
        age_seconds: snapshot.age(sandbox.created_at).as_secs().max(0),
        last_used_at: None,
        size_bytes: None,
    }
}
