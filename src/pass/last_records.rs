//! Tells finished pods that their last containers were removed.

use std::collections::BTreeSet;

use super::Run;
use crate::model::{Coverage, Pods};
use crate::snapshot::Look;

impl Run<'_> {
    /// Tells each finished pod of which the look after the pass shows no container any more.
    pub(super) fn tell_last_records(&self, look: &Look) {
        let events = &self.runner.events;
        let (Pods::Known(list), Ok(containers)) = (&look.pods, &look.containers) else {
            return;
        };
        let is_whole = containers.coverage == Coverage::Whole && containers.malformed == 0;
        if !events.tells_pods() || !is_whole {
            return;
        }
        let rows = containers.rows.iter();
        let still: BTreeSet<_> = rows.flat_map(|row| &row.pod).map(|pod| &pod.uid).collect();
        for record in self.gone.last_records() {
            let pod = list.pods.get(&record.pod.uid);
            if pod.is_some_and(|pod| pod.finished) && !still.contains(&record.pod.uid) {
                events.records_removed(&record, &self.config.node.name, look.taken_at);
            }
        }
    }
}
