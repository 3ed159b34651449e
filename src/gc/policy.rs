//! What stays and what goes: the operator's numbers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use crate::model::{Labels, PodRef};

/// A bound on how many dead ones stay. In the configuration a negative number means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No bound.
    None,
    /// At most this many.
    AtMost(usize),
}

impl Limit {
    /// Reads the configuration's number: negative means no limit.
    pub fn from_config(number: i64) -> Self {
        usize::try_from(number).map_or(Self::None, Self::AtMost)
    }
}

/// What a container's age counts from, for `min_age`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgeFrom {
    /// Its exit.
    Finished,
    /// Its creation, as the kubelet does.
    Created,
}

/// What stays and what goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rules for containers.
    pub containers: ContainerPolicy,
    /// Rules for sandboxes.
    pub sandboxes: SandboxPolicy,
    /// Rules for images.
    pub images: ImagePolicy,
    /// Rules for logs.
    pub logs: LogPolicy,
    /// What is never touched.
    pub protect: Protect,
    /// When the end of a pod is believed.
    pub pods: PodPolicy,
    /// An unknown pod without a sign of life, whose last container exited longer ago than this,
    /// counts as terminated. `None`: never.
    pub assume_finished_after: Option<Duration>,
}

/// When the end of a pod is believed. Defaults and meaning: `docs/configuration.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPolicy {
    /// How far apart two good answers must be that lack a pod before it counts as deleted; zero: one
    /// answer is enough.
    pub settle: Duration,
    /// How long crisweep itself must have seen a pod finished or absent before its newest records go;
    /// zero: off.
    pub quiet: Duration,
}

/// Rules for containers. Defaults and meaning: `docs/configuration.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// Whether containers are collected at all.
    pub enabled: bool,
    /// Younger ones stay and do not count.
    pub min_age: Duration,
    /// Dead ones that stay for each (pod UID, container name).
    pub max_per_container: Limit,
    /// Dead ones that stay on the node.
    pub max_dead: Limit,
    /// A created container younger than this is about to start.
    pub created_grace: Duration,
    /// What `min_age` counts from.
    pub age_from: AgeFrom,
    /// Whether containers in state unknown are considered (and stopped first).
    pub include_unknown: bool,
}

/// Rules for sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// Whether sandboxes are collected at all.
    pub enabled: bool,
    /// Younger ones (by creation) stay and do not count.
    pub min_age: Duration,
    /// Dead ones that stay on the node.
    pub max_dead: Limit,
}

/// What is never touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protect {
    /// Namespaces whose pods' objects stay.
    pub namespaces: BTreeSet<String>,
    /// Labels whose bearers stay: key, and the value if it matters.
    pub labels: Vec<(String, Option<String>)>,
}

impl Protect {
    /// Says whether any of `labels` is one of the protected ones.
    pub fn has_label(&self, labels: &Labels) -> bool {
        self.labels.iter().any(|(key, wanted)| {
            let value = labels.get(key);
            value.is_some_and(|value| wanted.as_ref().is_none_or(|wanted| value == wanted))
        })
    }

    /// Says whether a protected label is one that the kubelet gives everything of this pod.
    pub fn has_label_of_pod(&self, pod: &PodRef) -> bool {
        self.is_bearer("io.kubernetes.pod.namespace", &pod.namespace)
            || self.is_bearer("io.kubernetes.pod.name", &pod.name)
            || self.is_bearer("io.kubernetes.pod.uid", pod.uid.as_str())
    }

    /// Says whether a protected label is the one that the kubelet gives containers of this name.
    pub fn has_label_of_container(&self, name: &str) -> bool {
        self.is_bearer("io.kubernetes.container.name", name)
    }

    /// The model keeps the kubelet's own labels as fields. An empty one is not known: it counts.
    fn is_bearer(&self, label: &str, value: &str) -> bool {
        let mut labels = self.labels.iter();
        labels.any(|(key, wanted)| {
            let is_meant = wanted.as_ref().is_none_or(|wanted| value == wanted);
            key == label && (value.is_empty() || is_meant)
        })
    }
}

/// Rules for images: the kubelet's marks and ages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// Whether images are collected at all.
    pub enabled: bool,
    /// From this share of the image file system in use on, room is made, 0 to 100.
    pub high_threshold_percent: u8,
    /// Down to this share, 0 to 100; never above the high one.
    pub low_threshold_percent: u8,
    /// Images first seen more recently stay.
    pub min_age: Duration,
    /// Images not used for longer go, room or not (the kubelet's `imageMaximumGCAge`). `None`: off.
    pub max_age: Option<Duration>,
    /// The same as a wish of the operator's own, which the kubelet does not have. `None`: off.
    pub prune_unused_after: Option<Duration>,
    /// Images of which a tag or a digest matches one of these stay.
    pub keep: Vec<KeepPattern>,
}

impl ImagePolicy {
    /// Says whether room is ever made: a high mark of 100 without `max_age` switches that off, as it
    /// does for the kubelet.
    pub fn makes_room(&self) -> bool {
        self.high_threshold_percent < 100 || self.max_age.is_some()
    }

    /// Returns the policy as it holds once room is being made: freeing goes on down to the low mark.
    /// For a pass that began above the high mark and looks again; on a node that never passed that mark
    /// it would begin too early. Where room is never made, that stays so.
    #[must_use]
    pub fn freeing_on(&self) -> Self {
        let mut on = self.clone();
        if self.makes_room() {
            on.high_threshold_percent = self.low_threshold_percent;
        }
        on
    }
}

/// A regular expression on tags and digests; matches anywhere in them unless it is anchored.
#[derive(Clone, Debug)]
pub struct KeepPattern(Regex);

impl KeepPattern {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(pattern: &str) -> Result<Self, regex::Error> {
        Regex::new(pattern).map(Self)
    }

    /// Says whether it matches somewhere in `text`.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Returns it as it was written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for KeepPattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for KeepPattern {}

/// Rules for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    /// Whether logs are collected at all.
    pub enabled: bool,
    /// A pod's directory stays for so long after it was first seen as an orphan.
    pub grace: Duration,
    /// Where pods' logs are, as the host names it.
    pub pods_root: PathBuf,
    /// Where the links to containers' logs are, as the host names it.
    pub containers_root: PathBuf,
}

impl Default for Policy {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            containers: ContainerPolicy {
                enabled: true,
                min_age: minute,
                max_per_container: Limit::AtMost(1),
                max_dead: Limit::AtMost(200),
                created_grace: 60 * minute,
                age_from: AgeFrom::Finished,
                include_unknown: false,
            },
            sandboxes: SandboxPolicy {
                enabled: true,
                min_age: minute,
                max_dead: Limit::AtMost(200),
            },
            images: ImagePolicy {
                enabled: true,
                high_threshold_percent: 85,
                low_threshold_percent: 80,
                min_age: 2 * minute,
                max_age: None,
                prune_unused_after: None,
                keep: Vec::new(),
            },
            logs: LogPolicy {
                enabled: true,
                grace: 5 * minute,
                pods_root: "/var/log/pods".into(),
                containers_root: "/var/log/containers".into(),
            },
            protect: Protect::default(),
            pods: PodPolicy {
                settle: Duration::from_secs(10),
                quiet: minute,
            },
            assume_finished_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(high: u8, low: u8, max_age: Option<Duration>) -> ImagePolicy {
        ImagePolicy {
            high_threshold_percent: high,
            low_threshold_percent: low,
            max_age,
            ..Policy::default().images
        }
    }

    #[test]
    fn freeing_goes_on_to_the_low_mark_unless_it_never_begins() {
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(marks(85, 80, None).freeing_on(), marks(80, 80, None));
        assert_eq!(marks(99, 0, None).freeing_on(), marks(0, 0, None));
        assert_eq!(marks(100, 80, day).freeing_on(), marks(80, 80, day));
        assert_eq!(marks(100, 80, None).freeing_on(), marks(100, 80, None));
        assert!(!marks(100, 80, None).freeing_on().makes_room());
        assert!(marks(100, 100, day).freeing_on().makes_room());
        let twice = marks(85, 80, None).freeing_on().freeing_on();
        assert_eq!(twice, marks(80, 80, None));
    }
}
