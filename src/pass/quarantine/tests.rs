use proptest::prelude::*;
use std::time::Duration;

use super::*;
use crate::model::CLOCK_SET_SECONDS;
use crate::pass::queue::tests::removal;

const BACK_OFF: BackOff = BackOff {
    base: Duration::from_secs(60),
    max: Duration::from_secs(3600),
};

fn sandbox(id: &str) -> PodSandboxId {
    PodSandboxId::new(id).unwrap()
}

/// This many seconds after a plausible time.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(CLOCK_SET_SECONDS + seconds).unwrap()
}

fn fail(quarantine: &mut Quarantine, id: &str, now: Timestamp) -> i64 {
    let id = sandbox(id);
    quarantine.failed(&id, FailureClass::Other, "no".into(), BACK_OFF, now);
    let next_try = quarantine.get(&id).unwrap().next_try;
    next_try.duration_since(now).as_secs()
}

fn held(tried: &str, ids: &[&str]) -> HeldBack {
    HeldBack {
        class: FailureClass::Other,
        tried: tried.to_owned(),
        others_went: false,
        removals: ids.iter().map(|id| removal(id)).collect(),
    }
}

fn hold(quarantine: &mut Quarantine, tried: &str, ids: &[&str], now: Timestamp) {
    quarantine.hold(&held(tried, ids), BACK_OFF, now);
}

fn past(id: &str, failures: u32, at: Option<Timestamp>) -> PastFailure {
    PastFailure {
        id: id.to_owned(),
        failures,
        class: FailureClass::NetworkTeardown,
        error: "plugin failed".to_owned(),
        at,
    }
}

#[test]
fn doubles_from_base_to_max() {
    let mut quarantine = Quarantine::default();
    let waits: Vec<i64> = (0..9)
        .map(|_| fail(&mut quarantine, "a", Timestamp::UNIX_EPOCH))
        .collect();
    assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
    for _ in 0..100 {
        assert!(fail(&mut quarantine, "a", Timestamp::MAX) >= 0);
    }
}

#[test]
fn the_back_off_starts_again_after_a_success() {
    let mut quarantine = Quarantine::default();
    fail(&mut quarantine, "a", Timestamp::UNIX_EPOCH);
    quarantine.gone(&sandbox("a"));
    assert_eq!(fail(&mut quarantine, "a", Timestamp::UNIX_EPOCH), 60);
}

#[test]
fn never_remembers_more_than_its_bound() {
    let mut quarantine = Quarantine::default();
    for n in 0..=QUARANTINE_MAX {
        let now = Timestamp::from_second(i64::try_from(n).unwrap()).unwrap();
        fail(&mut quarantine, &format!("{n}"), now);
    }
    assert_eq!(quarantine.all().len(), QUARANTINE_MAX);
    assert!(quarantine.get(&sandbox("0")).is_none());
    let many = (0..9).map(|n| past(&format!("p{n}"), 7, Some(at(0))));
    quarantine.restore(many.collect(), BACK_OFF, at(1));
    assert_eq!(quarantine.all().len(), QUARANTINE_MAX);
}

#[test]
fn a_restart_keeps_failures_and_next_try() {
    let mut quarantine = Quarantine::default();
    quarantine.restore(vec![past("a", 3, Some(at(100)))], BACK_OFF, at(200));
    let known = quarantine.get(&sandbox("a")).unwrap().clone();
    assert_eq!((known.failures, known.next_try), (3, at(100 + 240)));
    assert_eq!(known.error, "plugin failed");
    assert_eq!(fail(&mut quarantine, "a", at(400)), 480, "the fourth");
    // A database that opens late knows less than this process.
    quarantine.restore(vec![past("a", 3, Some(at(100)))], BACK_OFF, at(500));
    assert_eq!(quarantine.get(&sandbox("a")).unwrap().failures, 4);
}

#[test]
fn a_failure_without_a_usable_time_is_one_of_now() {
    let now = at(1000);
    for time in [None, Some(at(99_999)), Some(Timestamp::UNIX_EPOCH)] {
        let mut quarantine = Quarantine::default();
        quarantine.restore(vec![past("a", 2, time)], BACK_OFF, now);
        let known = quarantine.get(&sandbox("a")).unwrap();
        assert_eq!(known.next_try, at(1000 + 120), "{time:?}");
    }
}

#[test]
fn a_held_sandbox_counts_no_failure() {
    let mut quarantine = Quarantine::default();
    for id in ["a", "b", "c"] {
        fail(&mut quarantine, id, at(0));
    }
    fail(&mut quarantine, "c", at(60));
    fail(&mut quarantine, "c", at(60));
    fail(&mut quarantine, "d", at(60));
    fail(&mut quarantine, "d", at(60));
    hold(&mut quarantine, "d", &["a", "c", "x"], at(61));
    let of = |id: &str| {
        let known = quarantine.get(&sandbox(id)).unwrap();
        (known.failures, known.next_try)
    };
    assert_eq!(of("a"), (1, at(180)));
    assert_eq!(of("b"), (1, at(60)));
    assert_eq!(of("c"), (3, at(300)), "it waits longer by itself");
    assert!(quarantine.get(&sandbox("x")).is_none());
    let order = quarantine.all().into_iter().map(|(id, _)| id.as_str());
    assert_eq!(order.collect::<Vec<_>>(), ["b", "a", "d", "c"]);
}

#[test]
fn a_class_of_which_others_went_begins_its_back_off_anew() {
    let mut quarantine = Quarantine::default();
    for _ in 0..5 {
        fail(&mut quarantine, "a", at(0));
    }
    fail(&mut quarantine, "b", at(0));
    let mut held = held("a", &["b"]);
    held.others_went = true;
    assert_eq!(quarantine.hold(&held, BACK_OFF, at(100)), at(160));
    assert_eq!(quarantine.get(&sandbox("b")).unwrap().next_try, at(160));
}

/// A different sandbox is the probe each time.
#[test]
fn a_class_whose_probes_fail_waits_as_long_as_one_sandbox() {
    let mut quarantine = Quarantine::default();
    let ids: Vec<String> = (0..100).map(|number| format!("{number:02}")).collect();
    let mut now = at(0);
    for id in &ids {
        fail(&mut quarantine, id, now);
    }
    let mut waits = Vec::new();
    for probe in ids.iter().take(8) {
        now = quarantine.get(&sandbox(probe)).unwrap().next_try;
        waits.push(fail(&mut quarantine, probe, now));
        let all: Vec<&str> = ids.iter().map(String::as_str).collect();
        hold(&mut quarantine, probe, &all, now);
    }
    assert_eq!(waits, [120, 240, 480, 960, 1920, 3600, 3600, 3600]);
}

#[test]
fn a_clock_that_was_set_back_lengthens_no_wait() {
    let mut quarantine = Quarantine::default();
    fail(&mut quarantine, "a", at(1_000_000));
    let attempts = quarantine.next_attempts(at(10));
    assert_eq!(attempts[&sandbox("a")], at(10 + 60));
    // It does not move with the clock.
    assert_eq!(quarantine.next_attempts(at(50))[&sandbox("a")], at(70));
}

#[derive(Clone, Debug)]
enum Step {
    Fail(u8),
    Go(u8),
    Hold(u8, u8),
    /// The clock runs, or is set forwards or back.
    Clock(i64),
    /// A new process, which reads the failures that were written down.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8).prop_map(Step::Fail),
        1 => (0..6_u8).prop_map(Step::Go),
        1 => (0..6_u8, 0..6_u8).prop_map(|(a, b)| Step::Hold(a, b)),
        3 => prop_oneof![0..4000_i64, -1_000_000..1_000_000_i64, Just(-2_000_000_000)].prop_map(Step::Clock),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn no_sandbox_waits_longer_than_the_longest_wait(steps in prop::collection::vec(step(), 1..60)) {
        let mut quarantine = Quarantine::default();
        let mut written: BTreeMap<String, PastFailure> = BTreeMap::new();
        let mut now = at(100_000_000);
        for step in steps {
            match step {
                Step::Fail(n) => {
                    let wait = fail(&mut quarantine, &n.to_string(), now);
                    prop_assert!((60..=3600).contains(&wait));
                    let failures = quarantine.get(&sandbox(&n.to_string())).unwrap().failures;
                    written.insert(n.to_string(), past(&n.to_string(), failures, Some(now)));
                }
                Step::Go(n) => {
                    quarantine.gone(&sandbox(&n.to_string()));
                    written.remove(&n.to_string());
                }
                Step::Hold(a, b) => {
                    hold(&mut quarantine, &a.to_string(), &[&b.to_string()], now);
                }
                Step::Clock(seconds) => {
                    let moved = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
                    now = moved.max(Timestamp::UNIX_EPOCH);
                }
                Step::Restart => {
                    quarantine = Quarantine::default();
                    quarantine.restore(written.values().cloned().collect(), BACK_OFF, now);
                }
            }
            let longest = later(now, SignedDuration::from_secs(3600));
            let attempts = quarantine.next_attempts(now);
            prop_assert!(attempts.values().all(|next| *next <= longest), "{attempts:?} {now}");
            prop_assert_eq!(attempts.keys().len(), written.len());
        }
    }
}
