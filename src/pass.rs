//! One pass: observe -> plan -> check -> carry out, batch by batch -> report.
//!
//! Runs one pass at a time; the worker (`trigger`) decides which.

mod answers;
mod away;
mod breaker;
mod clean;
mod due;
mod end;
mod executor;
pub mod failures;
mod images;
mod knowledge;
pub mod limiter;
mod logs;
pub mod pressure;
pub mod quarantine;
mod queue;
pub mod record;
mod remove;
mod rescue;
mod stops;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Mode};
use crate::events::Events;
use crate::gc::{self, PassOptions, Plan, Policy, Removal, SavedPlan};
use crate::metrics::Metrics;
use crate::model::{
    ContainerId, Coverage, Pass, PodSandboxId, PodUid, Pods, PodsUnknown, RemovedContainer, Target,
    TargetReport, Text,
};
use crate::pass::failures::PriorFailures;
use crate::pass::quarantine::Quarantine;
use crate::pass::record::PassRecord;
use crate::pods::Freshness;
use crate::snapshot::{Look, Observer};
use crate::state::Journal;
use crate::system::blocking::BlockingPool;
use end::EarlyEnd;
pub use end::PassEnd;
use executor::Executor;
use images::SpaceGoal;
use pressure::PressureGauge;
use remove::{Gone, Remover};
pub use rescue::at_risk;
use stops::Stops;
use tally::Tally;

/// How often a pass waits for a pod source that fails and settles again.
const SETTLING_WAITS_MAX: usize = 3;

/// How long a pass waits for the disk to show whether another crisweep holds the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How long a batch waits for the disk to store its intents, and a pass to store its end.
pub const JOURNAL_PATIENCE: Duration = Duration::from_millis(250);

/// Log removals at a time, and the most threads that a hung disk can cost them.
const LOG_CALLS_MAX: usize = 4;

/// What passes work with. Cloning shares.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The node, and its runtime.
    pub observer: Observer,
    /// Own counters.
    pub metrics: Metrics,
    /// The quarantined sandboxes.
    pub quarantine: Arc<Mutex<Quarantine>>,
    /// What passes tried in vain.
    pub failures: Arc<Mutex<PriorFailures>>,
    /// Containers whose logs a pass could not remove before its end: removed ones, and those that it may have removed.
    pub left_logs: Arc<Mutex<BTreeMap<ContainerId, RemovedContainer>>>,
    /// The record of passes on disk.
    pub journal: Journal,
    /// Sends Kubernetes Events about passes.
    pub events: Events,
    /// Threads for disk access.
    pub disk: DiskThreads,
}

/// Threads for disk access, shared by all passes: a hung disk must not cost more with each pass.
#[derive(Clone, Debug)]
pub struct DiskThreads {
    logs: BlockingPool,
    evidence: BlockingPool,
    pressure: BlockingPool,
}

impl Default for DiskThreads {
    fn default() -> Self {
        Self {
            logs: BlockingPool::new(LOG_CALLS_MAX),
            evidence: BlockingPool::new(LOG_CALLS_MAX),
            pressure: BlockingPool::new(1),
        }
    }
}

impl Runner {
    /// Runs a pass to its end and returns how it ended; keeps the record up to date.
    pub async fn run(
        &self,
        record: &PassRecord,
        options: &PassOptions,
        mut config: Config,
        shutdown: &CancellationToken,
    ) -> PassEnd {
        options.apply_to(&mut config.policy);
        config.gc.max_removals = match (options.max_removals, config.gc.max_removals) {
            (Some(asked), Some(configured)) => Some(asked.min(configured)),
            (asked, configured) => asked.or(configured),
        };
        if options.force {
            // The person who uses `force` accepts that most removals may fail.
            config.gc.failure_ratio = None;
        }
        let dry_run = options.dry_run || config.mode == Mode::Observe;
        record.update(|pass| pass.dry_run = dry_run);
        if dry_run && !options.dry_run {
            record.line("mode: observe, so this pass only plans".to_owned());
        }
        let locked = if dry_run {
            Ok(())
        } else {
            self.journal.locked(LOCK_PATIENCE).await
        };
        self.journal.begun(&record.pass());
        let mut run = PassRun::new(self, record, &config, shutdown);
        run.saved_plan.clone_from(&options.plan);
        let end = match locked {
            Ok(()) => run.clean_targets(dry_run).await.err(),
            Err(held) => Some(EarlyEnd::NotAlone(held.to_string())),
        };
        if let Some(EarlyEnd::NoLook(_)) = end {
            record.could_not_look();
        }
        run.finish(end, dry_run).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Makes the kubelet's lists fit, and ends as soon as they do.
    Rescue,
    /// Cleans by the normal rules.
    Cleaning,
}

struct PassRun<'a> {
    runner: &'a Runner,
    record: &'a PassRecord,
    /// The configuration when the pass began.
    config: &'a Config,
    targets: BTreeSet<Target>,
    /// The policy; the rescue changes it for a while.
    policy: Policy,
    /// The saved plan that it carries out: it removes nothing else.
    saved_plan: Option<Arc<SavedPlan>>,
    /// Removes only objects of these pods; `None`: of any pod.
    only_pods: Option<BTreeSet<PodUid>>,
    stops: Stops,
    phase: Phase,
    /// How fresh a pod list must be.
    freshness: Freshness,
    executor: Executor,
    tally: Tally<'a>,
    space: SpaceGoal,
    /// The circuit breaker ended a target, and no batch of a target has begun since.
    given_up: bool,
    /// How many more removals may start.
    removals_left: u64,
    losses: u32,
    /// The runtime went away, and was not seen to come back.
    runtime_is_away: bool,
    /// Planned objects that a later, incomplete look no longer shows.
    no_longer_seen: BTreeSet<(Target, Text)>,
    /// The removed containers; their logs may follow.
    gone: Gone,
    /// How many containers had gone when sandboxes were last planned; `None`: they were not.
    gone_at_sandboxes: Option<u64>,
    /// Removals of such logs that a lost runtime left open.
    open_logs: Vec<Removal>,
    /// When the pod source has settled, if the deadline comes first.
    settles_at: Option<Instant>,
    /// Something that the pass must read or write failed.
    incomplete: bool,
    /// The errors that say what is kept because its pod's state is unknown.
    uncertain: BTreeSet<(Target, String)>,
}

impl<'a> PassRun<'a> {
    fn new(
        runner: &'a Runner,
        record: &'a PassRecord,
        config: &'a Config,
        shutdown: &'a CancellationToken,
    ) -> Self {
        let pressure = PressureGauge::new(
            config.runtime.host_root.join("proc/pressure/io"),
            config.gc.io_pressure_pause_percent,
            runner.disk.pressure.clone(),
        );
        let stops = Stops {
            cancelled: record.cancelled.clone(),
            held: record.held.clone(),
            shutdown: shutdown.clone(),
            deadline: config.gc.deadline.map(|deadline| Instant::now() + deadline),
        };
        let gone = Gone::default();
        let remover = Remover::new(runner, config, &record.id, gone.clone(), stops.clone());
        let in_flight = record.in_flight.clone();
        let ceiling = config.gc.max_concurrency;
        let executor = Executor::new(remover, ceiling, pressure, stops.clone(), in_flight);
        Self {
            runner,
            record,
            config,
            targets: record.read(Pass::target_set),
            policy: config.policy.clone(),
            saved_plan: None,
            only_pods: None,
            phase: Phase::Cleaning,
            stops,
            freshness: Freshness::pass_begins(),
            executor,
            tally: Tally::new(runner, record, config.quarantine, gone.clone()),
            space: SpaceGoal::default(),
            given_up: false,
            removals_left: config.gc.max_removals.unwrap_or(u64::MAX),
            losses: 0,
            runtime_is_away: false,
            no_longer_seen: BTreeSet::new(),
            gone,
            gone_at_sandboxes: None,
            open_logs: Vec::new(),
            settles_at: None,
            incomplete: false,
            uncertain: BTreeSet::new(),
        }
    }

    async fn clean_targets(&mut self, dry_run: bool) -> Result<(), EarlyEnd> {
        let targets = self.targets.clone();
        // Triggers that arrive from now on need another look.
        let mut joined = targets.first().map_or(0, |first| self.begin(*first));
        let mut look = self.first_look().await?;
        if let Some(plan) = &self.saved_plan
            && plan.has_expired(look.taken_at)
        {
            return Err(EarlyEnd::PlanExpired(plan.id.clone(), plan.expires_at));
        }
        self.record
            .update(|pass| pass.before = Some(look.figures()));
        self.report_row_problems(&look);
        look.lists()
            .map_err(|error| EarlyEnd::NoLook(error.to_string()))?;
        if dry_run {
            return self.preview(&targets, &look);
        }
        self.take_left_logs(&look);
        let fits = self.rescue(&mut look).await?;
        self.wait_for_quiet(&mut look).await?;
        for target in targets {
            // While the lists do not fit, the rescue alone removes containers and sandboxes.
            if !fits && matches!(target, Target::Containers | Target::Sandboxes) {
                continue;
            }
            let joined_before = std::mem::replace(&mut joined, self.begin(target));
            // A new look, so that a pod's containers and its sandbox go in one pass, and so that triggers that
            // joined get a look that began after they joined.
            if self.is_outdated() || joined > joined_before {
                look = self.look_again().await?;
            }
            self.clean(0, target, &mut look).await?;
        }
        if fits {
            self.clean_after_slow_containers(&mut look).await?;
        }
        Ok(())
    }

    /// Reports what a pass over these targets would do.
    fn preview(&mut self, targets: &BTreeSet<Target>, look: &Look) -> Result<(), EarlyEnd> {
        if targets.contains(&Target::Images) {
            self.images_are_known(look);
        }
        let plan = self.plan(look, targets, &self.policy)?;
        self.report_incomplete_look(look.seen());
        self.report_knowledge(look, targets);
        self.report_quiet_wait(look);
        self.report_risk(look);
        if targets.contains(&Target::Images) {
            self.report_image_problems(look, &plan);
        }
        if targets.contains(&Target::Logs) {
            self.report_log_problems(look);
        }
        for target in targets {
            self.tally.planned(&plan, *target, Vec::new());
        }
        Ok(())
    }

    /// Marks a target as begun: later triggers for it cannot join this pass. Returns how many have joined so
    /// far.
    fn begin(&self, target: Target) -> u64 {
        let mut joined = 0;
        self.record.update(|pass| {
            pass.targets.entry(target).or_default().begun = true;
            joined = pass.merged_triggers;
        });
        joined
    }

    /// Says whether removals are in flight, or have ended since the latest look.
    fn is_outdated(&self) -> bool {
        self.tally.ended_since_look > 0 || !self.executor.is_idle()
    }

    /// Returns a figure of a target's report; 0 if the target is not part of the pass.
    fn report_of(&self, target: Target, figure: impl FnOnce(&TargetReport) -> u64) -> u64 {
        self.record
            .read(|pass| pass.targets.get(&target).map_or(0, figure))
    }

    /// Returns how many objects of a target this pass has removed or found gone.
    fn gone_of(&self, target: Target) -> u64 {
        self.report_of(target, |report| report.removed + report.already_gone)
    }

    /// Takes the first look; if the pod source is settling, and the deadline leaves time for that, waits and looks again.
    async fn first_look(&mut self) -> Result<Arc<Look>, EarlyEnd> {
        let mut look = self.look().await?;
        let asks_for_pods = self.targets.iter().any(|it| *it != Target::Images);
        for _ in 0..SETTLING_WAITS_MAX {
            let settling = look.pods == Pods::Unknown(PodsUnknown::Settling);
            if !asks_for_pods || !settling {
                break;
            }
            // It waits for a look that another caller has under way.
            let wait = tokio::select! {
                wait = self.runner.observer.unsettled_for() => wait,
                stop = self.stops.wait() => return Err(EarlyEnd::Stopped(stop)),
            };
            if self.stops.cut_off(wait) {
                // It would be all that the pass does: what is certain without the source goes now.
                self.settles_at = Instant::now().checked_add(wait);
                break;
            }
            let seconds = wait.as_secs_f64();
            let line = format!("waiting {seconds:.0} s for the pod source to settle (pods.settle)");
            tracing::info!(pass.id = %self.record.id, seconds, "waiting for the pod source to settle");
            self.record.line(line);
            self.rest(wait).await;
            if let Err(end) = self.not_stopped() {
                self.report_knowledge(&look, &self.targets.clone());
                return Err(end);
            }
            look = self.look().await?;
        }
        Ok(look)
    }

    async fn look(&mut self) -> Result<Arc<Look>, EarlyEnd> {
        let look = tokio::select! {
            look = self.runner.observer.fresh(self.freshness) => look,
            stop = self.stops.wait() => return Err(EarlyEnd::Stopped(stop)),
        };
        let look = look.map_err(|error| EarlyEnd::NoLook(error.to_string()))?;
        self.tally.ended_since_look = 0;
        if look.containers.is_ok() {
            self.executor.limiter.listed(look.timings.containers);
        }
        if let Ok(sandboxes) = &look.sandboxes
            && sandboxes.coverage == Coverage::Whole
        {
            let listed: BTreeSet<&PodSandboxId> =
                sandboxes.rows.iter().map(|row| &row.id).collect();
            self.runner
                .quarantine
                .lock()
                .retain(|id| listed.contains(id));
        }
        Ok(look)
    }

    /// Takes another look; waits for a runtime that is away.
    async fn look_again(&mut self) -> Result<Arc<Look>, EarlyEnd> {
        let look = self.look().await?;
        if look.is_lost() {
            return self.runtime_back().await;
        }
        Ok(look)
    }

    /// Plans, and checks the plan.
    fn plan(
        &self,
        look: &Look,
        targets: &BTreeSet<Target>,
        policy: &Policy,
    ) -> Result<Plan, EarlyEnd> {
        let snapshot = self.runner.snapshot(look);
        let mut snapshot = snapshot.map_err(|error| EarlyEnd::NoLook(error.to_string()))?;
        self.hide_failed_images(&mut snapshot);
        let saved = self.saved_plan.as_ref().map(|saved| &saved.objects);
        let mut plan = gc::plan_within(&snapshot, policy, targets, saved);
        if let Some(pods) = &self.only_pods {
            plan.narrow(pods);
        }
        let violations = gc::check::check(&plan.removals, &snapshot, policy);
        for violation in &violations {
            tracing::error!(%violation, "the plan breaks a rule; this is a bug in crisweep");
        }
        match violations.first() {
            None => Ok(plan),
            Some(first) => Err(EarlyEnd::BadPlan(first.to_string())),
        }
    }

    /// Says whether the pass may go on after a batch.
    fn bounds(&self) -> Result<(), EarlyEnd> {
        self.not_stopped()?;
        if self.removals_left == 0 {
            return Err(EarlyEnd::MaxRemovals);
        }
        Ok(())
    }

    /// Says whether the pass may go on waiting for removals in flight.
    fn not_stopped(&self) -> Result<(), EarlyEnd> {
        self.stops
            .reached()
            .map_or(Ok(()), |stop| Err(EarlyEnd::Stopped(stop)))
    }

    /// Sleeps; wakes at the end of the pass.
    async fn rest(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.stops.wait() => {}
        }
    }
}
