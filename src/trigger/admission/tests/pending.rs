//! Waiting passes: for the end of a cool-down, and for postponed objects.

use super::*;
use crate::model::{Caller, CallerKind};

/// A pass over these targets, ended at 10 s.
fn cooling(targets: &[Target]) -> Admissions {
    let mut admissions = admissions();
    admissions.admit(alert(1, targets), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    finish(&mut admissions, Outcome::Completed, at(10));
    admissions
}

#[test]
fn a_trigger_in_the_cool_down_waits_exactly_until_its_end() {
    let mut admissions = cooling(CONTAINERS);
    let admission = admissions.admit(alert(2, CONTAINERS), "b", at(11));
    assert_eq!(admission, queued("b"));
    assert_eq!(
        admissions.admit(alert(3, CONTAINERS), "c", at(12)),
        merged("b")
    );
    let ticket = waiting(&admissions, "b").unwrap();
    assert_eq!(admissions.first_ready_at(ticket).unwrap().0, at(70));
    assert_eq!(admissions.due(at(12)), Some(at(70)));
    assert_eq!(next(&mut admissions, at(69)), None);
    assert_eq!(next(&mut admissions, at(70)).unwrap().id, "b");
    assert_eq!(admissions.waiting().count(), 0);
}

#[test]
fn only_the_target_in_cool_down_waits_and_the_others_start_at_once() {
    let mut admissions = cooling(CONTAINERS);
    assert_eq!(admissions.admit(alert(2, BOTH), "b", at(11)), queued("b"));
    let (ticket, rest) = admissions.next(at(11), || "c".to_owned()).unwrap();
    assert_eq!((ticket.id.as_str(), ticket.targets), ("b", set(SANDBOXES)));
    let rest = rest.unwrap();
    assert_eq!((rest.id.as_str(), rest.targets), ("c", set(CONTAINERS)));
    // Its repetition is about the waiting pass, also after the other pass answered its part.
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(12)), merged("c"));
    finish(&mut admissions, Outcome::Completed, at(13));
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(14)), merged("c"));
    assert_eq!(next(&mut admissions, at(70)).unwrap().id, "c");
    finish(&mut admissions, Outcome::Completed, at(71));
    let duplicate = Admission::with_pass(AlertResult::Duplicate, "c");
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(72)), duplicate);
}

#[test]
fn an_alert_stays_unanswered_when_only_some_targets_ran() {
    let mut admissions = cooling(CONTAINERS);
    admissions.admit(alert(2, BOTH), "b", at(11));
    admissions.next(at(11), || "c".to_owned()).unwrap();
    finish(&mut admissions, Outcome::Partial, at(13));
    next(&mut admissions, at(70)).unwrap();
    finish(&mut admissions, Outcome::Completed, at(71));
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(200)), queued("x"));
}

#[test]
fn the_cool_down_never_delays_a_manual_gc() {
    let mut admissions = cooling(CONTAINERS);
    admissions.admit(alert(2, CONTAINERS), "b", at(11));
    let person = by_hand(CONTAINERS, PassOptions::default());
    assert_eq!(admissions.admit(person, "c", at(12)), queued("c"));
    assert_eq!(next(&mut admissions, at(12)).unwrap().id, "c");
}

#[test]
fn a_person_joins_no_automatic_pass_and_extends_no_other_persons() {
    let by = |name: &str, targets| Trigger {
        info: TriggerInfo {
            by: Some(Caller::new(CallerKind::Token, name)),
            ..Cause::Manual.into()
        },
        ..by_hand(targets, PassOptions::default())
    };
    let mut admissions = cooling(BOTH);
    admissions.admit(alert(2, SANDBOXES), "b", at(11));
    let mut admit = |trigger, id| admissions.admit(trigger, id, at(12));
    assert_eq!(admit(by("alice", CONTAINERS), "c"), queued("c"));
    assert_eq!(admit(by("bob", CONTAINERS), "x"), merged("c"));
    assert_eq!(admit(by("bob", BOTH), "d"), queued("d"));
    assert_eq!(admit(by("alice", SANDBOXES), "x"), merged("c"), "her own");
    assert_eq!(next(&mut admissions, at(12)).unwrap().targets, set(BOTH));
}

#[test]
fn what_only_a_person_asked_for_has_no_follow_up() {
    let mut admissions = admissions();
    admissions.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    let joined = admissions.admit(alert(1, SANDBOXES), "x", at(0));
    assert_eq!(joined, merged("a"), "a person's pass covers it");
    next(&mut admissions, at(0)).unwrap();
    assert_eq!(leave_containers(&mut admissions, 10), None);
}

#[test]
fn a_pass_that_ends_while_an_alert_waits_cools_it_down_too() {
    let mut admissions = admissions();
    admissions.admit(by_hand(CONTAINERS, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(1)), queued("b"));
    finish(&mut admissions, Outcome::Completed, at(10));
    assert_eq!(
        next(&mut admissions, at(11)).unwrap().targets,
        set(SANDBOXES)
    );
    assert_eq!(
        waiting(&admissions, "rest").unwrap().targets,
        set(CONTAINERS)
    );
}

#[test]
fn an_alert_that_resolves_in_the_cool_down_withdraws_its_pass() {
    let mut admissions = cooling(BOTH);
    admissions.admit(alert(2, BOTH), "b", at(11));
    assert_eq!(admissions.withdraw(&key(2)).unwrap().id, "b");
    assert_eq!(admissions.due(at(12)), None);
    assert_eq!(next(&mut admissions, at(100)), None);
}

#[test]
fn an_alert_joins_the_running_pass_only_before_its_target_has_begun() {
    let mut admissions = admissions();
    admissions.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.begun(set(CONTAINERS));
    assert_eq!(
        admissions.admit(alert(1, SANDBOXES), "x", at(1)),
        merged("a")
    );
    assert_eq!(admissions.admit(alert(2, BOTH), "b", at(1)), queued("b"));
    admissions.begun(set(BOTH));
    assert_eq!(
        admissions.admit(alert(3, SANDBOXES), "x", at(2)),
        merged("b")
    );
    finish(&mut admissions, Outcome::Completed, at(10));
    assert_eq!(
        admissions.admit(alert(3, SANDBOXES), "x", at(11)),
        merged("b")
    );
    assert_eq!(next(&mut admissions, at(11)), None);
    assert_eq!(next(&mut admissions, at(70)).unwrap().targets, set(BOTH));
}

#[test]
fn a_pass_that_only_planned_answers_no_alert() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    // `mode: observe`.
    let over = PassEnd {
        dry_run: true,
        tried: BTreeSet::new(),
        ..over(Outcome::Completed)
    };
    admissions.finished(&over, at(1), String::new);
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(2)), queued("b"));
    assert_eq!(
        next(&mut admissions, at(3)),
        None,
        "it cools down all the same"
    );
}

/// Ends the running pass, which postpones the containers for half an hour.
fn leave_containers(admissions: &mut Admissions, now: u64) -> Option<QueuedPass> {
    let over = PassEnd {
        retry_after: [(Target::Containers, 30 * MINUTE)].into(),
        ..over(Outcome::Partial)
    };
    admissions.finished(&over, at(now), || "follow-up".to_owned())
}

#[test]
fn a_follow_up_names_the_alert_that_asked_for_what_was_left() {
    let mut admissions = admissions();
    admissions.admit(alert(1, SANDBOXES), "a", at(0));
    admissions.admit(alert(2, CONTAINERS), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    let follow_up = leave_containers(&mut admissions, 10).unwrap();
    let trigger = follow_up.automatic_trigger().unwrap();
    assert_eq!((&trigger.alert, trigger.follow_up), (&Some(key(2)), true));
    // One that asks by itself comes first, as long as it fires.
    admissions.admit(alert(3, CONTAINERS), "x", at(11));
    let trigger_of = |admissions: &Admissions| {
        let waiting = waiting(admissions, &follow_up.id).unwrap();
        waiting.automatic_trigger().unwrap().clone()
    };
    let trigger = trigger_of(&admissions);
    assert_eq!((trigger.alert, trigger.follow_up), (Some(key(3)), false));
    assert_eq!(admissions.withdraw(&key(3)), None);
    let trigger = trigger_of(&admissions);
    assert_eq!((trigger.alert, trigger.follow_up), (Some(key(2)), true));
}

#[test]
fn a_pass_that_left_something_for_a_time_is_followed_by_another_once() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    let follow_up = leave_containers(&mut admissions, 10).unwrap();
    assert_eq!(follow_up.targets, set(CONTAINERS));
    let trigger = follow_up.automatic_trigger().unwrap();
    assert_eq!((trigger.cause, trigger.follow_up), (Cause::Alert, true));
    let (first, _) = admissions.first_ready_at(&follow_up).unwrap();
    assert_eq!(first, at(10 + 1800));
    // A repetition of the alert reports the follow-up.
    assert_eq!(
        admissions.admit(alert(1, BOTH), "x", at(11)),
        merged("follow-up")
    );
    assert_eq!(next(&mut admissions, at(1809)), None);
    assert_eq!(next(&mut admissions, at(1810)).unwrap().id, "follow-up");
    assert_eq!(leave_containers(&mut admissions, 1820), None);
    assert_eq!(admissions.waiting().count(), 0);
}

#[test]
fn passes_that_leave_each_their_target_do_not_follow_each_other_without_end() {
    for (targets, count) in [(SANDBOXES, 4), (BOTH, 5)] {
        let mut admissions = admissions();
        admissions.admit(alert(1, CONTAINERS), "a", at(0));
        next(&mut admissions, at(0)).unwrap();
        admissions.begun(set(CONTAINERS));
        admissions.admit(alert(2, targets), "b", at(1));
        let mut ended = 0;
        for now in (10..2000).step_by(100) {
            let Some(running) = &admissions.running else {
                break;
            };
            let left = running.pass.targets.iter();
            let over = PassEnd {
                retry_after: left.map(|target| (*target, Duration::ZERO)).collect(),
                ..over(Outcome::Partial)
            };
            admissions.finished(&over, at(now), || format!("after {now}"));
            admissions.next(at(now), || format!("rest of {now}"));
            ended += 1;
        }
        assert_eq!(ended, count, "each target of each alert, and once more");
    }
}

#[test]
fn a_follow_up_is_taken_back_with_its_alert_and_taken_over_by_another() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    leave_containers(&mut admissions, 10).unwrap();
    assert_eq!(admissions.withdraw(&key(1)).unwrap().id, "follow-up");
    admissions.admit(alert(1, BOTH), "b", at(100));
    next(&mut admissions, at(100)).unwrap();
    leave_containers(&mut admissions, 110).unwrap();
    // Another alert does not wait that long, and its pass may have its own follow-up.
    assert_eq!(
        admissions.admit(alert(2, CONTAINERS), "x", at(111)),
        merged("follow-up")
    );
    assert_eq!(next(&mut admissions, at(169)), None, "the cool-down");
    assert_eq!(next(&mut admissions, at(170)).unwrap().id, "follow-up");
    assert!(leave_containers(&mut admissions, 180).is_some());
}

#[test]
fn a_follow_up_that_an_alert_joins_while_it_runs_may_be_followed_itself() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    leave_containers(&mut admissions, 10).unwrap();
    next(&mut admissions, at(1810)).unwrap();
    assert_eq!(
        admissions.admit(alert(2, CONTAINERS), "x", at(1811)),
        merged("follow-up"),
        "it has not begun them"
    );
    assert!(leave_containers(&mut admissions, 1820).is_some());
}

/// Thresholds have no alert: all of them are one request.
#[test]
fn a_threshold_that_asks_again_for_what_a_pass_left_may_have_it_followed_again() {
    let mut admissions = admissions();
    let threshold = Trigger {
        info: Cause::Threshold.into(),
        ..alert(1, CONTAINERS)
    };
    admissions.admit(threshold.clone(), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    leave_containers(&mut admissions, 10).unwrap();
    assert_eq!(
        admissions.admit(threshold, "x", at(11)),
        merged("follow-up")
    );
    next(&mut admissions, at(70)).unwrap();
    assert!(leave_containers(&mut admissions, 80).is_some());
}

#[test]
fn a_follow_up_joins_the_pending_pass() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.begun(set(BOTH));
    admissions.admit(alert(2, SANDBOXES), "b", at(1));
    assert_eq!(leave_containers(&mut admissions, 10), None);
    let (ticket, rest) = admissions.next(at(70), || "c".to_owned()).unwrap();
    assert_eq!((ticket.id.as_str(), ticket.targets), ("b", set(SANDBOXES)));
    let (first, _) = admissions.first_ready_at(&rest.unwrap()).unwrap();
    assert_eq!(first, at(1810));
}

#[test]
fn a_pass_by_hand_is_followed_by_none() {
    let mut admissions = admissions();
    admissions.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    assert_eq!(leave_containers(&mut admissions, 10), None);
    assert_eq!(admissions.waiting().count(), 0);
}

#[test]
fn a_waiting_part_goes_with_the_alert_that_it_was_for() {
    let mut admissions = cooling(CONTAINERS);
    admissions.admit(alert(2, CONTAINERS), "b", at(11));
    assert_eq!(
        admissions.admit(alert(3, SANDBOXES), "x", at(11)),
        merged("b")
    );
    assert_eq!(
        next(&mut admissions, at(11)).unwrap().targets,
        set(SANDBOXES)
    );
    // The other alert, which runs, asked for nothing of it.
    assert_eq!(admissions.withdraw(&key(2)).unwrap().id, "rest");
    finish(&mut admissions, Outcome::Completed, at(12));
    let duplicate = Admission::with_pass(AlertResult::Duplicate, "b");
    assert_eq!(
        admissions.admit(alert(3, SANDBOXES), "x", at(13)),
        duplicate
    );
    assert_eq!(next(&mut admissions, at(100)), None);
}

#[test]
fn a_waiting_pass_loses_what_only_a_resolved_alert_asked_for() {
    let mut admissions = cooling(BOTH);
    admissions.admit(alert(2, CONTAINERS), "b", at(11));
    admissions.admit(alert(3, SANDBOXES), "x", at(11));
    assert_eq!(admissions.withdraw(&key(2)), None);
    assert_eq!(
        next(&mut admissions, at(70)).unwrap().targets,
        set(SANDBOXES)
    );
    assert_eq!(admissions.waiting().count(), 0);
}

#[test]
fn a_pass_whose_alert_resolved_while_it_ran_has_no_follow_up() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    assert_eq!(admissions.withdraw(&key(1)), None);
    assert_eq!(leave_containers(&mut admissions, 10), None);
    assert_eq!(admissions.waiting().count(), 0);
}

#[test]
fn an_alert_that_fires_again_while_its_pass_runs_has_its_follow_up() {
    let mut admissions = admissions();
    admissions.admit(alert(1, CONTAINERS), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    admissions.withdraw(&key(1));
    assert_eq!(
        admissions.admit(alert(1, CONTAINERS), "x", at(5)),
        merged("a")
    );
    let follow_up = leave_containers(&mut admissions, 10).unwrap();
    assert_eq!(follow_up.targets, set(CONTAINERS));
    // It does so again while the follow-up runs.
    next(&mut admissions, at(1810)).unwrap();
    admissions.withdraw(&key(1));
    admissions.admit(alert(1, CONTAINERS), "x", at(1815));
    assert!(leave_containers(&mut admissions, 1820).is_some());
}

#[test]
fn a_resolved_alert_leaves_every_pass_that_names_it() {
    let mut admissions = cooling(SANDBOXES);
    admissions.admit(alert(2, BOTH), "b", at(11));
    admissions.next(at(11), || "rest".to_owned()).unwrap();
    // A pass for another reason is ahead of the rest, and covers the alert when it asks again.
    let person = by_hand(BOTH, PassOptions::default());
    admissions.admit(person, "c", at(12));
    admissions.queue.rotate_right(1);
    finish(&mut admissions, Outcome::Partial, at(13));
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(14)), merged("c"));
    assert_eq!(admissions.withdraw(&key(2)).unwrap().id, "rest");
    assert_eq!(next(&mut admissions, at(15)).unwrap().id, "c");
    assert_eq!(leave_containers(&mut admissions, 20), None);
}
