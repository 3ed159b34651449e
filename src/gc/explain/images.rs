//! The facts that the rules for images look at.

use super::super::facts::{PlanFacts, span};
use super::super::images::{ImageRule, space_wanted, used_percent};
use super::super::notes::UNMEASURED;
use super::super::{Subject, Verdict};
use super::records::{and_more, record};
use super::rules::{RuleName, switched};
use crate::model::{Image, ImageMatcher, ImageStore};

impl PlanFacts<'_> {
    pub(super) fn image_words(
        &self,
        rule: ImageRule,
        (image, store): (&Image, &ImageStore),
        subject: &Subject,
        said: Option<Verdict>,
    ) -> String {
        use ImageRule as Rule;
        let words = match (rule, said) {
            (Rule::InUse, None) => "no container is known to use it",
            (Rule::InUse, Some(_)) => return self.user_of(image, store),
            (Rule::Pinned, None) => "the runtime does not pin it",
            (Rule::Pinned, Some(_)) if store.undeleted.iter().any(|key| *key == image.key()) => {
                "the runtime still listed it after it had said that it removed it (such as an OCI artifact, or an image \
                 of a read-only store); it is left alone for an hour"
            }
            (Rule::Pinned, Some(_)) => {
                "the runtime pins it, or another record of the same image id"
            }
            (Rule::SandboxImage, None) => "no sandbox is known to be made from it",
            (Rule::SandboxImage, Some(_))
                if ImageMatcher::new(store.sandbox_images.names()).matches(image) =>
            {
                "the runtime's configuration or a sandbox names it"
            }
            (Rule::SandboxImage, Some(_)) => {
                "it is called pause, and the runtime does not say what sandboxes are made from"
            }
            (Rule::Keep, None) => "no pattern of policy.images.keep matches",
            (Rule::Keep, Some(_)) => return self.keep_pattern(image),
            (Rule::MinAge, _) => return self.image_age(subject),
            (Rule::MaxAge, _) => {
                let max_age = self.policy.images.max_age;
                let max_age = max_age.map_or_else(|| "off".to_owned(), span);
                return format!(
                    "{}; policy.images.max_age is {max_age}",
                    self.unused(subject)
                );
            }
            (Rule::Space, _) => return self.room(store, subject, said),
        };
        words.to_owned()
    }

    fn unused(&self, subject: &Subject) -> String {
        subject.last_used_at().map_or_else(
            || self.since("not used since it was first seen", subject.created_at),
            |at| self.since("last used", at),
        )
    }

    fn user_of(&self, image: &Image, store: &ImageStore) -> String {
        let mut users = self.users(image);
        if let Some(first) = users.next() {
            let more = and_more(users.count());
            return format!("{} uses it{more}", record(first));
        }
        if ImageMatcher::new(store.volume_images.names()).matches(image) {
            "a container has it mounted as a volume".to_owned()
        } else if image.repo_tags.is_empty() {
            "another record of the same image id is in use, or a container names only digests that no image has, and this \
             image has no tag"
                .to_owned()
        } else {
            "another record of the same image id is in use".to_owned()
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

    fn image_age(&self, subject: &Subject) -> String {
        if subject
            .last_used_at()
            .is_some_and(|at| at > self.snapshot.taken_at)
        {
            return "it was used after this look, or a clock was set back".to_owned();
        }
        self.bound_words(RuleName::MinAge, subject)
    }

    fn room(&self, store: &ImageStore, subject: &Subject, said: Option<Verdict>) -> String {
        let rules = &self.policy.images;
        if !rules.enabled && matches!(said, Some(Verdict::Keep(_))) {
            return switched("policy.images.enabled", false);
        }
        if let Some(other) = &store.other_mount {
            return other.why.clone();
        }
        let Some(usage) = store.filesystem else {
            return UNMEASURED.to_owned();
        };
        let (high, low) = (rules.high_threshold_percent, rules.low_threshold_percent);
        if !rules.makes_room() {
            return format!(
                "policy.images.high_threshold_percent is {high}: without max_age no room is made"
            );
        }
        let used = used_percent(usage);
        let full = format!(
            "the image file system is {used} % full; room is made from {high} % on, down to {low} %"
        );
        match said {
            Some(Verdict::Remove(_)) => format!("{}; {full}", self.unused(subject)),
            _ if space_wanted(rules, usage) == 0 => full,
            _ => format!("{full}: images that were unused for longer make it"),
        }
    }
}
