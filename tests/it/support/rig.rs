//! A simulated node and the service on it.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use crisweep_proto::cri::{ContainerState, PodSandboxState};
use crisweep_sim::{Call, Node, NodeBuilder, Options, Rpc, Sim};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::service::{Service, run};
use super::wait::until_true;

/// The node's name in configuration and alerts.
pub(crate) const NODE_NAME: &str = "node-1";

/// A simulated runtime and the service beside it, until it is dropped. Dropping it asserts that the node took
/// no harm, whatever the test did.
pub(crate) struct Rig {
    pub(crate) sim: Sim,
    pub(crate) service: Service,
    config: Value,
    dir: TempDir,
}

impl Deref for Rig {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the service's log:");
            for line in self.service.log() {
                eprintln!("{line}");
            }
        } else {
            no_harm(&self.sim);
        }
    }
}

impl Rig {
    /// Starts both, the service with changes to the usual configuration, and waits for readiness.
    pub(crate) async fn start(node: NodeBuilder, changes: Value) -> Self {
        Self::with(node.build(), Options::default(), changes).await
    }

    /// The same with a unix socket beside its address, in a directory that must live as long.
    pub(crate) async fn with_socket(node: NodeBuilder, mut changes: Value) -> (Self, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}", dir.path().join("crisweep.sock").display());
        changes["web"] = json!({ "listen": ["127.0.0.1:0", socket] });
        (Self::start(node, changes).await, dir)
    }

    /// Runs a command with the service's configuration.
    pub(crate) async fn command(&self, args: &[&str]) -> Output {
        let config = self.config_file();
        run(&[&["--config.file", config.to_str().unwrap()], args].concat()).await
    }

    /// The same on a runtime with options.
    pub(crate) async fn with(node: Node, options: Options, changes: Value) -> Self {
        let rig = Self::unready(node, options, changes).await;
        rig.ready().await;
        rig
    }

    /// The same, without waiting for readiness.
    pub(crate) async fn unready(node: Node, options: Options, changes: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            pods_file: Some(dir.path().join("pods.json")),
            ..options
        };
        let sim = Sim::start(dir.path().join("cri.sock"), node, options).unwrap();
        let config = config(dir.path(), &changes);
        let service = Service::start(&write(dir.path(), &config)).await;
        Self {
            sim,
            service,
            config,
            dir,
        }
    }

    /// The same with a stopped runtime.
    pub(crate) async fn without_runtime(node: NodeBuilder, changes: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            pods_file: Some(dir.path().join("pods.json")),
            initialization: Duration::ZERO,
            ..Options::default()
        };
        let sim = Sim::start(dir.path().join("cri.sock"), node.build(), options).unwrap();
        sim.stop().await;
        let config = config(dir.path(), &changes);
        let service = Service::start(&write(dir.path(), &config)).await;
        Self {
            sim,
            service,
            config,
            dir,
        }
    }

    /// Writes the list of pods again as it is: from now on it holds for what has exited before.
    pub(crate) fn write_pods_again(&self) {
        let pods = fs::read(self.pods_file()).unwrap();
        fs::write(self.pods_file(), pods).unwrap();
    }

    /// Returns where the pods file is.
    pub(crate) fn pods_file(&self) -> PathBuf {
        self.dir.path().join("pods.json")
    }

    /// Returns where the configuration is.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.dir.path().join("crisweep.yaml")
    }

    /// Changes the configuration file, without a reload.
    pub(crate) fn configure(&mut self, changes: &Value) {
        merge(&mut self.config, changes);
        write(self.dir.path(), &self.config);
    }

    /// Makes the log directories that the kubelet would have named.
    pub(crate) fn write_log_directories(&self) {
        let root = self.dir.path().join("log/pods");
        for record in self.sim.sandboxes() {
            let pod = record.row.metadata.unwrap();
            let name = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
            fs::create_dir_all(root.join(name)).unwrap();
        }
    }

    /// Returns where the state is kept.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Kills the service as a crash would, and starts it again when it is gone.
    pub(crate) async fn crash(&mut self) {
        self.kill().await;
        self.begin().await;
    }

    /// Kills the service as a crash would.
    pub(crate) async fn kill(&mut self) {
        self.service.signal(rustix::process::Signal::KILL);
        self.service.exited().await;
    }

    /// Starts the service again; the previous one must have ended.
    pub(crate) async fn begin(&mut self) {
        self.service = Service::start(&self.config_file()).await;
        self.service.ready().await;
    }

    /// Returns how many containers are exited.
    pub(crate) fn exited_containers(&self) -> usize {
        self.sim.count_containers(ContainerState::ContainerExited)
    }

    /// Returns how many sandboxes are not ready.
    pub(crate) fn dead_sandboxes(&self) -> usize {
        self.sim.count_sandboxes(PodSandboxState::SandboxNotready)
    }

    /// Returns the removals that the runtime received, in order.
    pub(crate) fn removals(&self) -> Vec<Call> {
        let mut calls = self.sim.calls();
        calls.retain(|call| call.rpc.is_removal());
        calls
    }

    /// Returns the objects of one RPC's removals and attempts, in order.
    pub(crate) fn subjects(&self, rpc: Rpc) -> Vec<String> {
        let calls = self.sim.calls_of(rpc).into_iter();
        calls.map(|call| call.subject).collect()
    }

    /// Waits until a removal is under way at the runtime.
    pub(crate) async fn removing(&self) {
        until_true("a removal is under way", || {
            self.sim.removals_in_flight() > 0
        })
        .await;
    }

    /// Asserts that the runtime received no removal and no stop.
    #[track_caller]
    pub(crate) fn nothing_was_touched(&self) {
        assert_eq!(self.sim.calls(), []);
    }
}

/// Asserts that the node took no harm.
#[track_caller]
pub(crate) fn no_harm(sim: &Sim) {
    assert_eq!(sim.harm_count(), 0, "{:#?}", sim.harmful_calls());
}

/// Writes a configuration; JSON is YAML.
pub(crate) fn write(dir: &Path, config: &Value) -> PathBuf {
    let path = dir.join("crisweep.yaml");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Returns the usual configuration of tests with changes: everything old counts at once, sources are believed
/// at once, and nothing depends on the load of the machine.
pub(crate) fn config(dir: &Path, changes: &Value) -> Value {
    let mut config = json!({
        "runtime": {
            "endpoint": format!("unix://{}", dir.join("cri.sock").display()),
            "timeout": "5s",
            "removal_timeout": "10s",
        },
        "collect": { "max_age": "0s" },
        "node": { "name": NODE_NAME },
        "gc": { "io_pressure_pause_percent": 0 },
        // Not this machine's own logs; `logs` has its own trees.
        "policy": { "logs": {
            "enabled": false,
            "pods_root": dir.join("log/pods"),
            "containers_root": dir.join("log/containers"),
        } },
        "pods": {
            "source": "file",
            "file": dir.join("pods.json"),
            "settle": "0s",
            "quiet": "0s",
        },
        "brakes": { "cooldown": "0s", "max_passes_per_hour": 0 },
        "web": { "listen": ["127.0.0.1:0"] },
        "state": { "dir": dir.join("state"), "journal_bytes": "64KiB" },
        // Others count the calls of a removal; `evidence` has its own tests.
        "evidence": { "enabled": false },
        "log": { "format": "json" },
    });
    merge(&mut config, changes);
    config
}

/// Sets the values of `changes` in `base`; removes those that are null.
fn merge(base: &mut Value, changes: &Value) {
    match (base, changes) {
        (Value::Object(base), Value::Object(changes)) => {
            for (key, value) in changes {
                if value.is_null() {
                    base.remove(key);
                } else {
                    merge(base.entry(key.clone()).or_insert(json!({})), value);
                }
            }
        }
        (base, value) => *base = value.clone(),
    }
}
