//! Containers by state, the age of the oldest dead one, and the namespaces with the most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::page::{MetricsPage, plain, sample, seconds};
use crate::model::{Container, ContainerState, by_state};

/// Namespaces are the only names from outside that become labels, so their number is bounded.
const NAMESPACES_MAX: usize = 10;

pub(super) fn encode(containers: &[Container], page: &mut MetricsPage) {
    let states = by_state(ContainerState::ALL, containers, |it| it.state);
    let states = states.map(|(state, count)| sample([("state", state)], count));
    page.gauge(plain("cri_containers"), "Containers by state", states);

    let is_dead = |it: &&Container| it.state == ContainerState::Exited;
    let exited = || containers.iter().filter(is_dead);
    let ends = exited().map(|it| it.finished_at.unwrap_or(it.created_at));
    let ends = ends.filter(|at| *at < Timestamp::MAX);
    page.gauge(
        seconds("cri_oldest_exited_container_timestamp"),
        "When the longest-dead container exited, or was created where its exit is not known; \
         absent when none is dead",
        ends.min().map(|oldest| sample([], oldest)),
    );

    let mut namespaces = BTreeMap::<&str, usize>::new();
    let pods = exited().filter_map(|it| it.pod.as_ref());
    for pod in pods.filter(|pod| !pod.namespace.is_empty()) {
        *namespaces.entry(&pod.namespace).or_default() += 1;
    }
    let mut most: Vec<_> = namespaces.into_iter().collect();
    most.sort_by_key(|&(namespace, count)| (Reverse(count), namespace));
    most.truncate(NAMESPACES_MAX);
    let most = most.into_iter();
    page.gauge(
        plain("cri_namespace_exited_containers"),
        "Exited containers of the 10 namespaces that hold most of them",
        most.map(|(name, count)| sample([("namespace", name)], count)),
    );
}
