//! Why an object stays or goes: one closed set of words for code, log, label, journal and API.

use super::every;
use serde::{Deserialize, Serialize};

use crate::model::Target;

/// Why an object stays.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum KeepReason {
    /// The container runs.
    Running,
    /// The container was created a moment ago and is about to run.
    Starting,
    /// The runtime does not know the container's state, and the policy leaves such alone.
    StateUnknown,
    /// The sandbox is ready.
    Ready,
    /// A container still names the sandbox.
    HasContainers,
    /// It has none of the kubelet's labels: another tool made it.
    Unmanaged,
    /// Its namespace or a label is protected.
    Protected,
    /// It died less than `min_age` ago, or its end is not known for long enough.
    TooYoung,
    /// It is the newest of a pod that may exist.
    Newest,
    /// No limit asks for it.
    WithinLimits,
    /// It failed to go lately and is left alone until its next try.
    Quarantined,
    /// A container, in whatever state, or a container's image volume uses the image.
    InUse,
    /// A container or sandbox did not tell which images it uses: it may be this one.
    UnknownUser,
    /// The runtime wants the image kept.
    Pinned,
    /// Sandboxes are made from the image.
    SandboxImage,
    /// A tag or digest of the image matches one of `policy.images.keep`.
    Keep,
    /// The file system needs no room, or other images make it.
    BelowThreshold,
    /// The log's pod exists.
    PodExists,
    /// The entry of a log root does not have the kubelet's shape.
    ForeignName,
    /// What the link names is there.
    TargetExists,
    /// The runtime was not asked about the link's container, or did not answer.
    NotAsked,
    /// Nothing is known of the log's pod.
    PodsUnknown,
}

impl KeepReason {
    /// Returns the reason as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// The reasons that a target's objects can be kept for.
    pub fn all(target: Target) -> &'static [Self] {
        match target {
            Target::Containers => &[
                Self::Running,
                Self::Starting,
                Self::StateUnknown,
                Self::TooYoung,
                Self::Newest,
                Self::WithinLimits,
                Self::Unmanaged,
                Self::Protected,
                Self::Quarantined,
            ],
            Target::Sandboxes => &[
                Self::Ready,
                Self::HasContainers,
                Self::TooYoung,
                Self::Newest,
                Self::WithinLimits,
                Self::Unmanaged,
                Self::Protected,
                Self::Quarantined,
            ],
            Target::Logs => &[
                Self::PodExists,
                Self::HasContainers,
                Self::ForeignName,
                Self::TooYoung,
                Self::TargetExists,
                Self::NotAsked,
                Self::PodsUnknown,
                Self::Protected,
            ],
            Target::Images => &[
                Self::InUse,
                Self::UnknownUser,
                Self::Pinned,
                Self::SandboxImage,
                Self::Keep,
                Self::TooYoung,
                Self::BelowThreshold,
            ],
        }
    }
}

/// Why an object goes.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum RemoveReason {
    /// Its pod is deleted.
    PodDeleted,
    /// Newer ones of the same kind exist.
    Superseded,
    /// The node holds more dead ones than `max_dead`.
    OverCap,
    /// The link names a log that is gone.
    DeadLink,
    /// The log's container went, or goes in the same pass.
    ContainerRemoved,
    /// The image has not been used for longer than `max_age`. Journals of earlier versions may also say `unused`.
    #[serde(alias = "unused")]
    Age,
    /// The image file system is too full.
    Space,
}

impl RemoveReason {
    /// Every reason.
    pub const ALL: [Self; 7] = every();

    /// The reasons that a target's objects can go for.
    pub fn all(target: Target) -> &'static [Self] {
        match target {
            Target::Containers | Target::Sandboxes => {
                &[Self::PodDeleted, Self::Superseded, Self::OverCap]
            }
            Target::Logs => &[Self::PodDeleted, Self::DeadLink, Self::ContainerRemoved],
            Target::Images => &[Self::Space, Self::Age],
        }
    }

    /// Returns the reason as metrics and the API write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_journals_unused_is_read_as_age() {
        let read: RemoveReason = serde_json::from_str("\"unused\"").unwrap();
        assert_eq!(read, RemoveReason::Age);
    }
}
