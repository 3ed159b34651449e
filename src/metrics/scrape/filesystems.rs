//! The file systems of images and of writable layers.

use std::collections::BTreeMap;

use super::page::{FamilyName, MetricsPage, bytes, plain, sample};
use crate::model::{Filesystem, FilesystemUsage};
use crate::snapshot::Filesystems;

/// A figure from statvfs: its name, its help, and its field.
struct FilesystemFigure {
    name: fn(&str) -> FamilyName,
    help: &'static str,
    read: fn(&FilesystemUsage) -> Option<u64>,
}

const FIGURES: [FilesystemFigure; 6] = [
    FilesystemFigure {
        name: |fs| bytes(format!("{fs}_used")),
        help: "bytes in use, by images and everything else",
        read: |usage| Some(usage.used_bytes),
    },
    FilesystemFigure {
        name: |fs| bytes(format!("{fs}_capacity")),
        help: "size in bytes",
        read: |usage| Some(usage.capacity_bytes),
    },
    FilesystemFigure {
        name: |fs| bytes(format!("{fs}_available")),
        help: "bytes that an unprivileged process can still write",
        read: |usage| Some(usage.available_bytes),
    },
    FilesystemFigure {
        name: |fs| plain(format!("{fs}_inodes")),
        help: "inodes; absent where the file system makes them as needed",
        read: |usage| has_inodes(usage).then_some(usage.inodes),
    },
    FilesystemFigure {
        name: |fs| plain(format!("{fs}_inodes_free")),
        help: "inodes free; absent where the file system makes them as needed",
        read: |usage| has_inodes(usage).then_some(usage.inodes_free),
    },
    FilesystemFigure {
        name: |fs| plain(format!("{fs}_inodes_used")),
        help: "inodes in use; absent where the file system makes them as needed",
        read: |usage| has_inodes(usage).then_some(usage.inodes.saturating_sub(usage.inodes_free)),
    },
];

fn has_inodes(usage: &FilesystemUsage) -> bool {
    usage.inodes > 0
}

/// Adds the file systems.
pub(super) fn encode(filesystems: &Filesystems, page: &mut MetricsPage) {
    encode_kind(
        "cri_image_fs",
        "File system of images",
        &filesystems.image,
        page,
    );
    encode_kind(
        "cri_container_fs",
        "File system of writable layers",
        &filesystems.container,
        page,
    );
}

/// Says whether statvfs answered for each of them.
pub(super) fn all_read(filesystems: &Filesystems) -> bool {
    filesystems
        .image
        .iter()
        .chain(&filesystems.container)
        .all(|fs| fs.usage.is_some())
}

fn encode_kind(prefix: &str, what: &str, filesystems: &[Filesystem], page: &mut MetricsPage) {
    // By mount point: a duplicate would be a duplicate series, which Prometheus refuses.
    let mounts: BTreeMap<&str, &Filesystem> = filesystems
        .iter()
        .map(|fs| (fs.mountpoint.as_str(), fs))
        .collect();
    for figure in &FIGURES {
        let samples = mounts.iter().filter_map(|(mount, fs)| {
            let figure = (figure.read)(fs.usage.as_ref()?)?;
            Some(sample([("mountpoint", mount)], figure))
        });
        let help = format!("{what}: {}", figure.help);
        page.gauge((figure.name)(prefix), &help, samples.collect());
    }
    let by_runtime = mounts
        .iter()
        .map(|(mount, fs)| sample([("mountpoint", mount)], fs.runtime_used_bytes))
        .collect();
    let help = format!("{what}: bytes that the runtime reports as its own use");
    page.gauge(bytes(format!("{prefix}_runtime_used")), &help, by_runtime);
}
