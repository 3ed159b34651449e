//! The file systems of images and of writable layers.

use super::page::{FamilyName, MetricsPage, bytes, plain, sample};
use crate::model::{Filesystem, FilesystemUsage, Filesystems};

type UsageFigure = fn(&FilesystemUsage) -> u64;

pub(super) fn encode(filesystems: &Filesystems, page: &mut MetricsPage) {
    let (image, container) = (&filesystems.image, &filesystems.container);
    encode_kind("cri_image_fs", "File system of images", image, page);
    let layers = "File system of writable layers";
    encode_kind("cri_container_fs", layers, container, page);
}

/// Says whether the runtime names that of images, and statvfs answered for each of them.
pub(super) fn all_read(filesystems: &Filesystems) -> bool {
    let (image, container) = (&filesystems.image, &filesystems.container);
    let mut all = image.iter().chain(container);
    !image.is_empty() && all.all(|fs| fs.usage.is_some())
}

fn encode_kind(prefix: &str, what: &str, filesystems: &[Filesystem], page: &mut MetricsPage) {
    let mut add = |name: FamilyName, help: &str, of: &dyn Fn(&Filesystem) -> Option<u64>| {
        let figure = |fs: &Filesystem| Some(sample([("mountpoint", &*fs.mountpoint)], of(fs)?));
        let help = format!("{what}: {help}");
        page.gauge(name, &help, filesystems.iter().filter_map(figure));
    };
    let usage = |of: UsageFigure| move |fs: &Filesystem| Some(of(fs.usage.as_ref()?));
    let size = |name: &str| bytes(format!("{prefix}_{name}"));
    let help = "bytes in use, by images and everything else";
    add(size("used"), help, &usage(|it| it.used_bytes));
    let help = "size in bytes";
    add(size("capacity"), help, &usage(|it| it.capacity_bytes));
    let help = "bytes that an unprivileged process can still write";
    add(size("available"), help, &usage(|it| it.available_bytes));
    let used = |it: &FilesystemUsage| it.inodes.saturating_sub(it.inodes_free);
    let inodes: [(_, _, UsageFigure); 3] = [
        ("inodes", "inodes", |it| it.inodes),
        ("inodes_free", "inodes free", |it| it.inodes_free),
        ("inodes_used", "inodes in use", used),
    ];
    for (name, what, of) in inodes {
        let help = format!("{what}; absent where the file system makes them as needed");
        let of = |fs: &Filesystem| fs.usage.as_ref().filter(|it| it.inodes > 0).map(of);
        add(plain(format!("{prefix}_{name}")), &help, &of);
    }
    let help = "bytes that the runtime reports as its own use";
    add(size("runtime_used"), help, &|fs| {
        Some(fs.runtime_used_bytes)
    });
}
