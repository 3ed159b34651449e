//! The sections of the configuration whose rooms read the whole of it: those of the runtime, the pods, the
//! policy, the state and the log stand in their rooms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::setting::{
    As, COUNT_MAX, Interval, ListOf, Number, Off, One, Positive, Time, Whole, is_host_name,
    settings, text_kinds,
};
use crate::model::{Target, Targets, labelled};
use crate::outgoing::HttpClientConfig;

settings! {
    /// `collect:` - looks at the node.
    #[derive(Eq)]
    pub struct Collect {
        /// How old a shared look at the node may be. 0: a new look for each request.
        #[serde(with = "As::<Time>")]
        pub max_age: Duration = Duration::from_secs(10),
    }
}

/// `node:` - which node this is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NodeSection {
    /// This node's name. `null`: `NODE_NAME`, then the host's name.
    #[serde(serialize_with = "show_name")]
    #[serde(deserialize_with = "As::<One<NodeName>>::deserialize")]
    pub name: String,
}

fn show_name<S: Serializer>(name: &str, to: S) -> Result<S::Ok, S::Error> {
    Some(name).filter(|name| !name.is_empty()).serialize(to)
}

text_kinds! {
    pub(super) NodeName -> String, "a node's name: up to 253 of a-z, 0-9, - and .",
        |text| is_host_name(text).then(|| text.to_owned());

    AlertmanagerUrl -> String, "a URL such as http://alertmanager:9093, up to where /api begins", |text| {
        let url = reqwest::Url::parse(text).ok()?;
        let is_http = ["http", "https"].contains(&url.scheme());
        let is_bare = url.query().is_none() && url.fragment().is_none();
        (is_http && is_bare && !url.path().contains("/api/v")).then(|| text.to_owned())
    };
}

labelled! {
    /// Whether anything is removed at all.
    #[derive(Default)]
    pub enum Mode {
        /// Passes remove.
        #[default]
        Enforce,
        /// Passes plan and report, and never remove.
        Observe,
    }
}

settings! {
    /// `gc:` - bounds of a pass. `None` is off.
    pub struct Gc {
        /// Removals between two looks at the node.
        #[serde(with = "As::<Whole<usize, 1, 10_000>>")]
        pub batch_size: usize = 50,
        /// Removals at the same time that cost the disk, at most; sandboxes that wait for their network come on top.
        #[serde(with = "As::<Whole<usize, 1, 1_000>>")]
        pub max_concurrency: usize = 8,
        /// Removals in one pass, at most.
        #[serde(with = "As::<Off<Whole<u64, 0, COUNT_MAX>>>")]
        pub max_removals: Option<u64> = None,
        /// How long a pass may take: no removal starts after it, and the pass ends within 2 s.
        #[serde(with = "As::<Off<Time>>")]
        pub deadline: Option<Duration> = Some(Duration::from_secs(600)),
        /// Rest between batches.
        #[serde(with = "As::<Time>")]
        pub batch_pause: Duration = Duration::ZERO,
        /// Share of stalled IO above which removals of 20 ms or more go slower.
        #[serde(with = "As::<Off<Number<100>>>")]
        pub io_pressure_pause_percent: Option<f64> = Some(20.0),
        /// Share of failures above which a pass gives a target up (the circuit breaker); the next target goes on. `POST
        /// /gc?force=true` ignores it.
        #[serde(with = "As::<Off<Number<1>>>")]
        pub failure_ratio: Option<f64> = Some(0.5),
    }
}

settings! {
    /// `quarantine:` - how long a sandbox is left alone that could not be removed.
    #[derive(Copy, Eq)]
    pub struct BackOff {
        /// How long a sandbox is left alone after its removal failed for the first time.
        #[serde(with = "As::<Positive>")]
        pub base: Duration = Duration::from_secs(60),
        /// The longest such time; each failure doubles it. Not below `base`.
        #[serde(with = "As::<Positive>")]
        pub max: Duration = Duration::from_secs(3600),
    }
}

impl BackOff {
    pub(super) fn validate(self, refuse: &mut dyn FnMut(&str, String)) {
        if self.max < self.base {
            let (base, max) = (self.base, self.max);
            let show = humantime::format_duration;
            let (base, max) = (show(base), show(max));
            let text = format!("is {max}, but must not be below quarantine.base, {base}");
            refuse("quarantine.max", text);
        }
    }
}

settings! {
    /// `thresholds:` - marks at which crisweep asks for a pass. `None` is off.
    pub struct Thresholds {
        /// Whether a crossed threshold asks for a pass; in `mode: observe` once for each crossing. Metrics show the
        /// thresholds in any case.
        pub enabled: bool = false,
        /// Time between two checks of the thresholds.
        #[serde(with = "As::<Interval>")]
        pub interval: Duration = Duration::from_secs(30),
        /// Exited containers on the node that ask for a pass over containers, sandboxes and logs.
        #[serde(with = "As::<Off<Whole<u32, 0, COUNT_MAX>>>")]
        pub exited_containers: Option<u32> = Some(500),
        /// Sandboxes on the node that are not ready and ask for the same.
        #[serde(with = "As::<Off<Whole<u32, 0, COUNT_MAX>>>")]
        pub not_ready_sandboxes: Option<u32> = Some(50),
        /// Share of its limit at which the heaviest list asks for the same.
        #[serde(with = "As::<Off<Number<1>>>")]
        pub list_limit_ratio: Option<f64> = Some(0.75),
        /// Use of the image file system (bytes or inodes) that asks for a pass over everything.
        #[serde(with = "As::<Off<Number<100>>>")]
        pub image_fs_used_percent: Option<f64> = Some(85.0),
    }
}

/// An entry of `alerts:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a section with match and targets")]
pub struct AlertRoute {
    /// The labels that an alert must have, all of them; never empty.
    #[serde(rename = "match", deserialize_with = "labels")]
    pub matches: BTreeMap<String, String>,
    /// What such an alert asks for; never empty.
    #[serde(deserialize_with = "targets")]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub targets: BTreeSet<Target>,
}

fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let labels = BTreeMap::<String, String>::deserialize(from)?;
    if labels.is_empty() {
        return Err(D::Error::custom("a section with at least one label"));
    }
    if labels.values().any(String::is_empty) {
        return Err(D::Error::custom("labels whose values are not empty"));
    }
    Ok(labels)
}

fn targets<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<Target>, D::Error> {
    struct Word(Targets);
    impl<'de> Deserialize<'de> for Word {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let word = String::deserialize(from)?;
            let unknown = |error| D::Error::custom(format!("a target's name ({error})"));
            word.parse::<Targets>().map(Self).map_err(unknown)
        }
    }
    let words = Vec::<Word>::deserialize(from)?;
    if words.is_empty() {
        return Err(D::Error::custom("a list of at least one target"));
    }
    Ok(words.into_iter().flat_map(|word| word.0.0).collect())
}

settings! {
    /// `alertmanager:` - Alertmanagers that are asked for alerts.
    #[derive(Eq)]
    pub struct Alertmanager {
        /// Alertmanagers to ask for active alerts about this node; crisweep treats the answers as a webhook's alerts. A
        /// user and password in the URL are sent as basic auth; better are the files of `http_client_config`.
        #[serde(with = "As::<ListOf<AlertmanagerUrl>>")]
        pub poll: Vec<String> = Vec::new(),
        /// Time between two questions, varied by up to a tenth.
        #[serde(with = "As::<Interval>")]
        pub interval: Duration = Duration::from_secs(30),
        /// How the Alertmanagers are asked; the keys are Prometheus'.
        pub http_client_config: HttpClientConfig = HttpClientConfig::default(),
    }
}

impl Alertmanager {
    /// Where the keys of `http_client_config` are.
    pub(super) const CLIENT: &str = "alertmanager.http_client_config";

    pub(super) fn validate(&self, refuse: &mut dyn FnMut(&str, String)) {
        self.http_client_config.validate(Self::CLIENT, refuse);
        let has_user =
            |url: &String| reqwest::Url::parse(url).is_ok_and(|url| !url.username().is_empty());
        if self.http_client_config.has_credentials() && self.poll.iter().any(has_user) {
            let text = "names a user, and so does alertmanager.http_client_config; a request has one of them";
            refuse("alertmanager.poll", text.to_owned());
        }
    }
}

settings! {
    /// `brakes:` - what holds triggers back.
    #[derive(Copy, Eq)]
    pub struct Brakes {
        /// Least time between two passes of a target. An alert that comes earlier waits for it.
        #[serde(with = "As::<Time>")]
        pub cooldown: Duration = Duration::from_secs(60),
        /// Passes of a target within an hour, of those that tried to remove something of it.
        #[serde(with = "As::<Off<Whole<u32, 0, 1_000_000>>>")]
        pub max_passes_per_hour: Option<u32> = Some(30),
        /// An automatic pass (alert, poll, threshold) waits a random part of this time before it may begin, so that a
        /// fleet does not act at once; a resolved alert withdraws it meanwhile.
        #[serde(with = "As::<Off<Time>>")]
        pub jitter: Option<Duration> = None,
        /// Holds all passes but forced ones and dry runs.
        pub pause: bool = false,
    }
}
