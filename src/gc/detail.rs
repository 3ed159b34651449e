//! Explains a verdict in words: the container, rule, record or missing knowledge behind its reason. For
//! people who ask: scrapes and passes never make these texts.
//!
//! Never judges: it reads from the snapshot the facts behind the reason.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a target has only its own reasons"
)]

mod images;
mod logs;
mod pods;

use std::time::Duration;

use jiff::Timestamp;

use super::age::at_least;
use super::containers::counts_from;
use super::explain::keep_text;
use super::facts::{PlanFacts, short, span};
use super::{AgeFrom, Limit, Subject, Verdict};
use crate::model::{
    Container, ContainerState, Coverage, KeepReason, Labels, PodRef, PodSandbox, RemoveReason,
    Target, short_duration,
};

/// The longest text. Names from outside can be long.
const DETAIL_MAX: usize = 300;

impl PlanFacts<'_> {
    /// Returns the facts behind the verdict on `subject`.
    pub(super) fn detail(&self, subject: &Subject, verdict: Verdict) -> String {
        let text = match (subject.target, verdict) {
            (Target::Containers, _) => self.judged_container(subject, verdict),
            (Target::Sandboxes, _) => self.judged_sandbox(subject, verdict),
            (Target::Images, Verdict::Keep(reason)) => self.kept_image(subject, reason),
            (Target::Images, Verdict::Remove(reason)) => self.removed_image(subject, reason),
            (Target::Logs, Verdict::Keep(reason)) => self.kept_log(subject, reason),
            (Target::Logs, Verdict::Remove(reason)) => self.removed_log(subject, reason),
        };
        clipped(text)
    }

    fn judged_container(&self, subject: &Subject, verdict: Verdict) -> String {
        let found = self.container(&subject.id);
        let container = found.map(|(_, row)| row);
        let rules = &self.policy.containers;
        match verdict {
            Verdict::Remove(RemoveReason::Superseded) => {
                let newer = found.and_then(|(place, _)| self.newer(place));
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
            Verdict::Keep(KeepReason::Starting) => format!(
                "{}; it may start until policy.containers.created_grace ({}) is over",
                self.since("created", subject.created_at),
                span(rules.created_grace),
            ),
            Verdict::Keep(KeepReason::TooYoung) => {
                container.map_or_else(String::new, |row| self.young_container(subject, row))
            }
            Verdict::Keep(KeepReason::Newest) => self.newest_of(subject, rules.max_dead),
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

    fn judged_sandbox(&self, subject: &Subject, verdict: Verdict) -> String {
        let found = self.sandbox(&subject.id);
        let sandbox = found.map(|(_, row)| row);
        let rules = &self.policy.sandboxes;
        match verdict {
            Verdict::Remove(RemoveReason::Superseded) => {
                let newest = found.and_then(|(place, _)| self.newest_sandbox(place));
                newest.map_or_else(
                    || "a newer sandbox of its pod exists".to_owned(),
                    |newest| {
                        let id = short(newest.id.as_str());
                        format!("sandbox {id} is a newer one of its pod")
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
            Verdict::Keep(KeepReason::HasContainers) => self.containers_in_words(sandbox),
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
            Verdict::Keep(KeepReason::Newest) => self.newest_of(subject, rules.max_dead),
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
    fn kept_alike(&self, subject: &Subject, labels: Option<&Labels>, reason: KeepReason) -> String {
        match reason {
            KeepReason::Protected => self.protection(subject.pod.as_deref(), labels),
            other => keep_text(other).to_owned(),
        }
    }

    /// Returns the record of the same container that was created last, unless it is the one at this place.
    fn newer(&self, place: usize) -> Option<&Container> {
        let group = self.knowledge.index.group_of(place);
        let newest = self.newest_containers.of_group(group).last();
        let newest = newest.filter(|newest| *newest != place)?;
        self.snapshot.containers.get(newest)
    }

    /// Returns the sandbox of the same pod that was created last.
    fn newest_sandbox(&self, place: usize) -> Option<&PodSandbox> {
        let pod = self.knowledge.index.pod_of_sandbox(place)?;
        let newest = self.newest_sandboxes.of_group(pod).last()?;
        self.snapshot.sandboxes.get(newest)
    }

    fn young_container(&self, subject: &Subject, container: &Container) -> String {
        let rules = &self.policy.containers;
        let Some(at) = counts_from(rules.age_from, container) else {
            return "the runtime has not told yet when it exited".to_owned();
        };
        if self.is_old(at, rules.min_age) {
            return self.not_quiet(subject);
        }
        let done = match (rules.age_from, container.state) {
            (AgeFrom::Finished, ContainerState::Exited) if container.exit_undated => {
                "the runtime gives no time of its exit; first seen exited"
            }
            (AgeFrom::Finished, ContainerState::Exited) => "exited",
            _ => "created",
        };
        self.young(done, at, "policy.containers.min_age", rules.min_age)
    }

    fn newest_of(&self, subject: &Subject, max_dead: Limit) -> String {
        let pod = subject.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| {
            format!(" of pod {}/{}", pod.namespace, pod.name)
        });
        let what = match subject.target {
            Target::Containers => format!("record of container {}", subject.name),
            other => other.noun().to_owned(),
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

    fn containers_in_words(&self, sandbox: Option<&PodSandbox>) -> String {
        let containers_in = sandbox.map_or(&[][..], |sandbox| self.containers_in(sandbox));
        match containers_in {
            [first, rest @ ..] => {
                format!("{} is in it{}", record(first), and_more(rest.len()))
            }
            [] if self.snapshot.seen.containers != Coverage::Whole => {
                "the list of containers is incomplete: an unseen one may be in it".to_owned()
            }
            [] => "a container that is listed under its id is in it".to_owned(),
        }
    }

    fn protection(&self, pod: Option<&PodRef>, labels: Option<&Labels>) -> String {
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

fn clipped(mut text: String) -> String {
    if text.len() > DETAIL_MAX {
        let ends = text.char_indices().map(|(index, _)| index);
        let end = ends.take_while(|index| *index <= DETAIL_MAX).last();
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}
