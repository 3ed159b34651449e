//! The facts that the rules for containers and sandboxes look at.

use super::super::containers::ContainerRule;
use super::super::facts::{PlanFacts, short};
use super::super::sandboxes::SandboxRule;
use super::super::{Limit, Subject, Verdict};
use super::Explainer;
use super::rules::{RuleName, switched};
use crate::model::{Container, ContainerState, Coverage, Labels, PodSandbox, Target};

impl Explainer<'_> {
    pub(super) fn container_words(
        &self,
        rule: ContainerRule,
        (place, row): (usize, &Container),
        subject: &Subject,
        said: Option<Verdict>,
    ) -> String {
        use ContainerRule as Rule;
        let (facts, rules) = (self.facts, &self.facts.policy.containers);
        let state = row.state.label();
        let of_name = || {
            let key = "policy.containers.max_per_container";
            limit(key, rules.max_per_container)
        };
        match rule {
            Rule::CreatedGrace if row.state == ContainerState::Created => {
                facts.bound_words(RuleName::CreatedGrace, subject)
            }
            Rule::Running | Rule::CreatedGrace => format!("its state is {state}"),
            Rule::Unmanaged => made_by(subject).to_owned(),
            Rule::Protect => facts.protection(subject, Some(&row.labels), said),
            Rule::IncludeUnknown => {
                let switch = switched("policy.containers.include_unknown", rules.include_unknown);
                format!("its state is {state}; {switch}")
            }
            Rule::MinAge => facts.bound_words(RuleName::MinAge, subject),
            Rule::PodDeleted => facts.end_words(subject, said),
            Rule::KeepFirst => {
                let switch = switched("policy.containers.keep_first", rules.keep_first);
                format!("{switch}; {}", facts.pod_words(subject, None))
            }
            Rule::MaxPerContainer => {
                let newer = facts.newer(place).map_or_else(
                    || "no newer record of it".to_owned(),
                    |newer| format!("{} is a newer record of it", record(newer)),
                );
                format!("{newer}; {}", of_name())
            }
            Rule::MaxDead => facts.cap_words(self.containers.counted(), subject, said),
            Rule::Settle => facts.pod_words(subject, said),
            Rule::Newest if said.is_none() => "a newer record of it exists".to_owned(),
            Rule::Newest => facts.newest_words(subject, said),
            Rule::WithinLimits => {
                format!(
                    "no limit asks for it: {}; {}",
                    of_name(),
                    facts.cap(subject)
                )
            }
        }
    }

    pub(super) fn sandbox_words(
        &self,
        rule: SandboxRule,
        (place, row): (usize, &PodSandbox),
        subject: &Subject,
        said: Option<Verdict>,
    ) -> String {
        use SandboxRule as Rule;
        let facts = self.facts;
        match rule {
            Rule::Ready => format!("its state is {}", row.state.label()),
            Rule::Containers => facts.containers_in_words(row, said),
            Rule::Unmanaged => made_by(subject).to_owned(),
            Rule::Protect => facts.protection(subject, Some(&row.labels), said),
            Rule::MinAge => facts.bound_words(RuleName::MinAge, subject),
            Rule::PodDeleted => facts.end_words(subject, said),
            Rule::Superseded if said.is_none() => "it is the newest of its pod".to_owned(),
            Rule::Superseded => facts.newest_sandbox(place).map_or_else(
                || "a newer sandbox of its pod exists".to_owned(),
                |newest| {
                    let id = short(newest.id.as_str());
                    format!("sandbox {id} is a newer one of its pod")
                },
            ),
            Rule::MaxDead => facts.cap_words(self.sandboxes.dead, subject, said),
            Rule::Newest if said.is_some() => facts.newest_words(subject, said),
            Rule::Settle | Rule::Newest => facts.pod_words(subject, said),
            Rule::WithinLimits => format!("no limit asks for it: {}", facts.cap(subject)),
        }
    }
}

impl PlanFacts<'_> {
    /// Returns the record of the same container that was created last, unless it is the one at this place.
    fn newer(&self, place: usize) -> Option<&Container> {
        let index = &self.knowledge.index;
        let newest = index.newest_containers.of_group(index.group_of(place));
        let newest = newest.last();
        let newest = newest.filter(|newest| *newest != place)?;
        self.snapshot.containers.get(newest)
    }

    /// Returns the sandbox of the same pod that was created last.
    fn newest_sandbox(&self, place: usize) -> Option<&PodSandbox> {
        let index = &self.knowledge.index;
        let pod = index.pod_of_sandbox(place)?;
        let newest = index.newest_sandboxes.of_group(pod).last()?;
        self.snapshot.sandboxes.get(newest)
    }

    fn cap_words(&self, dead: usize, subject: &Subject, said: Option<Verdict>) -> String {
        let oldest = match said {
            Some(Verdict::Keep(_)) => return self.not_quiet(subject),
            Some(Verdict::Remove(_)) => ", it is one of the oldest",
            None => "",
        };
        let target = subject.target.label();
        format!("{dead} dead {target} count{oldest}; {}", self.cap(subject))
    }

    fn cap(&self, subject: &Subject) -> String {
        let cap = if subject.target == Target::Containers {
            limit(
                "policy.containers.max_dead",
                self.policy.containers.max_dead,
            )
        } else {
            limit("policy.sandboxes.max_dead", self.policy.sandboxes.max_dead)
        };
        if self.snapshot.seen.is_all() {
            cap
        } else {
            format!("{cap}, not applied to an incomplete list")
        }
    }

    fn newest_words(&self, subject: &Subject, said: Option<Verdict>) -> String {
        let what = if subject.target == Target::Containers {
            format!("record of container {}", subject.name)
        } else {
            "sandbox of its pod".to_owned()
        };
        let why = if subject.pod_state.is_finished() {
            format!("; {}", self.cap(subject))
        } else {
            ": without it the kubelet would run it again".to_owned()
        };
        format!("the newest {what}{why}; {}", self.pod_words(subject, said))
    }

    fn containers_in_words(&self, sandbox: &PodSandbox, said: Option<Verdict>) -> String {
        match self.containers_in(sandbox) {
            [first, rest @ ..] => format!("{} is in it{}", record(first), and_more(rest.len())),
            [] if self.snapshot.seen.containers != Coverage::Whole => {
                "the list of containers is incomplete: an unseen one may be in it".to_owned()
            }
            [] if said.is_none() => "no container that stays is in it".to_owned(),
            [] => "a container that does not say which sandbox it is in may be in it".to_owned(),
        }
    }

    pub(super) fn protection(
        &self,
        subject: &Subject,
        labels: Option<&Labels>,
        said: Option<Verdict>,
    ) -> String {
        let protect = &self.policy.protect;
        let namespace = subject.pod.as_ref().map(|pod| pod.namespace.as_str());
        match namespace {
            _ if said.is_none() => "policy.protect does not name it",
            None => "its namespace or a label of it is in policy.protect",
            Some(name) if protect.namespaces.contains(name) => {
                return format!("namespace {name} is in policy.protect.namespaces");
            }
            Some("") if !protect.namespaces.is_empty() => {
                "its namespace is not known, and policy.protect.namespaces protects some"
            }
            _ if labels.is_some_and(|labels| protect.has_label(labels)) => {
                "a label of it is in policy.protect.labels"
            }
            _ => {
                "a label of its pod is in policy.protect.labels, or its pod's labels are not known"
            }
        }
        .to_owned()
    }
}

pub(super) fn record(container: &Container) -> String {
    format!(
        "container {} ({} attempt {}, {})",
        short(container.id.as_str()),
        container.name,
        container.attempt,
        container.state.label(),
    )
}

pub(super) fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(", and {count} more"),
    }
}

fn limit(key: &str, limit: Limit) -> String {
    match limit {
        Limit::AtMost(count) => format!("{key} keeps {count}"),
        Limit::None => format!("{key} has no limit"),
    }
}

fn made_by(subject: &Subject) -> &'static str {
    if subject.pod.is_some() {
        "it has the kubelet's labels"
    } else {
        "it has none of the kubelet's labels: another tool made it"
    }
}
