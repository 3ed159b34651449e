//! Generated images: shared by containers, for several handlers, never used, pinned, kept by pattern, young,
//! forgotten; disks that are full, empty or unreadable.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crisweep::gc::{ImagePolicy, KeepPattern};
use crisweep::model::{
    ContainerImage, FilesystemUsage, Image, ImageAge, ImageId, ImageNames, ImageStore, Images,
    Snapshot,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

use super::node::Oddity;

/// Compiled once, because there are many nodes.
static KEEP: LazyLock<KeepPattern> =
    LazyLock::new(|| KeepPattern::new(":[24]$|@sha256:0*3ed$").unwrap());

/// Seconds since it was first seen, and since it was last used (negative: never), its size, and a number that
/// selects oddities.
type ImageSpec = (i64, i64, u64, u32);

/// The images and their users.
#[derive(Clone, Debug)]
pub(crate) struct StoreSpec {
    images: Vec<ImageSpec>,
    /// The image of each container, in turn, and the form of its name.
    users: Vec<(usize, u32)>,
    available: u64,
    inodes: Option<u64>,
    draw: u32,
}

pub(crate) fn stores(oddity: Oddity) -> impl Strategy<Value = StoreSpec> {
    let first_seen = select(vec![0, 59, 60, 119, 120, 600, 3600, 90_000, 3_000_000]);
    let last_used = select(vec![-1, 0, 1, 60, 600, 3600, 3601, 90_000, 3_000_000]);
    let size = select(vec![0, 1, 10, 40, 100, 300]);
    let image = (first_seen, last_used, size, 0..100_u32);
    let inodes = if oddity == Oddity::None {
        vec![None]
    } else {
        vec![None, None, Some(0), Some(99), Some(150), Some(500)]
    };
    (
        prop::collection::vec(image, 0..9),
        prop::collection::vec((0..12_usize, 0..100_u32), 1..6),
        select(vec![0_u64, 50, 140, 149, 150, 159, 160, 200, 900, 5000]),
        select(inodes),
        0..100_u32,
    )
        .prop_map(|(images, users, available, inodes, draw)| StoreSpec {
            images,
            users,
            available,
            inodes,
            draw,
        })
}

/// Puts the images on the node, and gives each container one of them.
pub(crate) fn fill(snapshot: &mut Snapshot, spec: &StoreSpec, oddity: Oddity) {
    let plain = oddity == Oddity::None;
    let now = snapshot.taken_at;
    let mut store = ImageStore::default();
    for (index, image) in spec.images.iter().enumerate() {
        add_image(&mut store, now, index, image, oddity);
    }
    for (index, container) in snapshot.containers.iter_mut().enumerate() {
        let (image, draw) = spec.users[index % spec.users.len()];
        container.image = Arc::new(user(&store, image, draw, plain));
    }
    if plain {
        mark_used(&mut store, snapshot);
    }
    let used = |names: [&str; 2]| names.iter().map(|&name| name.to_owned()).collect();
    store.volume_images = match spec.draw {
        0..5 if !plain => ImageNames::Unknown("no answer".into()),
        5..30 if !plain => ImageNames::Known(used([&id(0), "team/app:2"])),
        _ => ImageNames::Known(BTreeSet::new()),
    };
    store.sandbox_images = match spec.draw {
        30..35 if !plain => ImageNames::Unknown("no answer".into()),
        35..60 if !plain => ImageNames::Known(used([&id(1), "team/app:3"])),
        60..80 if !plain => ImageNames::Known(BTreeSet::new()),
        _ => ImageNames::Known(["k8s/pause:1".to_owned()].into()),
    };
    store.filesystem = (plain || spec.draw % 20 != 9).then(|| FilesystemUsage {
        capacity_bytes: 1000,
        available_bytes: spec.available,
        used_bytes: 1000_u64.saturating_sub(spec.available),
        inodes: if spec.inodes.is_some() { 1000 } else { 0 },
        inodes_free: spec.inodes.unwrap_or(0),
    });
    snapshot.images = if spec.draw == 99 && !plain {
        Images::Unknown("no answer".into())
    } else {
        Images::Known(store)
    };
}

fn id(index: usize) -> String {
    format!("sha256:{index:064x}")
}

fn add_image(
    store: &mut ImageStore,
    now: Timestamp,
    index: usize,
    (first_seen, last_used, size_bytes, draw): &ImageSpec,
    oddity: Oddity,
) {
    let plain = oddity == Oddity::None;
    // Sometimes the predecessor's id, for another handler.
    let twin = !plain && (80..90).contains(draw) && index > 0;
    let leaf = match *draw % 30 {
        7 => "pause",
        17 => "pause-amd64",
        27 => "mirrored-pause",
        _ => "app",
    };
    let image = Image {
        id: ImageId::new(id(index - usize::from(twin))).unwrap(),
        // Some have lost their tag.
        repo_tags: if !plain && (60..70).contains(draw) {
            Vec::new()
        } else {
            vec![format!("team/{leaf}:{index}")]
        },
        repo_digests: vec![format!("team/{leaf}@sha256:{:064x}", index + 1000)],
        size_bytes: *size_bytes,
        pinned: !plain && *draw < 8,
        handler: if twin { "kata".into() } else { String::new() },
    };
    let ago = |seconds: i64| now - SignedDuration::from_secs(seconds);
    let age = if plain {
        // Used since it was first seen, but not at the moment of the look.
        let last_used = ago((*last_used).max(1));
        let first_seen = last_used - SignedDuration::from_secs(*first_seen);
        Some(ImageAge {
            first_seen,
            last_used: Some(last_used),
        })
    } else {
        let stepped = if *draw == 50 { -60 } else { 0 };
        let age = ImageAge {
            first_seen: ago(*first_seen + stepped),
            last_used: (*last_used >= 0).then(|| ago(*last_used + stepped)),
        };
        (*draw % 20 != 19).then_some(age)
    };
    if let Some(age) = age {
        store.ages.insert(image.key().into_owned(), age);
    }
    store.rows.push(image);
}

fn user(store: &ImageStore, image: usize, draw: u32, plain: bool) -> ContainerImage {
    let Some(image) = store.rows.get(image) else {
        // Its image is no longer on the node, or known by a digest that no image has or, seldom, unknown.
        let digest = || format!("team/app@{}", id(4000));
        let names = match draw {
            0..3 if !plain => Vec::new(),
            3..10 if !plain => vec![digest()],
            10..15 if !plain => vec!["team/gone:1".to_owned(), digest()],
            15..20 if !plain => vec![digest(), id(77)],
            _ => vec![id(77)],
        };
        return ContainerImage {
            names,
            handler: String::new(),
        };
    };
    let mut names = vec![image.id.to_string()];
    match draw % 4 {
        0 if !plain => names.clone_from(&image.repo_tags),
        1 if !plain => names.clone_from(&image.repo_digests),
        2 => names.extend(image.repo_tags.iter().cloned()),
        _ => {}
    }
    ContainerImage {
        names,
        handler: image.handler.clone(),
    }
}

/// A container's image is in use at the moment of the look, as every look notes.
fn mark_used(store: &mut ImageStore, snapshot: &Snapshot) {
    for container in &snapshot.containers {
        for name in &container.image.names {
            if let Some(age) = store.ages.get_mut(name) {
                age.last_used = Some(snapshot.taken_at);
            }
        }
    }
}

pub(crate) fn policies(oddity: Oddity) -> impl Strategy<Value = ImagePolicy> {
    let plain = oddity == Oddity::None;
    let marks = if plain {
        vec![(85, 80), (85, 0), (100, 99), (50, 10)]
    } else {
        vec![
            (85, 80),
            (85, 85),
            (80, 80),
            (100, 80),
            (100, 100),
            (0, 0),
            (99, 10),
        ]
    };
    let limits = || select(vec![None, None, Some(3600), Some(90_000)]);
    (
        select(marks),
        select(vec![0, 60, 120, 600]),
        limits(),
        0..12_u32,
    )
        .prop_map(move |((high, low), min_age, max_age, draw)| ImagePolicy {
            enabled: plain || draw > 0,
            high_threshold_percent: high,
            low_threshold_percent: low,
            min_age: Duration::from_secs(min_age),
            max_age: max_age.map(Duration::from_secs),
            keep: (!plain && draw < 4)
                .then(|| KEEP.clone())
                .into_iter()
                .collect(),
        })
}
