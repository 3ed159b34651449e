//! When a waiting pass may begin, target by target.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Admissions, HOUR, PAUSED, QueuedPass};
use crate::gc::PassOptions;
use crate::model::{Brake, Target};

/// Why a waiting pass does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// A brake without a known end, in its words.
    Stopped(String),
    /// A slot among all nodes.
    Slot,
    /// A time since the service started, and what sets it.
    Until(Duration, &'static str),
}

impl WaitReason {
    /// Returns how long it lasts from now on, if that is known.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        match self {
            Self::Until(at, _) if *at < Duration::MAX => Some(at.saturating_sub(now)),
            Self::Until(..) | Self::Stopped(..) | Self::Slot => None,
        }
    }
}

impl Admissions {
    /// Returns which targets of a waiting pass may begin now.
    pub(super) fn ready(&self, queued: &QueuedPass, now: Duration) -> BTreeSet<Target> {
        if self.paused(&queued.options).is_some() {
            return BTreeSet::new();
        }
        let targets = queued.targets.iter().copied();
        targets
            .filter(|target| {
                self.ready_at(queued, *target).0 <= now && !self.lacks_slot(queued, *target)
            })
            .collect()
    }

    /// Returns when the first target of a waiting pass may begin, and what sets that.
    pub(super) fn first_ready_at(&self, queued: &QueuedPass) -> Option<(Duration, &'static str)> {
        let targets = queued.targets.iter();
        let each = targets.map(|target| self.ready_at(queued, *target));
        each.min_by_key(|(at, _)| *at)
    }

    /// Returns when the next waiting pass may begin; `None` if that needs another event first.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let waiting = self
            .queue
            .iter()
            .filter(|queued| self.paused(&queued.options).is_none());
        let due = waiting.flat_map(|queued| {
            let targets = queued.targets.iter();
            targets.filter_map(move |target| match self.ready_at(queued, *target).0 {
                at if at > now => Some(at),
                _ if self.lacks_slot(queued, *target) => None,
                _ => Some(now),
            })
        });
        due.min()
    }

    fn lacks_slot(&self, queued: &QueuedPass, target: Target) -> bool {
        !self.fleet.has_slot && self.budgeted(queued).contains(&target)
    }

    /// Returns the targets of a pass that need a slot among all nodes.
    pub(super) fn budgeted(&self, queued: &QueuedPass) -> BTreeSet<Target> {
        let budget = &self.fleet.budget;
        queued.braked().intersection(budget).copied().collect()
    }

    /// Says whether a waiting pass could begin now, but for a slot among all nodes.
    fn awaits_slot(&self, queued: &QueuedPass, now: Duration) -> bool {
        let is_due = |target: &Target| self.ready_at(queued, *target).0 <= now;
        self.paused(&queued.options).is_none() && self.budgeted(queued).iter().any(is_due)
    }

    /// Says whether a pass waits for a slot among all nodes, or could begin with the one that is held.
    pub fn wants_slot(&self, now: Duration) -> bool {
        let mut waiting = self.queue.iter();
        self.running.is_none() && waiting.any(|queued| self.awaits_slot(queued, now))
    }

    /// Returns why no pass with these options may start, neither an automatic one nor a person's.
    pub(super) fn paused(&self, options: &PassOptions) -> Option<String> {
        if options.force || options.dry_run {
            return None;
        }
        let paused = self.brakes.pause.then(|| PAUSED.to_owned());
        paused.or_else(|| self.fleet.held.clone())
    }

    /// Returns when a target may begin, and what sets that; a person's are never held.
    fn ready_at(&self, queued: &QueuedPass, target: Target) -> (Duration, &'static str) {
        if queued.by_hand {
            return (Duration::ZERO, "");
        }
        if self.fleet.waits().is_some() {
            return (Duration::MAX, "");
        }
        let not_before = queued.not_before.get(&target).copied();
        // `max_by_key` returns the last of equal times.
        let waits = [
            (
                not_before.unwrap_or_default(),
                "an earlier pass postponed it",
            ),
            (self.cool_from(target), "brakes.cooldown"),
            (self.allowed_from(target), "brakes.max_passes_per_hour"),
            (self.jittered_until(queued), "brakes.jitter"),
        ];
        let longest = waits.into_iter().max_by_key(|(at, _)| *at);
        longest.unwrap_or_default()
    }

    /// Returns why a waiting pass cannot begin now; `None` if it can, as soon as none runs.
    pub fn why_waits(&self, queued: &QueuedPass, now: Duration) -> Option<WaitReason> {
        if let Some(why) = self.paused(&queued.options) {
            return Some(WaitReason::Stopped(why));
        }
        let (at, setting) = self.first_ready_at(queued)?;
        if at <= now {
            let ready = self.ready(queued, now);
            return ready.is_empty().then_some(WaitReason::Slot);
        }
        if let Some(why) = self.fleet.waits() {
            return Some(WaitReason::Stopped(why.clone()));
        }
        Some(WaitReason::Until(at, setting))
    }

    /// Says whether a brake would hold an alert now; a brake per target counts if it holds at least one target.
    pub fn holds(&self, brake: Brake, now: Duration) -> bool {
        let mut targets = Target::ALL.into_iter();
        match brake {
            Brake::Pause => self.brakes.pause,
            Brake::FleetHold => self.fleet.held.is_some(),
            Brake::FleetBudget => !self.fleet.has_slot && self.wants_slot(now),
            Brake::FleetStorm => self.fleet.storm.is_some(),
            Brake::FleetUnknown => self.fleet.unknown.is_some(),
            Brake::CoolDown => targets.any(|target| self.cool_from(target) > now),
            Brake::PassesPerHour => targets.any(|target| self.is_spent(target, now)),
        }
    }

    /// Says whether `brakes.max_passes_per_hour` is reached for a target.
    pub(super) fn is_spent(&self, target: Target, now: Duration) -> bool {
        self.allowed_from(target) > now
    }

    /// Returns when the jitter of an automatic pass is over.
    fn jittered_until(&self, queued: &QueuedPass) -> Duration {
        let (Some(jitter), Some((asked, draw))) = (self.brakes.jitter, queued.asked) else {
            return Duration::ZERO;
        };
        let part = jitter.as_millis().saturating_mul(draw.into()) >> u32::BITS;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        asked.saturating_add(Duration::from_millis(part))
    }

    fn cool_from(&self, target: Target) -> Duration {
        let end = self.finished.get(&target);
        end.map_or(Duration::ZERO, |end| {
            end.saturating_add(self.brakes.cooldown)
        })
    }

    fn allowed_from(&self, target: Target) -> Duration {
        let Some(max) = self.brakes.max_passes_per_hour else {
            return Duration::ZERO;
        };
        let Some(others) = max.checked_sub(1) else {
            // With a limit of 0 there is no pass to wait for.
            return Duration::MAX;
        };
        let tried = self.tried.get(&target).into_iter().flatten();
        let first_of_max = tried.rev().nth(others as usize);
        first_of_max.map_or(Duration::ZERO, |since| since.saturating_add(HOUR))
    }
}
