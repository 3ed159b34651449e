//! The node's part of the metrics page, kept until the next look.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::config::Config;
use crate::metrics::scrape::NodePart;
use crate::model::PodSandboxId;
use crate::snapshot::Look;

/// The node's part of the page for the latest look that was scraped.
#[derive(Debug, Default)]
pub struct NodeParts(Mutex<Option<Written>>);

#[derive(Debug)]
struct Written {
    of: Origin,
    part: Arc<NodePart>,
}

/// What a node's part depends on.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) look: Weak<Look>,
    pub(super) config: Arc<Config>,
    /// A failed removal changes the next attempt of its sandbox.
    pub(super) next_attempts: BTreeMap<PodSandboxId, Timestamp>,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.look, &other.look)
            && Arc::ptr_eq(&self.config, &other.config)
            && self.next_attempts == other.next_attempts
    }
}

impl NodeParts {
    /// Returns the part of an equal origin, or writes a new one. Scrapes that come at the same time wait for the one.
    pub(super) fn shared(
        &self,
        of: Origin,
        write: impl FnOnce() -> Result<NodePart, std::fmt::Error>,
    ) -> Result<Arc<NodePart>, std::fmt::Error> {
        let mut latest = self.0.lock();
        if let Some(written) = latest.as_ref().filter(|written| written.of == of) {
            return Ok(Arc::clone(&written.part));
        }
        let part = Arc::new(write()?);
        *latest = Some(Written {
            of,
            part: Arc::clone(&part),
        });
        Ok(part)
    }
}
