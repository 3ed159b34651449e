//! A node as on the day of the incident, which lives on: containers crash, jobs come and go, sandboxes leak.
//! It never cleans up, and its growth is capped.

pub mod churn;
pub(super) mod logs;

use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{
    Cni, ContainerSpec, Disk, Handle, Node, NodeBuilder, Options, PodSpec, Sim, hours, minutes,
    seconds,
};
pub use logs::{LogRoots, write as write_logs};

/// Exited containers of the demo's node at its start.
pub const EXITED: usize = 1_400;
/// Its running pods.
pub const RUNNING_PODS: usize = 60;
/// Its sandboxes that are not ready.
pub const NOT_READY: usize = 120;
/// Size of its disk, which holds only its images.
pub const DISK_BYTES: u64 = 16 << 30;

const STATIC_PODS: usize = 2;
const CRASHING_PODS: usize = 8;
const FINISHED_PODS: usize = 45;
const DELETED_PODS: usize = 50;
const LEAKED_SANDBOXES: usize = NOT_READY - FINISHED_PODS - DELETED_PODS;
/// Sandboxes that cannot be removed, and slow ones, among those of deleted and leaked pods.
const STUCK: usize = 5;
const SLOW: usize = 10;

const MIB: u64 = 1 << 20;
const SERVICES: &str =
    "api auth billing cart catalog gateway inventory ledger mailer orders search sessions shipping";
const AGENTS: &str = "calico-node coredns csi-node exporter fluent-bit ingress konnectivity kube-proxy \
    local-dns metrics node-problem-detector otel-collector";
const BATCH: &str = "registry.example/batch/report:1.9.2";

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Where to serve.
    pub socket: PathBuf,
    /// Where to write the answer of the kubelet's `/pods`.
    pub pods_file: Option<PathBuf>,
    /// Where to write the containers' logs; without it none are written, and the runtime reports the
    /// kubelet's paths.
    pub log_roots: Option<LogRoots>,
    /// Average time between two events.
    pub pace: Duration,
}

impl DemoOptions {
    /// Serves on this socket, with an event every two seconds.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        Self {
            socket,
            pods_file: None,
            log_roots: None,
            pace: seconds(2),
        }
    }
}

/// The demo's node, served until it is shut down or dropped.
#[derive(Debug)]
pub struct Demo {
    sim: Sim,
    churn: JoinHandle<()>,
}

impl Demo {
    /// Serves the demo's node and runs its events. Call it within a tokio runtime.
    pub fn start(options: DemoOptions) -> io::Result<Self> {
        let of_runtime = Options {
            disk: Disk {
                each: Duration::from_millis(8),
                crowding: Duration::from_millis(3),
            },
            pods_file: options.pods_file,
            ..Options::default()
        };
        let mut builder = NodeBuilder::new();
        if let Some(roots) = &options.log_roots {
            builder = builder.log_root(&roots.pods.display().to_string());
        }
        let sim = Sim::start(options.socket, populated(builder), of_runtime)?;
        if let Some(roots) = &options.log_roots {
            logs::write(&sim, roots)?;
        }
        let churn = tokio::spawn(churn::run(sim.handle(), options.pace));
        Ok(Self { sim, churn })
    }

    /// Stops everything and waits until it has stopped.
    pub async fn shutdown(mut self) {
        self.churn.abort();
        // Aborted on purpose, so the result does not matter.
        let _ = (&mut self.churn).await.is_ok();
        self.sim.stop().await;
    }
}

impl Deref for Demo {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.sim
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.churn.abort();
    }
}

/// Makes the demo's node: [`EXITED`] exited containers, [`RUNNING_PODS`] running pods,
/// [`NOT_READY`] sandboxes that are not ready, some 40 images.
pub fn population() -> Node {
    populated(NodeBuilder::new())
}

fn populated(builder: NodeBuilder) -> Node {
    let mut names = super::ids::Ids::new(0xD2);
    let mut suffix = || names.suffix();
    let services = 0..RUNNING_PODS - STATIC_PODS - CRASHING_PODS;
    let mut pods: Vec<PodSpec> = services.map(|n| running_pod(n, &suffix())).collect();
    pods.extend((0..FINISHED_PODS).map(|n| finished_job(n, &suffix())));
    let left = EXITED - pods.iter().map(exited).sum::<usize>();
    // The rest is half crash loops, half deleted pods.
    let crashes = split(left / 2, CRASHING_PODS).enumerate();
    pods.extend(crashes.map(|(n, count)| crashing_pod(n, &suffix(), count)));
    let leftovers = split(left - left / 2, DELETED_PODS).enumerate();
    pods.extend(leftovers.map(|(n, count)| deleted_pod(n, &suffix(), count)));
    pods.extend((0..LEAKED_SANDBOXES).map(|n| leaked_pod(n, &suffix())));

    let mut builder = with_images(builder);
    for name in ["etcd", "node-local-lb"] {
        builder = builder.pod(
            PodSpec::new(name)
                .namespace("kube-system")
                .static_pod()
                .host_network()
                .running(name, 0),
        );
    }
    pods.into_iter().fold(builder, NodeBuilder::pod).build()
}

/// Splits a count into nearly equal parts.
fn split(count: usize, parts: usize) -> impl Iterator<Item = usize> {
    (0..parts).map(move |part| count / parts + usize::from(part < count % parts))
}

fn exited(pod: &PodSpec) -> usize {
    let containers = pod.sandboxes().flat_map(|sandbox| &sandbox.containers);
    containers
        .filter(|container| container.finished.is_some())
        .count()
}

fn pick(names: &str, number: usize) -> &str {
    names.split(' ').cycle().nth(number).unwrap_or_default()
}

fn image_of(name: &str) -> String {
    format!("registry.example/shop/{name}:2.4.1")
}

/// A number as an age: larger means older.
fn age(number: usize, step: Duration) -> Duration {
    step.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1))
}

/// A service or agent with a finished init container and sometimes a restart.
fn running_pod(number: usize, suffix: &str) -> PodSpec {
    let is_agent = number < AGENTS.split(' ').count();
    let name = pick(if is_agent { AGENTS } else { SERVICES }, number);
    let namespace = if is_agent { "kube-system" } else { "shop" };
    let image = image_of(name);
    let start = hours(30) + age(number, minutes(17));
    let init = ContainerSpec::exited("init", 0, start).image(&image);
    let restarts = u32::from(number.is_multiple_of(3));
    let mut pod = PodSpec::new(&format!("{name}-{suffix}"))
        .namespace(namespace)
        .label("app", name)
        .container(init);
    if restarts == 1 {
        let crash = ContainerSpec::exited(name, 0, hours(5))
            .exit_code(137)
            .reason("OOMKilled");
        pod = pod.container(crash.created_ago(start).image(&image));
    }
    let since = if restarts == 1 { hours(5) } else { start };
    pod = pod.container(ContainerSpec::running(name, restarts, since).image(&image));
    if is_agent { pod.host_network() } else { pod }
}

/// A pod whose container crashes every few minutes, while dead ones are not collected.
fn crashing_pod(number: usize, suffix: &str, crashes: usize) -> PodSpec {
    let name = pick(SERVICES, number + 5);
    let image = image_of(name);
    let pod = PodSpec::new(&format!("{name}-crash-{suffix}"))
        .namespace("shop")
        .label("app", name);
    let dead = (0..crashes).map(|attempt| {
        let ago = age(crashes - attempt, minutes(5));
        ContainerSpec::exited(name, count(attempt), ago)
            .exit_code(1)
            .image(&image)
    });
    let pod = dead.fold(pod, PodSpec::container);
    pod.container(ContainerSpec::running(name, count(crashes), seconds(40)).image(&image))
}

/// A job's pod that has ended and still exists, some after several attempts.
fn finished_job(number: usize, suffix: &str) -> PodSpec {
    let pod = PodSpec::new(&format!("report-{number:03}-{suffix}"))
        .namespace("batch")
        .succeeded();
    let attempts = number % 4 + 1;
    let ended = age(number, minutes(20));
    let dead = (0..attempts).map(|attempt| {
        let ago = ended + age(attempts - attempt, minutes(1));
        let code = i32::from(attempt + 1 < attempts);
        ContainerSpec::exited("report", count(attempt), ago)
            .exit_code(code)
            .image(BATCH)
    });
    dead.fold(pod, PodSpec::container)
}

/// The records that a deleted pod left in the runtime.
fn deleted_pod(number: usize, suffix: &str, containers: usize) -> PodSpec {
    let name = pick(SERVICES, number);
    let image = if number.is_multiple_of(3) {
        BATCH.to_owned()
    } else {
        image_of(name)
    };
    let pod = PodSpec::new(&format!("{name}-{suffix}"))
        .namespace("shop")
        .deleted();
    let dead = (0..containers).map(|attempt| {
        let ago = hours(2) + age(number, minutes(13)) + age(containers - attempt, minutes(5));
        ContainerSpec::exited(name, count(attempt), ago)
            .exit_code(1)
            .image(&image)
    });
    let pod = dead.fold(pod, PodSpec::container);
    if number < SLOW {
        pod.cni(slow_cni(number))
    } else {
        pod
    }
}

/// An empty sandbox of a pod that no source knows; some cannot be removed.
fn leaked_pod(number: usize, suffix: &str) -> PodSpec {
    let pod = PodSpec::new(&format!("report-leaked-{suffix}"))
        .namespace("batch")
        .unknown_to_kubelet()
        .without_sandbox()
        .leaked_sandbox(0, hours(4) + age(number, minutes(31)));
    if number < STUCK {
        pod.cni(Cni::failing())
    } else {
        pod
    }
}

fn slow_cni(number: usize) -> Cni {
    Cni::slow(seconds(2) + age(number, Duration::from_millis(300)))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Images that pods use, and old ones that nothing uses any more.
fn with_images(builder: NodeBuilder) -> NodeBuilder {
    let services = SERVICES.split(' ');
    let used = services.clone().chain(AGENTS.split(' ')).map(image_of);
    let idle = services.map(|name| format!("registry.example/shop/{name}:2.3.0"));
    let images = used.chain(idle).chain([BATCH.to_owned()]).zip(1_u64..);
    images.fold(builder, |builder, (tag, number)| {
        builder.image(&tag, (60 + number * 37 % 400) * MIB)
    })
}
