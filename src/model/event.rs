//! What became of a Kubernetes Event.

use super::every;

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

impl EventResult {
    /// Every result.
    pub const ALL: [Self; 4] = every();

    /// Returns the result as metrics write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}
