//! `crisweep demo`: the service on a simulated node, so that a newcomer sees metrics move and can run a pass
//! within a minute. Needs no runtime and no root.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::output::print;
use crate::access::web_config::WebConfig;
use crate::app;
use crate::config::Config;
use crate::http::serve::Listener;
use crate::pods::SourceName;
use crisweep_sim::demo::{DISK_BYTES, Demo, DemoOptions, EXITED, LogRoots, NOT_READY};

/// The demo's `pods.settle`; a newcomer does not wait long.
const SETTLE: Duration = Duration::from_secs(2);
/// The demo's grace of logs and minimum age of images, which are all new to it.
const GRACE: Duration = Duration::from_secs(5);
/// The demo removes images that were not used for this long, unless the configuration has an age of its own: its disk
/// never fills.
const IMAGES_MAX_AGE: Duration = Duration::from_secs(10);

/// Runs the simulated node and the service on it until the service is stopped. The configuration is the
/// user's, except runtime, pod source, log roots, state, and the waits above.
///
/// # Errors
/// If the socket cannot be made, or an address cannot be listened on.
pub async fn run(mut config: Config) -> anyhow::Result<()> {
    let directory = temp_dir()?;
    let result = run_in(&directory, &mut config).await;
    if let Err(error) = std::fs::remove_dir_all(&directory) {
        tracing::warn!(%error, path = %directory.display(), "cannot remove the demo's directory");
    }
    result
}

async fn run_in(directory: &Path, config: &mut Config) -> anyhow::Result<()> {
    let bound = app::bind(&config.web)?;
    let address = bound.listeners.iter().find_map(Listener::tcp_address);
    let address = address.context("the demo needs an address to listen on (web.listen)")?;
    let socket = directory.join("cri.sock");
    let pods_file = directory.join("pods.json");
    let log_roots = LogRoots {
        pods: directory.join("log/pods"),
        containers: directory.join("log/containers"),
    };
    let mut options = DemoOptions::new(&socket);
    options.pods_file = Some(pods_file.clone());
    options.log_roots = Some(log_roots.clone());
    let node = Demo::start(options).context("the simulated node cannot start")?;
    config.pods.source = SourceName::File;
    config.pods.file = Some(pods_file);
    config.pods.settle = SETTLE;
    config.policy.pods.settle = SETTLE;
    config.policy.pods.quiet = Duration::ZERO;
    config.runtime.image_endpoint = None;
    config.state.dir = Some(directory.join("state"));
    config.runtime.host_root = "/".into();
    config.runtime.simulated_disk_bytes = Some(DISK_BYTES);
    config.runtime.endpoint = Some(socket.display().to_string());
    set_policy(config, log_roots);
    if let Err(error) = greet(scheme(config), address) {
        node.shutdown().await;
        return Err(error);
    }
    let reload: crate::http::Reload = Arc::new(|| {
        let error = "the demo reads its configuration only at its start".to_owned();
        Box::pin(std::future::ready(Err(error)))
    });
    let result = app::serve(config.clone(), bound, None, reload).await;
    node.shutdown().await;
    result
}

/// The demo knows only the simulated pods. It must never look at this machine's own logs, which would look
/// orphaned.
fn set_policy(config: &mut Config, log_roots: LogRoots) {
    let (logs, images) = (&mut config.policy.logs, &mut config.policy.images);
    logs.pods_root = log_roots.pods;
    logs.containers_root = log_roots.containers;
    logs.grace = logs.grace.min(GRACE);
    images.min_age = images.min_age.min(GRACE);
    images.max_age.get_or_insert(IMAGES_MAX_AGE);
}

/// Says what the addresses begin with. A file that cannot be used stops the demo right after.
fn scheme(config: &Config) -> &'static str {
    let file = config.web.config_file.as_deref();
    let web = file.and_then(|path| WebConfig::load(path).ok());
    if web.is_some_and(|web| web.tls.is_some()) {
        "https"
    } else {
        "http"
    }
}

/// Prints on standard output what to try; the log goes to standard error.
fn greet(scheme: &str, mut address: SocketAddr) -> anyhow::Result<()> {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let url = format!("{scheme}://{address}");
    print(&format!(
        "A simulated node with {EXITED} exited containers, {NOT_READY} dead sandboxes, unused images and the logs \
         of pods that are gone.\nFive of the sandboxes cannot be removed. The page: {url}/\nIn another terminal:\n\n\
         \x20 curl {url}/metrics                                    what Prometheus sees\n\
         \x20 curl -N -X POST '{url}/gc?dry_run=true&follow=true'   what a pass would do\n\
         \x20 curl -N -X POST '{url}/gc?follow=true'                a pass, reported line by line\n\
         \x20 curl {url}/api/v1/passes                              what was done so far\n\n\
         Ctrl-C ends it.\n"
    ))
}

fn temp_dir() -> anyhow::Result<std::path::PathBuf> {
    // The process id makes it unique; one left by a dead process with the same id is replaced.
    let directory = std::env::temp_dir().join(format!("crisweep-demo-{}", std::process::id()));
    if directory.exists() {
        std::fs::remove_dir_all(&directory)
            .with_context(|| format!("removing {}", directory.display()))?;
    }
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&directory)
        .with_context(|| format!("making {}", directory.display()))?;
    Ok(directory)
}
