//! Events on the node: ages are compressed, so litter is hours old from the start.

use std::fs;
use std::path::PathBuf;

use crisweep_proto::cri::ContainerState;
use crisweep_sim::{Cni, ContainerSpec, Node, Phase, PodIds, PodSpec, Sim, hours, seconds};

/// Living pods; the oldest are deleted to make room.
pub(super) const LIVING_MAX: usize = 60;
/// The most dead containers and dead sandboxes that one event adds.
pub(super) const LITTER_OF_AN_EVENT: usize = 6;

/// Counts of past events.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) exited: u64,
    pub(super) pods: u64,
    pub(super) leaked: u64,
    pub(super) images: u64,
    pub(super) teardown_failures: u64,
    pub(super) runtime_restarts: u64,
}

/// The source of all events, deterministic for a seed.
pub(super) struct Churn {
    dice: fastrand::Rng,
    pods_root: PathBuf,
    pub(super) counts: Counts,
}

impl Churn {
    pub(super) fn new(seed: u64, pods_root: PathBuf) -> Self {
        Self {
            dice: fastrand::Rng::with_seed(seed),
            pods_root,
            counts: Counts::default(),
        }
    }

    /// Runs one event.
    pub(super) async fn step(&mut self, sim: &Sim) {
        self.counts.events += 1;
        match self.dice.u8(0..40) {
            0..12 => self.crash(sim),
            12..18 => self.is_born(sim),
            18..24 => self.finishes(sim),
            24..30 => self.is_deleted(sim),
            30..33 => self.leaks(sim),
            33..36 => self.is_found_dead(sim),
            36..38 => self.network(sim),
            38 => self.is_pulled(sim),
            _ => self.restarts(sim).await,
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.counts.pods += 1;
        format!("{kind}-{}", self.counts.pods)
    }

    fn choose(&mut self, from: &[String]) -> Option<String> {
        (!from.is_empty()).then(|| from[self.dice.usize(0..from.len())].clone())
    }

    /// A container of a living pod exits and its next attempt starts.
    fn crash(&mut self, sim: &Sim) {
        let containers = sim.containers().into_iter();
        let running = containers.filter(|c| c.row.state() == ContainerState::ContainerRunning);
        let running: Vec<String> = running.map(|c| c.row.id).collect();
        let Some(id) = self.choose(&running) else {
            return;
        };
        sim.change(|node| node.exit_container(&id, 1) && node.next_attempt(&id).is_some());
        self.counts.exited += 1;
    }

    fn is_born(&mut self, sim: &Sim) {
        let living = pods(sim, |phase| phase == Phase::Running);
        if living.len() >= LIVING_MAX {
            self.delete(sim, &living[0]);
        }
        let name = self.name("pod");
        let image = format!("registry.example/app:{}", self.counts.pods % 50);
        let app = ContainerSpec::running("app", 0, hours(1)).image(&image);
        let ids = sim.add_pod(&PodSpec::new(&name).age(hours(1)).container(app));
        self.writes_logs(&name, &ids);
    }

    fn finishes(&mut self, sim: &Sim) {
        let living = pods(sim, |phase| phase == Phase::Running);
        if let Some(pod) = self.choose(&living) {
            let code = self.dice.i32(0..2);
            self.counts.exited += 1;
            sim.change(|node| node.finish_pod(&pod, code));
        }
    }

    fn is_deleted(&mut self, sim: &Sim) {
        let over = pods(sim, |phase| phase != Phase::Running);
        if let Some(pod) = self.choose(&over) {
            self.delete(sim, &pod);
        }
    }

    fn delete(&mut self, sim: &Sim, pod: &str) {
        self.counts.exited += 1;
        sim.change(|node: &mut Node| node.delete_pod(pod));
    }

    /// A sandbox of an unknown pod is left; sometimes its network teardown fails at first.
    fn leaks(&mut self, sim: &Sim) {
        self.counts.leaked += 1;
        let pod = PodSpec::new(&self.name("leak"))
            .without_sandbox()
            .leaked_sandbox(0, hours(2))
            .deleted();
        sim.add_pod(&match self.dice.u8(0..6) {
            0 => pod.cni(Cni::failing()),
            1 => pod.cni(Cni::slow(seconds(1) / 5)),
            _ => pod,
        });
    }

    /// A crash loop that the kubelet could not collect: five dead attempts, and a created one.
    fn is_found_dead(&mut self, sim: &Sim) {
        let name = self.name("old");
        let pod = (0..5).fold(PodSpec::new(&name), |pod, attempt| {
            pod.failed("app", attempt, hours(8 - u64::from(attempt)))
        });
        self.counts.exited += 5;
        let ids = sim.add_pod(&pod.created("late", 0, hours(2)).deleted());
        self.writes_logs(&name, &ids);
    }

    /// The network plugin breaks for all, or works again, also for those that failed.
    fn network(&mut self, sim: &Sim) {
        if self.dice.u8(0..3) == 0 {
            self.counts.teardown_failures += 1;
            sim.conduct(|it| it.cni_default = Cni::failing());
        } else {
            sim.heal_cni();
        }
    }

    fn is_pulled(&mut self, sim: &Sim) {
        self.counts.images += 1;
        let id = format!(
            "sha256:{:032x}{:032x}",
            self.dice.u128(..),
            self.dice.u128(..)
        );
        let tag = format!("registry.example/unused:{}", self.counts.images);
        sim.change(|node| {
            node.pull_image(crisweep_proto::cri::Image {
                id,
                repo_tags: vec![tag],
                size: 50 << 20,
                ..Default::default()
            });
        });
    }

    async fn restarts(&mut self, sim: &Sim) {
        if self.dice.u8(0..4) == 0 {
            self.counts.runtime_restarts += 1;
            sim.restart_after(seconds(1) / 10).await.unwrap();
        }
    }

    fn writes_logs(&self, name: &str, ids: &PodIds) {
        let dir = self
            .pods_root
            .join(format!("default_{name}_{}/app", ids.uid));
        fs::create_dir_all(&dir).unwrap();
        fs::write(
            dir.join("0.log"),
            "2026-01-02T03:04:05Z stdout F it goes on\n",
        )
        .unwrap();
    }
}

fn pods(sim: &Sim, phase: impl Fn(Phase) -> bool) -> Vec<String> {
    let pods = sim.pods().into_iter().filter(|pod| phase(pod.phase));
    pods.map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect()
}
