//! Nodes that several tests use.

use crisweep_sim::{NodeBuilder, PodSpec, hours, seconds};

/// A node with one living pod.
pub(crate) fn healthy() -> NodeBuilder {
    NodeBuilder::new().pod(PodSpec::new("web").running("app", 0))
}

/// A healthy node with deleted pods, each with a dead container and its sandbox. `old-0` is the oldest.
pub(crate) fn litter(pods: usize) -> NodeBuilder {
    healthy().pods(pods, |number| deleted(number, pods))
}

/// One of `count` deleted pods.
pub(crate) fn deleted(number: usize, count: usize) -> PodSpec {
    let younger = u64::try_from(count - number).unwrap();
    PodSpec::new(&format!("old-{number}"))
        .exited("app", 0, hours(3) + seconds(younger))
        .deleted()
}

/// A healthy node with empty sandboxes of deleted pods. `leak-0` is the oldest.
pub(crate) fn leaks(sandboxes: usize) -> NodeBuilder {
    healthy().pods(sandboxes, |number| leaked(number, sandboxes))
}

/// One of `count` deleted pods with an empty sandbox.
pub(crate) fn leaked(number: usize, count: usize) -> PodSpec {
    let younger = u64::try_from(count - number).unwrap();
    PodSpec::new(&format!("leak-{number}"))
        .without_sandbox()
        .leaked_sandbox(0, hours(3) + seconds(younger))
        .deleted()
}
