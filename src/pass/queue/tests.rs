use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::config::Config;
use crate::gc::{Expected, PodKnowledge, Subject};
use crate::model::{PodSandboxId, RemoveReason, Target};
use crate::pass::quarantine::Quarantine;

const NETWORK: FailureClass = FailureClass::NetworkTeardown;
const TIMEOUT: FailureClass = FailureClass::Timeout;
const FAILED: RemovalOutcome = RemovalOutcome::Failed {
    class: NETWORK,
    why: String::new(),
    at: None,
    failures: None,
};

pub(in crate::pass) fn removal(id: &str) -> Removal {
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
    assert_eq!(batch(&mut queue, 50), "c a", "and so on");
}

/// A day of a node on which each sandbox failed once, with a pass at each end of a back-off.
struct Day {
    quarantine: Quarantine,
    /// Oldest first, each with whether it never goes.
    left: Vec<(String, bool)>,
    minutes: i64,
    tries: usize,
}

impl Day {
    fn of(node: u64, left: impl Iterator<Item = bool>) -> Self {
        // Ids as a runtime makes them (splitmix64).
        let id = |number: u64| {
            let mix = (node * 100_000 + number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mix = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mix = (mix ^ (mix >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            format!("{:016x}", mix ^ (mix >> 31))
        };
        let mut day = Self {
            quarantine: Quarantine::default(),
            left: (0..).map(id).zip(left).collect(),
            minutes: 0,
            tries: 0,
        };
        for (id, _) in day.left.clone() {
            day.failed(&id);
        }
        day
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.minutes * 60).unwrap()
    }

    fn failed(&mut self, id: &str) {
        let (id, now) = (PodSandboxId::new(id).unwrap(), self.now());
        let back_off = Config::default().quarantine;
        self.quarantine
            .failed(&id, NETWORK, String::new(), back_off, now);
    }

    /// Runs the pass at the end of the next back-off; false if that is on another day.
    fn next_pass(&mut self) -> bool {
        let next = self
            .quarantine
            .all()
            .first()
            .map(|(_, known)| known.next_try);
        let next = next.map_or(i64::MAX, Timestamp::as_second).div_euclid(60);
        if next > 24 * 60 {
            return false;
        }
        self.minutes = next;
        self.pass();
        true
    }

    fn pass(&mut self) {
        let due = self.quarantine.next_attempts(self.now());
        let due = |id: &&str| due[&PodSandboxId::new(*id).unwrap()] <= self.now();
        let due = self.left.iter().map(|(id, _)| id.as_str()).filter(due);
        let mut queue = Queue::new(due.map(removal).collect(), self.quarantine.known_failures());
        while let NextStep::Batch(batch) = queue.next(50) {
            for removal in batch {
                self.tries += 1;
                let id = removal.subject.id.as_str();
                let place = self.left.iter().position(|(it, _)| it == id).unwrap();
                let outcome = if self.left[place].1 {
                    self.failed(id);
                    FAILED
                } else {
                    self.left.remove(place);
                    self.quarantine.gone(&PodSandboxId::new(id).unwrap());
                    RemovalOutcome::REMOVED
                };
                if let Some(held) = queue.ended(id, &outcome) {
                    let back_off = Config::default().quarantine;
                    self.quarantine.hold(&held, back_off, self.now());
                }
            }
        }
    }
}

/// Returns after how many minutes all that can go have gone, on the worst of 30 nodes; the oldest `broken` never go.
fn minutes(broken: usize, all: usize) -> i64 {
    let of = |node| {
        let mut day = Day::of(node, (0..all).map(|number| number < broken));
        while day.left.iter().any(|(_, is_broken)| !is_broken) && day.next_pass() {}
        day.minutes
    };
    (0..30).map(of).max().unwrap()
}

/// Returns how often a pass tries one of so many while all fail, on the first day.
fn tries_of_a_day(all: usize) -> usize {
    let mut day = Day::of(0, std::iter::repeat_n(true, all));
    while day.next_pass() {}
    day.tries
}

#[test]
fn sandboxes_that_never_go_hold_the_others_of_their_class_for_a_few_back_offs() {
    for (broken, all, most) in [(10, 20, 40), (10, 300, 5), (50, 300, 10), (150, 300, 240)] {
        let minutes = minutes(broken, all);
        assert!(minutes <= most, "{broken} of {all}: {minutes}");
    }
}

#[test]
fn while_all_of_a_class_fail_one_is_tried_for_each_back_off_however_many_there_are() {
    assert_eq!([1, 10, 300].map(tries_of_a_day), [28; 3]);
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
