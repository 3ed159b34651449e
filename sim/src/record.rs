//! The recorded calls: every changing call, in order, and its harm.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use tonic::Code;

/// The most calls remembered; the oldest are forgotten first.
pub const CALLS_MAX: usize = 100_000;

/// An RPC of the runtime or image service.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumString, strum::VariantArray,
)]
#[expect(missing_docs, reason = "the names are CRI's")]
pub enum Rpc {
    Version,
    Status,
    ListContainers,
    StreamContainers,
    ContainerStatus,
    StopContainer,
    RemoveContainer,
    ListPodSandbox,
    StreamPodSandboxes,
    PodSandboxStatus,
    StopPodSandbox,
    RemovePodSandbox,
    ListImages,
    StreamImages,
    RemoveImage,
    ImageFsInfo,
    /// `ListStream` of containerd's own container service.
    #[strum(serialize = "ListStream")]
    ContainersListStream,
}

impl Rpc {
    /// Every one.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the RPC of a request's path.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        path.rsplit_once('/')?.1.parse().ok()
    }

    /// Says whether the RPC removes something.
    pub fn is_removal(self) -> bool {
        matches!(
            self,
            Self::RemoveContainer | Self::RemovePodSandbox | Self::RemoveImage
        )
    }
}

/// Damage that a careful cleaner never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// A running container was killed, by itself or with its sandbox.
    KilledRunningContainer,
    /// A sandbox took a created container with it.
    RemovedCreatedWithSandbox,
    /// A ready sandbox was stopped.
    StoppedReadySandbox,
    /// The newest record of a container of a living pod was removed: the kubelet runs it again.
    RemovedNewestOfLivingPod,
    /// The only record of a container was removed before the kubelet synced its end: it runs again.
    RemovedBeforeSync,
    /// An image was removed that a container or sandbox uses.
    RemovedImageInUse,
    /// A sandbox was removed while its network was up, and its address is lost.
    LeakedNetwork,
    /// A pinned image was removed.
    RemovedPinnedImage,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When it ended.
    pub at: Timestamp,
    /// Its status; `Cancelled` if the caller went away first.
    pub code: Code,
}

/// A call that changes the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number in the order of arrival, from 0.
    pub number: u64,
    /// The RPC.
    pub rpc: Rpc,
    /// The full id of its object (an image's id); if there is none, the id as given.
    pub id: String,
    /// `namespace/pod/container#attempt`, `namespace/pod#attempt`, or an image's first tag; empty
    /// if there is none.
    pub subject: String,
    /// The runtime handler of an image removal; empty: none.
    pub handler: String,
    /// The grace of a stop of a container, in seconds; 0 for other calls.
    pub grace_seconds: i64,
    /// When it arrived.
    pub at: Timestamp,
    /// The damage it did.
    pub harms: Vec<Harm>,
    /// Its end; `None` while it runs.
    pub ended: Option<Ended>,
}

/// The recorded calls of a simulated node.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) calls: VecDeque<Call>,
    next: u64,
    pub(super) counts: BTreeMap<Rpc, u64>,
    /// Calls of RPCs that this runtime lacks.
    pub(super) unknown: u64,
    /// The `grpc-timeout` of the last call that had one.
    pub(super) deadlines: BTreeMap<Rpc, String>,
    pub(super) harmful: u64,
    pub(super) in_flight: usize,
    pub(super) peak_in_flight: usize,
}

impl Record {
    pub(super) fn count(&mut self, rpc: Rpc) {
        *self.counts.entry(rpc).or_default() += 1;
    }

    /// Notes the arrival of a call; sets `call.number`.
    pub(super) fn begin(&mut self, mut call: Call) -> u64 {
        call.number = self.next;
        self.next += 1;
        if call.rpc.is_removal() {
            self.in_flight += 1;
            self.peak_in_flight = self.peak_in_flight.max(self.in_flight);
        }
        if self.calls.len() == CALLS_MAX {
            self.calls.pop_front();
        }
        let number = call.number;
        self.calls.push_back(call);
        number
    }

    pub(super) fn harm(&mut self, number: u64, harm: Harm) {
        self.harmful += 1;
        if let Some(call) = self.get_mut(number) {
            call.harms.push(harm);
        }
    }

    pub(super) fn end(&mut self, number: u64, rpc: Rpc, ended: Ended) {
        if rpc.is_removal() {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if let Some(call) = self.get_mut(number) {
            call.ended = Some(ended);
        }
    }

    /// Forgets all calls except those in flight, which still end.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.counts.clear();
        self.unknown = 0;
        self.deadlines.clear();
        self.harmful = 0;
        self.peak_in_flight = self.in_flight;
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Call> {
        let first = self.calls.front()?.number;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        self.calls.get_mut(index)
    }
}
