//! The removals of a pass that have begun and not ended: a person who stops the pass sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::gc::Subject;
use crate::model::{Target, Text};

/// The removals in flight, oldest first. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<BTreeMap<u64, RemovalInFlight>>>);

/// What is being removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalInFlight {
    /// Its kind.
    pub target: Target,
    /// Its id; a log's path.
    pub id: Text,
    /// Its name with its pod's.
    pub name: String,
}

impl InFlight {
    pub(super) fn begin(&self, number: u64, subject: &Subject) {
        let pod = subject.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let name = match (subject.target, pod.is_empty()) {
            (Target::Containers, false) => format!("{pod}/{}#{}", subject.name, subject.attempt),
            (Target::Sandboxes, false) => format!("{pod}#{}", subject.attempt),
            (_, _) => subject.name.to_string(),
        };
        let removing = RemovalInFlight {
            target: subject.target,
            id: subject.id.clone(),
            name,
        };
        self.0.lock().insert(number, removing);
    }

    pub(super) fn end(&self, number: u64) {
        self.0.lock().remove(&number);
    }

    /// Returns them.
    pub fn list(&self) -> Vec<RemovalInFlight> {
        self.0.lock().values().cloned().collect()
    }
}
