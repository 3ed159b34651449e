//! Asks the rules that made the verdict once more, one by one.

use strum::VariantArray;

use super::super::containers::ContainerJudge;
use super::super::facts::PlanFacts;
use super::super::images::ImageJudge;
use super::super::logs::{ContainerLogRule, LogDirJudge, LogLinkJudge, states};
use super::super::sandboxes::{SandboxJudge, unless_quarantined};
use super::super::{Policy, Subject, Verdict};
use super::{Explainer, JudgedObject, RuleLine, RuleResult, label};
use crate::model::{Images, KeepReason, Target};

/// A rule that keeps what the others would remove.
struct Veto {
    rule: &'static str,
    inputs: String,
    keeps: Option<KeepReason>,
}

impl Veto {
    fn switch(policy: &Policy, target: Target, keeps: KeepReason) -> Self {
        let enabled = match target {
            Target::Containers => policy.containers.enabled,
            Target::Sandboxes => policy.sandboxes.enabled,
            Target::Logs => policy.logs.enabled,
            Target::Images => policy.images.enabled,
        };
        Self {
            rule: "enabled",
            inputs: format!("policy.{}.enabled {enabled}", target.label()),
            keeps: (!enabled).then_some(keeps),
        }
    }
}

impl Explainer<'_> {
    /// Returns the rules for an object in the order in which they are asked.
    pub fn rules(&self, judged: JudgedObject<'_>) -> Vec<RuleLine> {
        match judged.subject.target {
            Target::Containers => self.facts.of_container(judged.subject),
            Target::Sandboxes => self.facts.of_sandbox(judged.subject),
            Target::Images => self.facts.of_image(judged.subject),
            Target::Logs => self.facts.of_log(judged),
        }
    }
}

impl PlanFacts<'_> {
    fn of_container(&self, subject: &Subject) -> Vec<RuleLine> {
        let (judge, _) = ContainerJudge::new(self.policy, &self.knowledge, &self.newest_containers);
        let place = self.container(&subject.id);
        let place = place.map_or(usize::MAX, |(place, _)| place);
        lines(
            |rule| judge.ask(rule, place),
            |rule| self.container_inputs(rule, place, judge.counted()),
            vec![Veto::switch(
                self.policy,
                Target::Containers,
                KeepReason::WithinLimits,
            )],
        )
    }

    fn of_sandbox(&self, subject: &Subject) -> Vec<RuleLine> {
        let (judge, _) = SandboxJudge::new(
            self.policy,
            &self.knowledge,
            &self.newest_sandboxes,
            &self.gone,
        );
        let Some((place, sandbox)) = self.sandbox(&subject.id) else {
            return Vec::new();
        };
        let would_go = Verdict::Remove(crate::model::RemoveReason::PodDeleted);
        let quarantined = unless_quarantined(self.snapshot, sandbox, would_go) != would_go;
        let quarantine = Veto {
            rule: "quarantine",
            inputs: self.quarantine_words(sandbox),
            keeps: quarantined.then_some(KeepReason::Quarantined),
        };
        let switch = Veto::switch(self.policy, Target::Sandboxes, KeepReason::WithinLimits);
        lines(
            |rule| judge.ask(rule, place),
            |rule| self.sandbox_inputs(rule, place, judge.dead),
            vec![quarantine, switch],
        )
    }

    fn of_image(&self, subject: &Subject) -> Vec<RuleLine> {
        let (Images::Known(store), Some(image)) = (&self.snapshot.images, self.image(&subject.id))
        else {
            return Vec::new();
        };
        let judge = ImageJudge::new(self.snapshot, store, &self.policy.images, &self.gone);
        let would_go = Verdict::Remove(crate::model::RemoveReason::Space);
        let unknown = judge.unless_in_doubt(would_go) == Verdict::Keep(KeepReason::UnknownUser);
        let users = super::super::images::unknown_users(self.snapshot);
        let switch = Veto::switch(self.policy, Target::Images, KeepReason::BelowThreshold);
        let users = Veto {
            rule: "users-known",
            inputs: users.unwrap_or_else(|| "every container and sandbox names its images".into()),
            keeps: unknown.then_some(KeepReason::UnknownUser),
        };
        lines(
            |rule| judge.ask(rule, image),
            |rule| self.image_inputs(rule, image, judge.wanted),
            vec![switch, users],
        )
    }

    fn of_log(&self, judged: JudgedObject<'_>) -> Vec<RuleLine> {
        let (snapshot, policy) = (self.snapshot, self.policy);
        let switch = Veto::switch(policy, Target::Logs, KeepReason::NotAsked);
        if let Some(dir) = self.log_dir(judged.subject) {
            let judge = LogDirJudge::new(policy, &self.knowledge, dir);
            return lines(
                |rule| judge.ask(rule),
                |rule| self.log_dir_inputs(rule, dir, judged.subject),
                vec![switch],
            );
        }
        if let Some(link) = self.log_link(judged.subject) {
            let judge = LogLinkJudge::new(policy, &states(snapshot), link);
            return lines(
                |rule| judge.ask(rule),
                |rule| self.log_link_inputs(rule, link),
                vec![switch],
            );
        }
        // The log of a removed container: its verdict depends on the plan's other removals.
        lines(
            |rule: ContainerLogRule| (rule.verdict() == judged.verdict).then_some(judged.verdict),
            |rule| self.container_log_inputs(rule, judged.subject),
            Vec::new(),
        )
    }
}

/// Asks rules in order up to the one that says something, then those that may keep what it removes.
fn lines<R: VariantArray + Copy + Into<&'static str>>(
    said: impl Fn(R) -> Option<Verdict>,
    inputs: impl Fn(R) -> String,
    vetoes: Vec<Veto>,
) -> Vec<RuleLine> {
    let mut lines = Vec::new();
    let mut verdict = None;
    for &rule in R::VARIANTS {
        if verdict.is_some() {
            lines.push(not_reached(rule.into()));
            continue;
        }
        verdict = said(rule);
        lines.push(line(rule.into(), verdict, inputs(rule)));
    }
    for veto in vetoes {
        if !matches!(verdict, Some(Verdict::Remove(_))) {
            lines.push(not_reached(veto.rule));
            continue;
        }
        let keeps = veto.keeps.map(Verdict::Keep);
        lines.push(line(veto.rule, keeps, veto.inputs));
        verdict = keeps.or(verdict);
    }
    let mut speaking = lines.iter_mut().rev();
    if let Some(last) = speaking.find(|line| line.reason.is_some()) {
        last.decides = true;
    }
    lines
}

fn line(rule: &'static str, verdict: Option<Verdict>, inputs: String) -> RuleLine {
    RuleLine {
        rule: rule.into(),
        said: match verdict {
            None => RuleResult::Passes,
            Some(Verdict::Keep(_)) => RuleResult::Keeps,
            Some(Verdict::Remove(_)) => RuleResult::Removes,
        },
        reason: verdict.map(|verdict| label(verdict).1.into()),
        decides: false,
        inputs,
    }
}

fn not_reached(rule: &'static str) -> RuleLine {
    RuleLine {
        said: RuleResult::NotReached,
        ..line(rule, None, String::new())
    }
}
