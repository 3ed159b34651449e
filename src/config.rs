//! All settings: the tree of all sections, how it is read and how it is printed. The only reader of
//! configuration files and environment.
//!
//! Order: flags, environment, file, defaults; the first wins. Unknown, impossible and unsupported keys are
//! refused by name, all in one answer. Rooms above read the tree when they need a value, so their sections
//! are here (`sections`).

mod file;
mod layers;
mod reload;
mod sections;
#[cfg(test)]
mod tests;
mod value;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::{Deserialize, Serialize};
use yaml_rust2::YamlEmitter;

use crate::gc::Policy;
use crate::logs::Roots;
use crate::model::setting::TextKind;
use crate::pods::SourceName;
use crate::telemetry::Log;
use strum::VariantArray;

use crate::{access, events, evidence, fleet, pods, runtime, state};
use layers::Layers;
#[cfg(test)]
use reload::FIXED;
use sections::NodeName;
pub use sections::{
    AlertRoute, Alertmanager, BackOff, Brakes, Collect, Gc, Mode, NodeSection, Thresholds,
};
use value::ConfigValue;

/// The whole effective configuration. Keys, defaults and ranges: `docs/configuration.md`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The runtime and how to talk to it.
    pub runtime: runtime::Config,
    /// Looks at the node.
    pub collect: Collect,
    /// Which node this is.
    pub node: NodeSection,
    /// `observe` plans and reports, and never removes; `enforce` removes.
    pub mode: Mode,
    /// What stays and what goes; holds `pods.settle`, `pods.quiet` and `pods.assume_finished_after` too.
    pub policy: Policy,
    /// Bounds of a pass.
    pub gc: Gc,
    /// Back-off for sandboxes that could not be removed.
    pub quarantine: BackOff,
    /// Where knowledge of the pods comes from.
    pub pods: pods::Config,
    /// Marks at which crisweep asks for passes.
    pub thresholds: Thresholds,
    /// Which alert asks for which targets: `{match: {label: value}, targets: [containers, sandboxes, logs, images,
    /// all]}`. Empty: the alert's label `crisweep` says it.
    pub alerts: Vec<AlertRoute>,
    /// Alertmanagers that are asked for alerts.
    pub alertmanager: Alertmanager,
    /// What holds triggers back.
    pub brakes: Brakes,
    /// Brakes that hold for all nodes at once.
    pub fleet: fleet::Config,
    /// What outlives the process.
    pub state: state::Config,
    /// What is kept of a container before it goes.
    pub evidence: evidence::Config,
    /// Kubernetes Events of what passes did.
    pub events: events::Config,
    /// The HTTP server.
    pub web: access::Config,
    /// Logging.
    pub log: Log,
    /// Keys whose new values wait for a restart.
    #[serde(skip)]
    pub needs_restart: Vec<&'static str>,
    #[serde(skip)]
    is_blank: IsBlank,
    /// Each key's value as it was written, for [`Config::effective_yaml`].
    #[serde(skip)]
    effective: ConfigValue,
}

/// The file says nothing at all. Two configurations with the same values are equal whatever their files look like.
#[derive(Clone, Copy, Debug, Default)]
struct IsBlank(bool);

impl PartialEq for IsBlank {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// Values set by flags; they win over everything else, and are checked like any other layer.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Address to listen on, such as :20950; may be repeated [default: 127.0.0.1:20950]
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    #[arg(global = true, hide_short_help = true)]
    pub listen: Vec<String>,
    /// Exporter web configuration file: TLS, client certificates, users with passwords
    #[arg(long = "web.config.file", value_name = "FILE")]
    #[arg(global = true, hide_short_help = true)]
    pub web_config_file: Option<String>,
    /// error, warn, info, debug, trace, or targets such as info,crisweep=debug [default: info]
    #[arg(long = "log.level", value_name = "LEVEL")]
    #[arg(global = true, hide_short_help = true)]
    pub log_level: Option<String>,
    /// text or json [default: text]
    #[arg(long = "log.format", value_name = "FORMAT")]
    #[arg(global = true, hide_short_help = true)]
    pub log_format: Option<String>,
    /// CRI socket, such as /run/containerd/containerd.sock [default: found]
    #[arg(long = "runtime-endpoint", value_name = "ENDPOINT", value_parser = NonEmptyStringValueParser::new())]
    #[arg(global = true, hide_short_help = true)]
    pub runtime_endpoint: Option<String>,
}

impl Overrides {
    fn put_on(&self, layers: &mut Layers) {
        let flags = [
            (
                "web.config_file",
                "--web.config.file",
                &self.web_config_file,
            ),
            (
                "runtime.endpoint",
                "--runtime-endpoint",
                &self.runtime_endpoint,
            ),
            ("log.level", "--log.level", &self.log_level),
            ("log.format", "--log.format", &self.log_format),
        ];
        for (key, flag, value) in flags {
            if let Some(value) = value {
                layers.set_text(key, value.clone(), flag);
            }
        }
        if !self.listen.is_empty() {
            let listen = self.listen.iter().cloned().map(ConfigValue::Text).collect();
            let by = " (set by --web.listen-address)".to_owned();
            layers.set("web.listen", ConfigValue::List(listen), by);
        }
    }
}

/// A problem with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {text}")]
pub struct ConfigProblem {
    /// The key's full path, or the variable's name.
    pub key: String,
    /// The problem and the remedy; continues the sentence after the key.
    pub text: String,
}

/// Why the configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read: it does not exist, is too large, or is no text.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is no configuration file.
    #[error("{}: {why}", path.display())]
    NotConfiguration {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },
    /// It is not well-formed, repeats a key, or is not a table.
    #[error("{}: not a well-formed configuration", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The place and the cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It lost all its content while the service ran.
    #[error(
        "the configuration file has become empty, which would lift credentials and protection; restart to accept it"
    )]
    Emptied,
    /// What only a restart changes does not go together with the rest.
    #[error("{} needs a restart, and the new file does not go with the old value", keys.join(", "))]
    NeedsRestart {
        /// The keys that keep their values until then.
        keys: Vec<&'static str>,
        /// The problems with the old values.
        #[source]
        source: Box<Error>,
    },
    /// It has invalid values: one line for each problem.
    #[error("{}", lines(.0))]
    Invalid(Vec<ConfigProblem>),
}

fn lines(problems: &[ConfigProblem]) -> String {
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
    /// All problems, each with its key's name.
    pub fn load(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &Overrides,
    ) -> Result<Self, Error> {
        let mut env: HashMap<String, String> = env.collect();
        let node_name = env.remove("NODE_NAME").filter(|name| !name.is_empty());
        let host = env.remove("KUBERNETES_SERVICE_HOST");
        let in_cluster = pods::in_cluster(host, env.remove("KUBERNETES_SERVICE_PORT"));
        let mut layers = Layers::defaults();
        let file = file.map(file::read).transpose()?;
        let is_blank = IsBlank(file.as_ref().is_some_and(Vec::is_empty));
        layers.file(file.unwrap_or_default());
        layers.environment(env);
        flags.put_on(&mut layers);
        name_node(&mut layers, node_name);
        let (config, tree) =
            layers.read(|config| config.pods.in_cluster.clone_from(&in_cluster))?;
        Ok(Self {
            is_blank,
            ..config.with(tree)
        })
    }

    /// Copies values that are written elsewhere in the tree than they are used.
    fn with(mut self, tree: ConfigValue) -> Self {
        self.policy.pods.settle = self.pods.settle;
        self.policy.pods.quiet = self.pods.quiet;
        self.policy.assume_finished_after = self.pods.assume_finished_after;
        self.effective = tree;
        self
    }

    /// Returns the log directories.
    pub fn log_roots(&self) -> Roots {
        Roots {
            host_root: self.runtime.host_root.clone(),
            pods: self.policy.logs.pods_root.clone(),
            containers: self.policy.logs.containers_root.clone(),
        }
    }

    /// Checks the keys against each other.
    fn validate(&self, refuse: &mut dyn FnMut(&str, String)) {
        self.policy.validate(refuse);
        self.quarantine.validate(refuse);
        let enabled = |key, is: bool| is.then_some((key, "true"));
        let asking = [
            self.fleet.asking_key().map(|key| (key, "set")),
            enabled("web.token_review.enabled", self.web.token_review.enabled),
            enabled("events.enabled", self.events.enabled),
        ];
        let asking: Vec<(&str, &str)> = asking.into_iter().flatten().collect();
        let asks = !asking.is_empty();
        let other_users = if asks { SourceName::VARIANTS } else { &[] };
        self.pods.validate(other_users, refuse);
        self.alertmanager.validate(refuse);
        self.fleet.validate(refuse);
        if self.pods.api_server().is_none() {
            for (key, is) in asking {
                let text = format!(
                    "is {is}, but no API server is known: set pods.api_url or pods.api_kubeconfig \
                     (KUBERNETES_SERVICE_HOST is not set)"
                );
                refuse(key, text);
            }
        }
        self.evidence.validate(self.state.dir.is_some(), refuse);
    }

    /// Returns every key with its default.
    fn defaults() -> ConfigValue {
        // A value with text keys and infallible serializers can always be written.
        let json = serde_json::to_value(Self::default()).unwrap_or_default();
        ::config::Value::deserialize(json).map_or(ConfigValue::Null, ConfigValue::from)
    }

    /// Returns the whole configuration in the file's format; it loads to the same values.
    pub fn effective_yaml(&self) -> String {
        yaml(&self.effective, |_| false)
    }
}

/// The kubelet names its node after the host, in lower case.
fn name_node(layers: &mut Layers, variable: Option<String>) {
    if layers.tree.at("node.name") != Some(&ConfigValue::Null) {
        return;
    }
    let host = || {
        let host = rustix::system::uname();
        host.nodename().to_string_lossy().trim().to_lowercase()
    };
    match variable {
        Some(name) if NodeName::read(&name).is_none() => {
            let text = format!("is {name:?}, but must be {}", NodeName::MUST_BE);
            layers.problem("NODE_NAME", text);
            layers.set("node.name", ConfigValue::Refused, String::new());
        }
        name => {
            let name = ConfigValue::Text(name.unwrap_or_else(host));
            layers.set("node.name", name, String::new());
        }
    }
}

/// Writes a tree in the file's format, without the keys that `is_left_out` selects.
fn yaml(tree: &ConfigValue, is_left_out: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let shown = tree.without(&is_left_out, "").unwrap_or(ConfigValue::Null);
    // Writing to a string cannot fail.
    let _written = YamlEmitter::new(&mut text).dump(&shown.to_yaml());
    let body = text.strip_prefix("---\n").unwrap_or(&text);
    format!("{body}\n")
}

/// The process's environment, for [`Config::load`]. What is not UTF-8 has replacement characters, which `load` refuses
/// in names and values of settings.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}
