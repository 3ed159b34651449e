//! What is known of pods: a source's answer, and what earlier answers said.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MaybeKnown, PodOwner, PodUid, is_static_shaped, labelled};

/// One pod of a source's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcePod {
    /// Its phase is Succeeded or Failed, and the API server has recorded that.
    pub finished: bool,
    /// The kubelet's source of the pod.
    pub config_source: ConfigSource,
}

impl SourcePod {
    /// Says whether the pod is from a manifest on the node, not from the API.
    pub fn is_static(&self) -> bool {
        self.config_source != ConfigSource::Api
    }
}

/// A pod source's answer: every pod of this node that it lists, by the runtime's UID (mirror pods are
/// already mapped).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodList {
    /// The pods.
    pub pods: BTreeMap<PodUid, SourcePod>,
    /// What controls each pod, for those that something does. Decides nothing, so no snapshot file has it.
    #[serde(skip)]
    pub owners: BTreeMap<PodUid, PodOwner>,
    /// One of the pods runs (phase Running): then no list of the runtime is empty. Only a look asks, so no snapshot file
    /// has it.
    #[serde(skip)]
    pub any_runs: bool,
    /// Static pods are listed as mirror pods, as at the API server. A static pod without a mirror (deleted,
    /// or refused by the API server) is missing here and still exists.
    pub by_mirrors: bool,
    /// The date of a list that was written before it was asked for (a file): younger pods cannot be in it.
    /// `None`: the list was made when it was read, after the runtime was listed.
    pub as_of: Option<Timestamp>,
    /// Where it was read.
    pub read_from: ReadFrom,
}

/// Where a pod list was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFrom {
    /// The source itself.
    #[default]
    Origin,
    /// The API server's watch cache: good enough to show, never to remove by.
    Cache,
}

impl PodList {
    /// Says whether the list can prove that a pod of this source is absent. A kubelet that started while the
    /// API server was down lists only its static pods, for ever: absence counts only if the list holds another
    /// pod of the same source. The API server has only mirrors, so it never proves a static pod absent.
    pub fn vouches_for(&self, source: ConfigSource) -> bool {
        let mut pods = self.pods.values();
        match source {
            ConfigSource::Api => {}
            ConfigSource::File | ConfigSource::Http if !self.by_mirrors => {}
            // Two pods of unknown sources may have different sources.
            ConfigSource::File | ConfigSource::Http | ConfigSource::Other => return false,
        }
        pods.any(|pod| pod.config_source == source)
    }
}

/// The node's pods: a settled answer, read after the runtime was listed, or no usable one. Whether it is complete is
/// judged against what the runtime shows (`gc::knowledge`).
pub type Pods = MaybeKnown<PodList, PodsUnknown>;

impl Pods {
    /// Says whether they were read from the API server's watch cache.
    pub fn is_cached(&self) -> bool {
        matches!(self, Self::Known(list) if list.read_from == ReadFrom::Cache)
    }
}

/// Why the pods are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum PodsUnknown {
    /// No source is configured or found.
    #[error("no pod source is configured or found (pods.source)")]
    NoSource,
    /// The source has not answered for long enough yet (`pods.settle`).
    #[error("the pod source has not settled yet (pods.settle)")]
    Settling,
    /// The source failed; the text says how.
    #[error("the pod source failed: {0}")]
    Failed(String),
}

labelled! {
    /// A kind of pod source.
    #[derive(Default)]
    pub enum PodSourceKind {
        /// None.
        #[default]
        None,
        /// A file.
        File,
        /// The kubelet's pods API on its socket.
        KubeletSocket,
        /// The kubelet's `/pods`.
        Kubelet,
        /// The API server.
        ApiServer,
    }
}

impl PodSourceKind {
    /// Returns its name in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "no pod source",
            Self::File => "the pods file",
            Self::KubeletSocket => "the kubelet's pods socket",
            Self::Kubelet => "the kubelet",
            Self::ApiServer => "the API server",
        }
    }
}

/// The pod source in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOrigin {
    /// The source.
    pub source: PodSourceKind,
    /// Why this one was chosen.
    pub why: String,
}

/// What earlier looks saw of one pod. Times never lie after the look that shows them; their distance to it is
/// measured by the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodHistory {
    /// The first of the latest good answers in a row that lack the pod; `None` if the last one has it.
    pub absent_since: Option<Timestamp>,
    /// The first of the latest good answers in a row that show the pod finished or absent; `None` if the last
    /// one does not, or if any object of the pod lives.
    pub over_since: Option<Timestamp>,
    /// The pod's source by its sandbox's annotation; `None` if no sandbox of it was seen.
    pub config_source: Option<ConfigSource>,
}

/// The kubelet's source of a pod (the annotation `kubernetes.io/config.source`, which the kubelet sets).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigSource {
    /// The API server.
    Api,
    /// A manifest in a directory on the node.
    File,
    /// A manifest behind a URL.
    Http,
    /// A source that crisweep does not know.
    Other,
}

impl ConfigSource {
    /// Every source.
    pub const ALL: [Self; 4] = [Self::Api, Self::File, Self::Http, Self::Other];

    /// The annotation's key, on the kubelet's pods and on their sandboxes.
    pub const ANNOTATION: &str = "kubernetes.io/config.source";

    /// Reads the annotation's value; `None` if it is empty.
    pub fn of_annotation(value: &[u8]) -> Option<Self> {
        Some(match value {
            b"" => return None,
            b"api" => Self::Api,
            b"file" => Self::File,
            b"http" => Self::Http,
            _ => Self::Other,
        })
    }

    /// Guesses it from the UID's shape, if neither a sandbox nor the pod source names it.
    pub fn of_shape(uid: &(impl Borrow<str> + ?Sized)) -> Self {
        if is_static_shaped(uid.borrow()) {
            Self::File
        } else {
            Self::Api
        }
    }
}
