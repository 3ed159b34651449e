//! The logs of the demo's node: real files, as the kubelet would have made them. Written once, so later
//! containers have none.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::ids::Ids;
use crate::{ContainerRecord, Handle};

/// Directories of pods that no source knows any more.
pub(crate) const ORPHANS: usize = 12;
/// Links to missing logs of missing containers.
pub(crate) const DEAD_LINKS: usize = 20;

/// The log directories of the demo's node.
#[derive(Clone, Debug)]
pub struct LogRoots {
    /// As `/var/log/pods`.
    pub pods: PathBuf,
    /// As `/var/log/containers`.
    pub containers: PathBuf,
}

/// Writes the log and the link of each container, and leftovers of earlier pods. The node must know the roots.
///
/// # Errors
/// The first error of the file system; what was written before stays.
pub fn write(node: &Handle, roots: &LogRoots) -> io::Result<()> {
    fs::create_dir_all(&roots.pods)?;
    fs::create_dir_all(&roots.containers)?;
    for container in node.containers() {
        write_log(Path::new(&container.log_path), &container.subject)?;
        symlink(
            &container.log_path,
            roots.containers.join(link_name(&container)),
        )?;
    }
    let mut ids = Ids::new(0x107);
    for number in 0..ORPHANS {
        let directory = format!("batch_report-past-{number:02}_{}", ids.uuid());
        let log = roots.pods.join(directory).join("report/0.log");
        write_log(&log, "a pod of the past")?;
    }
    for number in 0..DEAD_LINKS {
        let (pod, id) = (format!("report-dead-{number:02}"), ids.digest());
        let log = format!("batch_{pod}_{}/report/0.log", ids.uuid());
        let name = format!("{pod}_batch_report-{id}.log");
        symlink(roots.pods.join(log), roots.containers.join(name))?;
    }
    Ok(())
}

fn write_log(log: &Path, whose: &str) -> io::Result<()> {
    if let Some(directory) = log.parent() {
        fs::create_dir_all(directory)?;
    }
    let line = format!("2026-01-01T00:00:00.000000000Z stdout F the log of {whose}\n");
    fs::write(log, line.repeat(20))
}

fn link_name(container: &ContainerRecord) -> String {
    let label = |key: &str| {
        let value = container.row.labels.get(&format!("io.kubernetes.{key}"));
        value.map_or("", String::as_str)
    };
    let (pod, namespace) = (label("pod.name"), label("pod.namespace"));
    let (name, id) = (label("container.name"), &container.row.id);
    format!("{pod}_{namespace}_{name}-{id}.log")
}
