//! Pause, and passes per hour.

use super::*;

#[test]
fn a_dry_run_cools_nothing_down() {
    let mut admissions = admissions();
    admissions.admit(by_hand(BOTH, dry()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    finish(&mut admissions, Outcome::Completed, at(1));
    admissions.admit(alert(1, BOTH), "b", at(1));
    assert_eq!(next(&mut admissions, at(1)).unwrap().id, "b");
}

#[test]
fn pause_stops_all_but_force_and_dry_runs() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "before", at(0));
    admissions.set_brakes(Brakes {
        pause: true,
        ..admissions.brakes()
    });
    let paused = braked(PAUSED);
    assert_eq!(admissions.admit(alert(2, BOTH), "a", at(0)), paused);
    assert_eq!(
        admissions.admit(by_hand(BOTH, PassOptions::default()), "b", at(0)),
        paused
    );
    assert_eq!(
        next(&mut admissions, at(0)),
        None,
        "what waits keeps waiting"
    );
    assert_eq!(admissions.due(at(0)), None);
    let force = PassOptions {
        force: true,
        ..PassOptions::default()
    };
    assert_eq!(
        admissions.admit(by_hand(BOTH, force), "forced", at(0)),
        queued("forced")
    );
    assert_eq!(
        admissions.admit(by_hand(BOTH, dry()), "dry", at(0)),
        queued("dry")
    );
    assert_eq!(next(&mut admissions, at(0)).unwrap().id, "forced");
    finish(&mut admissions, Outcome::Completed, at(1));
    assert_eq!(next(&mut admissions, at(1)).unwrap().id, "dry");
    finish(&mut admissions, Outcome::Completed, at(2));
    assert_eq!(next(&mut admissions, at(100)), None);
    admissions.set_brakes(Brakes {
        pause: false,
        ..admissions.brakes()
    });
    assert_eq!(next(&mut admissions, at(100)).unwrap().id, "before");
}

/// No cool-down, and two passes per hour.
fn two_per_hour() -> Admissions {
    Admissions::new(Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: Some(2),
        pause: false,
    })
}

#[test]
fn the_hourly_limit_binds_alerts_and_not_a_manual_gc() {
    let mut admissions = two_per_hour();
    let run = |admissions: &mut Admissions, trigger: Trigger, now: u64| {
        let admission = admissions.admit(trigger, "id", at(now));
        if next(admissions, at(now)).is_some() {
            finish(admissions, Outcome::Partial, at(now));
        }
        admission
    };
    assert_eq!(run(&mut admissions, alert(1, BOTH), 0), queued("id"));
    assert_eq!(run(&mut admissions, by_hand(BOTH, dry()), 1), queued("id"));
    assert_eq!(
        run(&mut admissions, by_hand(BOTH, PassOptions::default()), 1),
        queued("id")
    );
    assert_eq!(run(&mut admissions, alert(2, BOTH), 3599), braked(SPENT));
    assert_eq!(
        run(&mut admissions, by_hand(BOTH, PassOptions::default()), 3599),
        queued("id")
    );
    assert_eq!(run(&mut admissions, alert(2, BOTH), 3600), braked(SPENT));
    assert_eq!(run(&mut admissions, alert(2, BOTH), 3601), queued("id"));
}

#[test]
fn only_passes_that_tried_something_of_a_target_count_for_it() {
    let mut admissions = two_per_hour();
    for number in 0..10 {
        admissions.admit(alert(number, BOTH), "a", at(0));
        next(&mut admissions, at(0)).unwrap();
        let tried = if number < 2 { CONTAINERS } else { &[] };
        let over = PassEnd {
            tried: set(tried),
            ..over(Outcome::Partial)
        };
        admissions.finished(&over, at(0), String::new);
    }
    assert_eq!(
        admissions.admit(alert(20, CONTAINERS), "b", at(1)),
        braked(SPENT)
    );
    assert!(admissions.holds(crate::model::Brake::PassesPerHour, at(1)));
    assert_eq!(admissions.admit(alert(20, BOTH), "b", at(1)), queued("b"));
    assert_eq!(
        next(&mut admissions, at(1)).unwrap().targets,
        set(SANDBOXES)
    );
}

#[test]
fn a_trigger_waits_while_the_hourly_limit_is_used_up() {
    let mut admissions = Admissions::new(Brakes {
        max_passes_per_hour: Some(1),
        ..two_per_hour().brakes()
    });
    admissions.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.begun(set(BOTH));
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(1)), queued("b"));
    finish(&mut admissions, Outcome::Completed, at(10));
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(11)), braked(SPENT));
    assert_eq!(next(&mut admissions, at(3599)), None);
    assert_eq!(next(&mut admissions, at(3600)).unwrap().id, "b");
}
