//! Explains a verdict on an image in words.

use super::super::Subject;
use super::super::explain::keep_text;
use super::super::facts::{PlanFacts, span};
use super::super::images::{age_of, space_wanted, unknown_users, used_percent};
use super::{and_more, record};
use crate::model::{
    Image, ImageMatcher, ImageNames, ImageStore, Images, KeepReason, RemoveReason, short_duration,
};

impl PlanFacts<'_> {
    pub(super) fn kept_image(&self, subject: &Subject, reason: KeepReason) -> String {
        let (Some(image), Images::Known(store)) = (self.image(&subject.id), &self.snapshot.images)
        else {
            return keep_text(reason).to_owned();
        };
        match reason {
            KeepReason::InUse => self.user_of(image, store),
            KeepReason::UnknownUser => unknown_users(self.snapshot).unwrap_or_default(),
            KeepReason::Pinned if store.undeleted.iter().any(|key| *key == *subject.id) => {
                "the runtime still listed it after it had said that it removed it (such as an OCI artifact, or an image \
                 of a read-only store); it is left alone for an hour"
                    .to_owned()
            }
            KeepReason::SandboxImage => Self::sandbox_image(image, store),
            KeepReason::Keep => self.keep_pattern(image),
            KeepReason::TooYoung => self.young_image(subject),
            KeepReason::BelowThreshold => self.no_room_wanted(store),
            other => keep_text(other).to_owned(),
        }
    }

    pub(super) fn removed_image(&self, subject: &Subject, reason: RemoveReason) -> String {
        let rules = &self.policy.images;
        let unused = match subject.last_used_at() {
            Some(at) => format!("last used {} ago", short_duration(self.snapshot.age(at))),
            None => format!(
                "not used since it was first seen {} ago",
                short_duration(self.snapshot.age(subject.created_at))
            ),
        };
        let limit = match reason {
            RemoveReason::Age => rules.max_age.map(|age| ("policy.images.max_age", age)),
            _ => None,
        };
        match limit {
            Some((key, age)) => format!("{unused}; {key} is {}", span(age)),
            None => format!(
                "{unused}; the image file system is above its high mark ({} %)",
                rules.high_threshold_percent
            ),
        }
    }

    fn user_of(&self, image: &Image, store: &ImageStore) -> String {
        let mut users = self.users(image);
        if let Some(first) = users.next() {
            let more = and_more(users.count());
            return format!("{} uses it{more}", record(first));
        }
        if is_named(&store.volume_images, image) {
            "a container has it mounted as a volume".to_owned()
        } else if image.repo_tags.is_empty() {
            "another record of the same image id is in use, or a container names only digests that no image has, and this \
             image has no tag"
                .to_owned()
        } else {
            "another record of the same image id is in use".to_owned()
        }
    }

    fn sandbox_image(image: &Image, store: &ImageStore) -> String {
        if is_named(&store.sandbox_images, image) {
            "the runtime's configuration or a sandbox names it".to_owned()
        } else {
            "it is called pause, and the runtime does not say what sandboxes are made from"
                .to_owned()
        }
    }

    fn keep_pattern(&self, image: &Image) -> String {
        let patterns = || self.policy.images.keep.iter();
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        let hit = names.flat_map(|name| patterns().map(move |pattern| (name, pattern)));
        hit.clone()
            .find(|(name, pattern)| pattern.matches(name))
            .map_or_else(
                || "another record of the same image id matches policy.images.keep".to_owned(),
                |(name, pattern)| {
                    format!("{name} matches policy.images.keep: {}", pattern.as_str())
                },
            )
    }

    fn young_image(&self, subject: &Subject) -> String {
        let age = age_of(self.snapshot, &subject.id);
        if age.last_used.is_some_and(|at| at > self.snapshot.taken_at) {
            return "it was used after this look, or a clock was set back".to_owned();
        }
        let minimum = self.policy.images.min_age;
        self.young(
            "first seen",
            age.first_seen,
            "policy.images.min_age",
            minimum,
        )
    }

    fn no_room_wanted(&self, store: &ImageStore) -> String {
        let rules = &self.policy.images;
        if !rules.enabled {
            return "policy.images.enabled is off".to_owned();
        }
        if let Some(other) = &store.other_mount {
            return other.why.clone();
        }
        let Some(usage) = store.filesystem else {
            return "the image file system could not be measured, so no image is removed to make room"
                .to_owned();
        };
        let (high, low) = (rules.high_threshold_percent, rules.low_threshold_percent);
        if !rules.makes_room() {
            return format!(
                "policy.images.high_threshold_percent is {high}: without max_age no room is made"
            );
        }
        if space_wanted(rules, usage) == 0 {
            let used = used_percent(usage);
            return format!(
                "the image file system is {used} % full; room is made from {high} % on"
            );
        }
        format!("images that were unused for longer make the room down to {low} %")
    }
}

/// Says whether one of the names is the image's; of unknown ones none is.
fn is_named(names: &ImageNames, image: &Image) -> bool {
    match names {
        ImageNames::Known(names) => {
            ImageMatcher::new(names.iter().map(String::as_str)).matches(image)
        }
        ImageNames::Unknown(_) => false,
    }
}
