//! What the report is made from: values that were read before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::kubelet;
use crate::config::Config;
use crate::model::{
    Container, ContainerId, ContainerState, FailureClass, PodOrigin, PodSandbox, PodSandboxState,
    Pods, Rows,
};
use crate::snapshot::{Look, Weight, Weights};
use crate::state::Past;

/// How far ahead of the look a time may be: an object may have come while the node was looked at.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(5);

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// Its exit code.
    pub exit_code: i32,
    /// The runtime's word for it.
    pub reason: String,
}

/// How long the runtime takes for one `ContainerStatus`, asked one by one as the kubelet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many were asked.
    pub calls: u32,
    /// How long one of them took on average.
    pub mean: Duration,
}

/// Which lists could be read, if not in full. Of another one no count is known, not even 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListsRead {
    /// The containers.
    pub containers: bool,
    /// The sandboxes.
    pub sandboxes: bool,
}

/// Everything that a report is made from.
#[derive(Clone, Debug)]
pub struct DoctorFacts {
    /// The report's only "now".
    pub taken_at: Timestamp,
    /// The settings in force.
    pub config: Arc<Config>,
    /// The containers; those that could be listed.
    pub containers: Rows<Container>,
    /// The sandboxes; those that could be listed.
    pub sandboxes: Rows<PodSandbox>,
    /// Which of the two lists could be read.
    pub lists_read: ListsRead,
    /// What of the node could not be read, and why.
    pub unread: Vec<String>,
    /// The pod source's answer.
    pub pods: Pods,
    /// The pod source.
    pub origin: PodOrigin,
    /// What the lists weigh.
    pub weights: Weights,
    /// Sandboxes that could not be removed.
    pub quarantined: BTreeMap<FailureClass, usize>,
    /// What the database says of the last 24 hours; or why it says nothing.
    pub past: Result<Past, String>,
    /// How the last containers of crash loops ended.
    pub ends: BTreeMap<ContainerId, ContainerExit>,
    /// How long a status takes; `None`: none was asked.
    pub latency: Option<Latency>,
    /// What the kubelet is set to.
    pub kubelet: kubelet::KubeletSettings,
}

impl DoctorFacts {
    /// Takes over what a look found; the rest is unknown.
    pub fn of(look: &Look, config: Arc<Config>) -> Self {
        let mut unread = Vec::new();
        let mut note = |what: &str, error: Option<&crate::runtime::Error>| {
            let told = error.map(|error| format!("{what}: {error}"));
            // Without the runtime, each list fails of the same.
            unread.extend(told.filter(|_| look.runtime.is_ok() || what == "runtime"));
        };
        note("runtime", look.runtime.as_ref().err());
        note("containers", look.containers.as_ref().err());
        note("sandboxes", look.sandboxes.as_ref().err());
        let doubts = look.doubts().filter(|(list, _)| *list != "images");
        unread.extend(doubts.map(|(list, why)| format!("the list of {list} is incomplete: {why}")));
        let containers = look.containers.as_ref().ok();
        let sandboxes = look.sandboxes.as_ref().ok();
        Self {
            taken_at: look.taken_at,
            config,
            containers: containers.map(|it| it.rows.clone()).unwrap_or_default(),
            sandboxes: sandboxes.map(|it| it.rows.clone()).unwrap_or_default(),
            lists_read: ListsRead {
                containers: containers.is_some(),
                sandboxes: sandboxes.is_some(),
            },
            unread,
            pods: look.pods.clone(),
            origin: look.pod_origin.clone(),
            weights: look.weights(),
            quarantined: BTreeMap::new(),
            past: Err("it was not read".to_owned()),
            ends: BTreeMap::new(),
            latency: None,
            kubelet: kubelet::KubeletSettings::default(),
        }
    }

    /// Returns the exited containers.
    pub(super) fn dead(&self) -> impl Iterator<Item = &Container> {
        let rows = self.containers.iter();
        rows.filter(|it| it.state == ContainerState::Exited)
    }

    pub(super) fn not_ready(&self) -> impl Iterator<Item = &PodSandbox> {
        let rows = self.sandboxes.iter();
        rows.filter(|it| it.state == PodSandboxState::NotReady)
    }

    /// Returns the mean weight of a container and of a sandbox in their lists.
    pub(super) fn row_bytes(&self) -> (u64, u64) {
        let mean = |weight: Weight, rows: usize| {
            let bytes = weight.bytes.unwrap_or(0);
            bytes.checked_div(rows as u64).unwrap_or(0)
        };
        let (containers, sandboxes) = (self.containers.len(), self.sandboxes.len());
        (
            mean(self.weights.containers, containers),
            mean(self.weights.sandboxes, sandboxes),
        )
    }

    /// Says whether a time is less than so long before the look; an unknown one is not.
    pub(super) fn is_within(&self, at: Timestamp, hours: i64) -> bool {
        let ago = self.taken_at.duration_since(at);
        (-AHEAD_MAX..SignedDuration::from_hours(hours)).contains(&ago)
    }

    /// Says whether a time comes from before a clock step back; an unknown one does not.
    pub(super) fn is_ahead(&self, at: Timestamp) -> bool {
        at < Timestamp::MAX && at.duration_since(self.taken_at) > AHEAD_MAX
    }
}
