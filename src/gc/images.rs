//! The verdict on each image: the kubelet's thresholds, ages and order, made more careful.
//!
//! More careful than the kubelet: a name in any form means the image, for every runtime handler; a needed
//! record keeps all records of its id, because removing one may remove the id; the age rule respects
//! `min_age`, and a never used image is as old as its first sight; below the threshold nothing is removed.

mod room;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use strum::VariantArray;

pub use room::used_percent;

use super::index::RowSet;
use super::knowledge::Knowledge;
use super::{Expected, ImagePolicy, ImageUse, PodKnowledge, Subject, Verdict, at_least};
use crate::model::{
    Container, Coverage, FilesystemUsage, Image, ImageAge, ImageId, ImageMatcher, ImageNames,
    ImageStore, Images, KeepReason, RemoveReason, Snapshot, Target, repository_leaf,
};

/// The rules, in the order in which they are asked: the first that says something is the verdict, unless it removes an
/// image in doubt. Those of an id hold for all its records: a runtime may remove the id for every handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum ImageRule {
    /// Keeps what a container uses.
    InUse,
    /// Keeps what the runtime pins, or still listed after its removal.
    Pinned,
    /// Keeps what sandboxes are made from.
    SandboxImage,
    /// Keeps what `policy.images.keep` names.
    Keep,
    /// Keeps what is young, or may be.
    MinAge,
    /// Removes what was unused for too long.
    MaxAge,
    /// Removes what was unused for longest while the disk is too full; keeps the rest.
    Space,
}

/// Judges every image, one verdict for each [`Image::key`]; containers in `gone` count as removed. If the
/// images are unknown, none is judged.
pub(super) fn judge<'a>(knowledge: &Knowledge<'a>, gone: &RowSet) -> Vec<(&'a Image, Verdict)> {
    let (snapshot, policy) = (knowledge.index.snapshot, knowledge.policy);
    let Images::Known(store) = &snapshot.images else {
        return Vec::new();
    };
    let judge = ImageJudge::new(knowledge, store, gone);
    let (off, doubt) = (policy.off(Target::Images), judge.doubt());
    let judged = judge.judged.into_iter();
    judged
        .map(|(image, verdict)| (image, verdict.unless(off).unless(doubt)))
        .collect()
}

/// All that the rules look at.
pub(super) struct ImageJudge<'a> {
    snapshot: &'a Snapshot,
    store: &'a ImageStore,
    rules: &'a ImagePolicy,
    needs: ImageUsers,
    /// The ids that stay regardless of the disk: by which rule, and why.
    kept: BTreeMap<&'a ImageId, (ImageRule, KeepReason)>,
    /// What the rules say of each image, in the order of removal.
    judged: Vec<(&'a Image, Verdict)>,
    /// The same by key, for explanations.
    by_key: OnceCell<BTreeMap<Cow<'a, str>, Verdict>>,
}

impl<'a> ImageJudge<'a> {
    pub(super) fn new(knowledge: &Knowledge<'a>, store: &'a ImageStore, gone: &RowSet) -> Self {
        let (snapshot, rules) = (knowledge.index.snapshot, &knowledge.policy.images);
        let mut judge = Self {
            snapshot,
            store,
            rules,
            needs: ImageUsers::gather(snapshot, store, gone),
            kept: BTreeMap::new(),
            judged: Vec::new(),
            by_key: OnceCell::new(),
        };
        judge.kept = judge.kept_ids();
        let mut freed: u128 = 0;
        let mut first: Vec<(&Image, Option<Verdict>)> = Vec::new();
        for image in in_order(snapshot, store) {
            let verdict = match judge.kept.get(&image.id) {
                Some((_, reason)) => Some(Verdict::Keep(*reason)),
                None => by_age(snapshot, rules, image).map(Verdict::Remove),
            };
            if matches!(verdict, Some(Verdict::Remove(_))) {
                freed += u128::from(image.size_bytes);
            }
            first.push((image, verdict));
        }
        let listed = first.iter().map(|(image, _)| u128::from(image.size_bytes));
        let wanted = room::wanted(rules, store.filesystem, freed, listed.sum());
        let mut sum: u128 = 0;
        for (image, verdict) in first {
            let verdict = verdict.unwrap_or_else(|| by_room(image, wanted, &mut sum));
            judge.judged.push((image, verdict));
        }
        judge
    }

    /// Returns what one rule says of an image; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: ImageRule, image: &Image) -> Option<Verdict> {
        match rule {
            ImageRule::InUse
            | ImageRule::Pinned
            | ImageRule::SandboxImage
            | ImageRule::Keep
            | ImageRule::MinAge => {
                let (by, reason) = self.kept.get(&image.id)?;
                (*by == rule).then_some(Verdict::Keep(*reason))
            }
            ImageRule::MaxAge => by_age(self.snapshot, self.rules, image).map(Verdict::Remove),
            ImageRule::Space => {
                let judged = self.judged.iter();
                let by_key = || {
                    judged
                        .map(|(image, verdict)| (image.key(), *verdict))
                        .collect()
                };
                self.by_key.get_or_init(by_key).get(&image.key()).copied()
            }
        }
    }

    /// Returns the reason if a rule keeps one of the records, which are those of one id.
    fn of_id<'r>(
        &self,
        rule: ImageRule,
        mut rows: impl Iterator<Item = &'r Image>,
    ) -> Option<KeepReason> {
        let (needs, rules) = (&self.needs, self.rules);
        let (reason, any) = match rule {
            ImageRule::InUse => (
                KeepReason::InUse,
                rows.any(|image| needs.used.matches(image)),
            ),
            ImageRule::Pinned => (
                KeepReason::Pinned,
                rows.any(|image| self.store.runtime_keeps(image)),
            ),
            ImageRule::SandboxImage => (
                KeepReason::SandboxImage,
                rows.any(|image| needs.is_sandbox_image(image)),
            ),
            ImageRule::Keep => (KeepReason::Keep, rows.any(|image| is_wanted(rules, image))),
            ImageRule::MinAge => {
                let young = |image| is_young(self.snapshot, rules, image);
                (KeepReason::TooYoung, rows.any(young))
            }
            ImageRule::MaxAge | ImageRule::Space => return None,
        };
        any.then_some(reason)
    }

    /// Finds the ids that stay regardless of the disk: by which rule, and why.
    fn kept_ids(&self) -> BTreeMap<&'a ImageId, (ImageRule, KeepReason)> {
        let mut rows: BTreeMap<&ImageId, Vec<&Image>> = BTreeMap::new();
        for image in &self.store.rows {
            rows.entry(&image.id).or_default().push(image);
        }
        let by_id = rows.into_iter().filter_map(|(id, rows)| {
            let mut rules = ImageRule::VARIANTS.iter();
            let kept = |rule: &ImageRule| Some((*rule, self.of_id(*rule, rows.iter().copied())?));
            Some((id, rules.find_map(kept)?))
        });
        by_id.collect()
    }

    /// Returns the reason to keep all images while a container or sandbox with unknown images may use them.
    pub(super) fn doubt(&self) -> Option<KeepReason> {
        let unknown = self.needs.users_unknown || self.needs.sandboxes_unknown;
        unknown.then_some(KeepReason::UnknownUser)
    }
}

struct ImageUsers {
    used: ImageMatcher,
    sandboxes: ImageMatcher,
    /// Some names of used images are unknown: any image may be used.
    users_unknown: bool,
    sandboxes_unknown: bool,
    /// The sandbox image is unknown: an image called `pause` is taken for it.
    guess_sandboxes: bool,
}

impl ImageUsers {
    fn gather(snapshot: &Snapshot, store: &ImageStore, gone: &RowSet) -> Self {
        let containers = snapshot.containers.iter().enumerate();
        let staying = containers.filter(|(place, _)| !gone.has(*place));
        let mut users = staying.map(|(_, container)| &container.image);
        let (volumes, sandboxes) = (&store.volume_images, &store.sandbox_images);
        let sandboxes_unknown =
            sandboxes.known().is_none() || snapshot.seen.sandboxes < Coverage::Living;
        let any_pinned = store.rows.iter().any(|image| image.pinned);
        let any_sandbox_image = sandboxes.names().next().is_some();
        Self {
            used: ImageMatcher::of_users(users.clone(), volumes.names(), &store.rows),
            users_unknown: volumes.known().is_none()
                || snapshot.seen.containers != Coverage::Whole
                || users.any(|user| user.names.is_empty()),
            guess_sandboxes: !sandboxes_unknown && !any_sandbox_image && !any_pinned,
            sandboxes: ImageMatcher::new(sandboxes.names()),
            sandboxes_unknown,
        }
    }

    fn is_sandbox_image(&self, image: &Image) -> bool {
        let mut names = image.repo_tags.iter().chain(&image.repo_digests);
        self.sandboxes.matches(image)
            || self.guess_sandboxes && names.any(|name| is_pause(repository_leaf(name)))
    }
}

fn is_pause(leaf: &str) -> bool {
    leaf == "pause" || leaf.starts_with("pause-") || leaf.starts_with("mirrored-pause")
}

fn is_wanted(rules: &ImagePolicy, image: &Image) -> bool {
    let mut names = image.repo_tags.iter().chain(&image.repo_digests);
    names.any(|name| rules.keep.iter().any(|pattern| pattern.matches(name)))
}

fn is_young(snapshot: &Snapshot, rules: &ImagePolicy, image: &Image) -> bool {
    let age = age_of(snapshot, &image.key());
    // Used after this look: a clock stepped, or a container uses it now.
    let used_later = age.last_used.is_some_and(|at| at > snapshot.taken_at);
    used_later || !at_least(snapshot.age(age.first_seen), rules.min_age)
}

/// Returns the age of the image with this key. One without a remembered age is seen for the first time.
pub(super) fn age_of(snapshot: &Snapshot, key: &str) -> ImageAge {
    let remembered = snapshot.images.known().and_then(|it| it.ages.get(key));
    remembered.copied().unwrap_or(ImageAge {
        first_seen: snapshot.taken_at,
        last_used: None,
    })
}

/// Returns one image for each key, in the order of removal: never used first, then least recently used, then
/// first seen, then by key.
fn in_order<'a>(snapshot: &Snapshot, store: &'a ImageStore) -> Vec<&'a Image> {
    let mut by_key: BTreeMap<Cow<'_, str>, &Image> = BTreeMap::new();
    for image in &store.rows {
        let names = |image: &'a Image| {
            (
                Reverse(image.size_bytes),
                &image.repo_tags,
                &image.repo_digests,
            )
        };
        let one = by_key.entry(image.key()).or_insert(image);
        // Of two records with one key the larger counts, whatever their order.
        if names(image) < names(one) {
            *one = image;
        }
    }
    let mut images: Vec<&Image> = by_key.into_values().collect();
    images.sort_by_cached_key(|image| {
        let age = age_of(snapshot, &image.key());
        (age.last_used, age.first_seen, image.key())
    });
    images
}

/// Removed regardless of the disk if unused for longer than `max_age`; a never used image counts from its
/// first sight.
fn by_age(snapshot: &Snapshot, rules: &ImagePolicy, image: &Image) -> Option<RemoveReason> {
    let age = age_of(snapshot, &image.key());
    let unused_for = snapshot.age(age.last_used.unwrap_or(age.first_seen));
    let is_old = rules.max_age.is_some_and(|limit| longer(unused_for, limit));
    is_old.then_some(RemoveReason::Age)
}

/// Equal is not longer, as for the kubelet.
fn longer(age: SignedDuration, limit: Duration) -> bool {
    SignedDuration::try_from(limit).is_ok_and(|limit| age > limit)
}

fn by_room(image: &Image, wanted: u128, sum: &mut u128) -> Verdict {
    if *sum >= wanted {
        return Verdict::Keep(KeepReason::BelowThreshold);
    }
    *sum += u128::from(image.size_bytes);
    Verdict::Remove(RemoveReason::Space)
}

/// Names the containers or sandboxes whose images are unknown; `None` if there are none.
pub fn unknown_users(snapshot: &Snapshot) -> Option<String> {
    let store = snapshot.images.known()?;
    let mut users = Vec::new();
    if snapshot.seen.containers != Coverage::Whole {
        users.push("the list of containers is incomplete".to_owned());
    }
    let nameless = |container: &&Container| container.image.names.is_empty();
    let nameless = snapshot.containers.iter().filter(nameless);
    if let Some(oldest) = nameless.min_by_key(|it| (it.created_at, &it.id)) {
        users.push(format!("container {} does not name its image", oldest.id));
    }
    if snapshot.seen.sandboxes < Coverage::Living {
        users.push("the list of sandboxes is incomplete".to_owned());
    }
    for names in [&store.volume_images, &store.sandbox_images] {
        if let ImageNames::Unknown(why) = names {
            users.push(why.clone());
        }
    }
    (!users.is_empty()).then(|| users.join("; "))
}

/// Returns how many bytes the space rule must free on this file system; 0 below its threshold.
pub fn space_wanted(rules: &ImagePolicy, usage: FilesystemUsage) -> u64 {
    let wanted = room::wanted(rules, Some(usage), 0, u128::MAX);
    u64::try_from(wanted).unwrap_or(u64::MAX)
}

/// Returns an image as plans show it.
pub(super) fn subject(snapshot: &Snapshot, image: &Image) -> (Subject, Expected) {
    let age = age_of(snapshot, &image.key());
    let last_used_for = snapshot.age(age.last_used.unwrap_or(age.first_seen));
    let subject = Subject {
        target: Target::Images,
        id: image.key().into_owned().into(),
        // The id comes first.
        name: image.names().nth(1).unwrap_or_default().into(),
        pod: None,
        pod_state: PodKnowledge::Unknown,
        attempt: 0,
        created_at: age.first_seen,
        age_seconds: last_used_for.as_secs().max(0),
        image: Some(Box::new(ImageUse {
            first_seen_at: age.first_seen,
            last_used_at: age.last_used,
            size_bytes: image.size_bytes,
        })),
    };
    let expected = Expected::Image {
        handler: image.handler.clone(),
        names: image.names().map(str::to_owned).collect(),
    };
    (subject, expected)
}
