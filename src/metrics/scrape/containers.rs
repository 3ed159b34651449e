//! Containers by state, the age of the oldest dead one, and the namespaces with the most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::page::{MetricsPage, plain, sample, seconds};
use crate::model::{Container, ContainerState, by_state};

/// Namespaces are the only names from outside that become labels, so their number is bounded.
const NAMESPACES_MAX: usize = 10;

pub(super) fn encode(containers: &[Container], page: &mut MetricsPage) {
    let states = by_state(ContainerState::ALL, containers, |it| it.state);
    let samples = states.map(|(state, count)| sample([("state", state)], count));
    page.gauge(
        plain("cri_containers"),
        "Containers by state",
        samples.into(),
    );

    let exited = || {
        containers
            .iter()
            .filter(|c| c.state == ContainerState::Exited)
    };
    let oldest = exited()
        .map(|c| c.finished_at.unwrap_or(c.created_at))
        .min();
    page.gauge(
        seconds("cri_oldest_exited_container_timestamp"),
        "When the longest-dead container exited, or was created where its exit is not known; \
         absent when none is dead",
        oldest
            .map(|oldest| sample([], oldest))
            .into_iter()
            .collect(),
    );
    encode_namespaces(exited(), page);
}

fn encode_namespaces<'a>(exited: impl Iterator<Item = &'a Container>, page: &mut MetricsPage) {
    let mut namespaces = BTreeMap::<&str, usize>::new();
    for pod in exited
        .filter_map(|c| c.pod.as_ref())
        .filter(|pod| !pod.namespace.is_empty())
    {
        *namespaces.entry(&pod.namespace).or_default() += 1;
    }
    let mut most: Vec<_> = namespaces.into_iter().collect();
    most.sort_by_key(|&(namespace, count)| (Reverse(count), namespace));
    most.truncate(NAMESPACES_MAX);
    page.gauge(
        plain("cri_namespace_exited_containers"),
        "Exited containers of the 10 namespaces that hold most of them",
        most.into_iter()
            .map(|(name, count)| sample([("namespace", name)], count))
            .collect(),
    );
}
