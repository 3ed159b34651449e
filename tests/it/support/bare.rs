//! A simulated node without a service, for commands.

use std::path::PathBuf;
use std::process::Output;

use crisweep_sim::{NodeBuilder, Options, Sim};
use serde_json::Value;
use tempfile::TempDir;

use super::rig::{config, no_harm, write};
use super::service::run;

/// A simulated node without a service.
pub(crate) struct Bare {
    pub(crate) sim: Sim,
    pub(crate) config: PathBuf,
    _dir: TempDir,
}

impl Bare {
    pub(crate) fn start(node: NodeBuilder, changes: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            pods_file: Some(dir.path().join("pods.json")),
            ..Options::default()
        };
        let sim = Sim::start(dir.path().join("cri.sock"), node.build(), options).unwrap();
        let config = write(dir.path(), &config(dir.path(), changes));
        Self {
            sim,
            config,
            _dir: dir,
        }
    }

    /// Runs a command with the node's configuration.
    pub(crate) async fn run(&self, args: &[&str]) -> Output {
        run(&[&["--config.file", self.config.to_str().unwrap()], args].concat()).await
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            no_harm(&self.sim);
        }
    }
}
