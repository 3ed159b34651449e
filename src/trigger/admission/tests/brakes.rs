//! Pause, and passes per hour.

use super::*;

#[test]
fn a_dry_run_cools_nothing_down() {
    let mut gate = gate();
    gate.admit(by_hand(BOTH, dry()), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    finish(&mut gate, Outcome::Completed, at(1));
    gate.admit(alert(1, BOTH), "b", at(1));
    assert_eq!(next(&mut gate, at(1)).unwrap().id, "b");
}

#[test]
fn pause_stops_all_but_force_and_dry_runs() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "before", at(0));
    gate.set_brakes(Brakes {
        pause: true,
        ..gate.brakes()
    });
    let paused = Admission::Braked(Brake::Pause);
    assert_eq!(gate.admit(alert(2, BOTH), "a", at(0)), paused);
    assert_eq!(
        gate.admit(by_hand(BOTH, PassOptions::default()), "b", at(0)),
        paused
    );
    assert_eq!(next(&mut gate, at(0)), None, "what waits keeps waiting");
    assert_eq!(gate.due(at(0)), None);
    let force = PassOptions {
        force: true,
        ..PassOptions::default()
    };
    assert_eq!(
        gate.admit(by_hand(BOTH, force), "forced", at(0)),
        Admission::Queued
    );
    assert_eq!(
        gate.admit(by_hand(BOTH, dry()), "dry", at(0)),
        Admission::Queued
    );
    assert_eq!(next(&mut gate, at(0)).unwrap().id, "forced");
    finish(&mut gate, Outcome::Completed, at(1));
    assert_eq!(next(&mut gate, at(1)).unwrap().id, "dry");
    finish(&mut gate, Outcome::Completed, at(2));
    assert_eq!(next(&mut gate, at(100)), None);
    gate.set_brakes(Brakes {
        pause: false,
        ..gate.brakes()
    });
    assert_eq!(next(&mut gate, at(100)).unwrap().id, "before");
}

/// No cool-down, and so many passes per hour.
fn two_per_hour() -> Gate {
    Gate::new(Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: Some(2),
        pause: false,
    })
}

const BRAKED: Admission = Admission::Braked(Brake::PassesPerHour);

#[test]
fn counts_passes_per_hour_for_alerts_and_lets_people_through() {
    let mut gate = two_per_hour();
    let run = |gate: &mut Gate, trigger: Trigger, now: u64| {
        let admission = gate.admit(trigger, "id", at(now));
        if next(gate, at(now)).is_some() {
            finish(gate, Outcome::Partial, at(now));
        }
        admission
    };
    assert_eq!(run(&mut gate, alert(1, BOTH), 0), Admission::Queued);
    assert_eq!(run(&mut gate, by_hand(BOTH, dry()), 1), Admission::Queued);
    assert_eq!(
        run(&mut gate, by_hand(BOTH, PassOptions::default()), 1),
        Admission::Queued
    );
    assert_eq!(run(&mut gate, alert(2, BOTH), 3599), BRAKED);
    assert_eq!(
        run(&mut gate, by_hand(BOTH, PassOptions::default()), 3599),
        Admission::Queued
    );
    assert_eq!(run(&mut gate, alert(2, BOTH), 3600), BRAKED);
    assert_eq!(run(&mut gate, alert(2, BOTH), 3601), Admission::Queued);
}

#[test]
fn only_passes_that_tried_something_of_a_target_count_for_it() {
    let mut gate = two_per_hour();
    for number in 0..10 {
        gate.admit(alert(number, BOTH), "a", at(0));
        next(&mut gate, at(0)).unwrap();
        let tried = if number < 2 { CONTAINERS } else { &[] };
        let over = Over {
            tried: set(tried),
            ..over(Outcome::Partial)
        };
        gate.finished(&over, at(0), String::new);
    }
    assert_eq!(gate.admit(alert(20, CONTAINERS), "b", at(1)), BRAKED);
    assert!(gate.holds(crate::model::Hold::PassesPerHour, at(1)));
    assert_eq!(gate.admit(alert(20, BOTH), "b", at(1)), Admission::Queued);
    assert_eq!(next(&mut gate, at(1)).unwrap().targets, set(SANDBOXES));
}

#[test]
fn what_waits_while_the_passes_of_the_hour_are_used_up_waits_on() {
    let mut gate = Gate::new(Brakes {
        max_passes_per_hour: Some(1),
        ..two_per_hour().brakes()
    });
    gate.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    gate.begun(set(BOTH));
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), Admission::Queued);
    finish(&mut gate, Outcome::Completed, at(10));
    assert_eq!(gate.admit(alert(2, BOTH), "x", at(11)), BRAKED);
    assert_eq!(next(&mut gate, at(3599)), None);
    assert_eq!(next(&mut gate, at(3600)).unwrap().id, "b");
}
