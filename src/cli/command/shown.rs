//! A plan as a person sees it, made by this command from its own look, or by the service.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::gc::{Plan, Subject, Summary};
use crate::model::{Images, Pods, Quarantined, Snapshot, Target};

#[derive(Deserialize)]
pub(super) struct ShownPlan {
    /// When the node was looked at.
    pub(super) taken_at: Timestamp,
    #[serde(default)]
    pods_from_cache: bool,
    /// In their order.
    pub(super) removals: Vec<ShownRow>,
    pub(super) kept: Vec<ShownRow>,
    pub(super) summary: BTreeMap<Target, Summary>,
    /// What the look does not have, which may be why objects stay.
    #[serde(skip)]
    pub(super) doubts: Vec<String>,
}

/// An object with its verdict's reason.
#[derive(Deserialize)]
pub(super) struct ShownRow {
    #[serde(flatten)]
    pub(super) subject: Subject,
    pub(super) reason: String,
    #[serde(default)]
    pub(super) detail: String,
    /// How a sandbox failed.
    pub(super) quarantine: Option<Box<Quarantined>>,
}

impl ShownPlan {
    /// Takes over a plan that this command made, in the form in which the service answers.
    pub(super) fn of(plan: &Plan, snapshot: &Snapshot) -> serde_json::Result<Self> {
        let mut shown: Self = serde_json::from_slice(&serde_json::to_vec(plan)?)?;
        let mut doubts = shown.cache_doubt();
        if !snapshot.seen.is_all() {
            doubts.push(INCOMPLETE.to_owned());
        }
        if let Pods::Unknown(why) = &snapshot.pods {
            doubts.push(pods_unknown(&why.to_string()));
        }
        if plan.summary.contains_key(&Target::Logs) {
            let why = snapshot.logs.unread.iter().chain(&snapshot.logs.unwritable);
            doubts.extend(why.map(|why| format!("logs cannot be reached: {why}")));
        }
        if let (true, Images::Unknown(why)) =
            (plan.summary.contains_key(&Target::Images), &snapshot.images)
        {
            doubts.push(format!("the images are unknown: {why}"));
        }
        shown.doubts = doubts;
        Ok(shown)
    }

    /// Takes over a plan of the service; `status` is its `GET /api/v1/status`.
    pub(super) fn with_status(mut self, status: &Value) -> Self {
        let mut doubts = self.cache_doubt();
        let at = |path: &str| status.pointer(path).unwrap_or(&Value::Null);
        let complete = ["/lists/containers/complete", "/lists/sandboxes/complete"].map(at);
        if complete.contains(&&Value::Bool(false)) {
            doubts.push(INCOMPLETE.to_owned());
        }
        if let (Some(why), true) = (
            at("/pods/why").as_str(),
            *at("/pods/known") == Value::Bool(false),
        ) {
            doubts.push(pods_unknown(why));
        }
        let errors = at("/look/errors").as_object();
        for (part, error) in errors.into_iter().flatten() {
            let error = error.as_str().unwrap_or_default();
            let is_asked =
                |target: Target| part == target.label() && self.summary.contains_key(&target);
            if is_asked(Target::Logs) {
                doubts.push(format!("logs cannot be reached: {error}"));
            } else if is_asked(Target::Images) {
                doubts.push(format!("the images are unknown: {error}"));
            }
        }
        self.doubts = doubts;
        self
    }

    fn cache_doubt(&self) -> Vec<String> {
        let words =
            "the pods are those of the API server's watch cache; a pass asks the API server itself";
        let doubt = self.pods_from_cache.then(|| words.to_owned());
        doubt.into_iter().collect()
    }
}

/// Warns that a look lacks something.
pub(super) const INCOMPLETE: &str =
    "the runtime's lists could not be read completely; only what is certain is removed";

fn pods_unknown(why: &str) -> String {
    format!("the pods are unknown: {why}; only surplus is removed")
}
