//! Asks the rules of a plan once more about one object, and states the facts that each looked at. For people who ask:
//! scrapes and passes never make these texts.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::super::images::unknown_users;
use super::super::logs::{ContainerLogRule, LogDirJudge, LogLinkJudge};
use super::super::sandboxes::quarantined;
use super::super::{Subject, Verdict};
use super::{Explainer, JudgedObject};
use crate::model::{Images, KeepReason, Target, labelled, short_duration};

/// The longest detail. Names from outside can be long.
const DETAIL_MAX: usize = 300;

/// A word of ours; a command reads it from the service's answer.
pub type Wording = Cow<'static, str>;

/// One rule: what it looked at, and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuleLine {
    /// Its name.
    pub rule: Wording,
    /// What it said.
    pub said: RuleResult,
    /// The reason that it gives.
    pub reason: Option<Wording>,
    /// Whether this is the verdict.
    pub decides: bool,
    /// The object's own values, and the bounds with the settings that set them; empty if it was not asked.
    pub inputs: String,
}

labelled! {
    /// What a rule said.
    #[cfg_attr(test, schemars(rename = "Said"))]
    pub enum RuleResult {
        /// Nothing: the next rule was asked.
        Passes,
        /// It keeps the object.
        Keeps,
        /// It removes the object.
        Removes,
        /// An earlier rule had decided.
        NotReached,
    }
}

/// The rules of which an explanation says more than their facts: what they wait for, what ends them. Rules of several
/// targets can share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[cfg_attr(test, derive(VariantArray))]
#[strum(serialize_all = "kebab-case")]
pub(super) enum RuleName {
    CreatedGrace,
    MinAge,
    PodDeleted,
    KeepFirst,
    MaxDead,
    Settle,
    Grace,
    /// Keeps what its removal failed of.
    Quarantine,
    /// Keeps what unknown containers and sandboxes may use.
    UsersKnown,
    /// Keeps everything of a target that is switched off.
    Enabled,
}

/// The rules whose facts are stated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stated {
    All,
    /// Only those that keep or remove the object.
    Speaking,
}

impl Explainer<'_> {
    /// Returns the facts that the deciding rule looked at.
    pub(super) fn detail(&self, judged: JudgedObject<'_>) -> String {
        let lines = self.ask(judged, Stated::Speaking);
        let decides = lines.into_iter().find(|line| line.decides);
        decides.map_or_else(String::new, |line| clipped(line.inputs))
    }

    /// Returns the rules for an object in the order in which they are asked.
    pub fn rules(&self, judged: JudgedObject<'_>) -> Vec<RuleLine> {
        self.ask(judged, Stated::All)
    }

    fn ask(
        &self,
        JudgedObject { subject, verdict }: JudgedObject<'_>,
        stated: Stated,
    ) -> Vec<RuleLine> {
        let mut lines = match subject.target {
            Target::Containers => self.of_container(subject, stated),
            Target::Sandboxes => self.of_sandbox(subject, stated),
            Target::Images => self.of_image(subject, stated),
            Target::Logs => self.of_log(subject, verdict, stated),
        };
        let mut speaking = lines.iter_mut().rev();
        if let Some(last) = speaking.find(|line| line.reason.is_some()) {
            last.decides = true;
        }
        lines
    }

    fn of_container(&self, subject: &Subject, stated: Stated) -> Vec<RuleLine> {
        let Some((place, row)) = self.facts.container(&subject.id) else {
            return Vec::new();
        };
        let mut lines = asked(
            stated,
            |rule| self.containers.ask(rule, place),
            |rule, said| self.container_words(rule, (place, row), subject, said),
        );
        self.switch(&mut lines, stated, subject.target);
        lines
    }

    fn of_sandbox(&self, subject: &Subject, stated: Stated) -> Vec<RuleLine> {
        let Some((place, row)) = self.facts.sandbox(&subject.id) else {
            return Vec::new();
        };
        let mut lines = asked(
            stated,
            |rule| self.sandboxes.ask(rule, place),
            |rule, said| self.sandbox_words(rule, (place, row), subject, said),
        );
        let keeps = quarantined(self.facts.snapshot, row);
        veto(&mut lines, stated, RuleName::Quarantine, keeps, || {
            let until = self.facts.snapshot.quarantine.get(&row.id);
            until.map_or_else(
                || "no failed removal".to_owned(),
                |until| {
                    let left = until.duration_since(self.facts.snapshot.taken_at);
                    format!("a removal failed, next try in {}", short_duration(left))
                },
            )
        });
        self.switch(&mut lines, stated, subject.target);
        lines
    }

    fn of_image(&self, subject: &Subject, stated: Stated) -> Vec<RuleLine> {
        let snapshot = self.facts.snapshot;
        let (Some(judge), Images::Known(store)) = (&self.images, &snapshot.images) else {
            return Vec::new();
        };
        let Some(image) = self.facts.image(&subject.id) else {
            return Vec::new();
        };
        let mut lines = asked(
            stated,
            |rule| judge.ask(rule, image),
            |rule, said| self.facts.image_words(rule, (image, store), subject, said),
        );
        self.switch(&mut lines, stated, subject.target);
        veto(
            &mut lines,
            stated,
            RuleName::UsersKnown,
            judge.doubt(),
            || {
                let users = unknown_users(snapshot);
                users.unwrap_or_else(|| "every container and sandbox names its images".to_owned())
            },
        );
        lines
    }

    fn of_log(&self, subject: &Subject, verdict: Verdict, stated: Stated) -> Vec<RuleLine> {
        let facts = self.facts;
        let mut lines = if let Some(dir) = facts.log_dir(subject) {
            let judge = LogDirJudge::new(&facts.knowledge, dir);
            let words = |rule, said| facts.log_dir_words(rule, subject, said);
            asked(stated, |rule| judge.ask(rule), words)
        } else if let Some(link) = facts.log_link(subject) {
            let judge = LogLinkJudge::new(facts.policy, &self.states, link);
            let words = |rule, said| facts.log_link_words(rule, link, subject, said);
            asked(stated, |rule| judge.ask(rule), words)
        } else {
            // The log of a removed container: its verdict depends on the plan's other removals.
            let said = |rule: ContainerLogRule| (rule.verdict() == verdict).then_some(verdict);
            let words = |rule, said| facts.container_log_words(rule, subject, said);
            return asked(stated, said, words);
        };
        self.switch(&mut lines, stated, subject.target);
        lines
    }

    /// Adds the rule that keeps what a switched-off target would remove.
    fn switch(&self, lines: &mut Vec<RuleLine>, stated: Stated, target: Target) {
        let off = self.facts.policy.off(target);
        veto(lines, stated, RuleName::Enabled, off, || {
            switched(&format!("policy.{target}.enabled"), off.is_none())
        });
    }
}

/// Asks rules in order up to the one that says something.
fn asked<R: VariantArray + Copy + Into<&'static str>>(
    stated: Stated,
    ask: impl Fn(R) -> Option<Verdict>,
    words: impl Fn(R, Option<Verdict>) -> String,
) -> Vec<RuleLine> {
    let mut said = None;
    let rules = R::VARIANTS.iter().map(|&rule| {
        if said.is_some() {
            return not_reached(rule.into());
        }
        said = ask(rule);
        line(stated, rule.into(), said, || words(rule, said))
    });
    rules.collect()
}

/// Adds a rule that may keep what the rules before it remove.
fn veto(
    lines: &mut Vec<RuleLine>,
    stated: Stated,
    rule: RuleName,
    keeps: Option<KeepReason>,
    words: impl FnOnce() -> String,
) {
    let mut said = lines.iter().rev().filter(|line| line.reason.is_some());
    let goes = said
        .next()
        .is_some_and(|line| line.said == RuleResult::Removes);
    lines.push(if goes {
        line(stated, rule.into(), keeps.map(Verdict::Keep), words)
    } else {
        not_reached(rule.into())
    });
}

fn line(
    stated: Stated,
    rule: &'static str,
    verdict: Option<Verdict>,
    words: impl FnOnce() -> String,
) -> RuleLine {
    let is_stated = stated == Stated::All || verdict.is_some();
    RuleLine {
        said: match verdict {
            None => RuleResult::Passes,
            Some(Verdict::Keep(_)) => RuleResult::Keeps,
            Some(Verdict::Remove(_)) => RuleResult::Removes,
        },
        reason: verdict.map(|verdict| verdict.label().1.into()),
        inputs: if is_stated { words() } else { String::new() },
        ..not_reached(rule)
    }
}

fn not_reached(rule: &'static str) -> RuleLine {
    RuleLine {
        rule: rule.into(),
        said: RuleResult::NotReached,
        reason: None,
        decides: false,
        inputs: String::new(),
    }
}

pub(super) fn switched(key: &str, holds: bool) -> String {
    format!("{key} is {}", if holds { "on" } else { "off" })
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

#[cfg(test)]
mod tests {
    use super::super::super::containers::ContainerRule;
    use super::super::super::images::ImageRule;
    use super::super::super::logs::{LogDirRule, LogLinkRule};
    use super::super::super::sandboxes::SandboxRule;
    use super::*;

    fn names<R: VariantArray + Copy + Into<&'static str>>() -> Vec<&'static str> {
        R::VARIANTS.iter().map(|rule| (*rule).into()).collect()
    }

    #[test]
    fn an_explanation_speaks_of_rules_that_are_asked() {
        let asked = [
            names::<ContainerRule>(),
            names::<SandboxRule>(),
            names::<ImageRule>(),
            names::<LogDirRule>(),
            names::<LogLinkRule>(),
        ]
        .concat();
        let vetoes = [
            RuleName::Quarantine,
            RuleName::UsersKnown,
            RuleName::Enabled,
        ];
        for rule in RuleName::VARIANTS {
            let name: &str = (*rule).into();
            assert!(asked.contains(&name) != vetoes.contains(rule), "{name}");
        }
    }
}
