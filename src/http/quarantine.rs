//! The quarantined sandboxes, as metrics, status and page show them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::Service;
use crate::model::{Coverage, FailureClass, PodRef, PodSandboxId, Quarantined};
use crate::snapshot::{Look, rows};

/// Sandboxes that status and page list; the plan lists all.
pub(super) const SHOWN_MAX: usize = 20;

/// A quarantined sandbox.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct QuarantinedSandbox {
    pub(super) id: String,
    /// `None` also if the runtime's list could not be read.
    pub(super) pod: Option<Arc<PodRef>>,
    #[serde(flatten)]
    pub(super) known: Quarantined,
}

impl Service {
    /// Returns how many sandboxes are quarantined, by failure class. Leaves out sandboxes that a complete list
    /// no longer has; the next pass forgets them.
    pub(super) fn quarantined_by_class(
        &self,
        look: Option<&Look>,
    ) -> BTreeMap<FailureClass, usize> {
        let listed = listed(look);
        let exists = |id: &PodSandboxId| listed.as_ref().is_none_or(|listed| listed.contains(id));
        self.worker.runner().quarantine.lock().by_class(exists)
    }

    /// Returns the quarantined sandboxes that are tried next.
    pub(super) fn quarantined_first(&self, look: Option<&Look>) -> Vec<QuarantinedSandbox> {
        let listed = listed(look);
        let quarantine = self.worker.runner().quarantine.lock();
        let all = quarantine.all().into_iter();
        let there = all.filter(|(id, _)| listed.as_ref().is_none_or(|it| it.contains(id)));
        let first = there.take(SHOWN_MAX).map(|(id, known)| {
            let mut rows = look.into_iter().flat_map(|look| rows(&look.sandboxes));
            let row = rows.find(|row| row.id == *id);
            QuarantinedSandbox {
                id: id.to_string(),
                pod: row.and_then(|row| row.pod.clone()),
                known: known.clone(),
            }
        });
        first.collect()
    }
}

/// The ids that the runtime lists; `None` if the list is not complete.
fn listed(look: Option<&Look>) -> Option<BTreeSet<&PodSandboxId>> {
    let sandboxes = look?.sandboxes.as_ref().ok()?;
    let whole = sandboxes.coverage == Coverage::Whole;
    whole.then(|| sandboxes.rows.iter().map(|row| &row.id).collect())
}
