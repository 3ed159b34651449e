//! The log part of a pass: checks that logs can be reached, and removes the logs of removed containers batch by
//! batch, as the kubelet does, whatever targets the pass has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::PassRun;
use super::end::EarlyEnd;
use super::executor::ReturnWhen;
use super::remove::GONE_MAX;
use crate::gc::{self, Expected, Plan, Removal};
use crate::model::{
    Container, Coverage, Logs, PodUid, RemovedContainer, Rows, Target, log_dir_name,
};
use crate::snapshot::{Look, rows};

/// Passes that try to remove the log of a container.
const LOG_TRIES_MAX: u32 = 3;

impl PassRun<'_> {
    /// Reports unreachable logs; returns whether the plan's logs can be removed. Other targets are not
    /// affected.
    pub(super) fn can_reach_logs(&mut self, look: &Look, plan: &Plan) -> bool {
        self.report_log_problems(look);
        let can_write = look.logs.unwritable.is_empty() || plan.removals.is_empty();
        if !can_write {
            for why in &look.logs.unwritable {
                self.report_problem(Target::Logs, why);
            }
        }
        can_write
    }

    pub(super) async fn logs_follow(&mut self, look: &Arc<Look>) {
        let logs = self.due_logs(look);
        if !logs.is_empty() {
            let batches = vec![(Target::Logs, logs)];
            self.run_batches(batches, ReturnWhen::OnlySlow, look).await;
        }
    }

    /// Returns the removals of logs of removed containers that are due: those that a lost runtime left open, and
    /// those of the containers removed since the last call. They do not count against `max_removals`.
    pub(super) fn due_logs(&mut self, look: &Look) -> Vec<Removal> {
        let mut due = std::mem::take(&mut self.open_logs);
        due.extend(self.plan_logs(look));
        due
    }

    /// Plans to remove the logs of the containers removed since the last call.
    fn plan_logs(&mut self, look: &Look) -> Vec<Removal> {
        let gone = self.gone.take();
        if gone.is_empty() || !self.config.policy.logs.enabled {
            return Vec::new();
        }
        // Only whole lists show that no container writes to them: a later look does, or the next pass's.
        if look.seen().containers != Coverage::Whole || look.lists().is_err() {
            self.gone.put_back(gone);
            if let Err(error) = look.lists() {
                self.report_problem(Target::Logs, &error.to_string());
            }
            return Vec::new();
        }
        let plan = match self.plan_logs_of(look, gone) {
            Ok(plan) => plan,
            Err(end) => {
                self.report_problem(Target::Logs, &end.to_string());
                return Vec::new();
            }
        };
        let is_asked = self.targets.contains(&Target::Logs);
        if is_asked {
            self.tally.add_planned(&plan, Target::Logs);
        }
        if plan.removals.is_empty() || !look.logs.unwritable.is_empty() {
            if is_asked {
                self.can_reach_logs(look, &plan);
            }
            return Vec::new();
        }
        let logs = plan.removals.iter().map(|it| &it.expected);
        self.gone.open(logs.filter_map(Expected::log_of).cloned());
        plan.removals
    }

    /// Plans on what the look shows of the removed containers' pods, without the containers removed since, and checks the
    /// plan. Only a pod's own containers write to its logs, and there is such a plan for each batch.
    fn plan_logs_of(&self, look: &Look, gone: Vec<RemovedContainer>) -> Result<Plan, EarlyEnd> {
        let policy = &self.config.policy;
        let snapshot = look.snapshot(BTreeMap::new());
        let mut snapshot = snapshot.map_err(|error| EarlyEnd::NoLook(error.to_string()))?;
        let pods: BTreeSet<&PodUid> = gone.iter().map(|it| &it.pod.uid).collect();
        let is_of_pods =
            |it: &Container| it.pod.as_ref().is_some_and(|pod| pods.contains(&pod.uid));
        let stays = |it: &Container| is_of_pods(it) && !self.gone.has(&it.id);
        let staying = snapshot.containers.iter().filter(|it| stays(it));
        snapshot.containers = staying.cloned().collect::<Vec<_>>().into();
        snapshot.sandboxes = Rows::default();
        // So only the logs of the removed containers are planned.
        snapshot.logs = Logs::default();
        snapshot.removed = self.with_logs(look, gone);
        let plan = gc::plan(&snapshot, policy, &[Target::Logs].into());
        match gc::check::check(&plan.removals, &snapshot, policy).first() {
            None => Ok(plan),
            Some(first) => Err(EarlyEnd::BadPlan(first.to_string())),
        }
    }

    /// Returns those that may have logs: without a directory of its pod a container has none. A root that could not be read
    /// shows none.
    fn with_logs(&self, look: &Look, mut gone: Vec<RemovedContainer>) -> Vec<RemovedContainer> {
        let root = &self.config.policy.logs.pods_root;
        let names: BTreeSet<String> = gone.iter().filter_map(|it| log_dir_name(&it.pod)).collect();
        let dirs = look.logs.dirs.iter();
        let dirs = dirs.filter(|it| it.is_dir && names.contains(&it.name));
        let with_logs: BTreeSet<&str> = dirs.map(|it| it.name.as_str()).collect();
        gone.retain(|it| {
            !look.logs.unread.is_empty()
                || log_dir_name(&it.pod).is_none_or(|dir| with_logs.contains(dir.as_str()))
                || !Path::new(it.log_path.as_str()).starts_with(root)
        });
        gone
    }

    /// Reports the logs of removed containers that no look of the pass let go.
    pub(super) fn report_waiting_logs(&mut self) {
        let look = self.runner.observer.latest();
        let Some(look) = look.filter(|_| self.config.policy.logs.enabled) else {
            return;
        };
        let waiting = self.with_logs(&look, self.gone.take());
        let count = waiting.len();
        self.gone.put_back(waiting);
        if count > 0 {
            let why = format!(
                "those of {count} removed containers stay until a pass can list every container"
            );
            self.report_problem(Target::Logs, &why);
        }
    }

    /// Leaves the logs of removed containers that are still there to the next pass, and those of containers of which it is
    /// not known whether they went: no later plan has them. None while logs are switched off, and none that has failed too
    /// often: a disk that hangs on them would cost each pass its time.
    pub(super) fn leave_logs(&mut self) {
        if !self.config.policy.logs.enabled {
            return;
        }
        let mut left = self.runner.left_logs.lock();
        let failures = self.runner.failures.lock();
        // By id: while no list is whole, each pass leaves those again that it cannot remove.
        for container in self.gone.take().into_iter().chain(self.gone.take_open()) {
            let tries = failures.times(Target::Logs, &container.log_path);
            if tries < LOG_TRIES_MAX && left.len() < GONE_MAX {
                left.insert(container.id.clone(), container);
            }
        }
    }

    /// Takes the logs that an earlier pass left, of containers that have gone; a saved plan does not have them.
    pub(super) fn take_left_logs(&self, look: &Look) {
        if self.saved_plan.is_none() && look.seen().containers == Coverage::Whole {
            let mut left = std::mem::take(&mut *self.runner.left_logs.lock());
            // The runtime may yet carry out what was asked of it.
            let listed = rows(&look.containers).iter();
            let listed = listed.filter_map(|row| left.remove(&row.id));
            self.gone.open(listed);
            self.gone.put_back(left.into_values());
        }
    }

    pub(super) fn report_log_problems(&mut self, look: &Look) {
        for why in &look.logs.unread {
            self.report_problem(Target::Logs, why);
        }
    }
}
