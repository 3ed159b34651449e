//! Every setting, its default and its check. The only reader of configuration files and environment.
//!
//! Flags go before environment, environment before file, file before defaults. What is unknown,
//! impossible or not served yet is refused with its key's name, all of it at once.

mod file;
mod given;
mod keys;
mod parse;
mod pods;
mod reader;
mod reload;
#[cfg(test)]
mod tests;
mod unfold;
mod unserved;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::config::ConfigError;
use yaml_rust2::YamlEmitter;

use crate::gc::Policy;
use crate::model::Target;
use crate::telemetry::Log;
use file::FILE_MAX;
use given::Given;
pub use parse::parse_duration;
use reader::Reader;
pub use reload::FIXED;

/// The whole effective configuration. Keys, defaults and ranges: `docs/configuration.md`.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The runtime and how to talk to it.
    pub runtime: Runtime,
    /// Looks at the node.
    pub collect: Collect,
    /// This node's name: `node.name`, else `NODE_NAME`, else the host's name.
    pub node_name: String,
    /// Whether anything is removed at all.
    pub mode: Mode,
    /// What stays and what goes; holds `pods.settle`, `pods.quiet` and `pods.assume_finished_after` too.
    pub policy: Policy,
    /// Bounds of a pass.
    pub gc: Gc,
    /// Back-off for sandboxes that could not be removed.
    pub quarantine: Quarantine,
    /// Where knowledge of the pods comes from.
    pub pods: Pods,
    /// Which alert asks for which targets; empty: the label `crisweep` says.
    pub alerts: Vec<AlertRoute>,
    /// Marks at which crisweep starts passes by itself.
    pub thresholds: Thresholds,
    /// Alertmanagers that are asked for alerts.
    pub alertmanager: Alertmanager,
    /// What holds triggers back.
    pub brakes: Brakes,
    /// What outlives the process.
    pub state: State,
    /// The HTTP server.
    pub web: Web,
    /// Logging.
    pub log: Log,
    /// Environment variables that look like settings and are none.
    pub strange: Vec<String>,
    /// Each key's value as it was written, for [`Config::effective_yaml`].
    effective: Vec<(&'static str, Given)>,
}

/// `runtime:` - the runtime and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The CRI socket, `unix:///path` or a path; `None`: look for it.
    pub endpoint: Option<String>,
    /// The image service's socket, where it is another one.
    pub image_endpoint: Option<String>,
    /// Bound of a call that reads; above 0.
    pub timeout: Duration,
    /// Bound of a call that removes; above 0.
    pub removal_timeout: Duration,
    /// The largest answer that is taken.
    pub max_message_bytes: usize,
    /// Where the host's file system is mounted.
    pub host_root: PathBuf,
    /// Size of the demo's simulated disk. Only the demo sets it: there is no key for it.
    pub simulated_disk_bytes: Option<u64>,
}

/// `collect:` - looks at the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    /// How old a shared look may be; 0: a new look for each request.
    pub max_age: Duration,
}

/// Whether anything is removed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes remove.
    Enforce,
    /// Passes plan and report, and never remove.
    Observe,
}

/// `gc:` - bounds of a pass. `None` is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Gc {
    /// Removals between two looks; at least 1.
    pub batch_size: usize,
    /// Removals at the same time that cost the disk; at least 1. Waiting for a network comes on top.
    pub max_concurrency: usize,
    /// Removals in one pass.
    pub max_removals: Option<usize>,
    /// How long a pass may take.
    pub deadline: Option<Duration>,
    /// Rest between batches; may be 0.
    pub batch_pause: Duration,
    /// Share of stalled IO, in percent, above which removals that take long go slower.
    pub io_pressure_pause_percent: Option<f64>,
    /// Share of failures, 0 to 1, above which a pass ends.
    pub failure_ratio: Option<f64>,
}

/// `quarantine:` - back-off for sandboxes that could not be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// After the first failure; above 0.
    pub base: Duration,
    /// At most; not below `base`.
    pub max: Duration,
}

/// `pods:` - where knowledge of the pods comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// The source.
    pub source: PodSource,
}

/// A source of pod knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSource {
    /// What is there: the kubelet's pods socket, else the API server, else nothing.
    Auto {
        /// The socket; `None`: where the kubelet makes it.
        kubelet_socket: Option<PathBuf>,
        /// The API server, if the configuration or Kubernetes names one.
        api_server: Option<ApiServer>,
    },
    /// None.
    None,
    /// A file of the shape that the kubelet's `/pods` has.
    File(PathBuf),
    /// The kubelet's pods socket; `None`: where the kubelet makes it.
    KubeletSocket(Option<PathBuf>),
    /// The kubelet's `/pods`.
    Kubelet(Kubelet),
    /// The API server.
    ApiServer(ApiServer),
}

/// The kubelet's `/pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// Where it is; `None`: on this machine, with a certificate of the node's name.
    pub url: Option<String>,
    /// The file with the token to show.
    pub token_file: Option<PathBuf>,
    /// The file with the CA of its certificate; `None` only with an `http` URL.
    pub ca_file: Option<PathBuf>,
}

/// The API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Where it is.
    pub url: String,
    /// The file with the token to show.
    pub token_file: Option<PathBuf>,
    /// The file with the CA of its certificate; `None` only with an `http` URL.
    pub ca_file: Option<PathBuf>,
}

/// An entry of `alerts:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRoute {
    /// The labels that an alert must have, all of them; never empty.
    pub matches: BTreeMap<String, String>,
    /// What such an alert asks to clean; never empty.
    pub targets: BTreeSet<Target>,
}

/// `thresholds:` - marks at which crisweep starts passes by itself. `None` is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Whether crossing one asks for a pass; metrics show them in any case.
    pub enabled: bool,
    /// How often the node is looked at for it; above 0.
    pub interval: Duration,
    /// Exited containers on the node.
    pub exited_containers: Option<u32>,
    /// Sandboxes that are not ready.
    pub not_ready_sandboxes: Option<u32>,
    /// What a list weighs against what it may weigh, 0 to 1.
    pub list_limit_ratio: Option<f64>,
    /// The image file system's used share, percent.
    pub image_fs_used_percent: Option<f64>,
}

/// `alertmanager:` - Alertmanagers that are asked for alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alertmanager {
    /// Their URLs, up to where `/api` begins; empty: none is asked.
    pub poll: Vec<String>,
    /// Time between two questions; above 0.
    pub interval: Duration,
}

/// `brakes:` - what holds triggers back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brakes {
    /// Least time between two passes of a target; 0: none.
    pub cooldown: Duration,
    /// Passes within an hour; `None`: no bound.
    pub max_passes_per_hour: Option<u32>,
    /// Whether all triggers are held.
    pub pause: bool,
}

/// `state:` - what outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The directory; `None`: nothing is kept and no lock is held.
    pub dir: Option<PathBuf>,
    /// The journal's size.
    pub journal_bytes: u64,
}

/// `web:` - the HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Addresses to listen on; never empty.
    pub listen: Vec<SocketAddr>,
    /// Host names, in lower case, that requests may name besides the node's own.
    pub trusted_hosts: Vec<String>,
}

/// What flags set; they go before everything else. They are checked like any other layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--web.listen-address`; empty: not given.
    pub listen: Vec<String>,
    /// `--web.config.file`.
    pub web_config_file: Option<String>,
    /// `--runtime-endpoint`.
    pub runtime_endpoint: Option<String>,
    /// `--log.level`.
    pub log_level: Option<String>,
    /// `--log.format`.
    pub log_format: Option<String>,
}

impl Overrides {
    fn layer(&self) -> BTreeMap<&'static str, (&'static str, Given)> {
        let one = |value: &Option<String>| value.clone().map(Given::Plain);
        let listen = self
            .listen
            .iter()
            .cloned()
            .map(Given::Plain)
            .collect::<Vec<_>>();
        let flags = [
            (
                "web.listen",
                "--web.listen-address",
                Some(Given::List(listen)),
            ),
            (
                "web.config_file",
                "--web.config.file",
                one(&self.web_config_file),
            ),
            (
                "runtime.endpoint",
                "--runtime-endpoint",
                one(&self.runtime_endpoint),
            ),
            ("log.level", "--log.level", one(&self.log_level)),
            ("log.format", "--log.format", one(&self.log_format)),
        ];
        let given = |(key, flag, value): (_, _, Option<Given>)| Some((key, (flag, value?)));
        let is_set = |(_, (_, value)): &(_, (_, Given))| *value != Given::List(Vec::new());
        flags.into_iter().filter_map(given).filter(is_set).collect()
    }
}

/// Where a node's name and its API server come from when the configuration has none.
struct NodeHints {
    variable: Option<String>,
    host_name: String,
    api_url: Option<String>,
}

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key's full path, or the variable's name.
    pub key: String,
    /// What is wrong, and what would be right; reads on after the key.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file's name does not say what is in it.
    #[error("{}: unknown ending; a configuration file ends in .yaml, .yml or .toml", .0.display())]
    Ending(PathBuf),
    /// There is no such file, or it may not be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is a directory or a device.
    #[error("{}: is not a file", .0.display())]
    NotAFile(PathBuf),
    /// It is larger than any configuration.
    #[error("{}: is larger than {FILE_MAX} bytes", .0.display())]
    TooBig(PathBuf),
    /// It is not well-formed, names a key twice, or is no table of keys.
    #[error("{}: not a well-formed configuration", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The variables could not be read.
    #[error("cannot read the environment")]
    Environment {
        /// Why.
        #[source]
        source: Box<ConfigError>,
    },
    /// It was understood, and something in it will not do: one line for each problem.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

fn lines(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

impl Config {
    /// Reads and checks the configuration from all its layers.
    ///
    /// # Errors
    /// Says all that is wrong, each with its key's name.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &Overrides,
    ) -> Result<Self, Error> {
        let mut env: HashMap<String, String> = env.collect();
        let variable = env.remove("NODE_NAME").filter(|name| !name.is_empty());
        let host = env.remove("KUBERNETES_SERVICE_HOST");
        let hints = NodeHints {
            variable,
            api_url: pods::in_cluster(host, env.remove("KUBERNETES_SERVICE_PORT")),
            ..NodeHints::default()
        };
        let file = file.map(file::read).transpose()?.unwrap_or_default();
        let mut reader = Reader::new(file, env, flags.layer())?;
        let config = keys::read(&mut reader, &hints);
        if reader.problems.is_empty() {
            Ok(config)
        } else {
            Err(Error::Invalid(reader.problems))
        }
    }

    /// Returns the whole configuration in the file's shape; it loads again to the same.
    pub fn effective_yaml(&self) -> String {
        yaml(&self.effective)
    }
}

fn yaml<'a>(entries: impl IntoIterator<Item = &'a (&'static str, Given)>) -> String {
    let entries = entries.into_iter();
    let entries: Vec<_> = entries
        .map(|(key, value)| (*key, value.to_yaml()))
        .collect();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _written = YamlEmitter::new(&mut text).dump(&reader::nest(&entries));
    let body = text.strip_prefix("---\n").unwrap_or(&text);
    format!("{body}\n")
}

/// The process's environment, for [`Config::load`]. Names that are not UTF-8 are no settings.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        Some((
            name.into_string().ok()?,
            value.to_string_lossy().into_owned(),
        ))
    })
}
