//! When pods ended, after the wall clock stepped forward: no exit gets older than by the time that passed. Never reads
//! a clock.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::model::{PodUid, is_set};
use crate::pods::LookStart;

/// The smallest step of the wall clock that counts: two clocks are never read at once.
const STEP_LEAST: SignedDuration = SignedDuration::from_secs(5);

/// The exits before a step, by the clock after it.
#[derive(Debug, Default)]
pub(super) struct ExitSteps {
    /// The exit as the runtime told it, and as it is now.
    moved: BTreeMap<PodUid, (Timestamp, Timestamp)>,
    latest: Option<LookStart>,
    /// The latest step forward, until one back: when it was by the clock before it, and by how much.
    forward: Option<(Timestamp, SignedDuration)>,
}

impl ExitSteps {
    /// Returns the exits by the clock of this look, which saw all of them.
    pub(super) fn correct(
        &mut self,
        exits: &BTreeMap<PodUid, Timestamp>,
        look: LookStart,
    ) -> BTreeMap<PodUid, Timestamp> {
        let (taken_at, step) = (look.at, self.step(look));
        if !step.is_zero() {
            let before_step = taken_at.saturating_sub(step).unwrap_or(Timestamp::MIN);
            self.forward = step.is_positive().then_some((before_step, step));
        }
        let plus = |time: Timestamp, step| time.saturating_add(step).unwrap_or(taken_at);
        let correct = |(uid, exit): (&PodUid, &Timestamp)| {
            let moved = self.moved.get(uid).filter(|(told, _)| told == exit);
            let known = moved.map_or(*exit, |(_, now)| *now);
            // An exit may be read after the step that came after it. What lies after the step was told by the clock after
            // it, or by an earlier one that was right.
            let forward = self.forward.filter(|(before_step, _)| {
                known <= *before_step && (step.is_positive() || moved.is_none())
            });
            let now = if let Some((_, step)) = forward {
                plus(known, step)
            } else if step.is_negative() {
                // Undo at most the earlier step forward.
                known.min(plus(known, step).max(*exit))
            } else if is_set(taken_at) && !is_set(known) {
                // The clock was not set at this exit, and crisweep first saw it afterwards: its age is unknown.
                taken_at
            } else {
                known
            };
            (uid.clone(), now)
        };
        let corrected: BTreeMap<_, _> = exits.iter().map(correct).collect();
        let both = exits.iter().zip(corrected.values());
        let moved = both.filter(|((_, told), now)| told != now);
        self.moved = moved
            .map(|((uid, told), now)| (uid.clone(), (*told, *now)))
            .collect();
        corrected
    }

    /// Returns by how much the wall clock stepped since the look before. The time for which the machine slept counts as
    /// a step forward.
    fn step(&mut self, look: LookStart) -> SignedDuration {
        let Some(before) = self.latest.replace(look) else {
            return SignedDuration::ZERO;
        };
        let step = look.wall_time_of(before.began).duration_since(before.at);
        if step.abs() < STEP_LEAST {
            SignedDuration::ZERO
        } else {
            step
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const HOUR: i64 = 3_600;

    fn look(began: Instant, second: i64) -> LookStart {
        let at = Timestamp::from_second(second).unwrap();
        LookStart { at, began }
    }

    /// Looks at one exit of a pod; returns its age in seconds.
    fn age(steps: &mut ExitSteps, started: Instant, exit: i64, taken_at: i64) -> i64 {
        let uid = PodUid::new("a").unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let exits = [(uid.clone(), at(exit))].into();
        let exits = steps.correct(&exits, look(started, taken_at));
        taken_at - exits[&uid].as_second()
    }

    #[test]
    fn a_step_forward_makes_no_exit_older() {
        let (mut steps, start) = (ExitSteps::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(age(&mut steps, start, NOW - 2, NOW), 2);
        let stepped = NOW + HOUR;
        assert_eq!(age(&mut steps, later(10), NOW - 2, stepped + 10), 12);
        assert_eq!(age(&mut steps, later(20), NOW - 2, stepped + 20), 22);
        let again = stepped + 24 * HOUR;
        assert_eq!(age(&mut steps, later(30), NOW - 2, again + 30), 32);
        // One that the clock after the step told, also in the look that saw the step.
        assert_eq!(age(&mut steps, later(40), again + 35, again + 40), 5);
        let third = again + HOUR;
        assert_eq!(age(&mut steps, later(50), third + 45, third + 50), 5);
        // Back, and forth again.
        let ahead = -26 * HOUR + 15;
        assert_eq!(age(&mut steps, later(60), third + 45, NOW + 60), ahead);
        assert_eq!(age(&mut steps, later(70), third + 45, third + 70), 25);
    }

    #[test]
    fn a_clock_that_comes_back_makes_no_exit_younger() {
        let (mut steps, start) = (ExitSteps::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(age(&mut steps, start, NOW - 2, NOW), 2);
        assert_eq!(age(&mut steps, later(10), NOW - 2, NOW + HOUR + 10), 12);
        let half = NOW + HOUR / 2;
        assert_eq!(age(&mut steps, later(20), NOW - 2, half + 20), 22);
        assert_eq!(age(&mut steps, later(30), NOW - 2, NOW + 30), 32);
        assert_eq!(
            age(&mut steps, later(40), NOW - 2, NOW - HOUR + 40),
            42 - HOUR
        );
        assert_eq!(age(&mut steps, later(50), NOW - 2, NOW + 50), 52);
    }

    /// A shared look reads statuses for 3 s, the youngest last.
    #[test]
    fn an_exit_read_after_the_step_is_no_older_for_it() {
        let (mut steps, start) = (ExitSteps::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        let none = BTreeMap::new();
        steps.correct(&none, look(start, NOW));
        let stepped = NOW + HOUR;
        steps.correct(&none, look(later(10), stepped + 10));
        assert_eq!(age(&mut steps, later(20), NOW - 2, stepped + 20), 22);
        assert_eq!(age(&mut steps, later(30), NOW - 2, stepped + 30), 32);
        // The pod's last exit is read in the end.
        assert_eq!(age(&mut steps, later(40), NOW + 4, stepped + 40), 36);
        assert_eq!(age(&mut steps, later(50), stepped + 15, stepped + 50), 35);
        // The clock was right before.
        steps.correct(&none, look(later(60), NOW + 60));
        assert_eq!(age(&mut steps, later(70), NOW - 2, NOW + 70), 72);
    }

    #[test]
    fn an_exit_by_a_clock_that_was_not_set_is_young_when_it_is_first_seen() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut steps = ExitSteps::default();
        assert_eq!(age(&mut steps, start, 40, 60), 20, "by the same clock");
        assert_eq!(age(&mut steps, later(10), 40, NOW + 10), 30, "it was set");
        let mut steps = ExitSteps::default();
        assert_eq!(age(&mut steps, start, 40, NOW), 0, "it was set before");
        assert_eq!(age(&mut steps, later(10), 40, NOW + 10), 10);
        // One of the time before the reboot is as old as it is.
        let mut steps = ExitSteps::default();
        age(&mut steps, start, 40, 60);
        assert_eq!(age(&mut steps, later(10), NOW - 500, NOW + 10), 510);
    }
}
