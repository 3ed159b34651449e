//! One look at the node: the runtime first, then the pods. Never decides anything.
//!
//! All callers share one look while it is young (`collect.max_age`), and at most one look runs at a time, so
//! that two Prometheus servers do not list twice on a sick node. A pass always takes its own look.

mod ages;
mod claims;
mod details;
mod filesystems;
mod images;
mod logs;
mod look;
mod outage;
mod pod_history;
mod queries;
mod reload;
mod rows;
mod sandbox_images;
mod single_flight;
mod statuses;
mod thresholds;
mod trend;
mod undated;
mod undeleted;
mod uptime;
mod weights;
mod whole_pods;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::Config;
use crate::logs::Roots;
use crate::model::FilesystemUsage;
pub use crate::model::Weight;
use crate::pods::{self, Freshness, LookStart, PodSource};
use crate::runtime;
use crate::state::{ImageAges, Journal};
use crate::system::blocking::BlockingPool;
use crate::system::memory;
use ages::AgeBook;
use claims::Claims;
use filesystems::Statvfs;
pub use filesystems::{measure_filesystems, statvfs};
use look::timed;
pub use look::{Look, NoSnapshot, Timings};
use outage::Outages;
use pod_history::{NodeLists, PodHistories};
use sandbox_images::SandboxImages;
use single_flight::{Flight, FlightGuard, UnderWay, arrival, version};
use statuses::Statuses;
pub use thresholds::Threshold;
use trend::Trend;
pub use trend::TrendSample;
use undated::UndatedSandboxes;
use undeleted::Undeleted;
pub use weights::Weights;

/// How long a shared look asks for statuses. Unread objects are kept (an unknown exit time counts as too young,
/// an unknown image volume as any image), and the next look goes on with them.
const SHARED_STATUS_BUDGET: Duration = Duration::from_secs(3);
/// The same for a pass's look, which must know more: 20,000 new containers take about 10 s.
const FRESH_STATUS_BUDGET: Duration = Duration::from_secs(60);

/// The look's task ended without a look, or too late; only a bug does that.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the look at the node did not end as it should; this is a bug in crisweep, the log says more"
)]
pub struct LookVanished;

/// A part of a look, or why it is missing.
pub type LookResult<T> = Result<T, runtime::Error>;

/// A list of a look, or why it is missing.
pub type ListResult<T> = LookResult<runtime::Listing<T>>;

/// Returns the rows of a list; none if it is missing.
pub fn rows<T>(list: &ListResult<T>) -> &[T] {
    list.as_ref().map_or(&[], |list| &list.rows)
}

/// Takes looks and shares them. Cloning shares.
#[derive(Clone, Debug)]
pub struct Observer {
    inner: Arc<ObserverInner>,
}

#[derive(Debug)]
struct ObserverInner {
    /// The settings that the client was made by, and the client.
    client: Mutex<(runtime::Config, runtime::Client)>,
    config: watch::Receiver<Arc<Config>>,
    host_root: PathBuf,
    statvfs: Statvfs,
    /// Reads the log roots: a hung disk costs one thread.
    logs_disk: BlockingPool,
    flight: Mutex<Flight>,
    memory: tokio::sync::Mutex<LookMemory>,
    ages: Mutex<AgeBook>,
    outages: Mutex<Outages>,
    claims: Claims,
    undeleted: Undeleted,
    trend: Mutex<Trend>,
    /// When the latest look began, for those who wait for the next.
    arrivals: watch::Sender<Option<Timestamp>>,
}

/// What one look passes to the next; locked during a look.
#[derive(Debug)]
struct LookMemory {
    pods: PodSource,
    /// The settings behind `pods`.
    pods_config: pods::Config,
    pod_histories: PodHistories,
    undated_sandboxes: UndatedSandboxes,
    statuses: Statuses,
    sandbox_images: SandboxImages,
    /// When the image service last ran out of the whole timeout; `None`: it answered since.
    images_hung: Option<Instant>,
    logs: logs::LogHistory,
}

impl Observer {
    /// Returns an observer without a look.
    pub fn new(client: runtime::Client, config: watch::Receiver<Arc<Config>>) -> Self {
        let now = Arc::clone(&config.borrow());
        let host_root = now.runtime.host_root.clone();
        let memory = tokio::sync::Mutex::new(LookMemory {
            pods: reload::pods(&now),
            pods_config: now.pods.clone(),
            pod_histories: PodHistories::default(),
            undated_sandboxes: UndatedSandboxes::default(),
            statuses: Statuses::default(),
            sandbox_images: SandboxImages::default(),
            images_hung: None,
            logs: logs::LogHistory::default(),
        });
        let ages = Mutex::new(AgeBook::new(ImageAges::default(), Journal::none()));
        let statvfs = Statvfs::new(host_root.clone(), now.runtime.simulated_disk_bytes);
        let flight = Mutex::default();
        Self {
            inner: Arc::new(ObserverInner {
                client: Mutex::new((now.runtime.clone(), client)),
                config,
                host_root,
                statvfs,
                logs_disk: BlockingPool::new(1),
                flight,
                memory,
                ages,
                outages: Mutex::default(),
                claims: Claims::default(),
                undeleted: Undeleted::default(),
                trend: Mutex::default(),
                arrivals: watch::Sender::default(),
            }),
        }
    }

    /// Adds the image ages of earlier runs and since when their outage lasts, and saves both to `journal` from now on.
    /// Until then images look younger than they are.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long ago the earlier run ended"
    )]
    pub fn remember(&self, ages: ImageAges, outage_since: Option<Timestamp>, journal: Journal) {
        let now = Timestamp::now();
        let outages = &self.inner.outages;
        outages.lock().remember(outage_since, journal.clone());
        self.inner.ages.lock().remember(ages, journal, now);
    }

    /// Saves unsaved image ages; call it at the end.
    pub fn save_ages(&self) {
        self.inner.ages.lock().save();
    }

    /// Forgets the age of a removed image: one that comes back is new.
    pub fn forget_image(&self, key: &str) {
        self.inner.ages.lock().forget(key);
    }

    /// Notes that the runtime still listed an image after it had said that it removed it. Another client may have pulled
    /// it again: it counts as new.
    pub fn note_undeleted(&self, key: &str) {
        self.forget_image(key);
        self.inner.undeleted.note(key);
    }

    /// Says whether the runtime kept an image that it had said it removed.
    pub fn is_undeleted(&self, key: &str) -> bool {
        self.inner.undeleted.has(key)
    }

    /// Measures the image file system, without a whole look.
    pub async fn image_filesystem(&self) -> Option<FilesystemUsage> {
        let measured = self.inner.statvfs.ask(&self.inner.client()).await;
        measured.ok()?.image.first()?.usage
    }

    /// Says whether looks read other log roots than these settings name, or none.
    pub fn reads_other_logs(&self, config: &Config) -> bool {
        self.inner.log_roots() != Some(config.log_roots())
    }

    /// Returns the latest look, whatever its age.
    pub fn latest(&self) -> Option<Arc<Look>> {
        self.inner.flight.lock().latest.clone()
    }

    /// Returns a receiver of the time at which each later look began.
    pub fn arrivals(&self) -> watch::Receiver<Option<Timestamp>> {
        self.inner.arrivals.subscribe()
    }

    /// Returns a look that ended at most `max_age` ago, or takes a new one, shared with all who wait.
    ///
    /// # Errors
    /// [`LookVanished`]. Errors of the runtime are in the look.
    pub async fn shared(&self, max_age: Duration) -> Result<Arc<Look>, LookVanished> {
        let receiver = {
            let mut flight = self.inner.flight.lock();
            let young = |look: &&Arc<Look>| look.started.elapsed() <= look.duration + max_age;
            if let Some(look) = flight
                .latest
                .as_ref()
                .filter(young)
                .filter(|_| !max_age.is_zero())
            {
                return Ok(Arc::clone(look));
            }
            let under_way = match flight.under_way.clone() {
                Some(look) => look,
                None => self.start(&mut flight, SHARED_STATUS_BUDGET, Freshness::Cached),
            };
            under_way.arrival
        };
        arrival(receiver).await
    }

    /// Waits until the running look has read both lists, which is long before its end if it must ask for many
    /// statuses; for ever if there is none, or if it cannot read them.
    pub async fn lists_read(&self) {
        let running = self.under_way();
        if let Some(mut running) = running
            && running.has_lists.wait_for(|read| *read).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Takes a look that starts after this call, with pods at least as fresh as `freshness`.
    ///
    /// # Errors
    /// As [`Self::shared`].
    pub async fn fresh(&self, freshness: Freshness) -> Result<Arc<Look>, LookVanished> {
        // Wait here and not inside the look: scrapes share looks and must not wait for this.
        let brake = self.inner.memory().await.pods.brake(freshness);
        tokio::time::sleep(brake).await;
        if let Some(earlier) = self.under_way() {
            // That observation started before this call, so it may predate our last removal. Its result does
            // not matter.
            drop(arrival(earlier.arrival).await);
        }
        loop {
            let look = {
                let mut flight = self.inner.flight.lock();
                match &flight.under_way {
                    // Another caller was faster, but its look also began after this call.
                    Some(look) => look.clone(),
                    None => self.start(&mut flight, FRESH_STATUS_BUDGET, freshness),
                }
            };
            let arrived = arrival(look.arrival).await?;
            if look.freshness.suits(freshness) {
                let is_wrong = arrived.pods.is_cached() && !Freshness::Cached.suits(freshness);
                return if is_wrong {
                    Err(LookVanished)
                } else {
                    Ok(arrived)
                };
            }
        }
    }

    fn under_way(&self) -> Option<UnderWay> {
        self.inner.flight.lock().under_way.clone()
    }

    /// Returns how much longer the pod source must answer well until its list is believed, and until pods
    /// missing from its latest answer count as deleted.
    pub async fn unsettled_for(&self) -> Duration {
        let memory = self.inner.memory.lock().await;
        let absent = memory.pod_histories.unsettled_for(memory.pods.settle);
        memory.pods.unsettled_for().max(absent)
    }

    /// Starts a look in a task of its own: if the caller gives up, the look goes on for the others.
    fn start(
        &self,
        flight: &mut Flight,
        status_budget: Duration,
        freshness: Freshness,
    ) -> UnderWay {
        let (sender, arrival) = watch::channel(None);
        let (lists_read, has_lists) = watch::channel(false);
        let under_way = UnderWay {
            freshness,
            arrival,
            has_lists,
        };
        flight.under_way = Some(under_way.clone());
        flight.lookless_since.get_or_insert_with(Instant::now);
        flight.version = None;
        let inner = Arc::clone(&self.inner);
        let at_most = self.look_takes_at_most(status_budget);
        tokio::spawn(async move {
            let ends_flight = FlightGuard { inner: &inner };
            let looking = look(&inner, status_budget, freshness, lists_read);
            let Ok(look) = tokio::time::timeout(at_most, looking).await else {
                tracing::error!(
                    ?at_most,
                    "a look did not end in time; this is a bug in crisweep"
                );
                return;
            };
            let look = Arc::new(look);
            {
                let mut flight = inner.flight.lock();
                flight.latest = Some(Arc::clone(&look));
                flight.lookless_since = None;
            }
            inner.trend.lock().add(TrendSample::of(&look));
            inner.arrivals.send_replace(Some(look.taken_at));
            drop(ends_flight);
            sender.send_replace(Some(look));
            // Frees the previous look and this look's messages.
            memory::give_back();
        });
        under_way
    }
}

impl ObserverInner {
    /// Returns the log roots, if looks read them.
    fn log_roots(&self) -> Option<Roots> {
        let config = self.config.borrow();
        config.policy.logs.enabled.then(|| config.log_roots())
    }
}

/// Makes a call and measures its duration, unless the runtime does not answer.
async fn if_alive<T>(
    alive: &LookResult<()>,
    duration: &mut Duration,
    call: impl Future<Output = LookResult<T>>,
) -> LookResult<T> {
    match alive {
        Ok(()) => timed(duration, call).await,
        Err(error) => Err(error.clone()),
    }
}

async fn look(
    inner: &ObserverInner,
    status_budget: Duration,
    freshness: Freshness,
    lists_read: watch::Sender<bool>,
) -> Look {
    let memory = &mut *inner.memory().await;
    let client = &inner.client();
    // Both clocks are read before the first call, so that ages err towards young.
    #[expect(
        clippy::disallowed_methods,
        reason = "the look is where the clock is read"
    )]
    let taken_at = Timestamp::now();
    let started = Instant::now();
    inner.ages.lock().keep_pace(taken_at, started);
    let mut timings = Timings::default();
    // The log roots before the runtime: a directory made in between must not look orphaned.
    let (runtime, mut logs) = tokio::join!(
        timed(&mut timings.runtime, version(inner)),
        (memory.logs).read(&inner.logs_disk, inner.log_roots(), &mut timings.logs),
    );
    // If `Version` fails, every further call would wait for its deadline.
    let alive = runtime.as_ref().map(drop).map_err(runtime::Error::clone);
    let mut containers = if_alive(&alive, &mut timings.containers, client.list_containers()).await;
    let mut sandboxes = if_alive(&alive, &mut timings.sandboxes, client.list_pod_sandboxes()).await;
    rows::judge(&mut containers);
    rows::judge(&mut sandboxes);
    lists_read.send_replace(containers.is_ok() && sandboxes.is_ok());
    let images = memory.ask_images(client, &inner.statvfs, &alive, status_budget, &mut timings);
    let (images, filesystems) = Box::pin(images).await;
    // After the runtime: a pod born in between must not look deleted.
    let found = NodeLists::new(inner.unknown_is_dead(), &containers, &sandboxes, &logs);
    let fits = |list: &_| found.lives_in(list);
    let look = LookStart {
        at: taken_at,
        began: started,
    };
    let answer = memory.pods.read(look, freshness, fits);
    let answer = timed(&mut timings.pods, answer).await;
    rows::doubt_empty(&mut containers, answer.list());
    rows::doubt_empty(&mut sandboxes, answer.list());
    let limits = queries::QueryLimits::within(status_budget, freshness.pass_began());
    let details = memory.details(client, &mut containers, &mut sandboxes, taken_at, limits);
    let details = timed(&mut timings.statuses, details).await;
    let from = (&runtime, taken_at);
    let store = inner.store(&images, &containers, &filesystems, &details, from);
    let found = NodeLists::new(inner.unknown_is_dead(), &containers, &sandboxes, &logs);
    let weights = Weights::of(&runtime, &containers, &sandboxes, &images);
    let exits = &memory.statuses.last_exits;
    memory.pod_histories.note(&found, &answer, exits, started);
    let lists = (&containers, &sandboxes);
    let filling = memory.fill_logs(client, &mut logs, lists, &answer.pods, look);
    filling.await;
    let exits = &memory.statuses.last_exits;
    Look {
        taken_at,
        uptime: uptime::uptime(&inner.statvfs.pool, &inner.host_root).await,
        started,
        duration: started.elapsed(),
        runtime,
        containers,
        sandboxes,
        images,
        store,
        filesystems,
        logs,
        pods: answer.pods,
        pod_origin: answer.origin,
        pod_history: memory.pod_histories.at(look, answer.at).into(),
        outage: inner.outages.lock().note(weights.over_limit(), look),
        exits_unknown: details.exits_unknown,
        last_exits: memory.pod_histories.correct_exits(exits, look).into(),
        timings,
    }
}
