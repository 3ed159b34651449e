//! What waits: for the end of a cool-down, and for the time for which a pass had to leave something.

use super::*;

/// A pass over these targets that ended at 10 s.
fn cooling(targets: &[Target]) -> Gate {
    let mut gate = gate();
    gate.admit(alert(1, targets), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    finish(&mut gate, Outcome::Completed, at(10));
    gate
}

#[test]
fn what_comes_in_the_cool_down_waits_exactly_until_it_is_over() {
    let mut gate = cooling(CONTAINERS);
    let admission = gate.admit(alert(2, CONTAINERS), "b", at(11));
    assert_eq!(admission, Admission::Queued);
    assert_eq!(gate.admit(alert(3, CONTAINERS), "c", at(12)), merged("b"));
    let ticket = waiting(&gate, "b").unwrap();
    assert_eq!(gate.not_before(ticket, at(12)), Some(at(70)));
    assert_eq!(gate.due(at(12)), Some(at(70)));
    assert_eq!(next(&mut gate, at(69)), None);
    assert_eq!(next(&mut gate, at(70)).unwrap().id, "b");
    assert_eq!(gate.waiting().count(), 0);
}

#[test]
fn only_the_target_that_cools_down_waits_and_the_rest_goes_at_once() {
    let mut gate = cooling(CONTAINERS);
    assert_eq!(gate.admit(alert(2, BOTH), "b", at(11)), Admission::Queued);
    let (ticket, rest) = gate.next(at(11), || "c".to_owned()).unwrap();
    assert_eq!((ticket.id.as_str(), ticket.targets), ("b", set(SANDBOXES)));
    let rest = rest.unwrap();
    assert_eq!((rest.id.as_str(), rest.targets), ("c", set(CONTAINERS)));
    // Its repeat is about the one that waits, also when the other has answered its part.
    assert_eq!(gate.admit(alert(2, BOTH), "x", at(12)), merged("c"));
    finish(&mut gate, Outcome::Completed, at(13));
    assert_eq!(gate.admit(alert(2, BOTH), "x", at(14)), merged("c"));
    assert_eq!(next(&mut gate, at(70)).unwrap().id, "c");
    finish(&mut gate, Outcome::Completed, at(71));
    let duplicate = Admission::Duplicate("c".to_owned());
    assert_eq!(gate.admit(alert(2, BOTH), "x", at(72)), duplicate);
}

#[test]
fn an_alert_that_only_a_part_answered_is_not_answered() {
    let mut gate = cooling(CONTAINERS);
    gate.admit(alert(2, BOTH), "b", at(11));
    gate.next(at(11), || "c".to_owned()).unwrap();
    finish(&mut gate, Outcome::Partial, at(13));
    next(&mut gate, at(70)).unwrap();
    finish(&mut gate, Outcome::Completed, at(71));
    assert_eq!(gate.admit(alert(2, BOTH), "x", at(200)), Admission::Queued);
}

#[test]
fn the_cool_down_never_binds_people() {
    let mut gate = cooling(CONTAINERS);
    gate.admit(alert(2, CONTAINERS), "b", at(11));
    let person = by_hand(CONTAINERS, PassOptions::default());
    assert_eq!(gate.admit(person, "c", at(12)), merged("b"));
    assert_eq!(next(&mut gate, at(12)).unwrap().targets, set(CONTAINERS));
}

#[test]
fn a_pass_that_ends_while_an_alert_waits_cools_it_down_too() {
    let mut gate = gate();
    gate.admit(by_hand(CONTAINERS, PassOptions::default()), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), Admission::Queued);
    finish(&mut gate, Outcome::Completed, at(10));
    assert_eq!(next(&mut gate, at(11)).unwrap().targets, set(SANDBOXES));
    assert_eq!(waiting(&gate, "rest").unwrap().targets, set(CONTAINERS));
}

#[test]
fn an_alert_that_resolves_in_the_cool_down_takes_its_wish_back() {
    let mut gate = cooling(BOTH);
    gate.admit(alert(2, BOTH), "b", at(11));
    assert_eq!(gate.withdraw(&key(2)).unwrap().id, "b");
    assert_eq!(gate.due(at(12)), None);
    assert_eq!(next(&mut gate, at(100)), None);
}

#[test]
fn an_alert_joins_the_running_pass_only_before_its_target_has_begun() {
    let mut gate = gate();
    gate.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    gate.begun(set(CONTAINERS));
    assert_eq!(gate.admit(alert(1, SANDBOXES), "x", at(1)), merged("a"));
    assert_eq!(gate.admit(alert(2, BOTH), "b", at(1)), Admission::Queued);
    gate.begun(set(BOTH));
    assert_eq!(gate.admit(alert(3, SANDBOXES), "x", at(2)), merged("b"));
    finish(&mut gate, Outcome::Completed, at(10));
    assert_eq!(gate.admit(alert(3, SANDBOXES), "x", at(11)), merged("b"));
    assert_eq!(next(&mut gate, at(11)), None);
    assert_eq!(next(&mut gate, at(70)).unwrap().targets, set(BOTH));
}

#[test]
fn a_pass_that_only_planned_answers_no_alert() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    // `mode: observe`.
    let over = Over {
        dry_run: true,
        tried: BTreeSet::new(),
        ..over(Outcome::Completed)
    };
    gate.finished(&over, at(1), String::new);
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(2)), Admission::Queued);
    assert_eq!(next(&mut gate, at(3)), None, "it cools down all the same");
}

/// Ends the running pass, which leaves the containers for half an hour.
fn leave_containers(gate: &mut Gate, now: u64) -> Option<Ticket> {
    let over = Over {
        due_again: [(Target::Containers, 30 * MINUTE)].into(),
        ..over(Outcome::Partial)
    };
    gate.finished(&over, at(now), || "follow-up".to_owned())
}

#[test]
fn a_pass_that_left_something_for_a_time_is_followed_by_another_once() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    let follow_up = leave_containers(&mut gate, 10).unwrap();
    assert_eq!(follow_up.targets, set(CONTAINERS));
    assert_eq!(follow_up.automatic, Some(Cause::Alert));
    assert_eq!(gate.not_before(&follow_up, at(11)), Some(at(10 + 1800)));
    // Who repeats the alert hears of it.
    assert_eq!(gate.admit(alert(1, BOTH), "x", at(11)), merged("follow-up"));
    assert_eq!(next(&mut gate, at(1809)), None);
    assert_eq!(next(&mut gate, at(1810)).unwrap().id, "follow-up");
    assert_eq!(leave_containers(&mut gate, 1820), None);
    assert_eq!(gate.waiting().count(), 0);
}

#[test]
fn a_follow_up_is_taken_back_with_its_alert_and_taken_over_by_another() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    leave_containers(&mut gate, 10).unwrap();
    assert_eq!(gate.withdraw(&key(1)).unwrap().id, "follow-up");
    gate.admit(alert(1, BOTH), "b", at(100));
    next(&mut gate, at(100)).unwrap();
    leave_containers(&mut gate, 110).unwrap();
    // Another alert does not wait so long, and its pass may ask for a follow-up of its own.
    assert_eq!(
        gate.admit(alert(2, CONTAINERS), "x", at(111)),
        merged("follow-up")
    );
    assert_eq!(next(&mut gate, at(169)), None, "the cool-down");
    assert_eq!(next(&mut gate, at(170)).unwrap().id, "follow-up");
    assert!(leave_containers(&mut gate, 180).is_some());
}

#[test]
fn what_a_pass_left_joins_the_pass_that_waits() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    gate.begun(set(BOTH));
    gate.admit(alert(2, SANDBOXES), "b", at(1));
    assert_eq!(leave_containers(&mut gate, 10), None);
    let (ticket, rest) = gate.next(at(70), || "c".to_owned()).unwrap();
    assert_eq!((ticket.id.as_str(), ticket.targets), ("b", set(SANDBOXES)));
    assert_eq!(gate.not_before(&rest.unwrap(), at(70)), Some(at(1810)));
}

#[test]
fn a_pass_by_hand_is_followed_by_none() {
    let mut gate = gate();
    gate.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut gate, at(0)).unwrap();
    assert_eq!(leave_containers(&mut gate, 10), None);
    assert_eq!(gate.waiting().count(), 0);
}
