//! The targets of a pass.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::labelled;

labelled! {
    /// A kind of object that a pass removes, in the order of a pass.
    // Containers need their sandbox, logs and image, so they come first; removing an image costs the runtime less when
    // fewer other objects are left.
    pub enum Target {
        /// Dead containers.
        Containers,
        /// Dead pod sandboxes.
        Sandboxes,
        /// Logs of removed containers and deleted pods.
        Logs,
        /// Images that no container uses.
        Images,
    }
}

impl Target {
    /// Returns what one object of the target is.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Containers => "container",
            Self::Sandboxes => "sandbox",
            Self::Logs => "log",
            Self::Images => "image",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A name of no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown target \"{0}\"; targets are containers, sandboxes, logs, images, all")]
pub struct UnknownTarget(pub String);

/// The targets that one word names: a target's name, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets(pub BTreeSet<Target>);

impl Targets {
    /// Returns every target.
    pub fn all() -> Self {
        Self(Target::ALL.into())
    }
}

impl FromStr for Targets {
    type Err = UnknownTarget;

    fn from_str(word: &str) -> Result<Self, UnknownTarget> {
        if word == "all" {
            return Ok(Self::all());
        }
        let named = Target::ALL
            .into_iter()
            .find(|target| target.label() == word);
        named
            .map(|target| Self([target].into()))
            .ok_or_else(|| UnknownTarget(word.to_owned()))
    }
}
