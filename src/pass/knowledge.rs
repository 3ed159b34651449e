//! What a pass knows of the pods: reports it, and what was kept because a pod is unknown; waits for quiet pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::end::EarlyEnd;
use super::rescue::may_risk_pods;
use super::stops::StopCause;
use super::{PassRun, tally};
use crate::gc::knowledge::Knowledge;
use crate::gc::{self};
use crate::model::{Cause, PodsReport, Target};
use crate::snapshot::Look;

/// How long a follow-up waits at most for what is too young, while something is due and the kubelet cannot list.
const BLIND_WAITS_MAX: Duration = Duration::from_secs(60);

impl PassRun<'_> {
    /// Waits until finished pods have been finished for `quiet`, so that one run of the command does
    /// everything.
    pub(super) async fn wait_for_quiet(&mut self, look: &mut Arc<Look>) -> Result<(), EarlyEnd> {
        if self.record.read(|pass| pass.trigger.cause) != Cause::Command {
            return Ok(());
        }
        let Some(wait) = self.quiet_wait(look) else {
            return Ok(());
        };
        if self.stops.cut_off(wait) {
            // It would be all that the pass does.
            self.report_quiet_wait(look);
            return Ok(());
        }
        let seconds = wait.as_secs_f64();
        tracing::info!(pass.id = %self.record.id, seconds, "waiting for pods to be quiet");
        self.record.line(format!(
            "waiting {seconds:.0} s until finished pods have been seen finished for pods.quiet"
        ));
        self.rest(wait).await;
        self.not_stopped()?;
        *look = self.look_again().await?;
        Ok(())
    }

    /// Reports after what time more would go, where the pass does not wait for it.
    pub(super) fn report_quiet_wait(&self, look: &Look) {
        if let Some(wait) = self.quiet_wait(look) {
            let seconds = wait.as_secs_f64();
            self.record.line(format!(
                "more would go in {seconds:.0} s: finished pods must have been seen finished for pods.quiet"
            ));
        }
    }

    /// Returns for each target when a later pass would find more: when the objects kept by `quiet`, `settle`
    /// and `min_age` are free, or soon while a list stays over its limit; where there are none, at once while a list does,
    /// or where removals were lost with the runtime.
    pub(super) fn retry_after(&self, look: &Look) -> BTreeMap<Target, Duration> {
        // The record names the first trigger alone; one that joined may get a follow-up where the first gets none.
        let wants_one = self.record.read(|pass| {
            let first = &pass.trigger;
            pass.merged_triggers > 0 || first.cause.is_automatic() && !first.follow_up
        });
        if !wants_one {
            return BTreeMap::new();
        }
        let Ok(snapshot) = self.runner.snapshot(look) else {
            return self.once_the_runtime_is_back();
        };
        let settles_in = self.settles_at.filter(|_| !self.uncertain.is_empty());
        let settles_in = settles_in.map(|at| at.saturating_duration_since(Instant::now()));
        let mut policy = self.policy.clone();
        if may_risk_pods(look) {
            // As the rescue does.
            policy.pods.quiet = Duration::ZERO;
        }
        let blind = self.not_rescued(look);
        let is_open = |target| {
            let mut open = self.tally.open.iter();
            open.any(|it| it.subject.target == target)
        };
        let targets = self.targets.iter().copied();
        targets
            .filter_map(|target| {
                // A container that stays holds its sandbox too, and that its pod's logs.
                let settled = settles_in.filter(|_| target != Target::Images);
                let old_enough = gc::kept_for_a_time(&snapshot, &policy, target);
                let wait = settled.max(old_enough);
                let wait = if blind.contains(&target) {
                    Some(wait.unwrap_or_default().min(BLIND_WAITS_MAX))
                } else {
                    // Else as soon as the brakes allow it: what failed now goes last then.
                    wait.or_else(|| is_open(target).then_some(Duration::ZERO))
                };
                Some((target, wait?))
            })
            .collect()
    }

    /// Returns for each target when a later pass may go on, after an early end: once the runtime may be back, or as soon
    /// as the brakes let it. Empty where a person, a hold, `max_removals` or a defect ended the pass.
    pub(super) fn go_on_after(&self, end: &EarlyEnd) -> BTreeMap<Target, Duration> {
        match end {
            EarlyEnd::NoLook(_) | EarlyEnd::RuntimeGone(_) => self.once_the_runtime_is_back(),
            EarlyEnd::Stopped(StopCause::Deadline) => self.all_after(Duration::ZERO),
            EarlyEnd::Stopped(StopCause::Cancelled | StopCause::Held | StopCause::Shutdown)
            | EarlyEnd::MaxRemovals
            | EarlyEnd::BadPlan(_)
            | EarlyEnd::NotAlone(_)
            | EarlyEnd::PlanExpired(..) => BTreeMap::new(),
        }
    }

    /// Returns when a later pass may find the runtime back; without its lists nothing is known of what stays.
    fn once_the_runtime_is_back(&self) -> BTreeMap<Target, Duration> {
        self.all_after(self.config.runtime.removal_timeout)
    }

    fn all_after(&self, wait: Duration) -> BTreeMap<Target, Duration> {
        let targets = self.targets.iter();
        targets.map(|target| (*target, wait)).collect()
    }

    fn quiet_wait(&self, look: &Look) -> Option<Duration> {
        let snapshot = self.runner.snapshot(look).ok()?;
        gc::kept_for_quiet(&snapshot, &self.policy, &self.targets)
    }

    /// Reports how many planned objects a later look kept, by reason.
    pub(super) fn report_skipped(
        &mut self,
        look: &Look,
        target: Target,
        skipped: BTreeMap<&'static str, u64>,
    ) {
        if skipped.is_empty() {
            return;
        }
        if target != Target::Images {
            // They may stay because the pod source has failed since the plan.
            self.report_knowledge(look, &[target].into());
        }
        let words = |counts: &BTreeMap<&'static str, u64>| {
            let why = tally::why(counts.iter().map(|(why, count)| (*why, *count)));
            format!("{target}: planned objects stay, because a later look keeps them{why}")
        };
        // One error for all looks of the pass.
        let all = self.tally.skipped.entry(target).or_default();
        self.record.retract(&words(all));
        for (why, count) in skipped {
            *all.entry(why).or_default() += count;
        }
        self.record.error(words(all));
    }

    /// Reports what is known of the pods, and what is kept because too little is known.
    pub(super) fn report_knowledge(&mut self, look: &Look, targets: &BTreeSet<Target>) {
        let Ok(snapshot) = self.runner.snapshot(look) else {
            return;
        };
        let policy = &self.policy;
        // Before the knowledge is there: on a node of 20,000 pods each takes some megabytes.
        let kept = gc::kept_for_missing_knowledge(&snapshot, policy, targets);
        let undated = gc::kept_for_unknown_exits(&snapshot, policy);
        let knowledge = Knowledge::of(&snapshot, policy);
        let (state, doubt) = (knowledge.source_state(), knowledge.source_doubt());
        self.record.update(|pass| {
            pass.pods = Some(PodsReport {
                source: look.pod_origin.source.label().to_owned(),
                state: state.label().to_owned(),
                detail: doubt,
            });
        });
        let mut now = BTreeSet::new();
        for ((target, doubt), (count, assumable)) in kept {
            let why = doubt.words(&knowledge);
            let remedy = doubt.remedy(&knowledge, assumable);
            now.insert((
                target,
                format!(
                    "{target}: {count} stay because their pods may not be finished: {why}; {remedy}"
                ),
            ));
        }
        if let Some((count, id)) = undated.filter(|_| targets.contains(&Target::Containers)) {
            now.insert((
                Target::Containers,
                format!(
                    "containers: {count} stay because it is not known when they exited: no answer to ContainerStatus \
                     of {id} says it"
                ),
            ));
        }
        for (target, error) in &now {
            if self.record.error_once(error.clone()) {
                tracing::warn!(pass.id = %self.record.id, target = target.label(), error, "too little is known");
            }
        }
        // Only a complete look proves that an earlier error no longer holds.
        if snapshot.seen.is_all() {
            let (record, uncertain) = (self.record, &mut self.uncertain);
            uncertain.retain(|said| {
                let holds = now.contains(said) || !targets.contains(&said.0);
                if !holds {
                    record.retract(&said.1);
                }
                holds
            });
        }
        self.uncertain.append(&mut now);
    }
}
