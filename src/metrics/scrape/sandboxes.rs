//! Pod sandboxes by state.

use super::page::{MetricsPage, plain, sample};
use crate::model::{PodSandbox, PodSandboxState, by_state};

pub(super) fn encode(sandboxes: &[PodSandbox], page: &mut MetricsPage) {
    let states = by_state(PodSandboxState::ALL, sandboxes, |it| it.state);
    let samples = states.map(|(state, count)| sample([("state", state)], count));
    page.gauge(
        plain("cri_pod_sandboxes"),
        "Pod sandboxes by state",
        samples.into(),
    );
}
