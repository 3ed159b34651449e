//! Explains a verdict in words: the container, rule, record or missing knowledge behind its reason. For
//! people who ask: scrapes and passes never make these texts.
//!
//! Never judges: it reads from the snapshot the facts behind the reason.

mod images;
mod logs;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::age::at_least;
use super::knowledge::Knowledge;
use super::{AgeFrom, Limit, Plan, Policy, Subject, Verdict};
use crate::model::{
    Container, ContainerState, Coverage, Image, Images, KeepReason, PodRef, PodSandbox,
    PodSandboxId, PodUid, RemoveReason, Snapshot, Target, short_duration,
};

/// The longest text. Names from outside can be long.
const DETAIL_MAX: usize = 300;

/// Finds the facts behind verdicts.
#[derive(Debug)]
pub(super) struct Details<'a> {
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    containers: BTreeMap<&'a str, &'a Container>,
    sandboxes: BTreeMap<&'a str, &'a PodSandbox>,
    images: BTreeMap<String, &'a Image>,
    /// The remaining containers, by sandbox.
    inmates: BTreeMap<&'a PodSandboxId, Vec<&'a Container>>,
    /// The newest record of each pod's container, by creation and attempt.
    newest: BTreeMap<(&'a PodUid, &'a str), &'a Container>,
    newest_sandboxes: BTreeMap<&'a PodUid, &'a PodSandbox>,
    users: images::Users<'a>,
    /// Why the pod source is not believed, if it is not.
    source_doubt: Option<String>,
}

impl<'a> Details<'a> {
    /// Prepares to explain `plan`, which was made from this snapshot under this policy.
    pub(super) fn of(snapshot: &'a Snapshot, policy: &'a Policy, plan: &Plan) -> Self {
        let going: BTreeSet<&str> = plan
            .removals_of(Target::Containers)
            .map(|removal| removal.subject.id.as_str())
            .collect();
        let mut inmates: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut newest = BTreeMap::new();
        for container in &snapshot.containers {
            if !going.contains(container.id.as_str()) {
                inmates
                    .entry(&container.sandbox_id)
                    .or_default()
                    .push(container);
            }
            let Some(pod) = &container.pod else { continue };
            let best = newest
                .entry((&pod.uid, container.name.as_str()))
                .or_insert(container);
            if (best.created_at, best.attempt) < (container.created_at, container.attempt) {
                *best = container;
            }
        }
        let mut newest_sandboxes = BTreeMap::new();
        for sandbox in &snapshot.sandboxes {
            let Some(pod) = &sandbox.pod else { continue };
            let best = newest_sandboxes.entry(&pod.uid).or_insert(sandbox);
            if (best.created_at, best.attempt) < (sandbox.created_at, sandbox.attempt) {
                *best = sandbox;
            }
        }
        let images = match &snapshot.images {
            Images::Known(store) => store.rows.iter().map(|row| (row.key(), row)).collect(),
            Images::Unknown(_) => BTreeMap::new(),
        };
        let rows = snapshot.containers.iter();
        let staying = rows.clone().filter(|row| !going.contains(row.id.as_str()));
        Self {
            snapshot,
            policy,
            containers: rows.map(|row| (row.id.as_str(), row)).collect(),
            sandboxes: snapshot
                .sandboxes
                .iter()
                .map(|row| (row.id.as_str(), row))
                .collect(),
            images,
            inmates,
            newest,
            newest_sandboxes,
            users: images::Users::of(staying),
            source_doubt: Knowledge::of(snapshot, policy).source_doubt(),
        }
    }

    /// Returns the facts behind the verdict on `subject`.
    pub(super) fn detail(&self, subject: &Subject, verdict: Verdict) -> String {
        let text = match (subject.target, verdict) {
            (Target::Containers, _) => self.container(subject, verdict),
            (Target::Sandboxes, _) => self.sandbox(subject, verdict),
            (Target::Images, Verdict::Keep(reason)) => self.kept_image(subject, reason),
            (Target::Images, Verdict::Remove(reason)) => self.removed_image(subject, reason),
            (Target::Logs, Verdict::Keep(reason)) => self.kept_log(subject, reason),
            (Target::Logs, Verdict::Remove(reason)) => self.removed_log(subject, reason),
        };
        clipped(text)
    }

    fn container(&self, subject: &Subject, verdict: Verdict) -> String {
        let container = self.containers.get(subject.id.as_str()).copied();
        let rules = &self.policy.containers;
        match verdict {
            Verdict::Remove(RemoveReason::Superseded) => {
                let newer = container.and_then(|container| self.newer(container));
                let kept = limit(
                    "policy.containers.max_per_container",
                    rules.max_per_container,
                );
                newer.map_or_else(
                    || format!("newer records of it exist; {kept}"),
                    |newer| format!("{} is a newer record of it; {kept}", record(newer)),
                )
            }
            Verdict::Remove(RemoveReason::OverCap) => {
                format!(
                    "one of the oldest dead containers; {}",
                    limit("policy.containers.max_dead", rules.max_dead)
                )
            }
            Verdict::Remove(_) => self.pod_words(subject),
            Verdict::Keep(KeepReason::Running) => "the runtime says that it runs".to_owned(),
            Verdict::Keep(KeepReason::Starting) => format!(
                "{}; it may start until policy.containers.created_grace ({}) is over",
                self.since("created", subject.created_at),
                span(rules.created_grace),
            ),
            Verdict::Keep(KeepReason::StateUnknown) => {
                "the runtime does not know its state, and policy.containers.include_unknown is off"
                    .to_owned()
            }
            Verdict::Keep(KeepReason::TooYoung) => {
                container.map_or_else(String::new, |row| self.young_container(subject, row))
            }
            Verdict::Keep(KeepReason::Newest) => {
                self.newest_of("container", subject, rules.max_dead)
            }
            Verdict::Keep(KeepReason::WithinLimits) => self.within_limits(
                "containers",
                rules.enabled,
                &[
                    limit("max_per_container", rules.max_per_container),
                    limit("max_dead", rules.max_dead),
                ],
            ),
            Verdict::Keep(reason) => {
                self.kept_alike(subject, container.map(|row| &row.labels), reason)
            }
        }
    }

    fn sandbox(&self, subject: &Subject, verdict: Verdict) -> String {
        let sandbox = self.sandboxes.get(subject.id.as_str()).copied();
        let rules = &self.policy.sandboxes;
        match verdict {
            Verdict::Remove(RemoveReason::Superseded) => {
                let newest = subject
                    .pod
                    .as_ref()
                    .and_then(|pod| self.newest_sandboxes.get(&pod.uid));
                newest.map_or_else(
                    || "a newer sandbox of its pod exists".to_owned(),
                    |newest| {
                        format!(
                            "sandbox {} is a newer one of its pod",
                            short(newest.id.as_str())
                        )
                    },
                )
            }
            Verdict::Remove(RemoveReason::OverCap) => {
                format!(
                    "one of the oldest dead sandboxes; {}",
                    limit("policy.sandboxes.max_dead", rules.max_dead)
                )
            }
            Verdict::Remove(_) => self.pod_words(subject),
            Verdict::Keep(KeepReason::Ready) => "the runtime says that it is ready".to_owned(),
            Verdict::Keep(KeepReason::HasContainers) => self.inmates_of(sandbox),
            Verdict::Keep(KeepReason::TooYoung)
                if !self.is_old(subject.created_at, rules.min_age) =>
            {
                self.young(
                    "created",
                    subject.created_at,
                    "policy.sandboxes.min_age",
                    rules.min_age,
                )
            }
            Verdict::Keep(KeepReason::TooYoung) => self.not_quiet(subject),
            Verdict::Keep(KeepReason::Newest) => self.newest_of("sandbox", subject, rules.max_dead),
            Verdict::Keep(KeepReason::WithinLimits) => self.within_limits(
                "sandboxes",
                rules.enabled,
                &[limit("max_dead", rules.max_dead)],
            ),
            Verdict::Keep(reason) => {
                self.kept_alike(subject, sandbox.map(|row| &row.labels), reason)
            }
        }
    }

    /// Explains the reasons that containers and sandboxes share.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only the reasons of this target come here"
    )]
    fn kept_alike(
        &self,
        subject: &Subject,
        labels: Option<&crate::model::Labels>,
        reason: KeepReason,
    ) -> String {
        match reason {
            KeepReason::Unmanaged => {
                "it has no label io.kubernetes.pod.uid: the kubelet did not make it".to_owned()
            }
            KeepReason::Protected => self.protection(subject.pod.as_deref(), labels),
            KeepReason::Quarantined => {
                "its removal failed; crisweep leaves it alone until the next try (quarantine)"
                    .to_owned()
            }
            other => other.label().to_owned(),
        }
    }

    /// A newer record of the same container, if the snapshot has one.
    fn newer(&self, container: &Container) -> Option<&'a Container> {
        let pod = container.pod.as_ref()?;
        let newest = self
            .newest
            .get(&(&pod.uid, container.name.as_str()))
            .copied()?;
        (newest.id != container.id).then_some(newest)
    }

    fn young_container(&self, subject: &Subject, container: &Container) -> String {
        let rules = &self.policy.containers;
        let (done, at) = match (rules.age_from, container.state, container.finished_at) {
            (AgeFrom::Finished, ContainerState::Exited, None) => {
                return "the runtime has not told yet when it exited".to_owned();
            }
            (AgeFrom::Finished, ContainerState::Exited, Some(at)) => {
                ("exited", at.max(container.created_at))
            }
            _ => ("created", container.created_at),
        };
        if self.is_old(at, rules.min_age) {
            return self.not_quiet(subject);
        }
        self.young(done, at, "policy.containers.min_age", rules.min_age)
    }

    fn newest_of(&self, what: &str, subject: &Subject, max_dead: Limit) -> String {
        let pod = subject.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| {
            format!(" of pod {}/{}", pod.namespace, pod.name)
        });
        let what = match subject.target {
            Target::Containers => format!("record of {what} {}", subject.name),
            Target::Sandboxes | Target::Logs | Target::Images => what.to_owned(),
        };
        let finished = subject.pod_state.is_finished();
        let why = match (finished, self.snapshot.seen.is_all()) {
            (true, true) => format!("the pod finished, and {}", limit("max_dead", max_dead)),
            (true, false) => {
                "the pod finished, but max_dead is not applied to an incomplete list".to_owned()
            }
            (false, _) => format!(
                "without it the kubelet would run it again; {}",
                self.pod_words(subject)
            ),
        };
        format!("the newest {what}{pod}: {why}")
    }

    fn within_limits(&self, section: &str, enabled: bool, limits: &[String]) -> String {
        if !enabled {
            return format!("policy.{section}.enabled is off");
        }
        let incomplete = if self.snapshot.seen.is_all() {
            ""
        } else {
            "; on an incomplete list max_dead is not applied"
        };
        format!(
            "no limit of policy.{section} asks for it: {}{incomplete}",
            limits.join(", ")
        )
    }

    fn inmates_of(&self, sandbox: Option<&PodSandbox>) -> String {
        let inmates = sandbox.and_then(|sandbox| self.inmates.get(&sandbox.id));
        match inmates.map(Vec::as_slice) {
            Some([first, rest @ ..]) => {
                format!("{} is in it{}", record(first), and_more(rest.len()))
            }
            Some([]) | None if self.snapshot.seen.containers != Coverage::Whole => {
                "the list of containers is incomplete: an unseen one may be in it".to_owned()
            }
            Some([]) | None => "a container that is listed under its id is in it".to_owned(),
        }
    }

    fn protection(&self, pod: Option<&PodRef>, labels: Option<&crate::model::Labels>) -> String {
        let protect = &self.policy.protect;
        if let Some(pod) = pod {
            if protect.namespaces.contains(pod.namespace.as_str()) {
                return format!(
                    "namespace {} is in policy.protect.namespaces",
                    pod.namespace
                );
            }
            if pod.namespace.is_empty() && !protect.namespaces.is_empty() {
                return "its namespace is not known, and policy.protect.namespaces protects some"
                    .to_owned();
            }
        }
        if labels.is_some_and(|labels| protect.has_label(labels)) {
            return "a label of it is in policy.protect.labels".to_owned();
        }
        "a label of its pod is in policy.protect.labels, or its pod's labels are not known"
            .to_owned()
    }

    fn is_old(&self, then: Timestamp, minimum: Duration) -> bool {
        at_least(self.snapshot.age(then), minimum)
    }

    fn since(&self, done: &str, then: Timestamp) -> String {
        let age = self.snapshot.age(then);
        if age.is_negative() {
            return format!("{done} in the future: a clock was set back");
        }
        format!("{done} {} ago", short_duration(age))
    }

    fn young(&self, done: &str, then: Timestamp, key: &str, minimum: Duration) -> String {
        format!("{}; {key} is {}", self.since(done, then), span(minimum))
    }
}

fn record(container: &Container) -> String {
    format!(
        "container {} ({} attempt {}, {})",
        short(container.id.as_str()),
        container.name,
        container.attempt,
        container.state.label(),
    )
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(", and {count} more"),
    }
}

fn limit(key: &str, limit: Limit) -> String {
    match limit {
        Limit::AtMost(count) => format!("{key} keeps {count}"),
        Limit::None => format!("{key} has no limit"),
    }
}

fn span(duration: Duration) -> String {
    SignedDuration::try_from(duration).map_or_else(|_| "forever".to_owned(), short_duration)
}

fn clipped(mut text: String) -> String {
    if text.len() > DETAIL_MAX {
        let ends = text.char_indices().map(|(index, _)| index);
        let end = ends.take_while(|index| *index <= DETAIL_MAX).last();
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}
