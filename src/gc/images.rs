//! The verdict on each image: the kubelet's marks, ages and order, made more careful.

use std::collections::BTreeSet;

use super::{Expected, KeepReason, PodKnowledge, Policy, Subject, Target, Verdict};
use crate::model::{ContainerId, Image, Images, Snapshot};

/// Judges every image; containers in `gone` are taken for removed already.
pub(super) fn judge<'a>(
    snapshot: &'a Snapshot,
    _policy: &Policy,
    _gone: &BTreeSet<&ContainerId>,
) -> Vec<(&'a Image, Verdict)> {
    let Images::Known(store) = &snapshot.images else {
        return Vec::new();
    };
    let rows = store.rows.iter();
    rows.map(|image| (image, Verdict::Keep(KeepReason::BelowThreshold)))
        .collect()
}

/// Returns an image as plans show it.
pub(super) fn subject(snapshot: &Snapshot, image: &Image) -> (Subject, Expected) {
    let names = std::iter::once(image.id.to_string())
        .chain(image.repo_tags.iter().cloned())
        .chain(image.repo_digests.iter().cloned())
        .collect();
    let age = match &snapshot.images {
        Images::Known(store) => store.ages.get(&image.key()).copied(),
        Images::Unknown(_) => None,
    };
    // One that nobody remembers is seen for the first time.
    let first_seen = age.map_or(snapshot.taken_at, |age| age.first_seen);
    let last_used = age.and_then(|age| age.last_used);
    let tags = image.repo_tags.iter().chain(&image.repo_digests);
    let subject = Subject {
        target: Target::Images,
        id: image.key(),
        name: tags
            .map(String::as_str)
            .next()
            .unwrap_or_default()
            .to_owned(),
        pod: None,
        pod_state: PodKnowledge::Unknown,
        attempt: 0,
        created_at: first_seen,
        age_seconds: snapshot
            .age(last_used.unwrap_or(first_seen))
            .as_secs()
            .max(0),
        last_used_at: last_used,
        size_bytes: Some(image.size_bytes),
    };
    let expected = Expected::Image {
        handler: image.handler.clone(),
        names,
    };
    (subject, expected)
}
