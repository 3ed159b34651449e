//! A simulated runtime and the real program beside it, under a node's name.

use crisweep_proto::cri::ContainerState;
use crisweep_sim::{NodeBuilder, Options, PodSpec, Sim, hours, seconds};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::alertmanager::sum;
use super::crisweep::Crisweep;
use super::wait::{PATIENCE, wait_for};

/// Dead containers of deleted pods.
pub(crate) const DEAD: usize = 4;

/// A node with one living pod and [`DEAD`] dead containers, until it is dropped.
pub(crate) struct SimNode {
    pub(crate) name: String,
    pub(crate) sim: Sim,
    pub(crate) crisweep: Crisweep,
    #[expect(dead_code, reason = "held for its end")]
    dir: TempDir,
}

impl SimNode {
    /// Starts both, the service on `address` (`host:port`) with sections of a configuration.
    pub(crate) async fn start(name: &str, address: String, sections: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let dead = |number: usize| {
            let age = hours(3) + seconds(u64::try_from(number).unwrap());
            let pod = PodSpec::new(&format!("old-{number}"));
            pod.exited("app", 0, age).deleted()
        };
        let node = NodeBuilder::new().pod(PodSpec::new("web").running("app", 0));
        let options = Options {
            pods_file: Some(file("pods.json")),
            ..Options::default()
        };
        let sim = Sim::start(file("cri.sock"), node.pods(DEAD, dead).build(), options).unwrap();
        let mut config = json!({
            "runtime": { "endpoint": format!("unix://{}", file("cri.sock").display()) },
            "collect": { "max_age": "0s" },
            "node": { "name": name },
            "gc": { "io_pressure_pause_percent": 0 },
            "policy": { "logs": { "enabled": false } },
            "pods": { "source": "file", "file": file("pods.json"), "settle": "0s", "quiet": "0s" },
            "brakes": { "cooldown": "0s", "max_passes_per_hour": 0 },
            "web": { "listen": [address] },
            "state": { "dir": file("state") },
        });
        for (name, section) in sections.as_object().into_iter().flatten() {
            for (key, value) in section.as_object().into_iter().flatten() {
                config[name][key] = value.clone();
            }
        }
        let crisweep = Crisweep::run(dir.path(), address, &config, &[]).await;
        Self {
            name: name.to_owned(),
            sim,
            crisweep,
            dir,
        }
    }

    /// Returns how many containers are exited.
    pub(crate) fn dead(&self) -> usize {
        self.sim.count_containers(ContainerState::ContainerExited)
    }

    /// Returns the passes that an alert of this name asked for.
    pub(crate) async fn passes_for(&self, alert: &str) -> Result<Vec<Value>, String> {
        let passes = self.crisweep.get("/api/v1/passes").await?;
        let all = passes["passes"].as_array().cloned().unwrap_or_default();
        let is_for = |pass: &Value| pass["trigger"]["alert"]["name"] == alert;
        Ok(all.into_iter().filter(is_for).collect())
    }

    /// Waits until a pass that an alert asked for is done; `cause` is the way that it came.
    pub(crate) async fn obeys(&self, alert: &str, cause: &str) {
        let what = format!("{} to obey {alert}", self.name);
        let pass = wait_for(&what, PATIENCE, || async {
            let passes = self.passes_for(alert).await?;
            let done = passes.iter().find(|pass| pass["state"] == "done");
            let tail = || format!("{passes:?}\n{}", self.crisweep.log_tail());
            done.cloned().ok_or_else(tail)
        })
        .await;
        assert_eq!(pass["trigger"]["cause"], cause, "{pass:#}");
    }

    /// Asserts that no alert of this name brought a pass.
    pub(crate) async fn did_not_obey(&self, alert: &str) {
        let passes = self.passes_for(alert).await.unwrap();
        assert_eq!(passes, Vec::<Value>::new(), "{} for {alert}", self.name);
    }

    /// Asserts that nothing asked it for a pass and nothing was removed.
    pub(crate) async fn is_untouched(&self) {
        let passes = self.crisweep.get("/api/v1/passes").await.unwrap();
        assert_eq!(passes["passes"], json!([]), "{}", self.name);
        assert_eq!(self.dead(), DEAD, "{}", self.name);
    }

    /// Returns how many alerts it gave this result.
    pub(crate) async fn alerts(&self, result: &str) -> f64 {
        let series = format!("crisweep_alerts_total{{result=\"{result}\"}}");
        sum(&self.crisweep.metrics().await, &series)
    }

    /// Waits until it has asked its Alertmanagers so many times more, with good answers.
    pub(crate) async fn polls(&self, times: f64) {
        let series = "crisweep_alertmanager_polls_total{result=\"ok\"}";
        let before = sum(&self.crisweep.metrics().await, series);
        wait_for("polls", PATIENCE, || async {
            let now = sum(&self.crisweep.metrics().await, series);
            if now >= before + times {
                Ok(())
            } else {
                Err(format!("{before}, now {now}"))
            }
        })
        .await;
    }
}
