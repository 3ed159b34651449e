//! Conditions for removing an image.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::node::CheckedNode;
use crate::gc::{Expected, Removal};
use crate::model::{Coverage, Image, ImageNames, ImageStore, Images, RemoveReason, Target};

/// The images and their users. Empty if no image is planned.
#[derive(Default)]
pub(super) struct ImageIndex<'a> {
    store: Option<&'a ImageStore>,
    by_key: BTreeMap<Cow<'a, str>, &'a Image>,
    by_id: BTreeMap<&'a str, Vec<&'a Image>>,
    /// Names used by the remaining containers, and the digests in them.
    used: BTreeSet<&'a str>,
    /// A remaining container names no image.
    nameless: bool,
    /// A remaining container names no id, and digests that no image has: its image may have lost its tag.
    lost: bool,
    any_pinned: bool,
}

impl<'a> ImageIndex<'a> {
    pub(super) fn of(node: &CheckedNode<'a>, removals: &[Removal]) -> Self {
        let mut index = Self::default();
        let planned = removals
            .iter()
            .any(|it| it.subject.target == Target::Images);
        let (Images::Known(store), true) = (&node.snapshot.images, planned) else {
            return index;
        };
        index.store = Some(store);
        for image in &store.rows {
            index.by_key.insert(image.key(), image);
            let rows = index.by_id.entry(image.id.as_str()).or_default();
            rows.push(image);
            index.any_pinned |= image.pinned;
        }
        let known: BTreeSet<&str> = store.rows.iter().flat_map(all_forms).collect();
        // Most containers share their image with others.
        let mut images = BTreeSet::new();
        for container in node.containers.iter().filter(|it| it.facts.stays()) {
            let names = &container.row.image.names;
            if images.insert(Arc::as_ptr(&container.row.image)) {
                index.used.extend(names.iter().flat_map(|name| forms(name)));
                index.nameless |= names.is_empty();
                let (digests, others): (Vec<_>, Vec<_>) =
                    names.iter().partition(|it| it.contains('@'));
                index.lost |= !digests.is_empty()
                    && !others.iter().any(|name| is_id(name))
                    && !digests.iter().any(|name| known.contains(forms(name)[1]));
            }
        }
        index
    }
}

/// Returns a name and its digest, which identifies the same image everywhere.
fn forms(name: &str) -> [&str; 2] {
    let digits = name.rsplit("sha256:").next().unwrap_or(name);
    [name, digits]
}

fn is_id(name: &str) -> bool {
    let digits = forms(name)[1];
    digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

fn all_forms(image: &Image) -> impl Iterator<Item = &str> {
    let names = image.repo_tags.iter().chain(&image.repo_digests);
    let names = names.map(String::as_str).chain([image.id.as_str()]);
    names.flat_map(forms)
}

/// Returns the rule that the removal would break.
pub(super) fn rule(
    node: &CheckedNode<'_>,
    index: &ImageIndex<'_>,
    removal: &Removal,
) -> Option<&'static str> {
    let key = removal.subject.id.as_str();
    let (Some(store), Some(image)) = (index.store, index.by_key.get(key)) else {
        return Some("is not on the node");
    };
    let first_seen = first_seen(node, store, image);
    let last_used = store.ages.get(key).and_then(|age| age.last_used);
    let subject = &removal.subject;
    if (subject.created_at, subject.last_used_at()) != (first_seen, last_used) {
        return Some("is not the object that was planned");
    }
    let rows = index.by_id.get(image.id.as_str());
    let rows = rows.map(Vec::as_slice).unwrap_or_default();
    if !rows.iter().any(|row| is_as_planned(row, removal)) {
        return Some("is in another state than planned");
    }
    // Removing one record may remove all records of the id.
    for row in rows {
        let rule = need_rule(node, index, store, row);
        if rule.is_some() {
            return rule;
        }
    }
    reason_rule(node, store, removal.reason, last_used.unwrap_or(first_seen))
}

fn first_seen(node: &CheckedNode<'_>, store: &ImageStore, image: &Image) -> Timestamp {
    let age = store.ages.get(&*image.key());
    age.map_or(node.snapshot.taken_at, |age| age.first_seen)
}

fn is_as_planned(image: &Image, removal: &Removal) -> bool {
    let Expected::Image { handler, names } = &removal.expected else {
        return false;
    };
    let mut is = vec![image.id.to_string()];
    is.extend(image.repo_tags.iter().cloned());
    is.extend(image.repo_digests.iter().cloned());
    removal.subject.id == *image.key() && image.handler == *handler && is == *names
}

/// No container needs the image, or may need it.
fn need_rule(
    node: &CheckedNode<'_>,
    index: &ImageIndex<'_>,
    store: &ImageStore,
    image: &Image,
) -> Option<&'static str> {
    let policy = node.policy;
    if all_forms(image).any(|form| index.used.contains(form)) {
        return Some("is used by a container");
    }
    if index.lost && image.repo_tags.is_empty() {
        return Some("may be the image of a container that names another digest");
    }
    if node.snapshot.seen.containers != Coverage::Whole {
        return Some("may be the image of a container that was not seen");
    }
    if node.snapshot.seen.sandboxes == Coverage::Partial {
        return Some("may be what a sandbox that was not seen is made from");
    }
    if index.nameless {
        return Some("may be the image of a container that names none");
    }
    match &store.volume_images {
        ImageNames::Unknown(_) => return Some("may be a container's image volume"),
        ImageNames::Known(names) if are_named(names, image) => return Some("is a volume"),
        ImageNames::Known(_) => {}
    }
    if image.pinned {
        return Some("is pinned");
    }
    match &store.sandbox_images {
        ImageNames::Unknown(_) => return Some("may be the sandbox image"),
        ImageNames::Known(names) if are_named(names, image) => return Some("is a sandbox image"),
        ImageNames::Known(names) => {
            if names.is_empty() && !index.any_pinned && all_forms(image).any(looks_like_pause) {
                return Some("looks like the sandbox image");
            }
        }
    }
    let mut names = image.repo_tags.iter().chain(&image.repo_digests);
    if names.any(|name| policy.images.keep.iter().any(|it| it.matches(name))) {
        return Some("matches policy.images.keep");
    }
    let last_used = store.ages.get(&*image.key()).and_then(|age| age.last_used);
    if last_used.is_some_and(|at| at > node.snapshot.taken_at) {
        return Some("was used later than the node was looked at");
    }
    (!node.older_than(first_seen(node, store, image), policy.images.min_age))
        .then_some("is younger than min_age")
}

fn are_named(names: &BTreeSet<String>, image: &Image) -> bool {
    let mut wanted = names.iter().flat_map(|name| forms(name));
    wanted.any(|wanted| all_forms(image).any(|form| form == wanted))
}

fn looks_like_pause(name: &str) -> bool {
    let last = name
        .split('@')
        .next()
        .and_then(|name| name.split('/').next_back());
    let last = last.unwrap_or(name);
    let begins = |word| last.starts_with(word);
    last == "pause" || begins("pause:") || begins("pause-") || begins("mirrored-pause")
}

/// Checks what the removal's reason claims about age or disk.
fn reason_rule(
    node: &CheckedNode<'_>,
    store: &ImageStore,
    reason: RemoveReason,
    unused_since: Timestamp,
) -> Option<&'static str> {
    let limit = match reason {
        RemoveReason::Space => {
            return store
                .filesystem
                .is_none()
                .then_some("may not be in the way: the disk is not known");
        }
        RemoveReason::Age => node.policy.images.max_age,
        RemoveReason::PodDeleted
        | RemoveReason::Superseded
        | RemoveReason::OverCap
        | RemoveReason::DeadLink
        | RemoveReason::ContainerRemoved => {
            return Some("is planned for a reason of another target");
        }
    };
    // Longer than the limit, not equal to it.
    let longer = limit.map(|limit| limit.saturating_add(Duration::from_nanos(1)));
    (!longer.is_some_and(|longer| node.older_than(unused_since, longer)))
        .then_some("has not been unused for that long")
}
