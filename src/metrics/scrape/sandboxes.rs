//! Pod sandboxes by state.

use std::collections::BTreeMap;

use super::page::{MetricsPage, plain, sample};
use crate::model::{PodSandbox, PodSandboxState};

pub(super) fn encode(sandboxes: &[PodSandbox], page: &mut MetricsPage) {
    let mut states = BTreeMap::from(PodSandboxState::ALL.map(|state| (state, 0_usize)));
    for sandbox in sandboxes {
        *states.entry(sandbox.state).or_default() += 1;
    }
    let samples = states
        .iter()
        .map(|(state, &count)| sample([("state", state.label())], count))
        .collect();
    page.gauge(
        plain("cri_pod_sandboxes"),
        "Pod sandboxes by state",
        samples,
    );
}
