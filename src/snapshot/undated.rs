//! Records without a time of creation. containerd 2 forgets a sandbox's at a restart, where it was ended while it made the
//! sandbox; every containerd forgets a container's where it cannot read the container's status at its start. They count as
//! created when crisweep first saw them, a container at its exit if that was before; in memory, so they are young again
//! after a restart.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::ListResult;
use crate::model::{Container, ContainerId, ContainerState, HasId, PodSandbox, Rows};

/// When each of them was first seen, by its id.
#[derive(Debug, Default)]
pub(super) struct UndatedRows(BTreeMap<Box<str>, Timestamp>);

/// A row of a list that has a time of creation.
pub(super) trait CreatedRow: HasId + Clone {
    /// The time, if it matters to a removal.
    fn created_at(&self) -> Option<Timestamp>;
    /// Puts another in its place.
    fn created(&mut self, at: Timestamp);
}

impl CreatedRow for Container {
    /// One that was only created may be about to start, however long it was listed so; one that runs stays anyway.
    fn created_at(&self) -> Option<Timestamp> {
        match self.state {
            ContainerState::Exited | ContainerState::Unknown => Some(self.created_at),
            ContainerState::Created | ContainerState::Running => None,
        }
    }

    fn created(&mut self, at: Timestamp) {
        self.created_at = at;
    }
}

impl CreatedRow for PodSandbox {
    fn created_at(&self) -> Option<Timestamp> {
        Some(self.created_at)
    }

    fn created(&mut self, at: Timestamp) {
        self.created_at = at;
    }
}

impl UndatedRows {
    /// Returns the ids of those in the last list.
    pub(super) fn ids(&self) -> BTreeSet<Box<str>> {
        self.0.keys().cloned().collect()
    }

    /// Dates those of a list that was read at `now`, and forgets the others.
    pub(super) fn date<T: CreatedRow>(&mut self, list: &mut ListResult<T>, now: Timestamp) {
        let Ok(list) = list else { return };
        let undated = |row: &T| row.created_at() == Some(Timestamp::MAX);
        if self.0.is_empty() && !list.rows.iter().any(undated) {
            return;
        }
        let before = std::mem::take(&mut self.0);
        for row in list.rows.iter_mut().filter(|row| undated(row)) {
            let at = before.get(row.id()).copied().unwrap_or(now);
            self.0.insert(row.id().into(), at);
            row.created(at);
        }
    }

    /// Lets each container count as created no later than it exited: what came after its exit is newer.
    pub(super) fn put_before(
        &self,
        rows: &mut Rows<Container>,
        exit: impl Fn(&ContainerId) -> Option<Timestamp>,
    ) {
        if self.0.is_empty() {
            return;
        }
        for row in rows.iter_mut().filter(|it| self.0.contains_key(it.id())) {
            row.created_at = exit(&row.id).map_or(row.created_at, |at| at.min(row.created_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::model::{Coverage, Labels, PodSandboxId, PodSandboxState};
    use crate::runtime;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn dated(undated: &mut UndatedRows, rows: &[(&str, Timestamp)], now: i64) -> Vec<i64> {
        let rows = rows.iter().map(|(id, created_at)| PodSandbox {
            id: PodSandboxId::new(*id).unwrap(),
            pod: None,
            attempt: 0,
            state: PodSandboxState::NotReady,
            created_at: *created_at,
            config_source: None,
            labels: Labels::default(),
        });
        let mut list = Ok(runtime::Listing {
            rows: rows.collect::<Vec<_>>().into(),
            malformed: 0,
            mounted: BTreeMap::new(),
            odd: 0,
            coverage: Coverage::Whole,
            whole_pods: BTreeSet::new(),
            cut_short: false,
            response_bytes: 0,
            limit_bytes: None,
            mode: runtime::ListMode::Streaming,
        });
        undated.date(&mut list, at(now));
        let rows = list.unwrap().rows;
        rows.iter().map(|row| row.created_at.as_second()).collect()
    }

    #[test]
    fn an_undated_sandbox_counts_from_the_first_list_in_a_row_that_had_it() {
        let mut undated = UndatedRows::default();
        let (a, b) = (("a", Timestamp::MAX), ("b", at(1)));
        assert_eq!(dated(&mut undated, &[a, b], 5), [5, 1]);
        assert_eq!(dated(&mut undated, &[b, a], 7), [1, 5]);
        assert_eq!(dated(&mut undated, &[b], 8), [1]);
        assert_eq!(dated(&mut undated, &[a], 9), [9]);
    }
}
