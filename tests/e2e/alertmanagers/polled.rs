//! The nodes ask two Alertmanagers for their alerts: `alertmanager.poll`.

use crisweep_sim::{Fault, Rpc};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{X, Y, always, fire, forky, resolve, trixie};
use crate::support::alertmanager::Alertmanager;
use crate::support::daemon::free_port;
use crate::support::prometheus::http;
use crate::support::release::Release;
use crate::support::sim_node::{DEAD, SimNode};
use crate::support::wait::{PATIENCE, wait_for};

/// Polls after which an alert would have been seen: three questions to each of the two.
const ROUNDS: f64 = 6.0;

/// Two Alertmanagers that know nothing of each other, and two nodes that ask both.
struct Fleet {
    pair: [Alertmanager; 2],
    x: SimNode,
    y: SimNode,
    #[expect(dead_code, reason = "held for its end")]
    dirs: [TempDir; 2],
}

fn config() -> Value {
    json!({
        "route": {
            "receiver": "people",
            "routes": [{
                "receiver": "people",
                "matchers": ["alertname=\"Muted\""],
                "mute_time_intervals": ["always"],
            }],
        },
        "time_intervals": always(),
        "inhibit_rules": [{
            "source_matchers": ["alertname=\"Source\""],
            "target_matchers": ["alertname=\"Inhibited\""],
            "equal": ["node"],
        }],
        "receivers": [{ "name": "people" }],
    })
}

impl Fleet {
    async fn start(release: &Release) -> Self {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let config = config();
        let start = async |dir: &TempDir| {
            Alertmanager::start_release(dir.path(), &release.program, &config, &[]).await
        };
        let pair: [Alertmanager; 2] = tokio::join!(start(&dirs[0]), start(&dirs[1])).into();
        let urls: Vec<String> = pair.iter().map(|one| one.url("")).collect();
        let sections = json!({ "alertmanager": { "poll": urls, "interval": "200ms" } });
        let address = || format!("127.0.0.1:{}", free_port());
        let x = SimNode::start(X, address(), &sections).await;
        let y = SimNode::start(Y, address(), &sections).await;
        Self { pair, x, y, dirs }
    }

    /// Fires an alert about node X at both.
    async fn fire(&self, name: &str) {
        for one in &self.pair {
            fire(one, name, X, &json!({})).await;
        }
    }

    /// Silences an alert at both; returns the silences.
    async fn silence(&self, name: &str) -> [String; 2] {
        let silence = json!({
            "matchers": [{ "name": "alertname", "value": name, "isRegex": false, "isEqual": true }],
            "startsAt": "2026-01-01T00:00:00Z",
            "endsAt": "2999-01-01T00:00:00Z",
            "createdBy": "e2e",
            "comment": "e2e",
        });
        let [one, two] = &self.pair;
        let path = "/api/v2/silences";
        let id = |answer: String| {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            answer["silenceID"].as_str().unwrap().to_owned()
        };
        [
            one.post(path, &silence).await,
            two.post(path, &silence).await,
        ]
        .map(id)
    }

    async fn end(&self, silences: [String; 2]) {
        for (one, id) in self.pair.iter().zip(silences) {
            let url = one.url(&format!("/api/v2/silence/{id}"));
            let answer = http::client().delete(url).send().await.unwrap();
            assert!(answer.status().is_success(), "{answer:?}");
        }
    }

    /// An alert that both no longer have takes back the pass that it asked for.
    async fn a_resolved_alert_takes_its_pass_back(&self) {
        self.x.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
        // It runs until the fault is cleared, and keeps the alert's pass waiting.
        self.x
            .crisweep
            .post("/gc?target=containers&max_removals=1")
            .await;
        wait_for("a removal", PATIENCE, || async {
            let count = self.x.sim.removals_in_flight();
            if count > 0 {
                Ok(())
            } else {
                Err(count.to_string())
            }
        })
        .await;
        self.fire("Passing").await;
        let state = async || {
            let passes = self.x.passes_for("Passing").await?;
            let pass = passes.first().cloned().ok_or("no pass")?;
            Ok::<Value, String>(pass)
        };
        wait_for("a pass that waits", PATIENCE, &state).await;
        let [one, two] = &self.pair;
        resolve(one, "Passing", X).await;
        self.x.polls(ROUNDS).await;
        assert_eq!(
            state().await.unwrap()["state"],
            "queued",
            "the other one still has it"
        );
        resolve(two, "Passing", X).await;
        let pass = wait_for("the pass to be taken back", PATIENCE, || async {
            let pass = state().await?;
            if pass["state"] == "done" {
                Ok(pass)
            } else {
                Err(pass.to_string())
            }
        })
        .await;
        assert_eq!(pass["outcome"], "aborted", "{pass:#}");
        self.x.sim.clear_fault(Rpc::RemoveContainer);
    }

    async fn an_alert_at_both_is_obeyed_once_and_by_its_node_alone(&self) {
        self.fire("Plain").await;
        self.x.obeys("Plain", "poll").await;
        assert_eq!(self.x.dead(), 0);
        self.x.polls(ROUNDS).await;
        assert_eq!(self.x.passes_for("Plain").await.unwrap().len(), 1);
        assert!(self.x.alerts("duplicate").await >= 1.0);
        self.y.polls(ROUNDS).await;
        self.y.is_untouched().await;
        assert_eq!(self.y.dead(), DEAD);
    }

    async fn a_silenced_alert_is_not_obeyed_until_the_silence_ends(&self) {
        let silences = self.silence("Silenced").await;
        self.fire("Silenced").await;
        self.x.polls(ROUNDS).await;
        self.x.did_not_obey("Silenced").await;
        self.end(silences).await;
        self.x.obeys("Silenced", "poll").await;
    }

    async fn an_inhibited_alert_is_not_obeyed_until_its_source_ends(&self) {
        self.fire("Source").await;
        self.x.obeys("Source", "poll").await;
        self.fire("Inhibited").await;
        self.x.polls(ROUNDS).await;
        self.x.did_not_obey("Inhibited").await;
        for one in &self.pair {
            resolve(one, "Source", X).await;
        }
        self.x.obeys("Inhibited", "poll").await;
    }

    /// Time intervals belong to a route's notifications. The API's list of alerts leaves them out, in every version.
    async fn a_time_interval_does_not_keep_a_polled_alert_back(&self) {
        self.fire("Muted").await;
        self.x.obeys("Muted", "poll").await;
    }
}

async fn polled(release: Release) {
    let fleet = Fleet::start(&release).await;
    fleet.a_resolved_alert_takes_its_pass_back().await;
    fleet
        .an_alert_at_both_is_obeyed_once_and_by_its_node_alone()
        .await;
    fleet
        .a_silenced_alert_is_not_obeyed_until_the_silence_ends()
        .await;
    fleet
        .an_inhibited_alert_is_not_obeyed_until_its_source_ends()
        .await;
    fleet
        .a_time_interval_does_not_keep_a_polled_alert_back()
        .await;
    fleet.y.is_untouched().await;
}

#[tokio::test]
async fn the_nodes_ask_the_installed_alertmanager() {
    polled(Release::installed()).await;
}

#[tokio::test]
async fn the_nodes_ask_the_alertmanager_of_trixie() {
    if let Some(release) = trixie() {
        polled(release).await;
    }
}

#[tokio::test]
async fn the_nodes_ask_the_alertmanager_of_forky() {
    if let Some(release) = forky() {
        polled(release).await;
    }
}
