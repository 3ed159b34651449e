//! Says what would have to change for the opposite verdict, and since when an object is as it is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::facts::{PlanFacts, span};
use super::super::supposed::at_later;
use super::super::{PodDoubt, PodKnowledge, Subject, Verdict, plan};
use super::{
    Explainer, JudgedObject, ObjectHolder, RuleLine, RuleName, Since, VerdictChange, decided,
};
use crate::model::{ContainerState, KeepReason, RemoveReason, Target, Targets};

/// Consecutive waits that an explanation adds up: one for each rule that ends by time alone.
const WAITS_MAX: usize = 5;

/// The verdict on an object once time alone has ended the rules that keep it.
struct ComingVerdict {
    after: Duration,
    /// The settings that are waited for.
    for_settings: Vec<&'static str>,
    /// The verdict then.
    then: Verdict,
}

impl<'a> Explainer<'a> {
    /// Returns what would lead to the opposite verdict; each is enough.
    pub(super) fn would_change(
        &self,
        judged: JudgedObject<'a>,
        rules: &[RuleLine],
        held_by: &[ObjectHolder],
    ) -> Vec<VerdictChange> {
        let mut changes: Vec<VerdictChange> = Vec::new();
        if let Some(wait) = self.wait(judged, rules) {
            let time = span(wait.after);
            let settings = wait.for_settings.join(", then ");
            let (verdict, reason) = wait.then.label();
            let goes = verdict == "remove";
            let verdict = if goes { "goes" } else { "still stays" };
            changes.push(VerdictChange {
                what: format!("wait {time}: {settings} is over then, and it {verdict} ({reason})"),
                in_seconds: goes.then_some(wait.after.as_secs()),
            });
        }
        let words = match judged.verdict {
            Verdict::Keep(KeepReason::Starting | KeepReason::TooYoung) if !changes.is_empty() => {
                Vec::new()
            }
            Verdict::Keep(reason) => self.to_remove(judged.subject, reason, rules, held_by),
            Verdict::Remove(reason) => to_keep(judged.subject.target, reason),
        };
        changes.extend(words.into_iter().map(|what| VerdictChange {
            what,
            in_seconds: None,
        }));
        changes
    }

    /// Adds up the rules that end by time alone, by planning on the same node later; `None` if the deciding rule does
    /// not end so.
    fn wait(&self, judged: JudgedObject<'_>, rules: &[RuleLine]) -> Option<ComingVerdict> {
        let rule = decided(rules).filter(|_| matches!(judged.verdict, Verdict::Keep(_)))?;
        let (after, setting) = self.left_of(judged.subject, rule)?;
        let mut wait = ComingVerdict {
            after,
            for_settings: vec![setting],
            then: judged.verdict,
        };
        for _ in 0..WAITS_MAX {
            let snapshot = at_later(self.facts.snapshot, wait.after);
            let plan = plan(&snapshot, self.facts.policy, &Targets::all().0);
            let facts = PlanFacts::of(&snapshot, self.facts.policy, &plan);
            let later = Explainer::of(&facts, &plan, self.source);
            let then = later.object(judged.subject.target, &judged.subject.id)?;
            wait.then = then.verdict;
            let rules = later.rules(then);
            let rule = decided(&rules).filter(|_| matches!(then.verdict, Verdict::Keep(_)));
            let next = rule.and_then(|rule| later.left_of(then.subject, rule));
            let Some((after, setting)) = next else {
                return Some(wait);
            };
            wait.after = wait.after.saturating_add(after);
            wait.for_settings.push(setting);
        }
        None
    }

    /// Returns how long a rule still keeps an object, and the setting that says so; `None` if time does not help.
    fn left_of(&self, subject: &Subject, rule: RuleName) -> Option<(Duration, &'static str)> {
        if rule == RuleName::Quarantine {
            let (_, sandbox) = self.facts.sandbox(&subject.id)?;
            let until = *self.facts.snapshot.quarantine.get(&sandbox.id)?;
            return Some((self.left(until, Duration::ZERO)?, "quarantine"));
        }
        let bound = self.facts.bound(rule, subject)?;
        Some((self.left(bound.since, bound.minimum)?, bound.setting))
    }

    /// Returns how much longer this must last to be old enough; `None` if it is.
    fn left(&self, since: Timestamp, minimum: Duration) -> Option<Duration> {
        let minimum = SignedDuration::try_from(minimum).ok()?;
        let left = minimum.checked_sub(self.facts.snapshot.age(since))?;
        let seconds = left.as_millis().max(0) + 999;
        u64::try_from(seconds / 1000)
            .ok()
            .filter(|it| *it > 0)
            .map(Duration::from_secs)
    }

    /// Says what would let a kept object go.
    fn to_remove(
        &self,
        subject: &Subject,
        reason: KeepReason,
        rules: &[RuleLine],
        held_by: &[ObjectHolder],
    ) -> Vec<String> {
        let section = subject.target.label();
        let own = |words: &str| vec![words.to_owned()];
        if decided(rules) == Some(RuleName::Enabled) {
            return vec![format!("set policy.{section}.enabled: true")];
        }
        match reason {
            KeepReason::Running => own("it must exit; then the rules for dead containers hold"),
            KeepReason::Ready => own("its pod must end: the kubelet then stops the sandbox"),
            KeepReason::Starting | KeepReason::TooYoung => self.to_end_waiting(subject, rules),
            KeepReason::StateUnknown => own(
                "the runtime must say its state, or set policy.containers.include_unknown: true \
                 (crisweep then stops it first)",
            ),
            KeepReason::Unmanaged | KeepReason::ForeignName => {
                own("the tool that made it must remove it; crisweep never does")
            }
            KeepReason::Protected => own("take its namespace or label out of policy.protect"),
            KeepReason::Newest | KeepReason::PodExists | KeepReason::PodsUnknown => {
                self.to_end_pod(subject)
            }
            KeepReason::WithinLimits if decided(rules) == Some(RuleName::KeepFirst) => vec![
                "its pod must finish or be deleted".to_owned(),
                "set policy.containers.keep_first: false".to_owned(),
            ],
            KeepReason::WithinLimits if subject.target == Target::Containers => {
                let of_name = "lower policy.containers.max_per_container, or wait for newer dead records of it";
                let cap = self.lower_cap(subject);
                std::iter::once(of_name.to_owned()).chain(cap).collect()
            }
            KeepReason::WithinLimits => self.to_end_pod(subject),
            KeepReason::Quarantined => own("repair what its removal failed of (see quarantine)"),
            KeepReason::HasContainers | KeepReason::InUse => self.to_release(held_by),
            KeepReason::UnknownUser => own("the runtime must say which images all containers use"),
            KeepReason::Pinned => {
                own("the runtime must unpin it, or really remove it when it says that it did")
            }
            KeepReason::SandboxImage => own("the runtime must make sandboxes from another image"),
            KeepReason::Keep => own("take the pattern out of policy.images.keep"),
            KeepReason::BelowThreshold => self.to_make_room(),
            KeepReason::TargetExists => own("the log that it names must go first"),
            KeepReason::NotAsked => own("the runtime must say what became of its container"),
            KeepReason::NotInPlan => own("save a new plan, or run a pass without one"),
        }
    }

    /// Says what ends the waiting of a young object where time alone does not.
    fn to_end_waiting(&self, subject: &Subject, rules: &[RuleLine]) -> Vec<String> {
        let what = match decided(rules) {
            Some(RuleName::MinAge | RuleName::CreatedGrace)
                if subject.target == Target::Containers =>
            {
                let untold = self.facts.untold(subject);
                return vec![format!("the runtime must say when {untold}")];
            }
            Some(RuleName::MinAge) => "later looks must find it here, and not in use",
            Some(RuleName::Grace) => "a further look must see it as an orphan",
            Some(RuleName::Settle) => "a further answer of the pod source must lack its pod",
            _ if self.facts.outage().is_some() => {
                "the runtime's lists must fit the kubelet's limit again"
            }
            _ => "further looks must see its pod finished or absent for pods.quiet",
        };
        vec![what.to_owned()]
    }

    /// Says how its pod must change.
    fn to_end_pod(&self, subject: &Subject) -> Vec<String> {
        let Some(pod) = &subject.pod else {
            return vec!["its pod must become known".to_owned()];
        };
        let name = format!("pod {}/{}", pod.namespace, pod.name);
        let pods = &self.facts.policy.pods;
        let (settle, quiet) = (span(pods.settle), span(pods.quiet));
        let deleted = format!("deleted for pods.settle ({settle}) and pods.quiet ({quiet})");
        match subject.pod_state {
            PodKnowledge::Active | PodKnowledge::Absent | PodKnowledge::Deleted => {
                let newer = match subject.target {
                    Target::Containers => {
                        "; or a newer record of the same container must supersede it"
                    }
                    Target::Sandboxes => "; or a newer sandbox of the pod must supersede it",
                    Target::Logs | Target::Images => "",
                };
                vec![format!("{name} must be {deleted}{newer}")]
            }
            PodKnowledge::Terminated | PodKnowledge::Assumed => {
                let cap = self.lower_cap(subject);
                std::iter::once(format!("{name} must be {deleted}"))
                    .chain(cap)
                    .collect()
            }
            PodKnowledge::Unknown => {
                let doubt = self.facts.knowledge.doubt(&pod.uid, subject.created_at);
                let doubt = doubt.unwrap_or(PodDoubt::Source);
                let knowledge = &self.facts.knowledge;
                let number = knowledge.index.pod(&pod.uid);
                let assumable = subject.target != Target::Logs && knowledge.is_assumable(number);
                vec![doubt.remedy(knowledge, assumable)]
            }
        }
    }

    /// Says that the holders must go first, why the first one stays, and what would let it go.
    fn to_release(&self, held_by: &[ObjectHolder]) -> Vec<String> {
        let Some(first) = held_by.first() else {
            let what = "the runtime must list all containers, and none may need it";
            return vec![what.to_owned()];
        };
        let others = match held_by.len() {
            1 => String::new(),
            count => format!(", and the other {}", count - 1),
        };
        let held = self.object(Target::Containers, &first.id);
        let (Some(held), Some("keep"), Some(reason)) =
            (held, first.verdict.as_deref(), &first.reason)
        else {
            return vec![format!("{} must go first{others}", first.name)];
        };
        let root = self.would_change(held, &self.rules(held), &[]);
        let root = root.first().map_or("", |change| change.what.as_str());
        vec![format!(
            "{} (kept: {reason}) must go first{others}; for that: {root}",
            first.name
        )]
    }

    fn to_make_room(&self) -> Vec<String> {
        let rules = &self.facts.policy.images;
        let high = rules.high_threshold_percent;
        let must_be = match self.facts.snapshot.images.filesystem() {
            Some(_) => "the image file system must be",
            None => "crisweep must be able to measure the image file system, which must be",
        };
        let mut changes = vec![if rules.makes_room() {
            format!(
                "{must_be} {high} % full (policy.images.high_threshold_percent), and this image among the least \
                 recently used"
            )
        } else {
            format!(
                "set policy.images.high_threshold_percent below {high}: at {high} no room is made"
            )
        }];
        match rules.max_age {
            None => {
                changes.push("set policy.images.max_age: unused images then go by age".to_owned());
            }
            Some(age) => changes.push(format!(
                "it must be unused for policy.images.max_age ({})",
                span(age)
            )),
        }
        if !rules.enabled {
            for what in &mut changes {
                what.push_str(", and set policy.images.enabled: true");
            }
        }
        changes
    }

    /// Returns since when an object is as it is, and what happened then; `None` also where the runtime does not say it.
    pub(super) fn since(&self, judged: JudgedObject<'_>, rules: &[RuleLine]) -> Option<Since> {
        let subject = judged.subject;
        let by_absence = matches!(
            (judged.verdict, decided(rules)),
            (Verdict::Remove(RemoveReason::PodDeleted), _) | (_, Some(RuleName::Settle))
        );
        let history = self
            .facts
            .history(subject.pod.as_deref())
            .filter(|_| by_absence);
        let (at, what) = match history.and_then(|history| history.absent_since) {
            Some(at) => (at, "the pod source stopped listing its pod"),
            None => self.began(subject)?,
        };
        let what = what.into();
        (at < Timestamp::MAX).then_some(Since { at, what })
    }

    /// Returns the same from the object alone, whatever its pod did.
    fn began(&self, subject: &Subject) -> Option<(Timestamp, &'static str)> {
        let created = subject.created_at;
        Some(match subject.target {
            Target::Containers => {
                let (_, container) = self.facts.container(&subject.id)?;
                match container.finished_at {
                    _ if container.state != ContainerState::Exited => return None,
                    Some(at) if container.exit_undated => (at, "first seen exited"),
                    Some(at) => (at, "exited"),
                    None => (created, "created"),
                }
            }
            Target::Sandboxes => (created, "created"),
            Target::Images => match subject.last_used_at() {
                Some(at) => (at, "last used"),
                None => (created, "first seen"),
            },
            Target::Logs => match (self.facts.log_dir(subject), self.facts.log_link(subject)) {
                (Some(dir), _) => match dir.orphan_since {
                    Some(at) => (at, "first seen as an orphan"),
                    None => (created, "last changed"),
                },
                (None, Some(_)) => (created, "made"),
                (None, None) => (created, "its container was created"),
            },
        })
    }
}

/// Says what would keep an object that is due.
fn to_keep(target: Target, reason: RemoveReason) -> Vec<String> {
    let what = match reason {
        RemoveReason::PodDeleted => "the pod source must list its pod again",
        RemoveReason::Superseded if target == Target::Containers => {
            "raise policy.containers.max_per_container"
        }
        RemoveReason::Superseded => "it must be the newest of its pod",
        RemoveReason::OverCap if target == Target::Sandboxes => "raise policy.sandboxes.max_dead",
        RemoveReason::OverCap => "raise policy.containers.max_dead",
        RemoveReason::DeadLink => "the log that it names must exist",
        RemoveReason::ContainerRemoved => "its container must stay",
        RemoveReason::Age => "a container must use it, or raise policy.images.max_age",
        RemoveReason::Space => {
            "a container must use it, or the image file system must be less full"
        }
    };
    let protect = match target {
        Target::Containers | Target::Sandboxes | Target::Logs => "name it in policy.protect",
        Target::Images => "name it in policy.images.keep",
    };
    vec![what.to_owned(), protect.to_owned()]
}

#[cfg(test)]
mod tests;
