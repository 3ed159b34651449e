//! When looks last saw a list that the kubelet needs over its limit. Uses the monotonic clock.

use jiff::Timestamp;
use tokio::time::Instant;

use super::pod_history::{NodeLists, before};
use super::{LookMemory, Weights};
use crate::model::{KUBELET_SYNCS_IN, Outage};
use crate::pods::PodsAnswer;

/// The last outage that looks saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outages {
    seen: Option<LookSpan>,
    /// Looks since then that saw all lists fit.
    fits: Option<LookSpan>,
}

/// Looks with the same result.
#[derive(Clone, Copy, Debug)]
struct LookSpan {
    first: Instant,
    last: Instant,
}

impl LookSpan {
    /// Adds a look to earlier ones.
    fn with(before: Option<Self>, last: Instant) -> Self {
        let first = before.map_or(last, |looks| looks.first);
        Self { first, last }
    }
}

impl Outages {
    /// Notes whether a look saw a list over its limit; `None`: unknown.
    pub(super) fn note(&mut self, over: Option<bool>, at: Instant) {
        match over {
            None => {}
            Some(false) if self.seen.is_none() => {}
            Some(false) => self.fits = Some(LookSpan::with(self.fits, at)),
            Some(true) => {
                // Lists that fit for a moment only, or only by an estimate, do not end the outage: the kubelet stayed
                // blind.
                let before = self.seen.filter(|_| !self.was_long_enough_to_sync());
                (self.seen, self.fits) = (Some(LookSpan::with(before, at)), None);
            }
        }
    }

    /// Says whether the lists fitted long enough for the kubelet to sync its pods.
    fn was_long_enough_to_sync(&self) -> bool {
        let long_enough =
            |fits: LookSpan| fits.last.saturating_duration_since(fits.first) >= KUBELET_SYNCS_IN;
        self.fits.is_some_and(long_enough)
    }

    /// Returns what planning may know, for the look that started at `started`, with the wall clock `taken_at`.
    pub(super) fn at(self, started: Instant, taken_at: Timestamp) -> Option<Outage> {
        let then = |at: Instant| before(taken_at, started.saturating_duration_since(at));
        let seen = self.seen?;
        let lasts = self.fits.is_none();
        Some(Outage {
            first_seen: then(seen.first),
            last_seen: if lasts { taken_at } else { then(seen.last) },
            fits_since: self.fits.map(|fits| then(fits.first)),
        })
    }
}

impl LookMemory {
    /// Notes what a look saw of the pods and of the weights of the kubelet's lists.
    pub(super) fn note(
        &mut self,
        found: &NodeLists<'_>,
        answer: &PodsAnswer,
        weights: Weights,
        started: Instant,
    ) {
        let last_exits = &self.statuses.last_exits;
        self.pod_histories.note(found, answer, last_exits, started);
        self.outages.note(weights.over_limit(), started);
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
        assert_eq!(outage.fits_since, None);
        outages.note(Some(false), start + 3 * minute);
        outages.note(Some(false), start + 3 * minute + KUBELET_SYNCS_IN);
        let outage = outages.at(start + 4 * minute, now).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (-240, -180)
        );
        assert_eq!(outage.fits_since.map(Timestamp::as_second), Some(-60));
        outages.note(Some(true), start + 4 * minute);
        let outage = outages.at(start + 4 * minute, now).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (0, 0)
        );
        assert_eq!(outage.fits_since, None);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_fit_for_a_moment_do_not_begin_an_outage_anew() {
        let (mut outages, now) = (Outages::default(), Timestamp::UNIX_EPOCH);
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        outages.note(Some(true), start);
        // One look saw them fit; for how long is unknown.
        outages.note(Some(false), start + 30 * minute);
        outages.note(Some(true), start + 31 * minute);
        outages.note(Some(false), start + 32 * minute);
        outages.note(Some(false), start + 32 * minute + KUBELET_SYNCS_IN / 2);
        outages.note(Some(true), start + 33 * minute);
        let outage = outages.at(start + 33 * minute, now).unwrap();
        assert_eq!(outage.first_seen.as_second(), -33 * 60);
        assert_eq!((outage.last_seen, outage.fits_since), (now, None));
    }
}
