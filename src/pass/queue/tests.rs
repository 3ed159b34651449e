use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::gc::{Expected, PodKnowledge, Subject};
use crate::model::{RemoveReason, Target};

const NETWORK: FailureClass = FailureClass::NetworkTeardown;
const TIMEOUT: FailureClass = FailureClass::Timeout;
const FAILED: RemovalOutcome = RemovalOutcome::Failed {
    class: NETWORK,
    why: String::new(),
    at: None,
    failures: None,
};

fn removal(id: &str) -> Removal {
    Removal {
        subject: Subject {
            target: Target::Sandboxes,
            id: id.into(),
            name: "".into(),
            pod: None,
            pod_state: PodKnowledge::Deleted,
            attempt: 0,
            created_at: Timestamp::UNIX_EPOCH,
            age_seconds: 0,
            image: None,
        },
        reason: RemoveReason::PodDeleted,
        detail: Box::default(),
        expected: Expected::Sandbox,
        superseded_by: Arc::default(),
    }
}

/// A queue of `ids`, with earlier failures for some.
fn queue(ids: &str, known: &[(&str, FailureClass, u32)]) -> Queue {
    let known = known.iter().map(|(id, class, failures)| {
        let (class, failures) = (*class, *failures);
        ((*id).to_owned(), KnownFailure { class, failures })
    });
    Queue::new(ids.split(' ').map(removal).collect(), known.collect())
}

fn ids(removals: &[Removal]) -> String {
    let ids: Vec<&str> = removals.iter().map(|r| r.subject.id.as_str()).collect();
    ids.join(" ")
}

#[track_caller]
fn batch(queue: &mut Queue, size: usize) -> String {
    match queue.next(size) {
        NextStep::Batch(batch) => ids(&batch),
        other @ (NextStep::Wait | NextStep::Done) => panic!("{other:?}"),
    }
}

#[test]
fn sandboxes_that_never_failed_come_first_and_in_order() {
    let mut queue = queue("a b c d e", &[("a", NETWORK, 1), ("c", NETWORK, 1)]);
    assert_eq!(batch(&mut queue, 2), "b d");
    assert_eq!(batch(&mut queue, 2), "e");
    assert_eq!(batch(&mut queue, 2), "a", "one for both");
    assert_eq!(queue.next(2), NextStep::Wait);
    assert_eq!(queue.ended("a", &RemovalOutcome::REMOVED), None);
    assert_eq!(batch(&mut queue, 2), "c");
    assert!(queue.is_empty());
    assert_eq!(queue.next(2), NextStep::Done);
}

#[test]
fn a_failed_probe_holds_its_class_and_no_other() {
    let known = [
        ("a", NETWORK, 1),
        ("b", TIMEOUT, 1),
        ("c", NETWORK, 1),
        ("d", TIMEOUT, 1),
    ];
    let mut queue = queue("a b c d", &known);
    assert_eq!(batch(&mut queue, 50), "a b", "one of each class");
    let held = queue.ended("a", &FAILED).unwrap();
    assert_eq!((held.class, held.tried.as_str()), (NETWORK, "a"));
    assert_eq!(ids(&held.removals), "c");
    assert_eq!(queue.next(50), NextStep::Wait, "b is still under way");
    assert_eq!(queue.ended("b", &RemovalOutcome::REMOVED), None);
    assert_eq!(batch(&mut queue, 50), "d");
    assert_eq!(queue.next(50), NextStep::Done);
}

#[test]
fn the_sandbox_with_the_fewest_failures_is_the_probe() {
    let known = [("a", NETWORK, 3), ("b", NETWORK, 2), ("c", NETWORK, 2)];
    let mut queue = queue("a b c", &known);
    assert_eq!(batch(&mut queue, 50), "b");
    queue.ended("b", &RemovalOutcome::REMOVED);
    assert_eq!(batch(&mut queue, 50), "a c");
}

#[test]
fn a_probe_without_a_result_is_followed_by_another() {
    let mut queue = queue("a b", &[("a", NETWORK, 1), ("b", NETWORK, 1)]);
    assert_eq!(batch(&mut queue, 50), "a");
    queue.ended("a", &RemovalOutcome::AlreadyGone);
    assert_eq!(batch(&mut queue, 50), "b");
    assert_eq!(queue.ended("b", &FAILED), None, "nobody waits for it");
    assert_eq!(queue.next(50), NextStep::Done);
}

#[test]
fn a_removal_given_back_is_tried_before_the_others() {
    let mut queue = queue("a b x y", &[("a", NETWORK, 1), ("b", NETWORK, 1)]);
    assert_eq!(batch(&mut queue, 50), "x y");
    queue.give_back(vec![removal("y")]);
    assert_eq!(batch(&mut queue, 50), "y");
    assert_eq!(batch(&mut queue, 50), "a");
    queue.give_back(vec![removal("a")]);
    assert_eq!(batch(&mut queue, 50), "a", "lost, it is still the one");
    queue.ended("a", &RemovalOutcome::REMOVED);
    assert_eq!(batch(&mut queue, 50), "b");
    queue.give_back(vec![removal("b")]);
    assert_eq!(batch(&mut queue, 50), "b");
}

#[test]
fn removals_during_which_the_runtime_went_away_come_after_the_others_and_alone() {
    let mut queue = queue("a b w x y z", &[("a", NETWORK, 1), ("b", NETWORK, 1)]);
    assert_eq!(batch(&mut queue, 2), "w x");
    assert!(!queue.is_alone());
    queue.give_back_lost(vec![removal("w"), removal("x")]);
    // A look comes between.
    let all = queue.take();
    assert!(queue.is_empty());
    queue.put(all);
    assert_eq!(batch(&mut queue, 50), "y z");
    assert!(queue.is_alone(), "the next one must not run beside it");
    assert_eq!(batch(&mut queue, 50), "w");
    assert_eq!(batch(&mut queue, 50), "x");
    assert!(queue.is_alone());
    assert_eq!(batch(&mut queue, 50), "a");
    assert!(!queue.is_alone());
    queue.give_back_lost(vec![removal("a")]);
    assert_eq!(batch(&mut queue, 50), "a");
    assert_eq!(queue.ended("a", &FAILED), None, "it stands for no class");
    assert_eq!(batch(&mut queue, 50), "b");
}

#[test]
fn a_class_stops_when_its_removals_fail_again() {
    let names: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
    let known: Vec<_> = names.iter().map(|n| (n.as_str(), NETWORK, 1)).collect();
    let mut queue = queue(&names.join(" "), &known);
    assert_eq!(batch(&mut queue, 10), "s00");
    queue.ended("s00", &RemovalOutcome::REMOVED);
    assert_eq!(batch(&mut queue, 10).split(' ').count(), 10);
    for name in &names[1..5] {
        assert_eq!(queue.ended(name, &FAILED), None);
    }
    queue.ended("s05", &RemovalOutcome::REMOVED);
    for name in &names[6..10] {
        assert_eq!(queue.ended(name, &FAILED), None);
    }
    let held = queue.ended("s10", &FAILED).unwrap();
    assert_eq!((held.removals.len(), held.tried.as_str()), (9, "s10"));
    assert_eq!(queue.next(10), NextStep::Done);
}

#[test]
fn removals_put_back_after_a_look_keep_waiting() {
    let mut queue = queue("a b x", &[("a", NETWORK, 1), ("b", NETWORK, 1)]);
    let all = queue.take();
    assert!(queue.is_empty());
    assert_eq!(ids(&all), "x a b");
    queue.put(all.into_iter().filter(|r| r.subject.id != "a").collect());
    assert_eq!(batch(&mut queue, 50), "x");
    assert_eq!(batch(&mut queue, 50), "b");
}
