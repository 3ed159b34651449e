//! Pause, and passes per hour.

use super::*;
use crate::fleet::Standing;
use crate::model::{Brake, Pass};

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
    admissions.brakes.pause = true;
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
    admissions.brakes.pause = false;
    assert_eq!(next(&mut admissions, at(100)).unwrap().id, "before");
}

/// No cool-down, and two passes per hour.
fn two_per_hour() -> Admissions {
    braked_by(Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: Some(2),
        jitter: None,
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
    assert!(admissions.holds(Brake::PassesPerHour, at(1)));
    assert_eq!(admissions.admit(alert(20, BOTH), "b", at(1)), queued("b"));
    assert_eq!(
        next(&mut admissions, at(1)).unwrap().targets,
        set(SANDBOXES)
    );
}

/// A pass that waits for its cool-down was queued before the manual one that runs meanwhile.
#[test]
fn passes_of_an_earlier_process_count_in_whatever_order_they_come() {
    let pass = || {
        let mut pass = Pass::queued(
            "p".to_owned(),
            Cause::Manual.into(),
            CONTAINERS.to_vec(),
            Timestamp::UNIX_EPOCH,
        );
        let report = pass.targets.entry(Target::Containers).or_default();
        report.removed = 1;
        pass
    };
    let mut admissions = braked_by(Brakes {
        cooldown: MINUTE,
        ..two_per_hour().brakes
    });
    for (began, ended) in [(3000, 3100), (1000, 1100), (2000, 2100)] {
        admissions.remember(&pass(), Some(at(began)), Some(at(ended)));
    }
    assert!(admissions.holds(Brake::CoolDown, at(3159)));
    assert!(!admissions.holds(Brake::CoolDown, at(3160)));
    // The second last one began at 2000.
    assert!(admissions.holds(Brake::PassesPerHour, at(5599)));
    assert!(!admissions.holds(Brake::PassesPerHour, at(5600)));
}

#[test]
fn a_trigger_waits_while_the_hourly_limit_is_used_up() {
    let mut admissions = braked_by(Brakes {
        max_passes_per_hour: Some(1),
        ..two_per_hour().brakes
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

fn fleet(held: bool, unknown: bool) -> Standing {
    let why = |is: bool| is.then(|| "why".to_owned());
    Standing {
        held: why(held),
        unknown: why(unknown),
        ..Standing::default()
    }
}

#[test]
fn a_hold_of_the_fleet_holds_what_a_pause_holds() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "before", at(0));
    admissions.set_fleet(fleet(true, false), at(0));
    assert_eq!(admissions.admit(alert(2, BOTH), "a", at(0)), braked("why"));
    let person = || by_hand(BOTH, PassOptions::default());
    assert_eq!(admissions.admit(person(), "b", at(0)), braked("why"));
    assert_eq!(
        (next(&mut admissions, at(0)), admissions.due(at(0))),
        (None, None)
    );
    assert_eq!(
        admissions.admit(by_hand(BOTH, dry()), "dry", at(0)),
        queued("dry")
    );
    assert_eq!(next(&mut admissions, at(0)).unwrap().id, "dry");
    finish(&mut admissions, Outcome::Planned, at(1));
    admissions.set_fleet(Standing::default(), at(1));
    assert_eq!(next(&mut admissions, at(1)).unwrap().id, "before");
}

#[test]
fn while_the_fleets_switch_is_unknown_only_a_persons_pass_begins() {
    let mut admissions = admissions();
    admissions.set_fleet(fleet(false, true), at(0));
    assert_eq!(admissions.admit(alert(1, BOTH), "a", at(0)), queued("a"));
    assert_eq!(next(&mut admissions, at(1_000_000)), None);
    assert!(admissions.due(at(0)) > Some(at(1_000_000)));
    admissions.admit(by_hand(SANDBOXES, PassOptions::default()), "x", at(1));
    let begun = next(&mut admissions, at(1)).unwrap();
    assert_eq!(begun.targets, set(SANDBOXES));
    assert_eq!(begun.braked(), set(&[]));
    finish(&mut admissions, Outcome::Completed, at(2));
    assert_eq!(next(&mut admissions, at(200)), None);
    admissions.set_fleet(Standing::default(), at(1));
    let automatic = next(&mut admissions, at(200)).unwrap();
    assert_eq!(
        (automatic.id.as_str(), automatic.braked()),
        ("a", set(BOTH))
    );
}

/// No cool-down, and a jitter of 100 s of which half is drawn.
fn jittered() -> Admissions {
    let mut admissions = braked_by(Brakes {
        jitter: Some(at(100)),
        max_passes_per_hour: None,
        ..two_per_hour().brakes
    });
    admissions.draw = u32::MAX / 2 + 1;
    admissions
}

#[test]
fn an_automatic_pass_waits_its_jitter_and_a_person_does_not() {
    let mut admissions = jittered();
    admissions.admit(alert(1, BOTH), "a", at(10));
    admissions.draw = u32::MAX;
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(20)), merged("a"));
    assert_eq!(next(&mut admissions, at(59)), None);
    assert_eq!(admissions.due(at(59)), Some(at(60)));
    admissions.admit(by_hand(SANDBOXES, PassOptions::default()), "x", at(59));
    assert_eq!(
        next(&mut admissions, at(59)).unwrap().targets,
        set(SANDBOXES)
    );
    finish(&mut admissions, Outcome::Completed, at(59));
    assert_eq!(next(&mut admissions, at(59)), None);
    assert_eq!(next(&mut admissions, at(60)).unwrap().targets, set(BOTH));
}

#[test]
fn a_resolved_alert_a_cancel_and_a_reload_end_the_jitter() {
    let mut admissions = jittered();
    admissions.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(admissions.withdraw(&key(1)).unwrap().id, "a");
    admissions.admit(alert(2, BOTH), "b", at(0));
    assert_eq!(admissions.cancel("b").unwrap().id, "b");
    admissions.admit(alert(3, BOTH), "c", at(0));
    assert_eq!(next(&mut admissions, at(49)), None);
    admissions.brakes.jitter = Some(at(20));
    assert_eq!(
        (next(&mut admissions, at(9)), admissions.due(at(9))),
        (None, Some(at(10)))
    );
    admissions.brakes.jitter = None;
    assert_eq!(next(&mut admissions, at(9)).unwrap().id, "c");
}

#[test]
fn what_waited_for_the_fleet_waits_its_jitter_anew() {
    let mut admissions = jittered();
    admissions.set_fleet(fleet(false, true), at(0));
    admissions.admit(alert(1, BOTH), "a", at(0));
    admissions.set_fleet(Standing::default(), at(1000));
    assert_eq!(next(&mut admissions, at(1049)), None);
    assert_eq!(next(&mut admissions, at(1050)).unwrap().id, "a");
}

#[test]
fn automatic_targets_of_the_budget_wait_for_a_slot_and_others_begin() {
    let mut admissions = admissions();
    let budget = |has_slot| Standing {
        budget: set(SANDBOXES),
        has_slot,
        ..Standing::default()
    };
    admissions.set_fleet(budget(false), at(0));
    assert!(!admissions.wants_slot(at(0)));
    admissions.admit(alert(1, BOTH), "a", at(0));
    assert!(admissions.wants_slot(at(0)));
    assert!(admissions.holds(Brake::FleetBudget, at(0)));
    assert_eq!(
        next(&mut admissions, at(0)).unwrap().targets,
        set(CONTAINERS)
    );
    assert!(!admissions.wants_slot(at(0)), "one pass at a time");
    finish(&mut admissions, Outcome::Completed, at(1));
    assert!(admissions.wants_slot(at(1)));
    assert_eq!(
        (next(&mut admissions, at(1)), admissions.due(at(1))),
        (None, None)
    );
    admissions.admit(by_hand(SANDBOXES, dry()), "dry", at(1));
    assert_eq!(next(&mut admissions, at(1)).unwrap().id, "dry");
    finish(&mut admissions, Outcome::Planned, at(2));
    admissions.set_fleet(budget(true), at(2));
    assert_eq!(
        next(&mut admissions, at(200)).unwrap().targets,
        set(SANDBOXES)
    );
}

#[test]
fn a_storm_makes_automatic_passes_wait_and_no_person() {
    let mut admissions = admissions();
    let storm = Standing {
        storm: Some("why".to_owned()),
        ..Standing::default()
    };
    admissions.set_fleet(storm, at(0));
    assert_eq!(admissions.admit(alert(1, BOTH), "a", at(0)), queued("a"));
    assert_eq!(next(&mut admissions, at(1_000_000)), None);
    assert!(admissions.holds(Brake::FleetStorm, at(0)));
    admissions.admit(by_hand(BOTH, PassOptions::default()), "x", at(1));
    assert_eq!(next(&mut admissions, at(1)).unwrap().targets, set(BOTH));
}

/// An alert waits its jitter for both targets, and a person asks for the sandboxes.
fn beside_a_person() -> Admissions {
    let mut admissions = jittered();
    admissions.admit(alert(1, BOTH), "a", at(0));
    admissions.admit(by_hand(SANDBOXES, PassOptions::default()), "x", at(1));
    admissions
}

#[test]
fn a_persons_pass_keeps_none_of_an_alert() {
    let mut admissions = beside_a_person();
    assert_eq!(
        next(&mut admissions, at(1)).unwrap().targets,
        set(SANDBOXES)
    );
    assert_eq!(admissions.withdraw(&key(1)).unwrap().id, "a");
    finish(&mut admissions, Outcome::Completed, at(2));
    assert_eq!(next(&mut admissions, at(200)), None);
    // The same before the person's pass begins.
    let mut admissions = beside_a_person();
    assert_eq!(admissions.withdraw(&key(1)).unwrap().id, "a");
    let begun = next(&mut admissions, at(200)).unwrap();
    assert_eq!(
        (begun.targets, begun.requests.first()),
        (set(SANDBOXES), None)
    );
    assert_eq!(admissions.waiting().count(), 0);
}

#[test]
fn a_threshold_keeps_the_pass_of_an_alert_beside_a_persons() {
    let mut admissions = beside_a_person();
    let threshold = Trigger {
        info: Cause::Threshold.into(),
        ..alert(1, CONTAINERS)
    };
    admissions.admit(threshold, "x", at(1));
    assert_eq!(
        next(&mut admissions, at(1)).unwrap().targets,
        set(SANDBOXES)
    );
    assert_eq!(admissions.withdraw(&key(1)), None);
    finish(&mut admissions, Outcome::Completed, at(2));
    assert_eq!(next(&mut admissions, at(60)).unwrap().id, "a");
}

#[test]
fn a_persons_pass_is_apart_from_an_automatic_one_that_a_brake_could_end() {
    let mut admissions = admissions();
    admissions.admit(by_hand(BOTH, dry()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.admit(alert(1, BOTH), "b", at(1));
    admissions.admit(by_hand(CONTAINERS, PassOptions::default()), "x", at(1));
    finish(&mut admissions, Outcome::Planned, at(2));
    let automatic = next(&mut admissions, at(2)).unwrap();
    assert_eq!(
        (automatic.id.as_str(), automatic.braked()),
        ("b", set(BOTH))
    );
    finish(&mut admissions, Outcome::Completed, at(3));
    let person = next(&mut admissions, at(3)).unwrap();
    assert_eq!((person.id.as_str(), person.braked()), ("x", set(&[])));
}

#[test]
fn a_follow_up_waits_its_jitter() {
    let mut admissions = jittered();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(50)).unwrap();
    let left = PassEnd {
        retry_after: [(Target::Containers, at(10))].into(),
        ..over(Outcome::Partial)
    };
    admissions.finished(&left, at(100), || "follow-up".to_owned());
    assert_eq!(next(&mut admissions, at(149)), None);
    assert_eq!(next(&mut admissions, at(150)).unwrap().id, "follow-up");
}
