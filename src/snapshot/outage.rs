//! When looks last saw a list that the kubelet needs over its limit. Uses the monotonic clock.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::model::{KUBELET_SYNCS_IN, Outage, is_set};
use crate::pods::LookStart;
use crate::state::Journal;

/// The last outage that looks saw.
#[derive(Debug, Default)]
pub(super) struct Outages {
    seen: Option<LookSpan>,
    /// Looks since then that saw all lists fit.
    fits: Option<LookSpan>,
    /// What an earlier run wrote, until the next look by a clock that is set.
    earlier: Option<Timestamp>,
    journal: Journal,
    /// The journal may have that an outage lasts.
    is_written: bool,
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
    /// Takes over what an earlier run wrote, and writes to `journal` from now on.
    pub(super) fn remember(&mut self, earlier: Option<Timestamp>, journal: Journal) {
        (self.earlier, self.journal) = (earlier, journal);
    }

    /// Notes whether a look saw a list over its limit (`None`: unknown); returns what planning may know.
    pub(super) fn note(&mut self, over: Option<bool>, look: LookStart) -> Option<Outage> {
        let at = look.began;
        let opened_late = self.journal.earlier_outage();
        if let Some(since) = self.earlier.take().or(opened_late) {
            self.is_written = true;
            self.resume(since, look);
            self.earlier = Some(since).filter(|_| !is_set(look.at));
        }
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
        self.write(look);
        self.at(look)
    }

    /// Goes on with the outage of an earlier run: it may have lasted until this look.
    fn resume(&mut self, since: Timestamp, look: LookStart) {
        let ago = Duration::try_from(look.at.duration_since(since)).unwrap_or_default();
        let first = look.began.checked_sub(ago).unwrap_or(look.began);
        let first = self.seen.map_or(first, |seen| seen.first.min(first));
        let last = look.began;
        (self.seen, self.fits) = (Some(LookSpan { first, last }), None);
    }

    /// Writes at each look since when an outage lasts, because the journal may be closed or replaced meanwhile; and once
    /// that it is over. A clock that is not set would write a beginning that says nothing.
    fn write(&mut self, look: LookStart) {
        let lasts = self.seen.filter(|_| !self.was_long_enough_to_sync());
        if is_set(look.at) && (lasts.is_some() || self.is_written) {
            self.is_written = lasts.is_some();
            self.journal
                .outage(lasts.map(|seen| look.wall_time_of(seen.first)));
        }
    }

    /// Says whether the lists fitted long enough for the kubelet to sync its pods.
    fn was_long_enough_to_sync(&self) -> bool {
        let long_enough =
            |fits: LookSpan| fits.last.saturating_duration_since(fits.first) >= KUBELET_SYNCS_IN;
        self.fits.is_some_and(long_enough)
    }

    fn at(&self, look: LookStart) -> Option<Outage> {
        let then = |at: Instant| look.wall_time_of(at);
        let seen = self.seen?;
        let lasts = self.fits.is_none();
        Some(Outage {
            first_seen: then(seen.first),
            last_seen: if lasts { look.at } else { then(seen.last) },
            fits_since: self.fits.map(|fits| then(fits.first)),
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use crate::state;

    /// A look by a wall clock that stands still.
    fn look(began: Instant) -> LookStart {
        let at = Timestamp::UNIX_EPOCH;
        LookStart { at, began }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_a_look_sees_that_it_is_over() {
        let mut outages = Outages::default();
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        assert_eq!(outages.at(look(start)), None);
        outages.note(Some(true), look(start));
        outages.note(Some(true), look(start + minute));
        outages.note(None, look(start + 2 * minute));
        let outage = outages.at(look(start + 2 * minute)).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (-120, 0)
        );
        assert_eq!(outage.fits_since, None);
        outages.note(Some(false), look(start + 3 * minute));
        outages.note(Some(false), look(start + 3 * minute + KUBELET_SYNCS_IN));
        let outage = outages.at(look(start + 4 * minute)).unwrap();
        assert_eq!(
            (outage.first_seen.as_second(), outage.last_seen.as_second()),
            (-240, -180)
        );
        assert_eq!(outage.fits_since.map(Timestamp::as_second), Some(-60));
        outages.note(Some(true), look(start + 4 * minute));
        let outage = outages.at(look(start + 4 * minute)).unwrap();
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
        outages.note(Some(true), look(start));
        // One look saw them fit; for how long is unknown.
        outages.note(Some(false), look(start + 30 * minute));
        outages.note(Some(true), look(start + 31 * minute));
        outages.note(Some(false), look(start + 32 * minute));
        outages.note(
            Some(false),
            look(start + 32 * minute + KUBELET_SYNCS_IN / 2),
        );
        outages.note(Some(true), look(start + 33 * minute));
        let outage = outages.at(look(start + 33 * minute)).unwrap();
        assert_eq!(outage.first_seen.as_second(), -33 * 60);
        assert_eq!((outage.last_seen, outage.fits_since), (now, None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_an_earlier_run_goes_on() {
        let (start, now) = (Instant::now(), "2026-01-02T03:04:05Z".parse().unwrap());
        let look = |began| LookStart { at: now, began };
        let second = |second| now + SignedDuration::from_secs(second);
        let resumed = |since| {
            let mut outages = Outages::default();
            // The first look may be faster than the disk.
            outages.note(Some(true), look(start));
            outages.remember(Some(since), Journal::none());
            outages.note(Some(true), look(start));
            outages.at(look(start)).unwrap().first_seen
        };
        assert_eq!(resumed(second(-3600)), second(-3600));
        assert_eq!(resumed(second(3600)), now, "the clock was set back");
        // The lists fit now. Since when is unknown.
        let mut outages = Outages::default();
        outages.remember(Some(second(-3600)), Journal::none());
        outages.note(Some(false), look(start));
        let outage = outages.at(look(start)).unwrap();
        assert_eq!((outage.last_seen, outage.fits_since), (now, Some(now)));
        assert!(outages.is_written);
        outages.note(Some(false), look(start + KUBELET_SYNCS_IN));
        assert!(!outages.is_written, "the next run need not know of it");
    }

    #[tokio::test]
    async fn a_clock_that_is_not_set_does_not_overwrite_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let limits = state::Config::default().limits(0);
        let opened = Journal::open(dir.path().to_owned(), limits, Counter::default());
        let journal = opened.await.unwrap().journal;
        let known: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        journal.outage(Some(known));
        let (mut outages, start) = (Outages::default(), Instant::now());
        outages.remember(Some(known), journal.clone());
        let boots = outages.note(Some(true), look(start)).unwrap();
        assert_eq!(boots.first_seen, Timestamp::UNIX_EPOCH);
        journal.settled(Duration::from_secs(10)).await;
        let stored = state::read_stored(dir.path()).unwrap();
        assert_eq!(stored.outage_since, Some(known));
        let at = known + SignedDuration::from_hours(1);
        let set = outages.note(Some(true), LookStart { at, began: start });
        assert_eq!(set.unwrap().first_seen, known);
    }
}
