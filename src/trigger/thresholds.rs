//! Starts passes when a local threshold (`thresholds`) is crossed, for nodes that Prometheus and Alertmanager
//! cannot reach. The pass measures for itself.

use std::collections::BTreeSet;

use tokio_util::sync::CancellationToken;

use crate::config::{Mode, Thresholds};
use crate::gc::knowledge::Knowledge;
use crate::gc::{self, PassOptions};
use crate::model::{AlertResult, Cause, Target};
use crate::pass::at_risk;
use crate::snapshot::{Look, Threshold};
use crate::trigger::{Trigger, Worker};

/// The threshold watcher.
#[derive(Clone, Debug)]
pub struct ThresholdWatcher {
    /// The thresholds, and how often to check them.
    pub thresholds: Thresholds,
    /// Admits passes.
    pub worker: Worker,
}

impl ThresholdWatcher {
    /// Checks every `interval` until the service shuts down.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut shown = BTreeSet::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.thresholds.interval) => {}
                () = shutdown.cancelled() => return,
            }
            let look = tokio::select! {
                look = self.worker.runner().observer.shared(self.thresholds.interval) => look,
                () = shutdown.cancelled() => return,
            };
            match look {
                Ok(look) => self.compare(&look, &mut shown),
                Err(error) => {
                    tracing::error!(%error, "the thresholds cannot be checked: no look at the node");
                }
            }
        }
    }

    /// Asks for a pass over the targets that help, if the plan removes something: otherwise a threshold crossed
    /// by objects that must stay would ask for ever. So would one in `mode: observe`, where a pass only shows what it
    /// would remove: there it asks once for each crossing; `shown` are the targets of such passes.
    fn compare(&self, look: &Look, shown: &mut BTreeSet<Target>) {
        let crossed = self.thresholds.crossed(look).into_iter();
        let crossed: Vec<Threshold> = crossed
            .filter_map(|(mark, is)| is.then_some(mark))
            .collect();
        let wanted: BTreeSet<Target> = crossed.iter().copied().flat_map(targets).collect();
        let marks: Vec<&str> = crossed.iter().map(|mark| mark.label()).collect();
        let mut targets = match self.removable(look, &wanted) {
            Ok(targets) => targets,
            Err(why) => {
                // A pass waits longer than a shared look, and reports the problem.
                tracing::debug!(%why, "the thresholds' look is not enough to plan on");
                wanted
            }
        };
        let observes = self.worker.config().mode == Mode::Observe;
        shown.retain(|target| observes && targets.contains(target));
        targets.retain(|target| !shown.contains(target));
        if targets.is_empty() {
            return;
        }
        let trigger = Trigger {
            info: Cause::Threshold.into(),
            targets: targets.clone(),
            options: PassOptions::default(),
        };
        for admission in self.worker.submit(vec![trigger]) {
            let (pass, why) = (admission.pass.as_deref(), admission.why.as_deref());
            if pass.is_some() && observes {
                shown.extend(&targets);
            }
            if admission.result == AlertResult::Accepted {
                tracing::info!(pass.id = pass, thresholds = ?marks, "thresholds crossed");
            } else if admission.result == AlertResult::Braked {
                tracing::debug!(thresholds = ?marks, brake = why, "thresholds crossed, but a brake holds");
            }
        }
    }

    /// Returns the targets of which a pass would remove something.
    fn removable(
        &self,
        look: &Look,
        wanted: &BTreeSet<Target>,
    ) -> Result<BTreeSet<Target>, String> {
        if wanted.is_empty() {
            return Ok(BTreeSet::new());
        }
        let snapshot = self.worker.runner().snapshot(look);
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        let policy = &self.worker.config().policy;
        let counts = gc::plan::summarize(&Knowledge::of(&snapshot, policy), wanted);
        let some = counts
            .into_iter()
            .filter(|(_, summary)| !summary.remove.is_empty());
        let at_risk = at_risk(look, &snapshot, policy, wanted).into_keys();
        Ok(some.map(|(target, _)| target).chain(at_risk).collect())
    }
}

/// Returns the targets that help: dead containers hold their sandboxes, and both hold images and logs.
fn targets(threshold: Threshold) -> BTreeSet<Target> {
    match threshold {
        Threshold::ExitedContainers | Threshold::NotReadySandboxes | Threshold::ListLimitRatio => {
            // Removed containers take their logs along.
            [Target::Containers, Target::Sandboxes, Target::Logs].into()
        }
        Threshold::ImageFsUsedPercent => Target::ALL.into(),
    }
}
