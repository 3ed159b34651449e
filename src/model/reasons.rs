//! Why an object is kept or removed: one closed set of words for code, log, label, journal and API.

use super::{Target, labelled};

labelled! {
    /// Why an object is kept.
    pub enum KeepReason {
        /// The container runs.
        Running,
        /// The container was created recently and may start.
        Starting,
        /// The runtime does not know the container's state, and the policy keeps such containers.
        StateUnknown,
        /// The sandbox is ready.
        Ready,
        /// A container still names the sandbox.
        HasContainers,
        /// It has none of the kubelet's labels: another tool made it.
        Unmanaged,
        /// Its namespace or a label is protected.
        Protected,
        /// It exited less than `min_age` ago, or its end has not been known for long enough.
        TooYoung,
        /// It is the newest of a pod that may exist.
        Newest,
        /// No limit asks for its removal.
        WithinLimits,
        /// Its last removal failed; it is not tried again before its next try is due.
        Quarantined,
        /// A container, in whatever state, or a container's image volume uses the image.
        InUse,
        /// A container or sandbox could not be asked which images it uses; it may use this one.
        UnknownUser,
        /// The runtime pins the image.
        Pinned,
        /// Sandboxes are made from the image.
        SandboxImage,
        /// A tag or digest of the image matches one of `policy.images.keep`.
        Keep,
        /// The file system needs no space, or removing other images frees enough.
        BelowThreshold,
        /// The log's pod exists.
        PodExists,
        /// The entry of a log root does not have the kubelet's shape.
        ForeignName,
        /// The link's target exists.
        TargetExists,
        /// The runtime was not asked about the link's container, or did not answer.
        NotAsked,
        /// It is unknown whether the log's pod exists.
        PodsUnknown,
        /// It is due, but the pass carries out a saved plan that does not have it. Only reports of passes have this
        /// reason.
        NotInPlan,
    }
}

labelled! {
    /// Why an object is removed.
    pub enum RemoveReason {
        /// Its pod is deleted.
        PodDeleted,
        /// A newer record of the same kind exists.
        Superseded,
        /// The node has more dead ones than `max_dead`.
        OverCap,
        /// The link's target does not exist.
        DeadLink,
        /// The log's container was removed, or will be in the same pass.
        ContainerRemoved,
        /// The image has not been used for longer than `max_age`.
        Age,
        /// The image file system is too full.
        Space,
    }
}

impl RemoveReason {
    /// The reasons that a target's objects can be removed for.
    pub fn all(target: Target) -> &'static [Self] {
        match target {
            Target::Containers | Target::Sandboxes => {
                &[Self::PodDeleted, Self::Superseded, Self::OverCap]
            }
            Target::Logs => &[Self::PodDeleted, Self::DeadLink, Self::ContainerRemoved],
            Target::Images => &[Self::Space, Self::Age],
        }
    }
}
