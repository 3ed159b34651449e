//! The effect of a pass on a pod that starts meanwhile, and the duration of the pass, compared with a client
//! that removes a fixed number at a time. Asserts no time, prints it. Run by `benches/pacing.sh`;
//! `docs/dev/performance.md` has the figures.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crisweep_proto::cri::{ContainerState, PodSandboxState};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::cri::Cri;
use crate::support::crisweep::Crisweep;
use crate::support::node::Node;
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::{MadePod, Population};
use crate::support::wait::{PATIENCE, wait_for};

/// Exited containers of each dead pod.
const CONTAINERS: [&str; 4] = ["a", "b", "c", "d"];
/// Dead pods of one measurement: 120 containers, 30 sandboxes.
const PODS: usize = 30;
/// The same without throttling: 240 containers, 60 sandboxes.
const MANY: usize = 60;
/// The largest size of the disk on its medium.
const DISK_BYTES: u64 = 4 << 30;
/// Writes per second: a magnetic disk, and what clouds grant a small SSD. With each: dead pods that last for some
/// seconds, and how many removals the fixed client has in flight.
const THROTTLED: [(u32, usize, &[usize]); 2] = [(300, PODS, &[1, 4]), (3000, 4 * PODS, &[1, 2, 4])];
/// Dead pods to clear, three containers for two of them: a bad day, and the incident.
const CLEARED: usize = 200;
const INCIDENT: usize = 1500;
/// More than any disk does.
const UNTHROTTLED: u32 = 1_000_000;
/// How long pods are started without any removals.
const ALONE_TAKES: Duration = Duration::from_secs(12);
/// Number of pods to start, and number of the first.
const PROBES: u32 = 400;
const PROBE_NUMBER: u32 = 100_000;
/// The most pod starts beside one measurement.
const BESIDE_MAX: usize = 40;
/// Pause between two starts.
const BETWEEN: Duration = Duration::from_millis(200);
/// How long the fixed client removes, if removing all takes too long.
const PEER_TAKES: Duration = Duration::from_secs(12);
/// How long a pass may take here.
const PASS_MAX: Duration = Duration::from_secs(600);

/// A node with a disk of its own.
struct Bench {
    node: Node,
    cri: Cri,
    /// The pods in the pod source: a source without any pod is not believed.
    live: Population,
    /// Pods to start, listed beforehand: a source that lacks a running pod is not believed.
    probes: Vec<PodPlan>,
    next_pod: u32,
}

/// Removed objects, and the time it took.
struct Removed {
    count: u64,
    took: Duration,
    note: String,
}

/// For how long tasks have waited for the disk so far ("some"), and when.
struct DiskWaits {
    at: Instant,
    total: Duration,
}

impl DiskWaits {
    fn now() -> Self {
        let pressure = pressure();
        let total = pressure.split_once("total=").map(|(_, total)| total.trim());
        let total = Duration::from_micros(total.map_or(0, |total| total.parse().unwrap()));
        Self {
            at: Instant::now(),
            total,
        }
    }

    /// Returns the share of the time since then.
    fn share(&self) -> String {
        let now = Self::now();
        let waited = now.total.saturating_sub(self.total).as_secs_f64();
        let share = waited / now.at.duration_since(self.at).as_secs_f64();
        format!(", waits for the disk {:.0} %", 100.0 * share)
    }
}

impl Bench {
    async fn start() -> Self {
        let node = Node::start_on_own_disk(&medium().join("disk"), DISK_BYTES).await;
        let live = PodPlan::new(0, "live".to_owned(), Known::Active);
        let live = live.sandbox(Fate::Ready, &[("app", 0, End::Runs)]);
        let mut live = Population::make(&node, vec![live]).await;
        let probes: Vec<PodPlan> = (0..PROBES)
            .map(|n| PodPlan::new(PROBE_NUMBER + n, format!("probe-{n}"), Known::Active))
            .map(|pod| pod.sandbox(Fate::Ready, &[("app", 0, End::Runs)]))
            .collect();
        live.pods.extend(probes.iter().map(|plan| MadePod {
            plan: plan.clone(),
            sandboxes: Vec::new(),
        }));
        Self {
            cri: node.cri().await,
            live,
            probes,
            node,
            next_pod: 0,
        }
    }

    fn dead_pod(&mut self) -> PodPlan {
        self.next_pod += 1;
        let name = format!("dead-{}", self.next_pod);
        PodPlan::new(self.next_pod, name, Known::Absent)
    }

    /// Makes deleted pods that left their records.
    async fn litter(&mut self, pods: usize) {
        self.litter_of(pods, |_| CONTAINERS.len()).await;
    }

    /// The same with so many exited containers in each.
    async fn litter_of(&mut self, pods: usize, containers: impl Fn(usize) -> usize) {
        let exited = CONTAINERS.map(|name| (name, 0, End::Exits(0)));
        let plans = (0..pods)
            .map(|number| {
                let containers = exited.iter().take(containers(number)).copied();
                let containers: Vec<_> = containers.collect();
                self.dead_pod().sandbox(Fate::Stopped, &containers)
            })
            .collect();
        Population::make(&self.node, plans).await;
    }

    /// Starts pods, one after the other, while `work` runs on a throttled disk; returns how long each
    /// start took.
    async fn beside<T>(&mut self, iops: u32, work: impl Future<Output = T>) -> (Vec<Duration>, T) {
        let most = BESIDE_MAX.min(self.probes.len());
        let plans: Vec<PodPlan> = self.probes.drain(..most).collect();
        // What was written before must not wait for the throttled disk.
        tokio::task::spawn_blocking(rustix::fs::sync)
            .await
            .expect("the disk to take what was written");
        self.node.throttle(iops).await;
        let (on, node) = (AtomicBool::new(true), &self.node);
        let starts = async {
            let mut took = Vec::new();
            for plan in plans {
                if !on.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                Population::make(node, vec![plan]).await;
                took.push(began.elapsed());
                tokio::time::sleep(BETWEEN).await;
            }
            took
        };
        let work = async {
            let result = work.await;
            on.store(false, Ordering::Relaxed);
            result
        };
        let (took, result) = tokio::join!(starts, work);
        self.node.throttle(UNTHROTTLED).await;
        (took, result)
    }

    /// Starts the service and waits until it would remove everything dead.
    async fn service(&self, ceiling: usize) -> Crisweep {
        let pods_file = self.node.dir().join("pods.json");
        self.live.write_pods_file(&pods_file);
        // Not on the medium: the machine's own disk does not matter here.
        let state = medium().join("state");
        let sections = json!({
            // The default: a look lasts for ten seconds.
            "collect": {},
            "gc": { "max_concurrency": ceiling },
            "state": { "dir": state },
        });
        let service = Crisweep::start_with(&self.node, &pods_file, sections).await;
        let dead = dead_containers(&self.cri).await.len();
        wait_for("the dead to be due", PATIENCE, || async {
            let plan = service.get("/api/v1/plan?target=containers").await?;
            if plan["removals"].as_array().map(Vec::len) == Some(dead) {
                Ok(())
            } else {
                Err(plan["summary"].to_string())
            }
        })
        .await;
        service
    }
}

/// Returns the directory of the disk's medium.
fn medium() -> PathBuf {
    let medium = std::env::var_os("CRISWEEP_PACING_MEDIUM").map(PathBuf::from);
    medium.expect("benches/pacing.sh says where the disk's medium is")
}

async fn dead_containers(cri: &Cri) -> Vec<String> {
    let rows = cri.containers().await.into_iter();
    let dead = rows.filter(|row| row.state() == ContainerState::ContainerExited);
    dead.map(|row| row.id).collect()
}

/// For comparison: removes dead objects, a fixed number at a time, containers first, until all are gone or
/// `limit` is over. Asks the same questions before each removal as the service.
async fn remove_fixed(cri: Cri, at_a_time: usize, limit: Duration) -> Removed {
    let (began, waits) = (Instant::now(), DiskWaits::now());
    let cri = &cri;
    let containers = stream::iter(dead_containers(cri).await)
        .take_while(|_| std::future::ready(began.elapsed() < limit))
        .map(|id| async move {
            cri.container_status(&id).await.unwrap();
            cri.remove_container(&id).await;
        });
    let mut count = containers.buffer_unordered(at_a_time).count().await;
    if began.elapsed() < limit {
        let sandboxes = cri.sandboxes().await.into_iter();
        let dead = sandboxes.filter(|row| row.state() == PodSandboxState::SandboxNotready);
        let sandboxes = stream::iter(dead)
            .take_while(|_| std::future::ready(began.elapsed() < limit))
            .map(|row| async move {
                cri.ask_about_sandbox(&row.id).await;
                cri.remove_sandbox(&row.id).await;
            });
        count += sandboxes.buffer_unordered(at_a_time).count().await;
    }
    Removed {
        count: count as u64,
        took: began.elapsed(),
        note: waits.share(),
    }
}

/// For comparison: removes dead objects as the kubelet does: one after the other, and a sandbox is stopped before it
/// is removed, which runs the network's teardown twice.
async fn remove_as_the_kubelet(cri: &Cri) -> Removed {
    let (began, waits) = (Instant::now(), DiskWaits::now());
    let mut count = 0;
    for id in dead_containers(cri).await {
        cri.container_status(&id).await.unwrap();
        cri.remove_container(&id).await;
        count += 1;
    }
    for row in cri.sandboxes().await {
        if row.state() == PodSandboxState::SandboxNotready {
            cri.stop_sandbox(&row.id).await;
            cri.remove_sandbox(&row.id).await;
            count += 1;
        }
    }
    Removed {
        count,
        took: began.elapsed(),
        note: waits.share(),
    }
}

/// Runs a pass over containers and sandboxes.
async fn pass(service: &Crisweep) -> Removed {
    let waits = DiskWaits::now();
    let (_, asked) = service.post("/gc?target=containers&target=sandboxes").await;
    let page = format!("/api/v1/passes/{}", asked["id"].as_str().unwrap());
    let pass = wait_for("the pass to end", PASS_MAX, || async {
        let pass: Value = service.get(&page).await?;
        if pass["state"] == "done" {
            Ok(pass)
        } else {
            Err(pass["targets"].to_string())
        }
    })
    .await;
    let at = |key: &str| pass[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    let took = at("finished_at").duration_since(at("started_at"));
    Removed {
        count: ["containers", "sandboxes"]
            .iter()
            .filter_map(|target| pass["targets"][target]["removed"].as_u64())
            .sum(),
        took: took.unsigned_abs(),
        note: format!(
            ", {}{}",
            pass["outcome"].as_str().unwrap_or("no outcome"),
            waits.share()
        ),
    }
}

/// Returns a percentile in seconds.
fn percentile(of: &[Duration], percent: usize) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort();
    let at = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(at).map_or(f64::NAN, Duration::as_secs_f64)
}

fn tell_starts(what: &str, starts: &[Duration], alone: &[Duration]) {
    let (median, p95) = (percentile(starts, 50), percentile(starts, 95));
    println!(
        "{what}: {} pod starts, median {median:.3} s ({:.2} times alone), p95 {p95:.3} s ({:.2} times); {}",
        starts.len(),
        median / percentile(alone, 50),
        p95 / percentile(alone, 95),
        pressure(),
    );
}

#[expect(clippy::cast_precision_loss, reason = "some hundreds")]
fn tell_removed(what: &str, removed: &Removed) {
    let took = removed.took.as_secs_f64();
    let rate = removed.count as f64 / took;
    println!(
        "{what}: {} gone in {took:.2} s, {rate:.1} per second{}",
        removed.count, removed.note
    );
}

/// The kernel's figures of the whole machine, other work included.
fn pressure() -> String {
    let text = std::fs::read_to_string("/proc/pressure/io").unwrap_or_default();
    let some = text.lines().next().unwrap_or_default();
    format!("io pressure now: {some}")
}

#[tokio::test]
async fn pod_starts_beside_a_pass_on_a_throttled_disk() {
    for (iops, pods, peers) in THROTTLED {
        let mut bench = Bench::start().await;
        println!("the disk may do {iops} IOPS");
        bench.litter(pods).await;
        // No work beside them, only time.
        let nothing = tokio::time::sleep(ALONE_TAKES);
        let (alone, ()) = bench.beside(iops, nothing).await;
        tell_starts("alone", &alone, &alone);
        let service = bench.service(8).await;
        let (starts, removed) = bench.beside(iops, pass(&service)).await;
        tell_starts("beside a pass", &starts, &alone);
        tell_removed("the pass", &removed);
        drop(service);
        for at_a_time in peers {
            bench.litter(pods).await;
            let peer = remove_fixed(bench.cri.clone(), *at_a_time, PEER_TAKES);
            let (starts, removed) = bench.beside(iops, peer).await;
            let what = format!("beside {at_a_time} at a time, fixed");
            tell_starts(&what, &starts, &alone);
            tell_removed(&what, &removed);
        }
    }
}

/// A whole pass on a fast disk: a fixed number at a time, and the service.
#[tokio::test]
async fn a_pass_on_a_fast_disk() {
    let mut bench = Bench::start().await;
    for round in 1..=3 {
        bench.litter(MANY).await;
        let service = bench.service(8).await;
        let removed = pass(&service).await;
        tell_removed(&format!("round {round}, a pass"), &removed);
        drop(service);
        for at_a_time in [1, 2, 4, 8, 16] {
            bench.litter(MANY).await;
            let removed = remove_fixed(bench.cri.clone(), at_a_time, PASS_MAX).await;
            let what = format!("round {round}, {at_a_time} at a time, fixed");
            tell_removed(&what, &removed);
        }
    }
}

/// A whole pass on a fast disk: the service, a fixed number at a time, and the kubelet's way.
#[tokio::test]
async fn clearing_beside_the_kubelets_way() {
    clear(CLEARED, 3, &[4, 8, 16]).await;
}

#[tokio::test]
async fn the_incident_beside_the_kubelets_way() {
    clear(INCIDENT, 1, &[8]).await;
}

/// Clears so many dead pods so often: by a pass, with these numbers at a time, and the kubelet's way.
async fn clear(pods: usize, rounds: usize, fixed: &[usize]) {
    let mut bench = Bench::start().await;
    for round in 1..=rounds {
        let tell = |what: &str, removed: &Removed| {
            tell_removed(&format!("{pods} pods, round {round}, {what}"), removed);
        };
        bench.litter_of(pods, |number| 1 + number % 2).await;
        let service = bench.service(8).await;
        tell("a pass", &pass(&service).await);
        drop(service);
        for at_a_time in fixed {
            bench.litter_of(pods, |number| 1 + number % 2).await;
            let removed = remove_fixed(bench.cri.clone(), *at_a_time, PASS_MAX).await;
            tell(&format!("{at_a_time} at a time, fixed"), &removed);
        }
        bench.litter_of(pods, |number| 1 + number % 2).await;
        tell(
            "the kubelet's way",
            &remove_as_the_kubelet(&bench.cri).await,
        );
    }
}
