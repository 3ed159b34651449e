//! What a pass would do now, and what it would not remove.

use std::collections::BTreeMap;

use super::page::{MetricsPage, plain, sample};
use crate::gc::Summary;
use crate::model::{FailureClass, RemoveReason, Target};
use crate::snapshot::Threshold;

/// Adds a plan's counts: removals also with 0, for the alerts; kept objects only if there are any.
pub(super) fn encode(plan: &BTreeMap<Target, Summary>, page: &mut MetricsPage) {
    let (mut removable, mut kept) = (Vec::new(), Vec::new());
    for (&target, summary) in plan {
        for reason in RemoveReason::all(target) {
            let labels = [("target", target.label()), ("reason", reason.label())];
            let count = summary.remove.get(reason).copied().unwrap_or(0);
            removable.push(sample(labels, count));
        }
        for (reason, &count) in &summary.keep {
            let labels = [("target", target.label()), ("reason", reason.label())];
            kept.push(sample(labels, count));
        }
    }
    let help = "Objects that a pass would remove now, by reason";
    page.gauge(plain("crisweep_removable"), help, removable);
    let help = "Objects that a pass would keep now, by reason";
    page.gauge(plain("crisweep_kept"), help, kept);
}

/// Adds the thresholds that are set and whose figure is known: 1 if reached.
pub(super) fn encode_thresholds(crossed: &BTreeMap<Threshold, bool>, page: &mut MetricsPage) {
    let samples = crossed.iter();
    let samples = samples.map(|(it, crossed)| sample([("threshold", it.label())], *crossed));
    let help = "Whether a threshold of the configuration (thresholds) is reached";
    page.gauge(plain("crisweep_threshold_crossed"), help, samples);
}

/// Adds the quarantined sandboxes, also with 0.
pub(super) fn encode_quarantine(
    quarantined: &BTreeMap<FailureClass, usize>,
    page: &mut MetricsPage,
) {
    let samples = FailureClass::ALL.map(|class| {
        let count = quarantined.get(&class).copied().unwrap_or(0);
        sample([("class", class.label())], count)
    });
    let help = "Sandboxes whose removal failed and that wait for their next try";
    page.gauge(plain("crisweep_quarantined_sandboxes"), help, samples);
}
