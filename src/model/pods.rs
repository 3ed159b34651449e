//! What is known of pods: a source's answer, and what earlier answers said.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::PodUid;

/// One pod of a source's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePod {
    /// Its phase is Succeeded or Failed, and the API server knows that.
    pub finished: bool,
    /// Where the kubelet has it from.
    pub config_source: ConfigSource,
}

impl SourcePod {
    /// Says whether the pod is from a manifest on the node, not from the API.
    pub fn is_static(&self) -> bool {
        self.config_source != ConfigSource::Api
    }
}

/// What a pod source answered: every pod it knows of on this node, by the UID that the runtime
/// knows (mirror pods are already mapped).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodList {
    /// The pods.
    pub pods: BTreeMap<PodUid, SourcePod>,
    /// Static pods are in it by their mirror pods, as the API server has them. A static pod that
    /// has none (it was deleted, or the API server refused it) is missing and yet exists.
    pub by_mirrors: bool,
    /// When the list was true, for one that was not made on asking (a file): what is younger cannot
    /// be in it. `None`: when it was read, after the runtime was listed.
    pub as_of: Option<Timestamp>,
    /// Where it was read.
    pub read_from: ReadFrom,
}

/// Where a pod list was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// Where the source keeps it.
    #[default]
    Origin,
    /// The API server's watch cache: good enough to look at, never to remove anything on.
    Cache,
}

impl PodList {
    /// Says whether the list can tell that a pod of this source is absent. A kubelet that started while
    /// the API server was down shows its static pods only, for ever: absence counts only beside another
    /// pod of the same source. Of static pods only the node itself can say that they are gone: the API
    /// server has mirrors alone.
    pub fn vouches_for(&self, source: ConfigSource) -> bool {
        let mut pods = self.pods.values();
        match source {
            ConfigSource::Api => {}
            ConfigSource::File | ConfigSource::Http if !self.by_mirrors => {}
            // Two pods from sources that we do not know need not be from the same one.
            ConfigSource::File | ConfigSource::Http | ConfigSource::Other => return false,
        }
        pods.any(|pod| pod.config_source == source)
    }
}

/// What is known of the node's pods: a list, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pods {
    /// A settled answer, read after the runtime was listed. Whether it is complete is judged
    /// against what the runtime shows (`gc::knowledge`).
    Known(PodList),
    /// No answer to build on, and why.
    Unknown(PodsUnknown),
}

impl Pods {
    /// Says whether they are what the API server's watch cache had.
    pub fn is_cached(&self) -> bool {
        matches!(self, Self::Known(list) if list.read_from == ReadFrom::Cache)
    }
}

/// Why nothing is known of the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodsUnknown {
    /// There is no source to ask.
    NoSource,
    /// The source answers, but not for long enough yet (`pods.settle`).
    Settling,
    /// The source failed; the text says how.
    Failed(String),
}

impl fmt::Display for PodsUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource => f.write_str("no pod source is configured or there (pods.source)"),
            Self::Settling => f.write_str("the pod source has not settled yet (pods.settle)"),
            Self::Failed(why) => write!(f, "the pod source failed: {why}"),
        }
    }
}

/// A kind of pod source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
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

impl PodSourceKind {
    /// Returns the word that the configuration, metrics and the API have for it.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Returns it as a sentence names it.
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

/// Where what is known of the pods comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOrigin {
    /// The source.
    pub source: PodSourceKind,
    /// Why this one.
    pub why: String,
}

/// What crisweep itself saw of one pod, look after look. Times never lie after the look that shows
/// them, and their distance to it is measured by a clock that does not step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodHistory {
    /// The first of the good answers in a row that lack the pod; `None` if the latest does not.
    pub absent_since: Option<Timestamp>,
    /// The first of the good answers in a row that say that the pod is over: finished, or absent;
    /// `None` if the latest does not, or if anything of the pod lives.
    pub over_since: Option<Timestamp>,
    /// Where the kubelet has the pod from, as its sandbox said; `None` if no sandbox of it was seen.
    pub config_source: Option<ConfigSource>,
}

/// Where the kubelet has a pod from (the annotation `kubernetes.io/config.source`, which it sets itself).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigSource {
    /// The API server.
    Api,
    /// A manifest in a directory on the node.
    File,
    /// A manifest behind a URL.
    Http,
    /// One that we do not know.
    Other,
}

impl ConfigSource {
    /// Every source.
    pub const ALL: [Self; 4] = [Self::Api, Self::File, Self::Http, Self::Other];

    /// The annotation that says it, on the kubelet's pods and on their sandboxes.
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

    /// Guesses it by a UID's shape, where neither a sandbox nor the pod source says it.
    pub fn of_shape(uid: &PodUid) -> Self {
        if uid.is_static_shaped() {
            Self::File
        } else {
            Self::Api
        }
    }
}
