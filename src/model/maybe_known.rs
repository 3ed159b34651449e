//! What may be unknown, and why.

use serde::{Deserialize, Serialize};

/// What was found of something, or why it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaybeKnown<T, W = String> {
    /// All of it.
    Known(T),
    /// Nothing of use, and why.
    Unknown(W),
}

impl<T, W> MaybeKnown<T, W> {
    /// Returns it, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(it) => Some(it),
            Self::Unknown(_) => None,
        }
    }
}

// Not for every `W`: a list of pods is never assumed.
impl<T: Default> Default for MaybeKnown<T> {
    fn default() -> Self {
        Self::Known(T::default())
    }
}
