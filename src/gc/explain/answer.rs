//! The answer for one id: an object or a pod, as the API sends it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::{PodKnowledge, Subject, Verdict};
use super::find::{ExplainTarget, NotFound};
use super::words::{fate, kept_text, remove_text};
use super::{Explainer, Explanation, JudgedObject, PodFacts, Wording, title};
use crate::model::{PodRef, Quarantined, Target};

/// Objects of a pod that an answer lists.
const OBJECTS_MAX: usize = 500;

/// What an answer is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Explanations"))]
#[serde(untagged)]
pub enum ExplainAnswer {
    /// One object.
    Object(Box<ObjectAnswer>),
    /// A pod with its objects.
    Pod(Box<PodAnswer>),
}

/// Why one object is kept or removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ObjectAnswer {
    /// The verdict.
    #[serde(flatten)]
    pub judged: ObjectVerdict,
    /// What leads to it, and what would change it.
    #[serde(flatten)]
    pub why: Explanation,
    /// When the node was looked at.
    pub taken_at: Timestamp,
}

/// The verdict on one object.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ObjectVerdict {
    kind: Wording,
    /// Its name, with its pod's.
    pub title: String,
    verdict: Wording,
    /// The reason.
    pub reason: Wording,
    /// What the reason means.
    pub explanation: Wording,
    /// The facts behind it.
    pub detail: String,
    /// What is believed of its pod.
    pub pod_explanation: Option<String>,
    /// The object as a plan has it.
    pub object: Subject,
    /// How its removal failed.
    pub quarantine: Option<Quarantined>,
    image: Option<ImageFields>,
}

impl ObjectVerdict {
    /// Says what becomes of it: `goes` or `stays`.
    pub fn fate(&self) -> &'static str {
        fate(&self.verdict)
    }
}

/// The fields of an image that a plan omits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ImageFields {
    repo_tags: Vec<String>,
    repo_digests: Vec<String>,
    pinned: bool,
    runtime_handler: String,
}

/// What is known of a pod, and the verdict on each of its objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PodAnswer {
    kind: Wording,
    uid: String,
    /// The answer in one sentence.
    pub summary: String,
    pod_state: PodKnowledge,
    /// What is believed of it.
    explanation: String,
    /// What is known of it.
    pub pod: PodFacts,
    /// Number of objects, of which `objects` may list only the first.
    pub objects_total: usize,
    /// Its objects; those that stay come first.
    pub objects: Vec<ObjectVerdict>,
    taken_at: Timestamp,
}

impl<'a> Explainer<'a> {
    /// Answers for the one object or pod that `id` names (`find`). `quarantine` knows the failures of sandboxes.
    ///
    /// # Errors
    /// If nothing has this id or name, or several have.
    pub fn answer(
        &self,
        id: &str,
        quarantine: impl Fn(&str) -> Option<Quarantined>,
    ) -> Result<ExplainAnswer, NotFound> {
        Ok(match self.find(id)? {
            ExplainTarget::Object(judged) => ExplainAnswer::Object(Box::new(ObjectAnswer {
                judged: self.verdict(judged, &quarantine),
                why: self.explain(judged),
                taken_at: self.facts.snapshot.taken_at,
            })),
            ExplainTarget::Pod(pod, first) => {
                ExplainAnswer::Pod(Box::new(self.pod(pod, first, &quarantine)))
            }
        })
    }

    fn verdict(
        &self,
        judged: JudgedObject<'a>,
        quarantine: &impl Fn(&str) -> Option<Quarantined>,
    ) -> ObjectVerdict {
        let subject = judged.subject;
        let (verdict, reason) = judged.verdict.label();
        let explanation = match judged.verdict {
            Verdict::Keep(reason) => kept_text(subject, reason),
            Verdict::Remove(reason) => remove_text(reason),
        };
        let has_pod = match subject.target {
            Target::Containers | Target::Sandboxes => true,
            // A link does not name its pod, and an image belongs to no pod.
            Target::Logs | Target::Images => subject.pod.is_some(),
        };
        let image = match subject.target {
            Target::Images => self.facts.image(&subject.id),
            Target::Containers | Target::Sandboxes | Target::Logs => None,
        };
        ObjectVerdict {
            kind: subject.target.noun().into(),
            title: title(subject),
            verdict: verdict.into(),
            reason: reason.into(),
            explanation: explanation.into(),
            detail: self.detail(judged),
            pod_explanation: has_pod.then(|| self.pod_text(subject)),
            object: subject.clone(),
            quarantine: quarantine(&subject.id),
            image: image.map(|image| ImageFields {
                repo_tags: image.repo_tags.clone(),
                repo_digests: image.repo_digests.clone(),
                pinned: image.pinned,
                runtime_handler: image.handler.clone(),
            }),
        }
    }

    /// `first` is one of the pod's objects.
    fn pod(
        &self,
        pod: &PodRef,
        first: &Subject,
        quarantine: &impl Fn(&str) -> Option<Quarantined>,
    ) -> PodAnswer {
        let is_of_pod = |judged: &JudgedObject<'_>| {
            let its = judged.subject.pod.as_ref();
            its.is_some_and(|its| its.uid == pod.uid)
        };
        let mut all: Vec<JudgedObject<'a>> = self.judged().filter(is_of_pod).collect();
        // People ask about what stays.
        all.sort_by_key(|judged| matches!(judged.verdict, Verdict::Remove(_)));
        let facts = self.pod_facts(pod, first);
        let objects = all.iter().take(OBJECTS_MAX);
        PodAnswer {
            kind: "pod".into(),
            uid: pod.uid.to_string(),
            summary: pod_summary(&facts, &all),
            pod_state: first.pod_state,
            explanation: facts.words.clone(),
            pod: facts,
            objects_total: all.len(),
            objects: objects
                .map(|judged| self.verdict(*judged, quarantine))
                .collect(),
            taken_at: self.facts.snapshot.taken_at,
        }
    }
}

fn pod_summary(facts: &PodFacts, all: &[JudgedObject<'_>]) -> String {
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for judged in all {
        *reasons.entry(judged.verdict.label()).or_default() += 1;
    }
    let of = |wanted: &str| {
        let counts = reasons
            .iter()
            .filter(|((verdict, _), _)| *verdict == wanted);
        let counts = counts.map(|((_, reason), count)| format!("{reason} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    };
    let (goes, stays) = (of("remove"), of("keep"));
    let or_nothing = |text: String| {
        if text.is_empty() {
            "nothing".to_owned()
        } else {
            text
        }
    };
    format!(
        "{}; goes: {}; stays: {}",
        facts.words,
        or_nothing(goes),
        or_nothing(stays)
    )
}
