//! Why litter piles up on this node, and which one change would stop each cause. Changes nothing.
//!
//! [`diagnose`] is a function from facts to a report: no IO, no clock. [`Doctor`] gathers the facts, each within a bound;
//! what cannot be read is missing, and the report says so.

mod crashes;
mod facts;
mod finished;
mod gather;
pub mod kubelet;
mod kubelet_findings;
mod limits;
mod litter;
mod node;
mod owners;
mod report;
#[cfg(test)]
mod tests;

pub use facts::{ContainerExit, DoctorFacts, Latency, ListsRead};
pub use gather::Doctor;
pub use report::{Counts, Finding, Others, Report, Severity, Top, TopRow};

use owners::Owners;

/// Rows of each list in a report.
pub const ROWS_MAX: usize = 10;
/// The finding that a part of the node could not be read.
pub const NODE_UNREAD: &str = "node-unread";
/// Findings of one kind.
const FINDINGS_MAX: usize = 10;

/// Finds the causes of litter, the worst first.
pub fn diagnose(facts: &DoctorFacts) -> Report {
    let owners = Owners::of(facts);
    let litter = litter::Litter::of(facts, &owners);
    let mut findings = Vec::new();
    findings.extend(litter.finding(facts));
    findings.extend(crashes::findings(facts, &owners));
    findings.extend(finished::finding(facts, &owners));
    findings.extend(limits::findings(facts, &litter));
    findings.extend(kubelet_findings::findings(facts));
    findings.extend(node::findings(facts));
    findings.sort_by(|a, b| {
        let key = |it: &Finding| (it.severity, std::cmp::Reverse(it.cost), it.id);
        key(a).cmp(&key(b))
    });
    Report {
        taken_at: facts.taken_at,
        node: facts.config.node.name.clone(),
        summary: report::summary(&findings, &litter.total),
        findings,
        top: litter.top(),
        kubelet: facts.kubelet.clone(),
    }
}
