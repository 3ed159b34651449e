//! What each rule looks at: the object's own values, and the bounds with the settings that set them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::containers::{ContainerRule, counts_from};
use super::super::facts::{PlanFacts, span};
use super::super::images::{ImageRule, age_of, used_percent};
use super::super::knowledge::is_rebooted;
use super::super::logs::{ContainerLogRule, LogDirRule, LogLinkRule};
use super::super::sandboxes::SandboxRule;
use super::super::{Limit, PodKnowledge, Subject};
use crate::model::{
    Container, ContainerState, Coverage, Image, ImageNames, Images, LinkTarget, LinkedContainer,
    LogLink, PodLogDir, PodRef, PodSandbox, short_duration,
};

impl PlanFacts<'_> {
    pub(super) fn container_inputs(
        &self,
        rule: ContainerRule,
        place: usize,
        counted: usize,
    ) -> String {
        use ContainerRule as Rule;
        let Some(container) = self.snapshot.containers.get(place) else {
            return String::new();
        };
        let rules = &self.policy.containers;
        let state = container.state.label();
        match rule {
            Rule::CreatedGrace if container.state == ContainerState::Created => format!(
                "created {}, policy.containers.created_grace {}",
                self.ago(container.created_at),
                span(rules.created_grace)
            ),
            Rule::Running | Rule::CreatedGrace => format!("state {state}"),
            Rule::Unmanaged => uid_words(container.pod.as_deref()),
            Rule::Protect => self.protect_words(container.pod.as_deref()),
            Rule::IncludeUnknown => format!(
                "state {state}, policy.containers.include_unknown {}",
                rules.include_unknown
            ),
            Rule::MinAge => self.container_age(container),
            Rule::PodDeleted => {
                self.deletion_words(container.pod.as_deref(), self.newest_containers.has(place))
            }
            Rule::KeepFirst => format!(
                "policy.containers.keep_first {}, pod {}",
                rules.keep_first,
                self.state_of(container.pod.as_deref()).word()
            ),
            Rule::MaxPerContainer => format!(
                "{}, policy.containers.max_per_container {}",
                self.rank_words(place),
                bound(rules.max_per_container)
            ),
            Rule::MaxDead => format!(
                "dead containers that count {counted}, policy.containers.max_dead {}{}",
                bound(rules.max_dead),
                self.cap_words(container.pod.as_deref(), self.newest_containers.has(place))
            ),
            Rule::Settle => self.settle_words(container.pod.as_deref()),
            Rule::Newest => {
                self.newest_words(container.pod.as_deref(), self.newest_containers.has(place))
            }
            Rule::WithinLimits => "no other rule said anything".to_owned(),
        }
    }

    pub(super) fn sandbox_inputs(&self, rule: SandboxRule, place: usize, dead: usize) -> String {
        use SandboxRule as Rule;
        let Some(sandbox) = self.snapshot.sandboxes.get(place) else {
            return String::new();
        };
        let (rules, pod) = (&self.policy.sandboxes, sandbox.pod.as_deref());
        let is_newest = self.newest_sandboxes.has(place);
        match rule {
            Rule::Ready => format!("state {}", sandbox.state.label()),
            Rule::Containers => {
                let count = self.containers_in(sandbox).len();
                let seen = self.snapshot.seen.containers;
                format!(
                    "containers that stay in it {count}, list of containers {}",
                    coverage(seen)
                )
            }
            Rule::Unmanaged => uid_words(pod),
            Rule::Protect => self.protect_words(pod),
            Rule::MinAge => format!(
                "created {}, policy.sandboxes.min_age {}",
                self.ago(sandbox.created_at),
                span(rules.min_age)
            ),
            Rule::PodDeleted => self.deletion_words(pod, is_newest),
            Rule::Superseded => format!("newest of its pod {}", yes(is_newest)),
            Rule::MaxDead => format!(
                "dead sandboxes that count {dead}, policy.sandboxes.max_dead {}{}",
                bound(rules.max_dead),
                self.cap_words(pod, is_newest)
            ),
            Rule::Settle => self.settle_words(pod),
            Rule::Newest => self.newest_words(pod, is_newest),
            Rule::WithinLimits => "no other rule said anything".to_owned(),
        }
    }

    pub(super) fn quarantine_words(&self, sandbox: &PodSandbox) -> String {
        let until = self.snapshot.quarantine.get(&sandbox.id);
        until.map_or_else(
            || "no failed removal".to_owned(),
            |until| {
                let left = until.duration_since(self.snapshot.taken_at);
                format!("a removal failed, next try in {}", short_duration(left))
            },
        )
    }

    pub(super) fn image_inputs(&self, rule: ImageRule, image: &Image, wanted: u128) -> String {
        let rules = &self.policy.images;
        let Images::Known(store) = &self.snapshot.images else {
            return String::new();
        };
        let age = age_of(self.snapshot, &image.key());
        let used = age.last_used.map_or_else(
            || "never used".to_owned(),
            |at| format!("last used {}", self.ago(at)),
        );
        match rule {
            ImageRule::InUse => {
                let volumes = match &store.volume_images {
                    ImageNames::Known(names) => names.len().to_string(),
                    ImageNames::Unknown(_) => "unknown".to_owned(),
                };
                let users = self.users(image).count();
                format!(
                    "containers that use it and stay {users}, images mounted as volumes {volumes}"
                )
            }
            ImageRule::Pinned => {
                format!(
                    "pinned or kept by the runtime {}",
                    yes(store.runtime_keeps(image))
                )
            }
            ImageRule::SandboxImage => match &store.sandbox_images {
                ImageNames::Known(names) => format!("known sandbox images {}", names.len()),
                ImageNames::Unknown(_) => "the sandbox images are unknown".to_owned(),
            },
            ImageRule::Keep => format!("patterns of policy.images.keep {}", rules.keep.len()),
            ImageRule::MinAge => format!(
                "first seen {}, policy.images.min_age {}",
                self.ago(age.first_seen),
                span(rules.min_age)
            ),
            ImageRule::MaxAge => {
                let max_age = rules.max_age.map_or_else(|| "off".to_owned(), span);
                format!("{used}, policy.images.max_age {max_age}")
            }
            ImageRule::Space => {
                let full = store.filesystem.map_or_else(
                    || "not measured".to_owned(),
                    |usage| format!("{} % full", used_percent(usage)),
                );
                let (high, low) = (rules.high_threshold_percent, rules.low_threshold_percent);
                format!(
                    "image file system {full}, policy.images.high_threshold_percent {high}, \
                     low_threshold_percent {low}: {wanted} bytes to free; {used}"
                )
            }
        }
    }

    pub(super) fn log_dir_inputs(
        &self,
        rule: LogDirRule,
        dir: &PodLogDir,
        subject: &Subject,
    ) -> String {
        use LogDirRule as Rule;
        let pod = subject.pod.as_deref();
        match rule {
            Rule::ForeignName => format!("namespace_name_uid {}", yes(pod.is_some() && dir.is_dir)),
            Rule::Protect => self.protect_words(pod),
            Rule::Containers => {
                let containers = self.containers_of(pod).count();
                let sandboxes = self.sandboxes_of(pod).count();
                format!("its containers {containers}, its sandboxes {sandboxes}")
            }
            Rule::ListsComplete => format!(
                "list of containers {}, list of sandboxes {}",
                coverage(self.snapshot.seen.containers),
                coverage(self.snapshot.seen.sandboxes)
            ),
            Rule::PodExists | Rule::PodUnknown | Rule::PodDeleted => {
                format!("pod {}", subject.pod_state.word())
            }
            Rule::Settle => self.settle_words_of(pod, subject.pod_state),
            Rule::Grace => {
                let orphan = dir.orphan_since.map_or_else(
                    || "not seen as an orphan before".to_owned(),
                    |since| format!("an orphan for {}", self.age_words(since)),
                );
                format!(
                    "changed {}, {orphan}, policy.logs.grace {}",
                    self.ago(dir.modified_at),
                    span(self.policy.logs.grace)
                )
            }
        }
    }

    pub(super) fn log_link_inputs(&self, rule: LogLinkRule, link: &LogLink) -> String {
        use LogLinkRule as Rule;
        match rule {
            Rule::ForeignName => format!("link with a container's full id {}", yes(link.is_link)),
            Rule::Protect => self.protect_words(None),
            Rule::TargetExists => match link.target {
                LinkTarget::Exists => "its log exists",
                LinkTarget::Missing => "its log does not exist",
                LinkTarget::Unknown => "its log cannot be checked",
            }
            .to_owned(),
            Rule::ContainerAsked | Rule::Containers | Rule::DeadLink => {
                let listed = self.linked(link).map(|it| it.state.label());
                listed
                    .unwrap_or(match link.container {
                        LinkedContainer::NotAsked => {
                            "the runtime has not answered for its container"
                        }
                        LinkedContainer::NotFound => "the runtime has no such container",
                        LinkedContainer::Exited => "its container exited",
                        LinkedContainer::Lives => "its container has not exited",
                    })
                    .to_owned()
            }
        }
    }

    pub(super) fn container_log_inputs(&self, rule: ContainerLogRule, subject: &Subject) -> String {
        match rule {
            ContainerLogRule::ForeignName => format!(
                "policy.logs.pods_root {}",
                self.policy.logs.pods_root.display()
            ),
            ContainerLogRule::Protect => self.protect_words(subject.pod.as_deref()),
            ContainerLogRule::Containers => format!(
                "no other record writes to it, list of containers {}",
                coverage(self.snapshot.seen.containers)
            ),
            ContainerLogRule::ContainerRemoved => "its container goes in the same pass".to_owned(),
        }
    }

    fn container_age(&self, container: &Container) -> String {
        let rules = &self.policy.containers;
        let bound = format!("policy.containers.min_age {}", span(rules.min_age));
        let Some(since) = counts_from(rules.age_from, container) else {
            return format!("its exit time is not known yet, {bound}");
        };
        let done = match container.finished_at {
            Some(at) if at == since && container.exit_undated => "first seen exited",
            Some(at) if at == since => "exited",
            _ => "created",
        };
        format!("{done} {}, {bound}", self.ago(since))
    }

    fn protect_words(&self, pod: Option<&PodRef>) -> String {
        let protect = &self.policy.protect;
        if protect.namespaces.is_empty() && protect.labels.is_empty() {
            return "policy.protect is empty".to_owned();
        }
        let namespace = pod.map_or("unknown", |pod| pod.namespace.as_str());
        format!(
            "namespace {namespace}, protected namespaces {}, protected labels {}",
            protect.namespaces.len(),
            protect.labels.len()
        )
    }

    fn rank_words(&self, place: usize) -> String {
        let index = &self.knowledge.index;
        let group = index.group_of(place);
        let rows = &self.snapshot.containers;
        let records = (0..rows.len())
            .filter(|it| index.group_of(*it) == group)
            .count();
        let newest = yes(self.newest_containers.has(place));
        format!("records of it {records}, newest {newest}")
    }

    fn deletion_words(&self, pod: Option<&PodRef>, is_newest: bool) -> String {
        let state = self.state_of(pod);
        if state != PodKnowledge::Deleted || !is_newest {
            return format!("pod {}", state.word());
        }
        format!("pod deleted, newest yes, {}", self.quiet_words(pod))
    }

    fn cap_words(&self, pod: Option<&PodRef>, is_newest: bool) -> String {
        if !self.snapshot.seen.is_all() {
            return "; not applied to incomplete lists".to_owned();
        }
        let state = self.state_of(pod);
        match (is_newest, state.is_finished()) {
            (true, true) => format!("; {}", self.quiet_words(pod)),
            (true, false) => format!("; newest of a pod that is {}", state.word()),
            (false, _) => String::new(),
        }
    }

    fn quiet_words(&self, pod: Option<&PodRef>) -> String {
        let since = self.history(pod).and_then(|history| history.over_since);
        let since = since.map_or_else(
            || "not seen to be over".to_owned(),
            |since| format!("seen to be over for {}", self.age_words(since)),
        );
        format!("{since}, pods.quiet {}", span(self.policy.pods.quiet))
    }

    fn settle_words(&self, pod: Option<&PodRef>) -> String {
        self.settle_words_of(pod, self.state_of(pod))
    }

    fn settle_words_of(&self, pod: Option<&PodRef>, state: PodKnowledge) -> String {
        let since = self.history(pod).and_then(|history| history.absent_since);
        let absent = since.filter(|_| state == PodKnowledge::Absent);
        let absent = absent.map_or_else(String::new, |since| {
            format!(" for {}", self.age_words(since))
        });
        let settle = span(self.policy.pods.settle);
        format!("pod {}{absent}, pods.settle {settle}", state.word())
    }

    fn newest_words(&self, pod: Option<&PodRef>, is_newest: bool) -> String {
        let state = self.state_of(pod).word();
        let rebooted = if is_rebooted(self.snapshot) {
            ", the machine has just started"
        } else {
            ""
        };
        format!("newest {}, pod {state}{rebooted}", yes(is_newest))
    }

    pub(super) fn state_of(&self, pod: Option<&PodRef>) -> PodKnowledge {
        pod.map_or(PodKnowledge::Unknown, |pod| self.knowledge.get(&pod.uid))
    }

    /// Returns how much longer this must last to be old enough; `None` if it is.
    pub(super) fn left(&self, since: Timestamp, minimum: Duration) -> Option<Duration> {
        let minimum = SignedDuration::try_from(minimum).ok()?;
        let left = minimum.checked_sub(self.snapshot.age(since))?;
        let seconds = left.as_millis().max(0) + 999;
        u64::try_from(seconds / 1000)
            .ok()
            .filter(|it| *it > 0)
            .map(Duration::from_secs)
    }
}

fn uid_words(pod: Option<&PodRef>) -> String {
    format!("made by the kubelet {}", yes(pod.is_some()))
}

fn coverage(seen: Coverage) -> &'static str {
    match seen {
        Coverage::Whole => "complete",
        Coverage::Living => "incomplete (all that lives)",
        Coverage::Partial => "incomplete",
    }
}

fn bound(limit: Limit) -> String {
    match limit {
        Limit::AtMost(count) => count.to_string(),
        Limit::None => "no limit".to_owned(),
    }
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}
