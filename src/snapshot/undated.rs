//! Sandboxes without a time of creation. containerd 2 forgets a sandbox's at a restart, where it was ended while it made
//! the sandbox; the sandbox's status has none either. They count as created when crisweep first saw them; in memory, so
//! they are young again after a restart.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ListResult;
use crate::model::{PodSandbox, PodSandboxId};

/// When each of them was first seen.
#[derive(Debug, Default)]
pub(super) struct UndatedSandboxes(BTreeMap<PodSandboxId, Timestamp>);

impl UndatedSandboxes {
    /// Dates those of a list that was read at `now`, and forgets the others.
    pub(super) fn date(&mut self, list: &mut ListResult<PodSandbox>, now: Timestamp) {
        let Ok(list) = list else { return };
        let undated = |row: &PodSandbox| row.created_at == Timestamp::MAX;
        if self.0.is_empty() && !list.rows.iter().any(undated) {
            return;
        }
        let before = std::mem::take(&mut self.0);
        for row in list.rows.iter_mut().filter(|row| undated(row)) {
            row.created_at = before.get(&row.id).copied().unwrap_or(now);
            self.0.insert(row.id.clone(), row.created_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Coverage, Labels, PodSandboxState};
    use crate::runtime;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn dated(undated: &mut UndatedSandboxes, rows: &[(&str, Timestamp)], now: i64) -> Vec<i64> {
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
        let mut undated = UndatedSandboxes::default();
        let (a, b) = (("a", Timestamp::MAX), ("b", at(1)));
        assert_eq!(dated(&mut undated, &[a, b], 5), [5, 1]);
        assert_eq!(dated(&mut undated, &[b, a], 7), [1, 5]);
        assert_eq!(dated(&mut undated, &[b], 8), [1]);
        assert_eq!(dated(&mut undated, &[a], 9), [9]);
    }
}
