//! The containers that a pass removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::events::LastRecord;
use crate::gc::Removal;
use crate::model::{ContainerId, ContainerState, PodRef, PodUid, RemovedContainer, Text, ending};
use crate::runtime;
use crate::system::maps::IdSet;

/// Removed containers of one pass whose logs are removed; the logs of any more stay.
pub(in crate::pass) const GONE_MAX: usize = 1 << 16;

/// Pods of one pass whose newest removed container is remembered.
const LAST_MAX: usize = 256;

/// The containers that a pass removed; their logs follow. Cloning shares.
#[derive(Clone, Debug, Default)]
pub(in crate::pass) struct Gone(Arc<Mutex<RemovedContainers>>);

#[derive(Debug, Default)]
struct RemovedContainers {
    /// Those whose removal, or whose log's, has begun; what becomes of it may be known later.
    open: BTreeMap<Text, RemovedContainer>,
    /// Those that are gone and not handed out yet.
    new: Vec<RemovedContainer>,
    /// Those of all whose logs are removed.
    ids: IdSet<ContainerId>,
    /// The newest of each pod.
    last: BTreeMap<PodUid, LastRecord>,
}

impl Gone {
    /// Returns the containers not handed out before.
    pub(in crate::pass) fn take(&self) -> Vec<RemovedContainer> {
        std::mem::take(&mut self.0.lock().new)
    }

    /// Returns the containers whose removal, or whose log's, has begun and is not known to have ended well.
    pub(in crate::pass) fn take_open(&self) -> impl Iterator<Item = RemovedContainer> + use<> {
        std::mem::take(&mut self.0.lock().open).into_values()
    }

    pub(in crate::pass) fn has(&self, id: &ContainerId) -> bool {
        self.0.lock().ids.contains(id)
    }

    /// Notes that a container is gone whose removal has begun.
    pub(in crate::pass) fn went(&self, id: &str) {
        let mut removed = self.0.lock();
        let container = removed.open.remove(id);
        removed.add(container);
    }

    /// Adds the containers of earlier passes whose logs are still there.
    pub(in crate::pass) fn put_back(&self, containers: impl IntoIterator<Item = RemovedContainer>) {
        self.0.lock().add(containers);
    }

    /// Notes containers of which it is not known whether they, or their logs, go.
    pub(in crate::pass) fn open(&self, containers: impl IntoIterator<Item = RemovedContainer>) {
        let open = &mut self.0.lock().open;
        for container in containers {
            if open.len() < GONE_MAX {
                open.insert(container.id.text().clone(), container);
            }
        }
    }

    /// Notes that a log went, or stays for good.
    pub(in crate::pass) fn log_ended(&self, id: &ContainerId) {
        self.0.lock().open.remove(id.text());
    }

    /// Returns the newest container of each pod, of [`LAST_MAX`] pods.
    pub(in crate::pass) fn last_records(&self) -> Vec<LastRecord> {
        self.0.lock().last.values().cloned().collect()
    }

    /// Notes that the removal of a container begins.
    pub(super) fn begins(&self, removal: &Removal, status: &runtime::ContainerStatus) {
        let (Some(pod), subject) = (removal.subject.pod.clone(), &removal.subject) else {
            return;
        };
        let container = RemovedContainer {
            id: status.id.clone(),
            name: subject.name.clone(),
            attempt: subject.attempt,
            pod,
            created_at: subject.created_at,
            log_path: status.log_path.as_str().into(),
        };
        self.open((!status.log_path.is_empty()).then_some(container));
    }

    /// Notes a container that this pass has removed.
    pub(super) fn note(
        &self,
        removal: &Removal,
        status: &runtime::ContainerStatus,
        has_evidence: bool,
    ) {
        if let Some(pod) = &removal.subject.pod {
            self.0.lock().note_last(pod, removal, status, has_evidence);
        }
    }
}

impl RemovedContainers {
    fn add(&mut self, containers: impl IntoIterator<Item = RemovedContainer>) {
        for container in containers {
            if self.ids.len() < GONE_MAX {
                self.ids.insert(container.id.clone());
                self.new.push(container);
            }
        }
    }

    fn note_last(
        &mut self,
        pod: &Arc<PodRef>,
        removal: &Removal,
        status: &runtime::ContainerStatus,
        has_evidence: bool,
    ) {
        let known = self.last.get(&pod.uid);
        let is_older = known.is_some_and(|it| it.created_at > status.created_at);
        if is_older || (known.is_none() && self.last.len() >= LAST_MAX) {
            return;
        }
        let exit_code = (status.state == ContainerState::Exited).then_some(status.exit_code);
        let record = LastRecord {
            pod: Arc::clone(pod),
            container: removal.subject.name.to_string(),
            id: status.id.to_string(),
            created_at: status.created_at,
            ending: ending(exit_code, &status.reason),
            has_evidence,
        };
        self.last.insert(pod.uid.clone(), record);
    }
}
