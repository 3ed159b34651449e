//! Removes one object, after asking the runtime about it once more, because the plan may be minutes old.

mod evidence;
mod gone;
mod image;
mod logs;
mod sandbox;
mod superseded;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Runner;
use super::stops::Stops;
use crate::config::Config;
use crate::gc::images::space_wanted;
use crate::gc::{Expected, ImagePolicy, Removal};
use crate::model::{ContainerId, ContainerState, PodSandboxId, RemovalOutcome, Target};
use crate::runtime::{self, RemovalAnswer};
use crate::snapshot::{Look, Observer};
use logs::LogRemover;
use superseded::NewerRecords;

use evidence::{EvidenceKeeper, PodMeta};
pub(super) use gone::{GONE_MAX, Gone};

/// Grace for stopping a container in state unknown: the kubelet's minimum.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long an answer about an exited container holds: longer than what follows usually takes, and shorter than a
/// question may take on a busy node.
const ANSWER_HOLDS: Duration = Duration::from_millis(20);

/// Interval at which an object that another client removes is asked about: first and longest.
const REMOVED_BY_ANOTHER_EVERY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// What a step before or at a removal returns; `Err`: the removal ends with this.
type RemovalStep<T = ()> = Result<T, RemovalOutcome>;

/// Ends a removal: the object stays, and this is why.
fn stays<T>(why: &str) -> RemovalStep<T> {
    Err(RemovalOutcome::skipped(why))
}

impl From<runtime::Error> for RemovalOutcome {
    fn from(error: runtime::Error) -> Self {
        let why = error.to_string();
        if error.is_lost() {
            return Self::Lost { why };
        }
        Self::failed(error.class(), why)
    }
}

#[derive(Debug)]
pub(super) struct Remover {
    /// Takes looks, and remembers what the runtime kept.
    observer: Observer,
    /// The runtime.
    client: runtime::Client,
    /// The files below the log roots.
    logs: LogRemover,
    /// What keeps a container's evidence before it goes.
    pub(super) evidence: EvidenceKeeper,
    /// Where removed containers are noted.
    gone: Gone,
    /// What ends the pass; no removal starts after it.
    stops: Stops,
    /// Checks that the newer records still exist.
    newer: NewerRecords,
    /// How long one removal may take, also another client's.
    patience: Duration,
    /// Down to which use images go for room.
    room: ImagePolicy,
    /// How long a container may wait for its start.
    created_grace: Duration,
    /// The pass has ended without waiting for the removals that still run.
    is_over: AtomicBool,
}

impl Remover {
    pub(super) fn new(
        runner: &Runner,
        config: &Config,
        pass: &str,
        gone: Gone,
        stops: Stops,
    ) -> Self {
        let (client, pool) = (runner.observer.client(), runner.disk.logs.clone());
        let patience = config.runtime.removal_timeout;
        let logs = LogRemover::new(config.log_roots(), pool, patience, stops.clone());
        let newer = NewerRecords::default();
        let evidence = EvidenceKeeper::new(runner, config, pass);
        Self {
            observer: runner.observer.clone(),
            client,
            logs,
            evidence,
            gone,
            stops,
            newer,
            patience,
            room: config.policy.images.freeing_on(),
            created_grace: config.policy.containers.created_grace,
            is_over: AtomicBool::new(false),
        }
    }

    /// Says whether the image file system is down to the low threshold; `None`: it cannot be measured.
    pub(super) async fn has_made_room(&self) -> Option<bool> {
        let usage = self.observer.image_filesystem().await?;
        Some(space_wanted(&self.room, usage) == 0)
    }

    /// Notes that the pass ends without waiting for the removals that still run: none of them begins a call that removes.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Ends the removal if the pass must end, or has ended.
    fn may_go_on(&self) -> RemovalStep {
        if self.is_over.load(Ordering::Relaxed) || self.stops.reached().is_some() {
            return Err(RemovalOutcome::NotBegun);
        }
        Ok(())
    }
}

/// What a removal is about, with what it needs of the look that its plan rests on. A hung removal must not keep a look
/// of megabytes in memory.
#[derive(Clone, Debug)]
pub(super) enum RemovalContext {
    Container(ContainerContext),
    /// A sandbox, and whose it is.
    Sandbox(PodSandboxId, Keeper),
    /// A log.
    Log,
    /// An image, and the look, for the containers that it knew.
    Image(Arc<Look>),
    /// A container or sandbox without an id.
    NoId,
}

/// What the removal of a container needs to know.
#[derive(Clone, Debug)]
pub(super) struct ContainerContext {
    id: ContainerId,
    /// What its evidence says of its pod.
    origin: PodMeta,
    /// When it was created, by its plan.
    created_at: Timestamp,
    /// Since when one that was only created may be about to start.
    starts_since: Timestamp,
    keeper: Keeper,
}

/// The runtime that keeps an object, where it differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// Its `RemovePodSandbox` frees the network too, so that a stop before it would only run the network plugin once more.
    Containerd,
    /// Its removal of a created container waits until the call's deadline is nearly over, because crun's process
    /// ignores SIGTERM. So such a container is stopped first.
    CriO,
    /// It lists Docker's dead containers as unknown for ever, and their statuses say that they exited or were created.
    CriDockerd,
    /// Any other.
    Other,
}

impl Keeper {
    fn of(look: &Look) -> Self {
        match look.runtime.as_ref().map(|it| it.runtime.as_str()) {
            Ok("containerd") => Self::Containerd,
            Ok("cri-o") => Self::CriO,
            Ok("docker") => Self::CriDockerd,
            Ok(_) | Err(_) => Self::Other,
        }
    }
}

impl RemovalContext {
    pub(super) fn of(look: &Arc<Look>, removal: &Removal, remover: &Remover) -> Self {
        let id = removal.subject.id.as_str();
        let starts_since = look.taken_at.checked_sub(remover.created_grace);
        let starts_since = starts_since.unwrap_or(Timestamp::MIN);
        let keeper = Keeper::of(look);
        let created_at = removal.subject.created_at;
        let context = match removal.subject.target {
            Target::Containers => ContainerId::new(id).map(|id| {
                Self::Container(ContainerContext {
                    id,
                    origin: remover.evidence.origin(look, removal),
                    created_at,
                    starts_since,
                    keeper,
                })
            }),
            Target::Sandboxes => PodSandboxId::new(id).map(|id| Self::Sandbox(id, keeper)),
            Target::Logs => Some(Self::Log),
            Target::Images => Some(Self::Image(Arc::clone(look))),
        };
        context.unwrap_or(Self::NoId)
    }
}

/// Asks once more, and removes the object if it is still as planned.
pub(super) async fn remove(
    remover: &Remover,
    context: &RemovalContext,
    removal: &Removal,
) -> RemovalStep<RemovalOutcome> {
    not_needed(remover, removal, &remover.newer).await?;
    match context {
        RemovalContext::Container(context) => container(remover, removal, context).await,
        RemovalContext::Sandbox(id, keeper) => {
            sandbox::sandbox(remover, removal, id, *keeper).await
        }
        RemovalContext::Log => remover.logs.remove(&remover.client, removal).await,
        RemovalContext::Image(look) => image::image(remover, look, removal).await,
        RemovalContext::NoId => stays("it has no id"),
    }
}

async fn container(
    remover: &Remover,
    removal: &Removal,
    context: &ContainerContext,
) -> RemovalStep<RemovalOutcome> {
    let (client, id, keeper) = (&remover.client, &context.id, context.keeper);
    let asked_at = Instant::now();
    let Some(mut status) = client.container_status(id).await? else {
        return Ok(RemovalOutcome::AlreadyGone);
    };
    // CRI-O lists when it began to make a container; its status says when the OCI runtime had made it, which on a slow
    // disk is minutes later.
    if status.created_at < context.created_at {
        return stays("it was created at another time than planned");
    }
    let was_created = removal.expected == Expected::Container(ContainerState::Created);
    let never_ran = was_created && is_failed_start(&status);
    let is_dead = keeper == Keeper::CriDockerd
        && removal.expected == Expected::Container(ContainerState::Unknown)
        && status.state != ContainerState::Running;
    if removal.expected != Expected::Container(status.state) && !never_ran && !is_dead {
        return stays("its state has changed since the plan");
    }
    let may_start = was_created || status.state == ContainerState::Created;
    if may_start && status.created_at > context.starts_since {
        return stays("it may be about to start: its status has a later creation than its list");
    }
    remover.may_go_on()?;
    let has_exited = status.state == ContainerState::Exited && !never_ran;
    if status.state == ContainerState::Unknown {
        status = stop_first(remover, &status, STOP_GRACE).await?;
    }
    let mut has_evidence = false;
    if remover.evidence.is_on() {
        let keeping = remover.evidence.keep(removal, &status, &context.origin);
        has_evidence = keeping.await.or_else(|why| stays(&why))?;
    }
    // A shared answer is too old after a step that took time.
    let took_time = !has_exited || remover.evidence.is_on();
    let anew = NewerRecords::default();
    let newer = if took_time { &anew } else { &remover.newer };
    if has_exited {
        if asked_at.elapsed() > ANSWER_HOLDS {
            unchanged(remover, &status).await?;
        }
        // Last, because it never runs again, and may be needed.
        not_needed(remover, removal, newer).await?;
    } else {
        not_needed(remover, removal, newer).await?;
        // Last, because the call below kills what runs.
        unchanged(remover, &status).await?;
    }
    remover.may_go_on()?;
    if status.state == ContainerState::Created && keeper == Keeper::CriO {
        stop_first(remover, &status, Duration::ZERO).await?;
        not_needed(remover, removal, newer).await?;
        remover.may_go_on()?;
    }
    remover.gone.begins(removal, &status);
    let result = client.remove_container(id).await;
    if result.is_ok() {
        remover.gone.note(removal, &status, has_evidence);
    }
    ended(remover, result, || client.container_status(id)).await
}

/// Stops a container, and returns its status then. One that was only created stays so if it had no process.
async fn stop_first(
    remover: &Remover,
    before: &runtime::ContainerStatus,
    grace: Duration,
) -> RemovalStep<runtime::ContainerStatus> {
    let client = &remover.client;
    client.stop_container(&before.id, grace).await?;
    let stopped = client.container_status(&before.id).await?;
    let stopped = stopped.ok_or(RemovalOutcome::AlreadyGone)?;
    let never_ran = before.state == ContainerState::Created && stopped.state == before.state;
    if stopped.state == ContainerState::Exited || never_ran {
        return Ok(stopped);
    }
    stays("it did not stop")
}

/// Says whether a container's start failed as cri-dockerd tells it: it lists such a container as created for ever, and
/// its status says that it exited when it was created.
fn is_failed_start(status: &runtime::ContainerStatus) -> bool {
    let created_at = Some(status.created_at);
    status.state == ContainerState::Exited
        && status.exit_code != 0
        && status.started_at == created_at
        && status.finished_at == created_at
}

/// Asks whether the newer records still exist; ends the removal if not.
async fn not_needed(remover: &Remover, removal: &Removal, newer: &NewerRecords) -> RemovalStep {
    if newer.all_exist(&remover.client, removal).await? {
        return Ok(());
    }
    stays("the newer record is gone: it may be needed now")
}

/// Asks the runtime whether a container is still as it was before a step that took time; ends the removal if not.
async fn unchanged(remover: &Remover, before: &runtime::ContainerStatus) -> RemovalStep {
    let now = remover.client.container_status(&before.id).await?;
    let now = now.ok_or(RemovalOutcome::AlreadyGone)?;
    let facts = |it: &runtime::ContainerStatus| (it.state, it.created_at, it.finished_at);
    if facts(&now) == facts(before) {
        return Ok(());
    }
    stays("it has changed while its removal was prepared")
}

/// Maps the result of a removing call to an outcome; waits for another client that removes the object.
async fn ended<T, F>(
    remover: &Remover,
    result: Result<RemovalAnswer, runtime::Error>,
    status: impl Fn() -> F,
) -> RemovalStep<RemovalOutcome>
where
    F: Future<Output = Result<Option<T>, runtime::Error>>,
{
    match result {
        Err(error) if error.is_being_removed() && !error.is_timeout() => {
            until_gone(remover.patience, status).await
        }
        result => ended_now(result, status()).await,
    }
}

/// Maps the result of a removing call to an outcome. A missing object counts as already gone: the kubelet may
/// have been faster.
async fn ended_now<T>(
    result: Result<RemovalAnswer, runtime::Error>,
    status: impl Future<Output = Result<Option<T>, runtime::Error>>,
) -> RemovalStep<RemovalOutcome> {
    match result {
        Ok(RemovalAnswer::Removed) => Ok(RemovalOutcome::REMOVED),
        Ok(RemovalAnswer::NotFound) => Ok(RemovalOutcome::AlreadyGone),
        Err(error) if error.is_lost() || error.is_timeout() => Err(error.into()),
        Err(error) => match status.await {
            Ok(None) => Ok(RemovalOutcome::AlreadyGone),
            Ok(Some(_)) | Err(_) => Err(error.into()),
        },
    }
}

/// Waits for the end of another client's removal.
async fn until_gone<T, F>(patience: Duration, status: impl Fn() -> F) -> RemovalStep<RemovalOutcome>
where
    F: Future<Output = Result<Option<T>, runtime::Error>>,
{
    let until = Instant::now() + patience;
    let [mut pause, longest] = REMOVED_BY_ANOTHER_EVERY;
    loop {
        match status().await {
            Ok(None) => return Ok(RemovalOutcome::AlreadyGone),
            Err(error) if error.is_lost() => return Err(error.into()),
            Ok(Some(_)) | Err(_) => {}
        }
        if Instant::now() >= until {
            return stays(
                "another client removes it and did not finish within runtime.removal_timeout",
            );
        }
        tokio::time::sleep_until(until.min(Instant::now() + pause)).await;
        pause = (2 * pause).min(longest);
    }
}
