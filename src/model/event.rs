//! What became of a Kubernetes Event.

use super::labelled;

labelled! {
    /// What became of a Kubernetes Event.
    pub enum EventResult {
        /// It was written.
        Created,
        /// It was added to an earlier one of the same object and reason.
        Repeated,
        /// There were too many at once, or it still waited when the service ended.
        LeftOut,
        /// The API server did not take it.
        Failed,
    }
}
