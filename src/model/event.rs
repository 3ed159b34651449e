//! What became of a Kubernetes Event.

/// What became of a Kubernetes Event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum EventResult {
    /// It was written.
    Created,
    /// It was added to an earlier one of the same object and reason.
    Repeated,
    /// There were too many at once.
    LeftOut,
    /// The API server did not take it.
    Failed,
}
