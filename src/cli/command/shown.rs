//! A plan as a person sees it, made by this command from its own look, or by the service.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::gc::{Plan, Subject, Summary};
use crate::model::{Quarantined, Target};

#[derive(Deserialize)]
pub(super) struct ShownPlan {
    /// When the node was looked at.
    pub(super) taken_at: Timestamp,
    /// In their order.
    pub(super) removals: Vec<ShownRow>,
    pub(super) kept: Vec<ShownRow>,
    pub(super) summary: BTreeMap<Target, Summary>,
    /// What the look does not have, which may be why objects stay.
    #[serde(default)]
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
    pub(super) fn of(plan: &Plan) -> serde_json::Result<Self> {
        serde_json::from_slice(&serde_json::to_vec(plan)?)
    }
}
