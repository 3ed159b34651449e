//! A literal model of what the kubelet would remove, from its observed behaviour, without code of
//! `crisweep::gc`: our plans are compared with it.
//!
//! If the kubelet's order is undefined (equal creation times), the model orders by attempt, then by id.

mod images;
pub(crate) mod logs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crisweep::model::{Container, ContainerState, PodSandbox, PodSandboxState};
use jiff::Timestamp;

pub(crate) use images::{Gain, ImageCollector};

/// A kubelet with its flags, at one moment.
pub(crate) struct Kubelet<'a> {
    /// Its clock, read after the lists.
    pub(crate) now: Timestamp,
    /// `--minimum-container-ttl-duration`.
    pub(crate) minimum_age: Duration,
    /// `--maximum-dead-containers-per-container`; negative: no limit.
    pub(crate) per_container: i64,
    /// `--maximum-dead-containers`; negative: no limit.
    pub(crate) dead_containers: i64,
    /// Whether a pod's objects may be removed; false for all while its sources are not ready. Objects without
    /// the pod UID label have the UID "".
    pub(crate) is_deleted: &'a dyn Fn(&str) -> bool,
}

impl Kubelet<'_> {
    /// Returns the ids of the containers that one pass removes.
    pub(crate) fn containers(&self, listed: &[Container]) -> BTreeSet<String> {
        let cutoff =
            self.now.as_nanosecond() - i128::try_from(self.minimum_age.as_nanos()).unwrap();
        let mut units: BTreeMap<(&str, &str), Vec<&Container>> = BTreeMap::new();
        for container in listed {
            let running = container.state == ContainerState::Running;
            if running || container.created_at.as_nanosecond() > cutoff {
                continue;
            }
            let uid = container.pod.as_ref().map_or("", |pod| pod.uid.as_str());
            units
                .entry((uid, &container.name))
                .or_default()
                .push(container);
        }
        let mut removed = BTreeSet::new();
        units.retain(|(uid, _), unit| {
            let whole = (self.is_deleted)(uid);
            if whole {
                removed.extend(unit.iter().map(|container| container.id.to_string()));
            }
            !whole
        });
        for unit in units.values_mut() {
            newest_first(unit);
        }
        if let Ok(limit) = usize::try_from(self.per_container) {
            for unit in units.values_mut() {
                cut(unit, limit, &mut removed);
            }
        }
        if let Ok(limit) = usize::try_from(self.dead_containers) {
            cut_to_total(units, limit, &mut removed);
        }
        removed
    }

    /// Returns the ids of the sandboxes that one pass removes; `listed` are the containers left by the
    /// container phase.
    pub(crate) fn sandboxes(
        &self,
        sandboxes: &[PodSandbox],
        listed: &[Container],
    ) -> BTreeSet<String> {
        let active = |sandbox: &PodSandbox| {
            sandbox.state == PodSandboxState::Ready
                || listed
                    .iter()
                    .any(|container| container.sandbox_id == sandbox.id)
        };
        let mut pods: BTreeMap<&str, Vec<&PodSandbox>> = BTreeMap::new();
        for sandbox in sandboxes {
            let uid = sandbox.pod.as_ref().map_or("", |pod| pod.uid.as_str());
            pods.entry(uid).or_default().push(sandbox);
        }
        let mut removed = BTreeSet::new();
        for (uid, mut sandboxes) in pods {
            sandboxes.sort_by(|a, b| {
                (b.created_at, b.attempt, &b.id).cmp(&(a.created_at, a.attempt, &a.id))
            });
            let spared = usize::from(!(self.is_deleted)(uid));
            for sandbox in sandboxes.into_iter().skip(spared) {
                if !active(sandbox) {
                    removed.insert(sandbox.id.to_string());
                }
            }
        }
        removed
    }
}

/// An equal share for each unit, rounded down but at least one; then the oldest of all.
fn cut_to_total(
    mut units: BTreeMap<(&str, &str), Vec<&Container>>,
    limit: usize,
    removed: &mut BTreeSet<String>,
) {
    let total = |units: &BTreeMap<_, Vec<&Container>>| units.values().map(Vec::len).sum::<usize>();
    if total(&units) <= limit {
        return;
    }
    let share = (limit / units.len()).max(1);
    for unit in units.values_mut() {
        cut(unit, share, removed);
    }
    if total(&units) > limit {
        let mut rest: Vec<&Container> = units.into_values().flatten().collect();
        newest_first(&mut rest);
        cut(&mut rest, limit, removed);
    }
}

fn newest_first(containers: &mut [&Container]) {
    containers
        .sort_by(|a, b| (b.created_at, b.attempt, &b.id).cmp(&(a.created_at, a.attempt, &a.id)));
}

/// Removes the oldest beyond `limit`; `unit` is newest first.
fn cut(unit: &mut Vec<&Container>, limit: usize, removed: &mut BTreeSet<String>) {
    if unit.len() > limit {
        removed.extend(
            unit.drain(limit..)
                .map(|container| container.id.to_string()),
        );
    }
}
