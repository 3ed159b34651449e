//! Sandboxes without a time of creation. containerd 2 forgets a sandbox's at a restart, where it was ended while it made
//! the sandbox; the sandbox's status has none either. They count as created when crisweep first saw them, in memory, so
//! they are young again after a restart; but before the sandboxes of their pod that have a higher attempt.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ListResult;
use super::statuses::KNOWN_MAX;
use crate::model::{ConfigSource, Coverage, PodSandbox, PodSandboxId, PodUid};

/// When each of them was first seen.
#[derive(Debug, Default)]
pub(super) struct UndatedSandboxes(BTreeMap<PodSandboxId, Timestamp>);

impl UndatedSandboxes {
    /// Dates those of a list that was read at `now`, and forgets the others, unless the list may lack some.
    pub(super) fn date(&mut self, list: &mut ListResult<PodSandbox>, now: Timestamp) {
        let Ok(list) = list else { return };
        let undated = |row: &PodSandbox| row.created_at == Timestamp::MAX;
        if self.0.is_empty() && !list.rows.iter().any(undated) {
            return;
        }
        let (mut seen, next) = (BTreeMap::new(), creations(&list.rows));
        for row in list.rows.iter_mut().filter(|row| undated(row)) {
            // A clock that was set back leaves none in the future, where it would be young until then.
            let first_seen = self.0.get(&row.id).map_or(now, |at| now.min(*at));
            seen.insert(row.id.clone(), first_seen);
            let of_pod = row.pod.as_ref().and_then(|pod| next.get(&pod.uid));
            let next = of_pod.and_then(|it| it.range(row.attempt.saturating_add(1)..).next());
            row.created_at = next.map_or(first_seen, |(_, at)| first_seen.min(*at));
        }
        if list.coverage == Coverage::Whole || self.0.len() >= KNOWN_MAX {
            self.0 = seen;
        } else {
            self.0.extend(seen);
        }
    }
}

/// Returns when sandboxes were created, by pod and attempt. Only of pods of the API server: a static pod comes back under
/// its UID, and its attempts count anew.
fn creations(rows: &[PodSandbox]) -> BTreeMap<PodUid, BTreeMap<u32, Timestamp>> {
    let mut all: BTreeMap<PodUid, BTreeMap<u32, Timestamp>> = BTreeMap::new();
    for row in rows {
        if let Some(pod) = &row.pod
            && row.created_at < Timestamp::MAX
            && row.config_source == Some(ConfigSource::Api)
        {
            let of_pod = all.entry(pod.uid.clone()).or_default();
            of_pod.insert(row.attempt, row.created_at);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Labels, PodSandboxState};
    use crate::runtime;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn dated(undated: &mut UndatedSandboxes, rows: &[(&str, Timestamp)], now: i64) -> Vec<i64> {
        dated_by(Coverage::Whole, undated, rows, now)
    }

    fn dated_by(
        coverage: Coverage,
        undated: &mut UndatedSandboxes,
        rows: &[(&str, Timestamp)],
        now: i64,
    ) -> Vec<i64> {
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
            coverage,
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

    #[test]
    fn an_undated_sandbox_counts_anew_from_when_the_clock_was_set_back() {
        let mut undated = UndatedSandboxes::default();
        let a = ("a", Timestamp::MAX);
        assert_eq!(dated(&mut undated, &[a], 9_000), [9_000]);
        assert_eq!(dated(&mut undated, &[a], 5), [5]);
        assert_eq!(dated(&mut undated, &[a], 7), [5]);
    }

    #[test]
    fn one_that_an_incomplete_list_lacks_makes_no_new_beginning() {
        let mut undated = UndatedSandboxes::default();
        let (a, b) = (("a", Timestamp::MAX), ("b", Timestamp::MAX));
        let part =
            |undated: &mut _, rows: &[_], now| dated_by(Coverage::Partial, undated, rows, now);
        assert_eq!(part(&mut undated, &[a], 5), [5]);
        assert_eq!(part(&mut undated, &[b], 7), [7]);
        assert_eq!(part(&mut undated, &[a, b], 9), [5, 7]);
    }
}
