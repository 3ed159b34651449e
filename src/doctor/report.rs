//! The report as values.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::kubelet;
use crate::model::labelled;

/// What `GET /api/v1/doctor` answers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// When the node was looked at.
    pub taken_at: Timestamp,
    /// The node.
    pub node: String,
    /// The result in one sentence.
    pub summary: String,
    /// What was found: problems first, then by cost.
    pub findings: Vec<Finding>,
    /// Who leaves the litter.
    pub top: Top,
    /// What the kubelet is set to.
    pub kubelet: kubelet::KubeletSettings,
}

labelled! {
    /// How much a finding matters. The worst is first.
    pub enum Severity {
        /// It makes litter, or keeps it from going, now.
        Problem,
        /// A change would help.
        Advice,
        /// Good to know.
        Info,
    }
}

impl Severity {
    /// Advice where something is much, else good to know.
    pub(super) fn of_much(is_much: bool) -> Self {
        if is_much { Self::Advice } else { Self::Info }
    }
}

/// One cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Its stable name.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub summary: String,
    /// The one change that would stop it.
    pub change: String,
    /// The figures behind it.
    pub details: Value,
    /// Bytes of the lists that it costs; orders findings of one severity.
    #[serde(skip)]
    pub cost: u64,
}

impl Finding {
    /// A finding that costs nothing.
    pub(super) fn new(
        id: &'static str,
        severity: Severity,
        summary: impl Into<String>,
        change: impl Into<String>,
        details: Value,
    ) -> Self {
        Self {
            id,
            severity,
            summary: summary.into(),
            change: change.into(),
            details,
            cost: 0,
        }
    }

    /// The same at this cost.
    pub(super) fn costing(self, cost: u64) -> Self {
        Self { cost, ..self }
    }
}

/// What a group leaves on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counts {
    /// Exited containers; `null`: they could not be listed.
    pub dead_containers: Option<u64>,
    /// Sandboxes that are not ready; `null`: they could not be listed.
    pub not_ready_sandboxes: Option<u64>,
    /// What they weigh in the runtime's lists, at the lists' mean row.
    pub list_bytes: u64,
    /// How many of both came in the last hour, also of those that are removed since. A list that could not be read adds
    /// only the removed ones.
    pub came_1h: u64,
    /// The same of the last 24 hours.
    pub came_24h: u64,
}

impl Counts {
    /// Returns how many objects lie on the node.
    pub fn objects(&self) -> u64 {
        self.dead_containers.unwrap_or(0) + self.not_ready_sandboxes.unwrap_or(0)
    }

    /// Adds another group's.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
        self.dead_containers = sum(self.dead_containers, other.dead_containers);
        self.not_ready_sandboxes = sum(self.not_ready_sandboxes, other.not_ready_sandboxes);
        self.list_bytes += other.list_bytes;
        self.came_1h += other.came_1h;
        self.came_24h += other.came_24h;
    }
}

/// The namespaces and owners that leave most.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Top {
    /// Namespaces.
    pub namespaces: Vec<TopRow>,
    /// The namespaces that are not shown.
    pub other_namespaces: Others,
    /// What controls the pods.
    pub owners: Vec<TopRow>,
    /// The owners that are not shown.
    pub other_owners: Others,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopRow {
    /// Its namespace; empty: not the kubelet's.
    pub namespace: String,
    /// `CronJob`, `Job`, `Deployment`, ..., `Node` (a static pod), `none`, or `unknown`; absent of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The owner's name; absent of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The owner is one further up than the pod's controller, by its name (`Deployment`, `CronJob`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub derived: bool,
    /// Its part of all dead containers and not-ready sandboxes, 0 to 1.
    pub share: f64,
    /// What it leaves.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The groups that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Others {
    /// How many.
    pub groups: u64,
    /// What they leave together.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Says the result in one sentence.
pub(super) fn summary(findings: &[Finding], total: &Counts) -> String {
    let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
    let (problems, advice) = (count(Severity::Problem), count(Severity::Advice));
    let litter = match (total.dead_containers, total.not_ready_sandboxes) {
        (Some(containers), Some(sandboxes)) => format!(
            "{} and {}, {} came in the last 24 h",
            many(containers, "dead container"),
            many(sandboxes, "not-ready sandbox"),
            total.came_24h
        ),
        (Some(containers), None) => format!(
            "{}; the sandboxes could not be listed",
            many(containers, "dead container")
        ),
        (None, Some(sandboxes)) => format!(
            "{}; the containers could not be listed",
            many(sandboxes, "not-ready sandbox")
        ),
        (None, None) => "containers and sandboxes could not be listed".to_owned(),
    };
    if problems + advice == 0 {
        return format!("Nothing here needs a change: {litter}.");
    }
    let found = [(problems, "problem"), (advice, "piece of advice")];
    let found = found.into_iter().filter(|(count, _)| *count > 0);
    let found: Vec<String> = found
        .map(|(count, what)| many(count as u64, what))
        .collect();
    format!("{}: {litter}.", found.join(", "))
}

/// Writes a number with its noun.
pub(super) fn many(count: u64, what: &str) -> String {
    match (count, what) {
        (1, _) => format!("1 {what}"),
        (_, "piece of advice") => format!("{count} pieces of advice"),
        (_, what) if what.ends_with('x') => format!("{count} {what}es"),
        _ => format!("{count} {what}s"),
    }
}

/// Returns a share in per cent, rounded down; a list may be above its limit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never below 0, and small"
)]
pub(super) fn percent(share: f64) -> u64 {
    (share.max(0.0) * 100.0) as u64
}

/// Returns `part` of `whole`; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}
