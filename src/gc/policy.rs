//! The operator's limits.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use regex_lite::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::model::setting::{
    AbsolutePath, As, COUNT_MAX, ListOf, Off, One, SettingForm, Time, Whole, settings, text_kinds,
};
use crate::model::{KeepReason, Labels, PodRef, Target};

/// A limit of dead objects to keep. In the configuration a negative number means no limit.
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

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => to.serialize_i64(-1),
            Self::AtMost(count) => count.serialize(to),
        }
    }
}

impl SettingForm for Limit {
    type Value = Self;

    fn must_be() -> String {
        format!("a whole number up to {COUNT_MAX}; negative: no limit")
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Whole::<i64, { -COUNT_MAX }, COUNT_MAX>::read(from).map(Self::from_config)
    }
}

/// The time that a container's age counts from, for `min_age`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AgeFrom {
    /// Its exit.
    Finished,
    /// Its creation, as the kubelet does.
    Created,
}

settings! {
    /// The operator's limits for all targets.
    #[derive(Eq)]
    pub struct Policy {
        /// Rules for containers.
        pub containers: ContainerPolicy = ContainerPolicy::default(),
        /// Rules for sandboxes.
        pub sandboxes: SandboxPolicy = SandboxPolicy::default(),
        /// Rules for images.
        pub images: ImagePolicy = ImagePolicy::default(),
        /// Rules for logs.
        pub logs: LogPolicy = LogPolicy::default(),
        /// What is never touched.
        pub protect: Protect = Protect::default(),
        /// When the end of a pod is believed; configured below `pods`.
        #[serde(skip)]
        pub pods: PodPolicy = PodPolicy { settle: Duration::from_secs(10), quiet: MINUTE, },
        /// An unknown pod without a sign of life, whose last container exited longer ago than this, counts as
        /// terminated. `None`: never. Configured below `pods`.
        #[serde(skip)]
        pub assume_finished_after: Option<Duration> = None,
    }
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

settings! {
    /// Rules for containers. Defaults and meaning: `docs/configuration.md`.
    #[derive(Eq)]
    pub struct ContainerPolicy {
        /// Whether containers are collected.
        pub enabled: bool = true,
        /// Younger dead containers stay and do not count.
        #[serde(with = "As::<Time>")]
        pub min_age: Duration = MINUTE,
        /// Dead containers that stay for each (pod UID, container name). 0 still keeps the newest of a pod that may
        /// exist.
        #[serde(with = "As::<Limit>")]
        pub max_per_container: Limit = Limit::AtMost(1),
        /// Dead containers that stay on the node.
        #[serde(with = "As::<Limit>")]
        pub max_dead: Limit = Limit::AtMost(200),
        /// Whether the oldest dead container of each (pod UID, container name) stays beyond all limits until its pod is
        /// finished or deleted: the first failure of a crash loop often tells more than the latest.
        pub keep_first: bool = false,
        /// A created container that is younger is about to start, and stays.
        #[serde(with = "As::<Time>")]
        pub created_grace: Duration = 60 * MINUTE,
        /// What `min_age` counts from. The kubelet's is `created`.
        pub age_from: AgeFrom = AgeFrom::Finished,
        /// Whether containers in state unknown are considered (and stopped first).
        pub include_unknown: bool = false,
    }
}

settings! {
    /// Rules for sandboxes.
    #[derive(Eq)]
    pub struct SandboxPolicy {
        /// Whether sandboxes are collected.
        pub enabled: bool = true,
        /// Younger sandboxes (by creation) stay and do not count.
        #[serde(with = "As::<Time>")]
        pub min_age: Duration = MINUTE,
        /// Dead sandboxes that stay on the node.
        #[serde(with = "As::<Limit>")]
        pub max_dead: Limit = Limit::AtMost(200),
    }
}

/// What is never touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Protect {
    /// Namespaces whose pods' objects stay.
    #[serde(with = "As::<ListOf<Namespace, BTreeSet<String>>>")]
    pub namespaces: BTreeSet<String>,
    /// Labels (`key` or `key=value`) whose bearers stay; the kubelet's own too (`io.kubernetes.pod.namespace`,
    /// `.pod.name`, `.pod.uid`, `.container.name`).
    #[serde(
        serialize_with = "show_labels",
        deserialize_with = "As::<ListOf<LabelSelector>>::deserialize"
    )]
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
        // Without labels the pod is not read: it lies anywhere in memory.
        !self.labels.is_empty()
            && (self.is_bearer("io.kubernetes.pod.namespace", &pod.namespace)
                || self.is_bearer("io.kubernetes.pod.name", &pod.name)
                || self.is_bearer("io.kubernetes.pod.uid", pod.uid.as_str()))
    }

    /// Says whether a protected label is the one that the kubelet gives containers of this name.
    pub fn has_label_of_container(&self, name: &str) -> bool {
        self.is_bearer("io.kubernetes.container.name", name)
    }

    /// Says whether a protected label is one that the kubelet gives this container, which only the name of its log's
    /// link tells. An empty name is not known, and the pod's UID never is.
    pub fn has_label_of_link(&self, [pod, namespace, container]: [&str; 3]) -> bool {
        self.is_bearer("io.kubernetes.pod.namespace", namespace)
            || self.is_bearer("io.kubernetes.pod.name", pod)
            || self.is_bearer("io.kubernetes.pod.uid", "")
            || self.has_label_of_container(container)
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

text_kinds! {
    Namespace -> String, "a namespace's name: up to 63 of a-z, 0-9 and -", |text| {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_name = (1..=63).contains(&text.len()) && text.bytes().all(allowed);
        is_name.then(|| text.to_owned())
    };

    LabelSelector -> (String, Option<String>), "a label as \"key=value\" or \"key\"", |text| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        let is_label = !key.is_empty()
            && key.bytes().all(|b| allowed(b) || b == b'/')
            && value.unwrap_or_default().bytes().all(allowed);
        is_label.then(|| (key.to_owned(), value.map(str::to_owned)))
    };

    Expression -> String, "a regular expression",
        |text| (!text.is_empty()).then(|| text.to_owned());
}

fn show_labels<S: Serializer>(
    labels: &[(String, Option<String>)],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(labels.iter().map(|(key, value)| match value {
        Some(value) => format!("{key}={value}"),
        None => key.clone(),
    }))
}

settings! {
    /// Rules for images: the kubelet's thresholds and ages.
    #[derive(Eq)]
    pub struct ImagePolicy {
        /// Whether images are collected.
        pub enabled: bool = true,
        /// Above this use of the image file system (bytes or inodes) unused images are removed, least recently used
        /// first. 100 without `max_age`: never.
        #[serde(with = "As::<Whole<u8, 0, 100>>")]
        pub high_threshold_percent: u8 = 85,
        /// Images are removed until the use is down to this; not above `high_threshold_percent`.
        #[serde(with = "As::<Whole<u8, 0, 100>>")]
        pub low_threshold_percent: u8 = 80,
        /// Images first seen more recently stay, whatever the reason to remove them.
        #[serde(with = "As::<Time>")]
        pub min_age: Duration = 2 * MINUTE,
        /// Images unused for longer are removed, however full the disk is (the kubelet's `imageMaximumGCAge`). The age
        /// of one that was never used counts from when it was first seen.
        #[serde(with = "As::<Off<Time>>")]
        pub max_age: Option<Duration> = None,
        /// Regular expressions (ASCII classes; no `\p{...}`): images stay whose tag or digest matches one. A match may
        /// be anywhere in it, unless `^` or `$` anchors it.
        #[cfg_attr(test, schemars(with = "Vec<String>"))]
        pub keep: Vec<KeepPattern> = Vec::new(),
    }
}

impl ImagePolicy {
    /// Says whether space is ever freed: a high threshold of 100 without `max_age` switches that off, as for
    /// the kubelet.
    pub fn makes_room(&self) -> bool {
        self.high_threshold_percent < 100 || self.max_age.is_some()
    }

    /// Returns the policy for the time after freeing has begun: it goes on down to the low threshold. Only
    /// for a pass that began above the high threshold and looks again. A policy that never frees space does
    /// not change.
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
    pub fn new(pattern: &str) -> Result<Self, regex_lite::Error> {
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

impl Serialize for KeepPattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for KeepPattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = One::<Expression>::read(from)?;
        Self::new(&text).map_err(|error| {
            // The last line says what is wrong; the lines before it mark the place.
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim().to_owned();
            de::Error::custom(format!("a regular expression ({why})"))
        })
    }
}

impl PartialEq for KeepPattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for KeepPattern {}

settings! {
    /// Rules for logs.
    #[derive(Eq)]
    pub struct LogPolicy {
        /// Whether logs are collected: logs of removed containers, orphaned pod directories, dead links. While it is
        /// off, crisweep does not read the log roots.
        pub enabled: bool = true,
        /// How long a pod's directory stays after crisweep first saw it orphaned, and after its last change.
        #[serde(with = "As::<Time>")]
        pub grace: Duration = 5 * MINUTE,
        /// Where pods' logs are, as the host names it. It must be writable for crisweep.
        #[serde(with = "As::<One<AbsolutePath>>")]
        pub pods_root: PathBuf = "/var/log/pods".into(),
        /// Where the links to containers' logs are, as the host names it; not `pods_root`, nor below or above it.
        #[serde(with = "As::<One<AbsolutePath>>")]
        pub containers_root: PathBuf = "/var/log/containers".into(),
    }
}

const MINUTE: Duration = Duration::from_secs(60);

impl Policy {
    /// Returns why objects of a switched-off target stay that would go otherwise; `None` if the target is on.
    pub(super) fn off(&self, target: Target) -> Option<KeepReason> {
        let (enabled, reason) = match target {
            Target::Containers => (self.containers.enabled, KeepReason::WithinLimits),
            Target::Sandboxes => (self.sandboxes.enabled, KeepReason::WithinLimits),
            Target::Logs => (self.logs.enabled, KeepReason::NotAsked),
            Target::Images => (self.images.enabled, KeepReason::BelowThreshold),
        };
        (!enabled).then_some(reason)
    }

    /// Checks the keys against each other; calls `refuse` with a key and its problem.
    pub fn validate(&self, refuse: &mut dyn FnMut(&str, String)) {
        let (low, high) = (
            self.images.low_threshold_percent,
            self.images.high_threshold_percent,
        );
        if low > high {
            let text = format!("is {low}, but must not be above high_threshold_percent, {high}");
            refuse("policy.images.low_threshold_percent", text);
        }
        let (pods, containers) = (&self.logs.pods_root, &self.logs.containers_root);
        if pods.starts_with(containers) || containers.starts_with(pods) {
            let text = "must be neither pods_root, nor below nor above it".to_owned();
            refuse("policy.logs.containers_root", text);
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
    fn freeing_continues_to_the_low_mark_once_it_began() {
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
