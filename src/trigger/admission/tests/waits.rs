//! What waiting passes say they wait for.

use super::*;
use crate::fleet::Standing;

fn why(admissions: &Admissions, now: u64) -> Option<WaitReason> {
    let queued = admissions.waiting().next().unwrap();
    admissions.why_waits(queued, at(now))
}

#[test]
fn a_brake_of_the_fleet_that_came_later_is_the_reason() {
    let mut admissions = admissions();
    admissions.brakes.jitter = Some(at(100));
    admissions.draw = 1 << 31;
    admissions.admit(alert(1, BOTH), "a", at(0));
    let jitter = Some(WaitReason::Until(at(50), "brakes.jitter"));
    assert_eq!(why(&admissions, 0), jitter);
    assert_eq!(why(&admissions, 50), None);
    for brake in ["held", "unknown", "storm"] {
        let says = |it: &str| (it == brake).then(|| it.to_owned());
        let standing = Standing {
            held: says("held"),
            unknown: says("unknown"),
            storm: says("storm"),
            ..Standing::default()
        };
        admissions.set_fleet(standing, at(0));
        let stopped = Some(WaitReason::Stopped(brake.to_owned()));
        assert_eq!(
            (why(&admissions, 0), why(&admissions, 60)),
            (stopped.clone(), stopped)
        );
    }
    admissions.set_fleet(Standing::default(), at(0));
    admissions.brakes.pause = true;
    let paused = WaitReason::Stopped(PAUSED.to_owned());
    assert_eq!(why(&admissions, 0), Some(paused));
}

#[test]
fn a_pass_waits_for_a_slot_only_if_no_target_can_begin_without() {
    let mut admissions = admissions();
    let budget = |targets| Standing {
        budget: set(targets),
        ..Standing::default()
    };
    admissions.admit(alert(1, BOTH), "a", at(0));
    for (targets, wait) in [(CONTAINERS, None), (BOTH, Some(WaitReason::Slot))] {
        admissions.set_fleet(budget(targets), at(0));
        assert_eq!(why(&admissions, 0), wait);
    }
}

#[test]
fn the_setting_that_holds_longest_is_named() {
    let mut admissions = admissions();
    admissions.admit(by_hand(CONTAINERS, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.begun(set(BOTH));
    admissions.admit(alert(1, CONTAINERS), "b", at(1));
    finish(&mut admissions, Outcome::Completed, at(10));
    let cooldown = WaitReason::Until(at(70), "brakes.cooldown");
    assert_eq!(why(&admissions, 11), Some(cooldown));
    let mut admissions = braked_by(Brakes {
        max_passes_per_hour: Some(1),
        ..admissions.brakes
    });
    admissions.admit(by_hand(CONTAINERS, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.begun(set(BOTH));
    admissions.admit(alert(1, CONTAINERS), "b", at(1));
    finish(&mut admissions, Outcome::Completed, at(10));
    let spent = WaitReason::Until(at(3600), "brakes.max_passes_per_hour");
    assert_eq!(why(&admissions, 11), Some(spent));
}
