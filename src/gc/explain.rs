//! Answers "why is this still here?" for one object or pod of a plan: which rule decided and what it looked at, who
//! holds the object, what would have to change, and since when.
//!
//! Never judges: the verdict is the plan's, and the rules are those that made it, asked once more one by one.

mod answer;
mod cap;
mod change;
mod find;
mod holders;
mod images;
mod logs;
mod pods;
mod records;
mod rules;
mod words;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::containers::ContainerJudge;
pub use super::facts::PlanFacts;
use super::facts::short;
use super::images::ImageJudge;
use super::logs::{States, states};
use super::sandboxes::SandboxJudge;
use super::{Plan, PodKnowledge, Policy, Subject, Verdict};
use crate::model::{PodSourceKind, Snapshot, Target};
pub use answer::{ExplainAnswer, ObjectAnswer, ObjectVerdict, PodAnswer};
pub use find::{NotFound, PREFIX_MIN};
use rules::RuleName;
pub use rules::{RuleLine, RuleResult, Wording};
use words::fate;
pub use words::{keep_text, kept_text, remove_text};

/// Explains the objects of one plan.
pub struct Explainer<'a> {
    facts: &'a PlanFacts<'a>,
    containers: ContainerJudge<'a>,
    sandboxes: SandboxJudge<'a>,
    images: Option<ImageJudge<'a>>,
    states: States<'a>,
    plan: &'a Plan,
    source: PodSourceKind,
}

impl std::fmt::Debug for Explainer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explainer").finish_non_exhaustive()
    }
}

/// An object of a plan and its verdict.
#[derive(Clone, Copy, Debug)]
pub struct JudgedObject<'a> {
    /// The object.
    pub subject: &'a Subject,
    /// The plan's verdict.
    pub verdict: Verdict,
}

/// Why an object is kept or removed, rule by rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The answer in one sentence.
    pub summary: String,
    /// Since when it is as it is; `None` if that is not known.
    pub since: Option<Since>,
    /// The rules in the order in which they are asked.
    pub rules: Vec<RuleLine>,
    /// The objects that must go first, and the pod that must end.
    pub held_by: Vec<ObjectHolder>,
    /// Number of further holders.
    pub more_holders: usize,
    /// What would lead to the opposite verdict; one of them is enough.
    pub would_change: Vec<VerdictChange>,
}

impl Explanation {
    /// Returns the first holders, and the number of the others.
    pub fn holders(&self, most: usize) -> (&[ObjectHolder], usize) {
        let shown = self.held_by.get(..most).unwrap_or(&self.held_by);
        let left_out = self.held_by.len() - shown.len();
        (shown, left_out + self.more_holders)
    }
}

/// A time, and what happened then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Since {
    /// The time.
    pub at: Timestamp,
    /// What happened.
    pub what: Wording,
}

/// Something that keeps an object here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Holder"))]
pub struct ObjectHolder {
    /// `container`, `sandbox` or `pod`.
    pub kind: Wording,
    /// Its id; a pod's UID.
    pub id: String,
    /// Its name with its pod's.
    pub name: String,
    /// Its own verdict; a pod has none.
    pub verdict: Option<Wording>,
    /// The reason for its verdict.
    pub reason: Option<Wording>,
    /// The facts behind its verdict, or what is known of the pod.
    pub detail: String,
    /// Its pod: where the chain ends.
    pub pod: Option<PodFacts>,
}

impl ObjectHolder {
    /// Says what becomes of it: `goes` or `stays`; `None` for a pod.
    pub fn fate(&self) -> Option<&'static str> {
        self.verdict.as_deref().map(fate)
    }

    /// Returns what is known of its pod, if that is not the holder itself.
    pub fn pod_words(&self) -> Option<&str> {
        let pod = self.pod.as_ref().filter(|_| self.kind != "pod");
        pod.map(|pod| pod.words.as_str())
    }
}

/// What is known of a pod, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PodFacts {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is believed of it.
    pub state: PodKnowledge,
    /// Which source says so.
    pub source: Wording,
    /// The source's entry: `running-or-pending` or `finished`; `None` if the source does not list it.
    pub listed: Option<Wording>,
    /// Since when it has a ready sandbox.
    pub ready_since: Option<Timestamp>,
    /// Since when the source does not list it.
    pub absent_since: Option<Timestamp>,
    /// Since when crisweep has seen it finished or absent.
    pub over_since: Option<Timestamp>,
    /// All this in one sentence.
    pub words: String,
}

/// A change that would lead to the opposite verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Change"))]
pub struct VerdictChange {
    /// What must happen.
    pub what: String,
    /// In how many seconds it happens by itself, if time alone is enough.
    pub in_seconds: Option<u64>,
}

impl<'a> Explainer<'a> {
    /// Prepares to explain `plan`, which was made for all targets.
    pub fn of(facts: &'a PlanFacts<'a>, plan: &'a Plan, source: PodSourceKind) -> Self {
        let (knowledge, gone) = (&facts.knowledge, &facts.gone);
        let store = facts.snapshot.images.known();
        Self {
            facts,
            containers: ContainerJudge::new(knowledge),
            sandboxes: SandboxJudge::new(knowledge, gone),
            images: store.map(|it| ImageJudge::new(knowledge, it, gone)),
            states: states(facts.snapshot),
            plan,
            source,
        }
    }

    /// Returns every object of the plan.
    pub fn judged(&self) -> impl Iterator<Item = JudgedObject<'a>> + use<'a> {
        let removed = self.plan.removals.iter().map(|removal| JudgedObject {
            subject: &removal.subject,
            verdict: Verdict::Remove(removal.reason),
        });
        let kept = self.plan.kept.iter().map(|kept| JudgedObject {
            subject: &kept.subject,
            verdict: Verdict::Keep(kept.reason),
        });
        removed.chain(kept)
    }

    /// Returns the object of a target with this id.
    fn object(&self, target: Target, id: &str) -> Option<JudgedObject<'a>> {
        let mut judged = self.judged();
        judged.find(|it| it.subject.target == target && it.subject.id == *id)
    }

    /// Explains the verdict on one object.
    pub fn explain(&self, judged: JudgedObject<'a>) -> Explanation {
        let rules = self.rules(judged);
        let (held_by, more_holders) = self.held_by(judged, &rules);
        let would_change = self.would_change(judged, &rules, &held_by);
        Explanation {
            summary: self.summary(judged, &held_by),
            since: self.since(judged, &rules),
            rules,
            held_by,
            more_holders,
            would_change,
        }
    }

    fn summary(&self, judged: JudgedObject<'_>, held_by: &[ObjectHolder]) -> String {
        let (title, (verdict, reason)) = (title(judged.subject), judged.verdict.label());
        let verdict = fate(verdict);
        let mut text = format!("{title} {verdict} ({reason}): {}", self.detail(judged));
        let Some(holder) = held_by.first() else {
            return text;
        };
        // A pod has no verdict.
        if let (Some(verdict), Some(reason)) = (&holder.verdict, &holder.reason) {
            let verdict = fate(verdict);
            text.push_str(&format!(", and {verdict} ({reason}): {}", holder.detail));
        }
        if let Some(pod) = &holder.pod {
            text.push_str(&format!("; {}", pod.words));
        }
        text
    }
}

impl Plan {
    /// Adds the facts behind each verdict; the plan was made from this snapshot. For people: passes and
    /// scrapes do not need them.
    pub fn add_details(&mut self, snapshot: &Snapshot, policy: &Policy) {
        let facts = PlanFacts::of(snapshot, policy, self);
        // No detail names the pod source.
        let explainer = Explainer::of(&facts, self, PodSourceKind::None);
        let details = explainer.judged().map(|it| explainer.detail(it).into());
        let details: Vec<Box<str>> = details.collect();
        let removals = self.removals.iter_mut().map(|it| &mut it.detail);
        let kept = self.kept.iter_mut().map(|it| &mut it.detail);
        for (place, detail) in removals.chain(kept).zip(details) {
            *place = detail;
        }
    }
}

/// Returns the rule that decided, if an explanation says more of it.
fn decided(rules: &[RuleLine]) -> Option<RuleName> {
    let line = rules.iter().find(|line| line.decides)?;
    line.rule.parse().ok()
}

/// Names an object as people do: its kind, short id, and what it belongs to.
fn title(subject: &Subject) -> String {
    let kind = subject.target.noun();
    let id = subject.id.strip_prefix("sha256:").unwrap_or(&subject.id);
    let short = short(id);
    let pod = subject.pod.as_ref();
    let pod = pod.map_or_else(String::new, |pod| {
        format!(" of pod {}/{}", pod.namespace, pod.name)
    });
    match subject.target {
        Target::Containers => format!(
            "{kind} {short} ({} attempt {}){pod}",
            subject.name, subject.attempt
        ),
        Target::Sandboxes => format!("{kind} {short} (attempt {}){pod}", subject.attempt),
        Target::Images => match id.split_once(',') {
            Some((_, handler)) => format!("{kind} {short} ({}, handler {handler})", subject.name),
            None => format!("{kind} {short} ({})", subject.name),
        },
        Target::Logs => format!("{kind} {}{pod}", subject.id),
    }
}
