//! The events on the demo's node: one at a time, random, and the same each time.

use std::time::Duration;

use tokio::time::sleep;

use super::{BATCH, slow_cni};
use crate::{ContainerSpec, Handle, Node, Phase, PodSpec};
use crisweep_proto::cri::{ContainerState, PodSandboxState};

/// The number of containers above which nothing new starts.
pub const CONTAINERS_MAX: usize = 2_500;
/// The same for sandboxes.
pub const SANDBOXES_MAX: usize = 400;
/// How many pods of cron jobs may exist.
const JOBS_MAX: usize = 60;
/// Marks the pods that may crash and the jobs, by name.
const CRASHING: &str = "-crash-";
const CRON: &str = "cron-";

/// Runs events until the task is aborted.
pub(super) async fn run(handle: Handle, pace: Duration) {
    let mut dice = fastrand::Rng::with_seed(0x00C0_FFEF);
    loop {
        sleep(pace.mul_f64(0.5 + dice.f64())).await;
        step(&handle, &mut dice);
    }
}

/// Runs one event.
pub fn step(handle: &Handle, dice: &mut fastrand::Rng) {
    let event = dice.u8(0..20);
    let roll = dice.u64(..);
    match event {
        0..8 => handle.change(|node| crash(node, roll)),
        8..12 => born(handle, roll),
        12..16 => handle.change(|node| end_job(node, roll)),
        16..19 => handle.change(|node| delete_job(node, roll)),
        _ => leak(handle, roll),
    }
}

fn is_full(node: &Node) -> bool {
    node.containers.len() >= CONTAINERS_MAX || node.sandboxes.len() >= SANDBOXES_MAX
}

/// A crash-looping container exits and its next attempt starts.
fn crash(node: &mut Node, roll: u64) {
    if is_full(node) {
        return;
    }
    let running = node.containers.iter().filter(|(_, c)| {
        c.row.state() == ContainerState::ContainerRunning && c.subject.contains(CRASHING)
    });
    let ids: Vec<String> = running.map(|(id, _)| id.clone()).collect();
    if let Some(id) = choose(ids, roll) {
        node.exit_container(&id, 1);
        node.next_attempt(&id);
    }
}

/// Starts a cron job's pod.
fn born(handle: &Handle, roll: u64) {
    let allowed = handle.look(|node| {
        let jobs = node
            .pods
            .values()
            .filter(|pod| pod.name.starts_with(CRON))
            .count();
        jobs < JOBS_MAX && !is_full(node)
    });
    if allowed {
        let main = ContainerSpec::running("main", 0, Duration::ZERO).image(BATCH);
        let name = format!("{CRON}{:07x}", roll % (1 << 28));
        handle.add_pod(
            &PodSpec::new(&name)
                .namespace("batch")
                .age(Duration::ZERO)
                .container(main),
        );
    }
}

/// Finishes a running job; some fail.
fn end_job(node: &mut Node, roll: u64) {
    if let Some(pod) = choose(jobs(node, |phase| phase == Phase::Running), roll) {
        node.finish_pod(&pod, i32::from(roll.is_multiple_of(7)));
    }
}

/// Deletes a finished job at the kubelet; the runtime keeps its records.
fn delete_job(node: &mut Node, roll: u64) {
    let finished = jobs(node, |phase| {
        matches!(phase, Phase::Succeeded | Phase::Failed)
    });
    if let Some(pod) = choose(finished, roll) {
        node.delete_pod(&pod);
    }
}

/// Adds a dead sandbox of a pod that no source knows, sometimes with a slow network teardown.
fn leak(handle: &Handle, roll: u64) {
    let not_ready = handle.count_sandboxes(PodSandboxState::SandboxNotready);
    if not_ready >= SANDBOXES_MAX / 2 || handle.look(is_full) {
        return;
    }
    let name = format!("{CRON}leaked-{:07x}", roll % (1 << 28));
    let pod = PodSpec::new(&name)
        .namespace("batch")
        .unknown_to_kubelet()
        .without_sandbox()
        .leaked_sandbox(0, Duration::ZERO);
    handle.add_pod(&if roll.is_multiple_of(5) {
        pod.cni(slow_cni(3))
    } else {
        pod
    });
}

fn jobs(node: &Node, phase: impl Fn(Phase) -> bool) -> Vec<String> {
    let jobs = node
        .pods
        .values()
        .filter(|pod| pod.name.starts_with(CRON) && phase(pod.phase));
    jobs.map(|pod| format!("{}/{}", pod.namespace, pod.name))
        .collect()
}

fn choose(mut from: Vec<String>, roll: u64) -> Option<String> {
    let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
    let index = usize::try_from(roll % count).ok()?;
    Some(from.swap_remove(index))
}
