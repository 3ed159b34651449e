//! The result of one look: the node's parts, each read or missing. Never asks anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::whole_pods::whole_pods;
use super::{ListResult, LookResult, Weights, rows};
use crate::config::Config;
use crate::model::{
    Container, ContainerState, Coverage, Filesystems, Image, Images, ListCoverage, Logs,
    NodeFigures, Outage, PodHistory, PodOrigin, PodSandbox, PodSandboxId, PodSandboxState, PodUid,
    Pods, Rows, Snapshot,
};
use crate::runtime;
use crate::snapshot_file::SnapshotOrigin;

/// Everything that one look found. A part that could not be read is an error, never a stale or empty value.
#[derive(Debug)]
pub struct Look {
    /// Wall clock before the first call.
    pub taken_at: Timestamp,
    /// How long the machine was up then.
    pub uptime: Duration,
    /// Monotonic clock before the first call.
    pub started: Instant,
    /// How long the look took.
    pub duration: Duration,
    /// The runtime's version.
    pub runtime: LookResult<runtime::Version>,
    /// The containers.
    pub containers: ListResult<Container>,
    /// The sandboxes.
    pub sandboxes: ListResult<PodSandbox>,
    /// The images, one row for each key.
    pub images: ListResult<Image>,
    /// The images as planning may know them: with ages and users.
    pub store: Images,
    /// The file systems.
    pub filesystems: LookResult<Filesystems>,
    /// The content of the log roots; empty while logs are off.
    pub logs: Logs,
    /// The pod source's answer.
    pub pods: Pods,
    /// Which source answered.
    pub pod_origin: PodOrigin,
    /// What looks up to this one saw of each pod.
    pub pod_history: Arc<BTreeMap<PodUid, PodHistory>>,
    /// When looks up to this one last saw a list over the kubelet's limit.
    pub outage: Option<Outage>,
    /// How many exited containers have no known exit time yet.
    pub exits_unknown: usize,
    /// When each pod's last container was seen to exit.
    pub last_exits: Arc<BTreeMap<PodUid, Timestamp>>,
    /// How long each part took.
    pub timings: Timings,
}

/// How long each part of a look took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Version.
    pub runtime: Duration,
    /// The list of containers.
    pub containers: Duration,
    /// Statuses that were not known yet.
    pub statuses: Duration,
    /// The list of sandboxes.
    pub sandboxes: Duration,
    /// The list of images.
    pub images: Duration,
    /// `ImageFsInfo` and statvfs.
    pub filesystems: Duration,
    /// The pod source.
    pub pods: Duration,
    /// The log roots; zero if there are none to read.
    pub logs: Duration,
}

/// Runs the work and measures its duration.
pub(super) async fn timed<T>(duration: &mut Duration, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let result = work.await;
    *duration = started.elapsed();
    result
}

/// Why a look is not enough to plan on.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoSnapshot(String);

impl Look {
    /// Converts the look for planning; `quarantine` comes from the passes.
    ///
    /// # Errors
    /// If a list could not be read: a pass needs both, unlike a page.
    pub fn snapshot(
        &self,
        quarantine: BTreeMap<PodSandboxId, Timestamp>,
    ) -> Result<Snapshot, NoSnapshot> {
        let (containers, sandboxes) = self.lists()?;
        Ok(Snapshot {
            taken_at: self.taken_at,
            uptime: self.uptime,
            containers: containers.clone(),
            sandboxes: sandboxes.clone(),
            seen: self.seen(),
            whole_pods: whole_pods(&self.containers, &self.sandboxes),
            pods: self.pods.clone(),
            pod_history: Arc::clone(&self.pod_history),
            outage: self.outage,
            last_exits: Arc::clone(&self.last_exits),
            quarantine,
            images: self.store.clone(),
            logs: self.logs.clone(),
            removed: Vec::new(),
        })
    }

    /// Returns what no pass can do without.
    ///
    /// # Errors
    /// If the runtime did not answer, or a list could not be read.
    pub fn lists(&self) -> Result<(&Rows<Container>, &Rows<PodSandbox>), NoSnapshot> {
        if let Err(error) = &self.runtime {
            return Err(NoSnapshot(format!("the runtime does not answer: {error}")));
        }
        let containers = rows_of("containers", &self.containers)?;
        let sandboxes = rows_of("sandboxes", &self.sandboxes)?;
        Ok((containers, sandboxes))
    }

    /// Says where a file with its snapshot comes from.
    pub fn about(&self, config: &Config) -> SnapshotOrigin {
        let lists = self.weights().each().into_iter();
        let lists = lists.map(|(name, weight)| (name.to_owned(), weight));
        let runtime = self.runtime.as_ref().ok();
        let runtime = runtime.map(|it| format!("{} {}", it.runtime, it.version));
        SnapshotOrigin {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            node: config.node.name.clone(),
            mode: config.mode.label().to_owned(),
            runtime: runtime.unwrap_or_default(),
            pod_source: self.pod_origin.source.label().to_owned(),
            lists: lists.collect(),
        }
    }

    /// Returns the weights of its lists.
    pub fn weights(&self) -> Weights {
        Weights::of(
            &self.runtime,
            &self.containers,
            &self.sandboxes,
            &self.images,
        )
    }

    /// Returns how much of each list this look has.
    pub fn seen(&self) -> ListCoverage {
        let missing = Coverage::Partial;
        ListCoverage {
            containers: self.containers.as_ref().map_or(missing, |l| l.coverage),
            sandboxes: self.sandboxes.as_ref().map_or(missing, |l| l.coverage),
        }
    }

    /// Says whether the list has a container without its id: it may be any.
    pub fn lacks_container_ids(&self) -> bool {
        rows(&self.containers)
            .iter()
            .any(|row| row.id.is_stand_in())
    }

    /// Returns the number of records in both lists.
    pub fn rows(&self) -> u64 {
        let count = rows(&self.containers).len() + rows(&self.sandboxes).len();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Says whether a list lacks records because time ran out; the next look goes on there.
    pub fn is_cut_short(&self) -> bool {
        let containers = self.containers.as_ref().is_ok_and(|list| list.cut_short);
        let sandboxes = self.sandboxes.as_ref().is_ok_and(|list| list.cut_short);
        containers || sandboxes
    }

    /// Returns the parts that the runtime did not answer for, and why.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, &runtime::Error)> {
        let parts = [
            ("containers", self.containers.as_ref().err()),
            ("sandboxes", self.sandboxes.as_ref().err()),
            ("images", self.images.as_ref().err()),
            ("filesystems", self.filesystems.as_ref().err()),
        ];
        let parts = parts.into_iter();
        parts.filter_map(|(part, error)| Some((part, error?)))
    }

    /// Returns the lists that may lack rows, and why.
    pub fn doubts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let doubts = [
            ("containers", doubt(&self.containers)),
            ("sandboxes", doubt(&self.sandboxes)),
            ("images", doubt(&self.images)),
        ];
        let doubts = doubts.into_iter();
        doubts.filter_map(|(list, why)| Some((list, why?)))
    }

    /// Says whether a list is missing because the runtime went away or is not ready yet.
    pub fn is_lost(&self) -> bool {
        let containers = self.containers.as_ref().err();
        let sandboxes = self.sandboxes.as_ref().err();
        containers
            .into_iter()
            .chain(sandboxes)
            .any(runtime::Error::is_lost)
    }

    /// Returns the figures that a pass reports before and after.
    pub fn figures(&self) -> NodeFigures {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let containers = self.containers.as_ref().ok();
        let sandboxes = self.sandboxes.as_ref().ok();
        let filesystems = self.filesystems.as_ref().ok();
        let mut figures = NodeFigures {
            exited_containers: containers.map(|list| {
                let exited = |c: &&Container| c.state == ContainerState::Exited;
                count(list.rows.iter().filter(exited).count())
            }),
            not_ready_sandboxes: sandboxes.map(|list| {
                let dead = |s: &&PodSandbox| s.state == PodSandboxState::NotReady;
                count(list.rows.iter().filter(dead).count())
            }),
            containers_list_bytes: containers.map(|list| list.response_bytes),
            sandboxes_list_bytes: sandboxes.map(|list| list.response_bytes),
            complete: self.seen().is_all(),
            ..NodeFigures::default()
        };
        if let Some(usage) = filesystems.and_then(|it| it.image.first()?.usage) {
            figures.measured(usage);
        }
        figures
    }
}

fn doubt<T>(list: &ListResult<T>) -> Option<String> {
    list.as_ref().ok()?.doubt()
}

fn rows_of<'a, T>(list: &'static str, part: &'a ListResult<T>) -> Result<&'a Rows<T>, NoSnapshot> {
    let unread = |error| NoSnapshot(format!("the list of {list} could not be read: {error}"));
    let listed = part.as_ref().map_err(unread)?;
    Ok(&listed.rows)
}
