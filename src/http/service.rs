//! The state that request handlers share: the worker, the observer, and the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::saved_plans::SavedPlans;
use super::shared::{LookKey, NodeParts, Plans};
use super::{HttpError, RequestLimits, clock};
use crate::access::{self, Access};
use crate::config::Config;
use crate::doctor::Doctor;
use crate::gc::{Plan, Policy};
use crate::metrics::Metrics;
use crate::model::Target;
use crate::snapshot::{Look, NoSnapshot, Observer};
use crate::state::Question;
use crate::system::manager::Manager;
use crate::system::memory;
use crate::system::opaque_debug;
use crate::telemetry::LineLimit;
use crate::trigger::Worker;

/// How long a request waits for a look at the node.
const LOOK_PATIENCE: Duration = Duration::from_secs(8);

/// The result of the last reload.
#[derive(Clone, Debug)]
pub(super) struct LastReload {
    /// When the configuration in force was read.
    pub(super) loaded_at: Timestamp,
    /// Why the last reload was refused, if it was.
    pub(super) refused: Option<String>,
}

/// Reads the configuration; the error names the key.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Result<Config, String>> + Send + Sync>;

/// The state that request handlers share.
#[derive(Clone, Debug)]
pub struct Service {
    /// Queues and runs passes.
    pub worker: Worker,
    /// Looks at the node.
    pub observer: Observer,
    /// Own counters.
    pub metrics: Metrics,
    /// The configuration in force; a reload replaces it.
    pub(super) settings: watch::Sender<Arc<Config>>,
    /// The credentials in force; a reload replaces them.
    pub access: access::Current,
    /// The result of the last reload.
    pub(super) last_reload: Arc<Mutex<LastReload>>,
    /// The parts that never change.
    pub(super) fixed: Arc<Fixed>,
}

/// The parts that stay as they were at start.
pub(super) struct Fixed {
    /// Reads the configuration again.
    pub(super) reload: Reload,
    /// Held during a reload, so that two reloads cannot interleave.
    pub(super) reloading: tokio::sync::Mutex<()>,
    /// Hears of reloads.
    pub(super) manager: Manager,
    /// When the service started.
    pub(super) started: Instant,
    /// Limits log lines about refused requests and webhook calls that are not understood: a client that reaches the
    /// port can cause them without end. The metrics count them all.
    pub(super) refusals: LineLimit,
    /// Limits on requests and on heavy answers.
    pub(super) limits: RequestLimits,
    /// Gathers what reports of causes are made from.
    pub(super) doctor: Doctor,
    /// The plans that are being sent.
    pub(super) plans: Plans,
    /// The node's part of the metrics page.
    pub(super) node_parts: NodeParts,
    /// The saved plans.
    pub(super) saved_plans: SavedPlans,
}

opaque_debug!(Fixed);

impl Service {
    /// Begins with the configuration in force, and shows it in metrics and log.
    pub fn new(
        worker: Worker,
        reload: Reload,
        settings: watch::Sender<Arc<Config>>,
        access: Access,
        manager: Manager,
    ) -> Self {
        let runner = worker.runner();
        let service = Self {
            observer: runner.observer.clone(),
            metrics: runner.metrics.clone(),
            worker,
            settings,
            access: access::Current::new(access),
            last_reload: Arc::new(Mutex::new(LastReload {
                loaded_at: clock(),
                refused: None,
            })),
            fixed: Arc::new(Fixed {
                reload,
                reloading: tokio::sync::Mutex::default(),
                manager,
                started: Instant::now(),
                refusals: LineLimit::new(10, Duration::from_secs(60)),
                limits: RequestLimits::default(),
                doctor: Doctor::default(),
                plans: Plans::while_used(),
                node_parts: NodeParts::until_next(),
                saved_plans: SavedPlans::default(),
            }),
        };
        service.show();
        service
    }

    /// Asks the database.
    ///
    /// # Errors
    /// If it gives no answer.
    pub(super) async fn stored<Q: Question>(&self, question: Q) -> Result<Q::Answer, HttpError> {
        let journal = &self.worker.runner().journal;
        Ok(journal.ask(question).await?)
    }

    /// Plans what a pass would do under a policy, from an existing look; clients that ask the same at the same time
    /// share one plan.
    pub(super) fn plan_under(
        &self,
        look: &Arc<Look>,
        policy: &Policy,
        targets: &BTreeSet<Target>,
    ) -> Result<Arc<Plan>, NoSnapshot> {
        let of = (LookKey::new(look), policy.clone(), targets.clone());
        self.fixed
            .plans
            .get(of, || self.worker.runner().plan(look, policy, targets))
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.settings.borrow())
    }

    /// Returns the latest look, for callers that cannot wait for the running one; once the runtime answers again, not
    /// one that found it down.
    pub(super) fn latest(&self) -> Option<Arc<Look>> {
        let latest = self.observer.latest();
        latest.filter(|look| look.runtime.is_ok() || !self.runtime_answers())
    }

    /// Says whether the runtime has answered `Version` in the running look.
    pub(super) fn runtime_answers(&self) -> bool {
        matches!(self.observer.version_so_far(), Some(Ok(_)))
    }

    /// Returns the shared look; gives up after [`LOOK_PATIENCE`] if the runtime hangs.
    pub(super) async fn look(&self) -> Result<Arc<Look>, HttpError> {
        let look = self.observer.shared(self.config().collect.max_age);
        match tokio::time::timeout(LOOK_PATIENCE, look).await {
            Ok(look) => look.map_err(|error| HttpError::internal(error.to_string())),
            Err(_elapsed) => Err(HttpError::unavailable(format!(
                "no look at the node within {LOOK_PATIENCE:?}: the runtime is slow or hangs"
            ))),
        }
    }

    /// Runs work over the whole node (planning, rendering) on a thread for that, a few at a time.
    pub(super) async fn heavy<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, HttpError> {
        let service = self.clone();
        let (to, result) = oneshot::channel();
        let work = move || drop(to.send(work(&service)));
        let done = bounded(&self.fixed.limits.plans, Box::new(work)).await;
        done.map_err(HttpError::internal)?;
        let result = result.await;
        result.map_err(|error| HttpError::internal(error.to_string()))
    }
}

/// Runs work beside the requests within a limit. The permit moves with the work, which goes on after the
/// client hangs up. Compiled once, not for each kind of work.
async fn bounded(bound: &Arc<Semaphore>, work: Box<dyn FnOnce() + Send>) -> Result<(), String> {
    let permit = Arc::clone(bound).acquire_owned().await;
    let permit = permit.map_err(|error| error.to_string())?;
    let work = move || {
        let _until_done = permit;
        work();
        memory::give_back();
    };
    let done = spawn_blocking(work).await;
    done.map_err(|error| error.to_string())
}
