//! Full file systems beside the one where passes make room: of what containers write, of logs, of images that the
//! runtime has elsewhere than it says.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{DoctorFacts, Finding, OtherDisk, Severity};
use crate::gc::images::used_percent;
use crate::model::{Filesystem, FilesystemUsage, Filesystems};
use crate::snapshot;

/// Where the kubelet evicts pods by default: `nodefs.available` below 10 %, `nodefs.inodesFree` below 5 %.
const BYTES_PERCENT: u128 = 90;
const INODES_PERCENT: u128 = 95;
/// What is in a directory of logs.
pub(super) const LOGS: &str = "logs";

/// Returns those that the runtime names, without the images' one where passes take it for that.
pub(super) fn named(filesystems: &Filesystems, has_images: bool) -> Vec<OtherDisk> {
    let Filesystems { image, container } = filesystems;
    let is_own = |path: &str| image.iter().all(|image| image.mountpoint != path);
    let layers = container.iter().filter(|it| is_own(&it.mountpoint));
    let layers = layers.map(|it| (it, "what containers write"));
    let images = image.iter().filter(|_| !has_images);
    let all = images.map(|it| (it, "images")).chain(layers);
    let disk = |(it, holds): (&Filesystem, &'static str)| {
        let (path, usage) = (it.mountpoint.clone(), it.usage?);
        Some(OtherDisk { path, holds, usage })
    };
    all.filter_map(disk).collect()
}

/// Measures the one of a directory of logs; `None`: it is that of another directory too, or cannot be read. May hang.
pub(super) fn usage_beside(logs: &Path, others: &[PathBuf]) -> Option<FilesystemUsage> {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|it| it.dev());
    let own = device(logs)?;
    let is_shared = others.iter().any(|path| device(path) == Some(own));
    if is_shared {
        None
    } else {
        snapshot::statvfs(logs)
    }
}

pub(super) fn findings(facts: &DoctorFacts) -> impl Iterator<Item = Finding> {
    facts.disks.iter().filter_map(finding)
}

fn finding(disk: &OtherDisk) -> Option<Finding> {
    let OtherDisk { path, holds, usage } = disk;
    let bytes = used_percent(FilesystemUsage {
        inodes: 0,
        ..*usage
    });
    let all = used_percent(*usage);
    let full = match (bytes, all) {
        (BYTES_PERCENT.., _) => format!("is {bytes} % full"),
        (_, INODES_PERCENT..) => format!("has {all} % of its inodes in use"),
        _ => return None,
    };
    let evicts = if *holds == LOGS {
        "the kubelet evicts pods if its own directory is there too"
    } else {
        "the kubelet evicts pods there"
    };
    Some(Finding::new(
        "disk-full",
        Severity::Problem,
        format!("The file system of {path} ({holds}) {full}: {evicts}."),
        "find what fills it, as du -xh --max-depth=3 shows it; a pass removes there only what dead containers left",
        json!({
            "path": path, "used_ratio": usage.used_ratio(), "inodes": usage.inodes, "inodes_free": usage.inodes_free,
        }),
    ))
}
