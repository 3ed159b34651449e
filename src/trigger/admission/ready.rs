//! When a waiting pass may begin, target by target.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Gate, HOUR, Over, Ticket};
use crate::model::Target;

impl Gate {
    /// Returns which of a waiting pass's targets may begin now.
    pub(super) fn ready(&self, ticket: &Ticket, now: Duration) -> BTreeSet<Target> {
        if self.is_paused(ticket) {
            return BTreeSet::new();
        }
        let targets = ticket.targets.iter().copied();
        targets
            .filter(|target| self.ready_at(ticket, *target) <= now)
            .collect()
    }

    /// Returns when the first target of a waiting pass may begin, if that is not now.
    pub fn not_before(&self, ticket: &Ticket, now: Duration) -> Option<Duration> {
        let targets = ticket.targets.iter();
        let first = targets.map(|target| self.ready_at(ticket, *target)).min()?;
        (first > now).then_some(first)
    }

    /// Returns when the next waiting pass may begin; `None`: only once something else happens.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let waiting = self.queue.iter().filter(|ticket| !self.is_paused(ticket));
        let due = waiting.map(|ticket| self.not_before(ticket, now).unwrap_or(now));
        due.min()
    }

    fn is_paused(&self, ticket: &Ticket) -> bool {
        self.brakes.pause && !ticket.options.force && !ticket.options.dry_run
    }

    /// What a person asked for is never held.
    fn ready_at(&self, ticket: &Ticket, target: Target) -> Duration {
        if ticket.by_hand.contains(&target) {
            return Duration::ZERO;
        }
        let not_before = ticket.not_before.get(&target).copied();
        not_before
            .unwrap_or_default()
            .max(self.cool_from(target))
            .max(self.allowed_from(target))
    }

    pub(super) fn is_cooling(&self, target: Target, now: Duration) -> bool {
        self.cool_from(target) > now
    }

    /// Says whether `brakes.max_passes_per_hour` holds a target.
    pub(super) fn is_spent(&self, target: Target, now: Duration) -> bool {
        self.allowed_from(target) > now
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
        let tried = self.tried.get(&target);
        let count = tried.map_or(0, std::collections::VecDeque::len);
        match count.checked_sub(max as usize) {
            None => Duration::ZERO,
            // With none allowed there is none to wait for.
            Some(oldest) => tried
                .and_then(|tried| tried.get(oldest))
                .map_or(Duration::MAX, |since| since.saturating_add(HOUR)),
        }
    }

    /// Counts a pass for each target of which it tried something.
    pub(super) fn count_tries(&mut self, over: &Over, since: Duration) {
        // Passes by hand are counted too but never bound: keep no more than the brake can ask for.
        let bound = self
            .brakes
            .max_passes_per_hour
            .map_or(0, |max| max as usize);
        for target in &over.tried {
            let tried = self.tried.entry(*target).or_default();
            tried.push_back(since);
            while tried.len() > bound {
                tried.pop_front();
            }
        }
    }
}
