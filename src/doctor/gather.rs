//! Gathers the facts: each part has a bound, and none waits for another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::kubelet::{self, KubeletSettings};
use super::{ContainerExit, DoctorFacts, Latency, crashes};
use crate::config::Config;
use crate::model::ContainerId;
use crate::pods;
use crate::runtime::Client;
use crate::snapshot::Look;
use crate::state::{self, Past, PastQuestion};
use crate::system::blocking::BlockingPool;

/// How long the statuses may take together.
const STATUSES: Duration = Duration::from_secs(2);
/// Statuses that are asked in all; the loops' first, then others, for the time that one takes.
const STATUSES_MAX: usize = 60;
/// Statuses from which on the mean time is worth showing.
const SAMPLE: usize = 20;
/// How long the kubelet may take for `/configz`.
const CONFIGZ: Duration = Duration::from_secs(2);
/// How long the process table and the kubelet's files may take.
const FILES: Duration = Duration::from_secs(3);
/// How long the database may take. It is read beside the service's own thread, which passes wait for.
const DATABASE: Duration = Duration::from_secs(3);

/// Gathers the facts. Cloning shares its threads: a hung disk must not cost more with each report.
#[derive(Clone, Debug)]
pub struct Doctor {
    disk: BlockingPool,
    files: BlockingPool,
}

impl Default for Doctor {
    fn default() -> Self {
        Self {
            disk: BlockingPool::new(2),
            files: BlockingPool::new(1),
        }
    }
}

impl Doctor {
    /// Gathers what there is to know beside a look.
    pub async fn facts(&self, look: &Look, config: Arc<Config>, client: &Client) -> DoctorFacts {
        let mut facts = DoctorFacts::of(look, Arc::clone(&config));
        let (names, ids) = crashes::wanted(&facts);
        let question = PastQuestion {
            now: look.taken_at,
            names,
        };
        let (past, (ends, latency), kubelet) = tokio::join!(
            self.past(&config, question),
            statuses(client, sample(&facts, ids)),
            self.kubelet(&config),
        );
        (facts.past, facts.ends, facts.latency, facts.kubelet) = (past, ends, latency, kubelet);
        facts
    }

    async fn past(&self, config: &Config, question: PastQuestion) -> Result<Past, String> {
        let dir = config.state.dir.clone();
        let dir = dir.ok_or_else(|| "nothing is kept (state.dir: null)".to_owned())?;
        let read = move || state::ask(&dir, &question).map_err(|error| error.to_string());
        let read = self.disk.run(DATABASE, read).await;
        read.map_err(|error| error.to_string())?
    }

    async fn kubelet(&self, config: &Config) -> KubeletSettings {
        let root = config.runtime.host_root.clone();
        let process = self.files.run(FILES, move || kubelet::read::process(&root));
        let configz = pods::kubelet_configz(&config.pods, &config.node.name, &self.disk);
        let (process, configz) = tokio::join!(process, timeout(CONFIGZ, configz));
        let process = process.unwrap_or_else(|error| kubelet::Process::Unread(error.to_string()));
        let late = |_elapsed| {
            Some(Err(
                "the kubelet gives no answer to /configz in time".to_owned()
            ))
        };
        let configz = configz.unwrap_or_else(late);
        kubelet::assemble(configz, process)
    }
}

/// The containers to ask: the wanted ones, then dead ones in the order of the list.
fn sample(facts: &DoctorFacts, mut ids: Vec<ContainerId>) -> Vec<ContainerId> {
    ids.truncate(STATUSES_MAX);
    if ids.len() < SAMPLE {
        let more = SAMPLE - ids.len();
        let others = facts.containers.iter().map(|row| &row.id);
        let others = others.filter(|id| !id.is_stand_in() && !ids.contains(id));
        let others: Vec<ContainerId> = others.take(more).cloned().collect();
        ids.extend(others);
    }
    ids
}

/// Asks one by one, as the kubelet does.
async fn statuses(
    client: &Client,
    ids: Vec<ContainerId>,
) -> (BTreeMap<ContainerId, ContainerExit>, Option<Latency>) {
    let until = Instant::now() + STATUSES;
    let (mut ends, mut calls, mut took) = (BTreeMap::new(), 0_u32, Duration::ZERO);
    for id in ids {
        let began = Instant::now();
        let Ok(answer) = timeout_at(until, client.container_status(&id)).await else {
            // A call that was not answered in time counts with the time that it had.
            calls += 1;
            took += began.elapsed();
            break;
        };
        // A refusal says nothing about the time of an answer.
        let Ok(answer) = answer else { continue };
        calls += 1;
        took += began.elapsed();
        let Some(status) = answer else { continue };
        if status.finished_at.is_some() {
            let (exit_code, reason) = (status.exit_code, status.reason);
            ends.insert(id, ContainerExit { exit_code, reason });
        }
    }
    let latency = took.checked_div(calls).map(|mean| Latency { calls, mean });
    (ends, latency)
}
