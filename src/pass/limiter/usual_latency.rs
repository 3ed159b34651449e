//! How long removals usually take, and from when on one in flight waits for something other than the disk (a
//! CNI plugin). Never reads a clock.
//!
//! A disk that is slow is slow for all removals. So a sandbox's removal that takes clearly longer than usual,
//! while a later one has gone, waits for its network. Until that shows it takes a place; the larger the share
//! of time that went to such removals, the more may start.

use std::time::Duration;

use super::QUICK;

/// From this age on a removal waits, whatever it removes.
pub const SLOW: Duration = Duration::from_secs(1);
/// Factor above which a removal takes clearly longer than usual; below [`CLEAR_MIN`] it is the scheduler's noise.
const CLEARLY: u32 = 2;
pub(super) const CLEAR_MIN: Duration = Duration::from_millis(20);
/// Factor above which a removal that takes clearly longer certainly waits; never below [`CERTAIN_MIN`].
const CERTAINLY: u32 = 3;
const CERTAIN_MIN: Duration = Duration::from_millis(150);
/// Largest share of waiting that more removals in flight make up for: three quarters, so that at most four times the
/// limit are in flight.
const WAITED_MAX: f64 = 0.75;
/// Factor by which each removal shrinks the earlier sums: the last 32 removals count most.
const MEMORY: f64 = 31.0 / 32.0;
/// The weight of the usual latency against one more.
const USUAL_WEIGHT: u32 = 7;
/// A removal counts as at most this many times the usual latency.
const OUTLIER: u32 = 4;

/// How long removals usually take, and how much of that they wait.
#[derive(Debug, Default)]
pub struct UsualLatency {
    usual: Option<Duration>,
    /// Seconds that removals took: those that turned out to wait for the network, and the others.
    waited: f64,
    worked: f64,
}

impl UsualLatency {
    /// Returns from which age on a removal takes clearly longer than usual.
    pub fn clearly_longer(&self) -> Duration {
        let usual = self.usual.unwrap_or(SLOW);
        (usual * CLEARLY).clamp(CLEAR_MIN, SLOW)
    }

    /// Returns from which age on a removal that a later one has overtaken certainly waits.
    pub fn certainly_waits(&self) -> Duration {
        (self.clearly_longer() * CERTAINLY).clamp(CERTAIN_MIN, SLOW)
    }

    /// Says whether removals usually take so little that no slow disk passes for a network.
    pub fn tells_networks(&self) -> bool {
        self.certainly_waits() < SLOW
    }

    pub(super) fn is_quick(&self) -> bool {
        self.usual.is_some_and(|usual| usual < QUICK)
    }

    pub(super) fn forget_usual(&mut self) {
        self.usual = None;
    }

    pub(super) fn ended(&mut self, latency: Duration) {
        self.add(Duration::ZERO, latency);
        let usual = self.usual.unwrap_or(latency);
        let counted = latency.min(usual * OUTLIER);
        self.usual = Some((usual * USUAL_WEIGHT + counted) / (USUAL_WEIGHT + 1));
    }

    /// Notes that a removal in flight was found to wait for its network.
    pub fn waits(&mut self) {
        self.add(self.clearly_longer(), Duration::ZERO);
    }

    fn add(&mut self, waited: Duration, worked: Duration) {
        self.waited = self.waited * MEMORY + waited.as_secs_f64();
        self.worked = self.worked * MEMORY + worked.as_secs_f64();
    }

    /// Returns how many may be in flight so that `limit` of them do not wait for the network.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some tens in flight"
    )]
    pub(super) fn places(&self, limit: usize) -> usize {
        let total = self.waited + self.worked;
        if total <= 0.0 {
            return limit;
        }
        let waited = (self.waited / total).min(WAITED_MAX);
        (limit as f64 / (1.0 - waited)) as usize
    }
}
