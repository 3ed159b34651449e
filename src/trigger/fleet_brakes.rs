//! What the fleet's brakes do to the worker: they end running passes, and give slots to waiting ones. Never starts one.

use std::convert::Infallible;

use jiff::Timestamp;

use super::{Admission, QueuedPass, Worker};
use crate::fleet::Standing;
use crate::model::{AlertInfo, AlertResult};
use crate::pass::record::PassRecord;

impl Worker {
    /// Notes that an alert fires which holds automatic passes.
    pub fn alert_holds(&self, alert: &AlertInfo) -> Admission {
        if !self.inner.fleet.storm(alert) {
            let why = "alerts that hold are ignored (fleet.storm_hold)";
            return Admission::without_pass(AlertResult::NotRouted, why);
        }
        let why = "it holds automatic passes while it fires";
        Admission::without_pass(AlertResult::Holds, why)
    }

    /// Notes the end of an alert, and when that was, if it is known: withdraws its pass, and ends its hold.
    pub fn alert_ended(&self, alert: &AlertInfo, ended: Option<Timestamp>) -> Admission {
        self.inner.fleet.storm_over(alert, ended);
        self.withdraw(alert)
    }

    /// Ends a running pass that no person asked for, as soon as a brake of the fleet holds it.
    pub(super) async fn hold_back(&self, queued: &QueuedPass, record: &PassRecord) -> Infallible {
        let mut fleet = self.inner.fleet.changes();
        let (bound, budgeted) = (queued.braked(), &queued.budgeted);
        let ends = |standing: &Standing| standing.ends(&bound, budgeted).is_some();
        if let Ok(standing) = fleet.wait_for(ends).await
            && let Some(why) = standing.ends(&bound, budgeted)
        {
            tracing::warn!(pass.id = %record.id, why, "a brake of the fleet ends the pass");
            record.line(why.to_owned());
            record.hold(why.to_owned());
        }
        std::future::pending().await
    }

    /// Asks for a slot if a waiting pass could begin with it; gives it back if none could.
    pub(super) fn want_slot(&self) {
        let now = self.inner.began.elapsed();
        let is_wanted = self.state().admissions.wants_slot(now);
        self.inner.fleet.want_slot(is_wanted);
    }
}
