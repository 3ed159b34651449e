//! The reasons that the objects of each target can be kept for.

use crisweep::model::{KeepReason, Target};

/// All but that of a saved plan.
pub(crate) fn keep_reasons(target: Target) -> &'static [KeepReason] {
    match target {
        Target::Containers => &[
            KeepReason::Running,
            KeepReason::Starting,
            KeepReason::StateUnknown,
            KeepReason::TooYoung,
            KeepReason::Newest,
            KeepReason::WithinLimits,
            KeepReason::Unmanaged,
            KeepReason::Protected,
            KeepReason::Quarantined,
        ],
        Target::Sandboxes => &[
            KeepReason::Ready,
            KeepReason::HasContainers,
            KeepReason::TooYoung,
            KeepReason::Newest,
            KeepReason::WithinLimits,
            KeepReason::Unmanaged,
            KeepReason::Protected,
            KeepReason::Quarantined,
        ],
        Target::Logs => &[
            KeepReason::PodExists,
            KeepReason::HasContainers,
            KeepReason::ForeignName,
            KeepReason::TooYoung,
            KeepReason::TargetExists,
            KeepReason::NotAsked,
            KeepReason::PodsUnknown,
            KeepReason::Protected,
        ],
        Target::Images => &[
            KeepReason::InUse,
            KeepReason::UnknownUser,
            KeepReason::Pinned,
            KeepReason::SandboxImage,
            KeepReason::Keep,
            KeepReason::TooYoung,
            KeepReason::BelowThreshold,
        ],
    }
}
