//! Since when, and until when, looks saw a list that the kubelet needs over its limit. Measures by the
//! monotonic clock.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::pod_history::Found;
use super::{Memory, Part, Weights};
use crate::cri;
use crate::model::Outage;
use crate::pods::Answer;

/// The last outage, as looks saw it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outages {
    seen: Option<(Instant, Instant)>,
    lasts: bool,
}

impl Outages {
    /// Notes whether a look saw a list over its limit; `None`: it could not tell.
    pub(super) fn note(&mut self, over: Option<bool>, at: Instant) {
        match (over, self.seen) {
            (None, _) => {}
            (Some(false), _) => self.lasts = false,
            (Some(true), Some((first, _))) if self.lasts => self.seen = Some((first, at)),
            (Some(true), _) => (self.seen, self.lasts) = (Some((at, at)), true),
        }
    }

    /// Returns what planning may know, for the look that started at `started`, which was `taken_at`.
    pub(super) fn at(self, started: Instant, taken_at: Timestamp) -> Option<Outage> {
        let then = |at: Instant| {
            let age = SignedDuration::try_from(started.saturating_duration_since(at)).ok();
            age.and_then(|age| taken_at.checked_sub(age).ok())
                .unwrap_or(taken_at)
        };
        let (first, last) = self.seen?;
        Some(Outage {
            first_seen: then(first),
            last_seen: if self.lasts { taken_at } else { then(last) },
        })
    }
}

impl Memory {
    /// Remembers what a look saw of the pods, and of the weight of the lists that the kubelet needs.
    pub(super) fn note(
        &mut self,
        found: &Found<'_>,
        told: &Answer,
        runtime: &Part<cri::Version>,
        started: Instant,
    ) {
        self.pod_histories.note(found, told);
        let over = Weights::over_limit(runtime, found.containers, found.sandboxes);
        self.outages.note(over, started);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_a_look_sees_that_it_is_over() {
        let (mut outages, now) = (Outages::default(), Timestamp::UNIX_EPOCH);
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        assert_eq!(outages.at(start, now), None);
        outages.note(Some(true), start);
        outages.note(Some(true), start + minute);
        outages.note(None, start + 2 * minute);
        let outage = outages.at(start + 2 * minute, now).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (-120, 0)
        );
        outages.note(Some(false), start + 3 * minute);
        let outage = outages.at(start + 3 * minute, now).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (-180, -120)
        );
        outages.note(Some(true), start + 4 * minute);
        let outage = outages.at(start + 4 * minute, now).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (0, 0)
        );
    }
}
