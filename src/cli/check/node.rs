//! Asks the runtime itself: five calls, each once, without statuses, pods and logs. Changes nothing.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::app;
use crate::config::Config;
use crate::health::{HealthFacts, RuntimeHealth};
use crate::model::{ContainerState, NodeFigures, PodSandboxState};
use crate::runtime::{Error, Listing};
use crate::snapshot::{LookResult, Weights, measure_filesystems};

/// Returns what the runtime says within the time.
///
/// # Errors
/// If no runtime is found.
pub(super) async fn facts(
    mut config: Config,
    endpoint: Option<String>,
    by: Instant,
) -> anyhow::Result<HealthFacts> {
    let left = by.saturating_duration_since(Instant::now());
    config.runtime.timeout = config
        .runtime
        .timeout
        .min(left)
        .max(Duration::from_millis(1));
    let client = app::client(&config, endpoint).await?;
    let version = within(by, "Version", client.version()).await;
    if version.is_err() {
        return Ok(HealthFacts::default());
    }
    let host_root = config.runtime.host_root;
    let (containers, sandboxes, images, filesystems) = tokio::join!(
        within(by, "ListContainers", client.containers_at_once()),
        within(by, "ListPodSandbox", client.sandboxes_at_once()),
        within(by, "ListImages", client.list_images()),
        within(by, "ImageFsInfo", measure_filesystems(&client, host_root)),
    );
    let weights = Weights::of(&version, &containers, &sandboxes, &images);
    let usage = filesystems.ok().and_then(|them| them.image.first()?.usage);
    let mut figures = NodeFigures::default();
    if let Some(usage) = usage {
        figures.measured(usage);
    }
    // As in a look that asks nothing more: an empty list is incomplete beside living objects of the other list.
    let incomplete = [
        (
            "containers",
            count(&containers, |_| true),
            count(&sandboxes, |it| it.state == PodSandboxState::Ready),
        ),
        (
            "sandboxes",
            count(&sandboxes, |_| true),
            count(&containers, |it| it.state == ContainerState::Running),
        ),
    ];
    let incomplete = incomplete
        .into_iter()
        .filter(|(_, all, living)| *all == Some(0) && *living > Some(0));
    Ok(HealthFacts {
        runtime: RuntimeHealth::Answers,
        incomplete: incomplete.map(|(list, ..)| list).collect(),
        exited_containers: count(&containers, |it| it.state == ContainerState::Exited),
        not_ready_sandboxes: count(&sandboxes, |it| it.state == PodSandboxState::NotReady),
        lists: weights.ratios(),
        image_fs_used_percent: figures.image_fs_used_ratio.map(|ratio| 100.0 * ratio),
        image_fs_inodes_used_percent: figures.image_fs_inodes_used_ratio().map(|it| 100.0 * it),
        pod_source: None,
        service: None,
    })
}

async fn within<T>(
    by: Instant,
    method: &'static str,
    call: impl Future<Output = LookResult<T>>,
) -> LookResult<T> {
    let began = Instant::now();
    let late = |_elapsed| Error::Timeout {
        method,
        after: began.elapsed(),
    };
    timeout_at(by, call).await.map_err(late)?
}

fn count<T>(list: &LookResult<Listing<T>>, is_dead: impl Fn(&T) -> bool) -> Option<u64> {
    let rows = &list.as_ref().ok()?.rows;
    u64::try_from(rows.iter().filter(|row| is_dead(row)).count()).ok()
}
