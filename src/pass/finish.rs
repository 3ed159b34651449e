//! The end of a pass: what is in flight is waited for, and the node is looked at once more.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::end::End;
use super::tally::Tally;
use super::{Ran, Run};
use crate::snapshot::Look;

/// Removals that were given up at the end of a pass and are named in its report and in the log.
const NAMED_MAX: usize = 10;

impl Run<'_> {
    /// Waits for what is in flight, looks once more, and says how it ended.
    pub(super) async fn finish(mut self, end: Option<End>, dry_run: bool) -> Ran {
        let given_up = self.drain().await;
        if let Some(look) = self.runner.observer.latest() {
            drop(self.logs_follow(&look).await);
        }
        // What was given up was planned: a stop that came so late still decides how the pass ended.
        let late = self.stops.reached().filter(|_| given_up).map(End::from);
        let end = end.or(late);
        if let Some(end) = &end {
            self.record.error(end.text());
        }
        let mut due_again = BTreeMap::new();
        if dry_run {
            self.record
                .update(|pass| pass.after.clone_from(&pass.before));
        } else if !matches!(end, Some(End::Shutdown | End::NoLook(_))) {
            let look = self.last_look().await.filter(|_| end.is_none());
            due_again = look.map(|look| self.due_again(&look)).unwrap_or_default();
        }
        self.tell_quarantined();
        let outcome = self.outcome(end.as_ref(), dry_run);
        Ran { outcome, due_again }
    }

    /// Waits for what is in flight; says whether some of it was given up.
    async fn drain(&mut self) -> bool {
        let mut tally = Tally::default();
        let (runner, record, back_off) = (self.runner, self.record, self.config.quarantine);
        let until = Instant::now() + self.config.runtime.removal_timeout;
        let on_done = |done| tally.note(runner, record, back_off, done);
        let left = self.executor.drain(until, on_done).await;
        self.take(&mut tally);
        if left.is_empty() {
            return false;
        }
        let named = left.iter().take(NAMED_MAX);
        let named: Vec<String> = named.map(|(target, id)| format!("{target} {id}")).collect();
        let more = if left.len() > NAMED_MAX { ", ..." } else { "" };
        let (count, named) = (left.len(), named.join(", "));
        tracing::warn!(
            pass.id = %record.id(),
            count,
            "removals were still under way when the pass ended: {named}{more}"
        );
        record.error(format!(
            "{count} removals were still under way when the pass ended: {named}{more}"
        ));
        true
    }

    /// Looks at what the pass left, unless the pass has to end first.
    async fn last_look(&self) -> Option<Arc<Look>> {
        let look = tokio::select! {
            look = self.runner.observer.fresh(self.pods) => look.map_err(|error| error.to_string()),
            () = self.stops.last_look_over() => Err("no time was left for it".to_owned()),
        };
        match &look {
            Ok(look) => self.record.update(|pass| pass.after = Some(look.figures())),
            Err(why) => self
                .record
                .error(format!("no look at the node after the pass: {why}")),
        }
        look.ok()
    }
}
