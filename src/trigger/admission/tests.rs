use super::*;
use crate::gc::Limit;
use crate::model::{Cause, Outcome};
use crate::pass::PassEnd;

const MINUTE: Duration = Duration::from_secs(60);

fn admissions() -> Admissions {
    braked_by(Brakes {
        cooldown: MINUTE,
        max_passes_per_hour: None,
        jitter: None,
        pause: false,
    })
}

fn braked_by(brakes: Brakes) -> Admissions {
    Admissions {
        brakes,
        ..Admissions::default()
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(number: usize) -> AlertInfo {
    AlertInfo {
        name: String::new(),
        fingerprint: format!("fingerprint{number}"),
        starts_at: "2026-01-01T00:00:00Z".to_owned(),
        receiver: None,
    }
}

fn alert(number: usize, targets: &[Target]) -> Trigger {
    Trigger {
        info: TriggerInfo {
            alert: Some(key(number)),
            ..Cause::Alert.into()
        },
        targets: targets.iter().copied().collect(),
        options: PassOptions::default(),
    }
}

fn by_hand(targets: &[Target], options: PassOptions) -> Trigger {
    Trigger {
        info: Cause::Manual.into(),
        targets: targets.iter().copied().collect(),
        options,
    }
}

fn dry() -> PassOptions {
    PassOptions {
        dry_run: true,
        ..PassOptions::default()
    }
}

const CONTAINERS: &[Target] = &[Target::Containers];
const SANDBOXES: &[Target] = &[Target::Sandboxes];
const BOTH: &[Target] = &[Target::Containers, Target::Sandboxes];

/// A pass that tried to remove something of both targets.
fn over(outcome: Outcome) -> PassEnd {
    PassEnd {
        outcome,
        dry_run: false,
        tried: BOTH.iter().copied().collect(),
        retry_after: BTreeMap::new(),
    }
}

fn next(admissions: &mut Admissions, now: Duration) -> Option<QueuedPass> {
    let next = admissions.next(now, || "rest".to_owned());
    next.map(|(ticket, _)| ticket)
}

fn finish(admissions: &mut Admissions, outcome: Outcome, now: Duration) {
    let follow_up = admissions.finished(&over(outcome), now, || "follow-up".to_owned());
    assert_eq!(follow_up, None);
}

fn waiting<'a>(admissions: &'a Admissions, id: &str) -> Option<&'a QueuedPass> {
    admissions.waiting().find(|ticket| ticket.id == id)
}

fn set(targets: &[Target]) -> BTreeSet<Target> {
    targets.iter().copied().collect()
}

fn queued(id: &str) -> Admission {
    Admission::with_pass(AlertResult::Accepted, id)
}

fn merged(id: &str) -> Admission {
    Admission::with_pass(AlertResult::Merged, id)
}

fn braked(why: &str) -> Admission {
    Admission::without_pass(AlertResult::Braked, why)
}

/// The options of a pass that carries out a saved plan.
fn plan(id: &str) -> PassOptions {
    let at = |text: &str| text.parse().unwrap();
    PassOptions {
        plan: Some(std::sync::Arc::new(crate::gc::SavedPlan {
            id: id.to_owned(),
            taken_at: at("2026-01-01T12:00:00Z"),
            expires_at: at("2026-01-01T13:00:00Z"),
            objects: crate::gc::PlannedObjects::default(),
        })),
        ..PassOptions::default()
    }
}

fn full() -> Admission {
    Admission::without_pass(
        AlertResult::Unavailable,
        "too many passes are waiting; try again later",
    )
}

#[test]
fn runs_one_pass_at_a_time_in_order() {
    let mut admissions = admissions();
    assert_eq!(
        admissions.admit(by_hand(BOTH, PassOptions::default()), "a", at(0)),
        queued("a")
    );
    assert_eq!(
        admissions.admit(by_hand(BOTH, dry()), "b", at(0)),
        queued("b")
    );
    assert_eq!(next(&mut admissions, at(0)).unwrap().id, "a");
    assert_eq!(next(&mut admissions, at(0)), None);
    finish(&mut admissions, Outcome::Completed, at(1));
    assert_eq!(next(&mut admissions, at(1)).unwrap().id, "b");
    finish(&mut admissions, Outcome::Completed, at(2));
    assert_eq!(next(&mut admissions, at(2)), None);
}

#[test]
fn a_saved_plan_joins_no_other_pass_and_no_other_joins_it() {
    let mut admissions = admissions();
    for (options, id) in [
        (PassOptions::default(), "all"),
        (plan("one"), "one"),
        (plan("two"), "two"),
    ] {
        let admission = admissions.admit(by_hand(BOTH, options), id, at(0));
        assert_eq!(admission, queued(id));
    }
    assert_eq!(
        admissions.admit(alert(1, BOTH), "x", at(0)),
        merged("all"),
        "an alert"
    );
    assert_eq!(next(&mut admissions, at(1)).unwrap().id, "all");
    finish(&mut admissions, Outcome::Completed, at(1));
    assert_eq!(next(&mut admissions, at(2)).unwrap().id, "one");
    // The running pass has begun no target.
    let admission = admissions.admit(alert(2, BOTH), "later", at(400));
    assert_eq!(admission, queued("later"));
    assert!(
        waiting(&admissions, "later")
            .unwrap()
            .options
            .plan
            .is_none()
    );
}

#[test]
fn joins_only_a_waiting_pass_with_the_same_options() {
    let mut admissions = admissions();
    let few = PassOptions {
        max_removals: Some(1),
        ..PassOptions::default()
    };
    assert_eq!(
        admissions.admit(by_hand(CONTAINERS, dry()), "dry", at(0)),
        queued("dry")
    );
    assert_eq!(
        admissions.admit(alert(1, CONTAINERS), "real", at(0)),
        queued("real")
    );
    assert_eq!(
        admissions.admit(by_hand(CONTAINERS, few), "few", at(0)),
        queued("few")
    );
    assert_eq!(
        admissions.admit(alert(2, SANDBOXES), "x", at(0)),
        merged("real")
    );
    assert_eq!(
        admissions.admit(by_hand(SANDBOXES, dry()), "x", at(0)),
        merged("dry")
    );
    assert_eq!(
        waiting(&admissions, "real").unwrap().targets,
        BOTH.iter().copied().collect()
    );
    assert!(waiting(&admissions, "dry").unwrap().options.dry_run);
}

#[test]
fn an_alert_joins_the_running_pass_only_if_that_does_all_it_asks_for() {
    for (options, targets, joins) in [
        (PassOptions::default(), BOTH, true),
        (
            PassOptions {
                force: true,
                ..PassOptions::default()
            },
            BOTH,
            true,
        ),
        (PassOptions::default(), SANDBOXES, false),
        (dry(), BOTH, false),
        (
            PassOptions {
                max_removals: Some(1),
                ..PassOptions::default()
            },
            BOTH,
            false,
        ),
        (
            PassOptions {
                max_dead: Some(Limit::None),
                ..PassOptions::default()
            },
            BOTH,
            false,
        ),
        (
            PassOptions {
                assume_finished_after: Some(MINUTE),
                ..PassOptions::default()
            },
            BOTH,
            false,
        ),
    ] {
        let mut admissions = admissions();
        admissions.admit(by_hand(targets, options.clone()), "a", at(0));
        next(&mut admissions, at(0)).unwrap();
        let expected = if joins { merged("a") } else { queued("b") };
        assert_eq!(
            admissions.admit(alert(1, CONTAINERS), "b", at(1)),
            expected,
            "{options:?}"
        );
    }
}

#[test]
fn a_manual_gc_never_joins_the_running_pass() {
    let mut admissions = admissions();
    admissions.admit(by_hand(BOTH, PassOptions::default()), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    assert_eq!(
        admissions.admit(by_hand(BOTH, PassOptions::default()), "b", at(1)),
        queued("b")
    );
}

#[test]
fn recognises_duplicates_until_their_window_ends() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(1)), merged("a"));
    next(&mut admissions, at(2)).unwrap();
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(3)), merged("a"));
    finish(&mut admissions, Outcome::Completed, at(10));
    assert_eq!(
        admissions.admit(alert(1, BOTH), "b", at(309)),
        Admission::with_pass(AlertResult::Duplicate, "a")
    );
    let mut began_anew = alert(1, BOTH);
    began_anew.info.alert.as_mut().unwrap().starts_at = "2026-02-01T00:00:00Z".to_owned();
    assert_eq!(admissions.admit(began_anew, "c", at(309)), queued("c"));
    admissions.cancel("c").unwrap();
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(310)), queued("b"));
}

#[test]
fn an_alert_whose_pass_did_not_do_the_job_is_no_duplicate() {
    for outcome in [Outcome::Partial, Outcome::Aborted] {
        let mut admissions = admissions();
        admissions.admit(alert(1, BOTH), "a", at(0));
        next(&mut admissions, at(0)).unwrap();
        finish(&mut admissions, outcome, at(10));
        assert_eq!(
            admissions.admit(alert(1, BOTH), "b", at(70)),
            queued("b"),
            "{outcome:?}"
        );
    }
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(admissions.cancel("a").unwrap().id, "a");
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(1)), queued("b"));
}

#[test]
fn withdraws_a_waiting_pass_only_if_no_other_trigger_wants_it() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(admissions.withdraw(&key(2)), None);
    assert_eq!(admissions.withdraw(&key(1)).unwrap().id, "a");
    assert_eq!(admissions.admit(alert(1, BOTH), "b", at(1)), queued("b"));
    admissions.admit(alert(2, BOTH), "x", at(1));
    assert_eq!(admissions.withdraw(&key(1)), None);
    let person = by_hand(BOTH, PassOptions::default());
    assert_eq!(admissions.admit(person, "x", at(1)), queued("x"));
    admissions.admit(alert(3, BOTH), "y", at(1));
    assert_eq!(admissions.withdraw(&key(2)), None);
    assert_eq!(admissions.withdraw(&key(3)).unwrap().id, "b");
    assert_eq!(next(&mut admissions, at(2)).unwrap().id, "x");
}

#[test]
fn withdraws_nothing_that_runs() {
    let mut admissions = admissions();
    admissions.admit(alert(1, BOTH), "a", at(0));
    next(&mut admissions, at(0)).unwrap();
    assert_eq!(admissions.withdraw(&key(1)), None);
    assert_eq!(next(&mut admissions, at(0)), None);
}

#[test]
fn the_queue_is_bounded() {
    let mut admissions = admissions();
    let nth = |n: usize| PassOptions {
        max_removals: Some(n as u64 + 1),
        ..PassOptions::default()
    };
    for n in 0..BY_HAND_MAX {
        assert_eq!(
            admissions.admit(by_hand(BOTH, nth(n)), &n.to_string(), at(0)),
            queued(&n.to_string())
        );
    }
    assert_eq!(
        admissions.admit(by_hand(BOTH, nth(QUEUE_MAX)), "x", at(0)),
        full()
    );
    assert_eq!(
        admissions.admit(alert(1, BOTH), "a", at(0)),
        queued("a"),
        "an alert has a place of its own"
    );
    assert_eq!(
        admissions.admit(by_hand(BOTH, nth(3)), "x", at(0)),
        merged("3")
    );
    assert_eq!(admissions.drain().len(), QUEUE_MAX);
    assert_eq!(admissions.admit(alert(2, BOTH), "x", at(0)), queued("x"));
}

#[test]
fn the_number_of_remembered_alerts_is_bounded() {
    let mut admissions = admissions();
    admissions.admit(by_hand(SANDBOXES, dry()), "dry", at(0));
    next(&mut admissions, at(0)).unwrap();
    for n in 0..=SEEN_MAX {
        admissions.admit(alert(n, BOTH), "a", at(0));
    }
    assert_eq!(admissions.seen.len(), SEEN_MAX);
    assert_eq!(
        waiting(&admissions, "a").unwrap().requests.alerts().count(),
        SEEN_MAX
    );
    // One alert is not remembered, so all others together cannot withdraw the pass.
    for n in 0..=SEEN_MAX {
        assert_eq!(admissions.withdraw(&key(n)), None, "{n}");
    }
    finish(&mut admissions, Outcome::Completed, at(0));
    assert_eq!(next(&mut admissions, at(0)).unwrap().id, "a");
}

#[test]
fn extreme_times_do_not_overflow() {
    let mut admissions = braked_by(Brakes {
        cooldown: Duration::MAX,
        max_passes_per_hour: Some(1),
        jitter: None,
        pause: false,
    });
    admissions.admit(alert(1, BOTH), "a", at(5));
    next(&mut admissions, at(5)).unwrap();
    finish(&mut admissions, Outcome::Partial, at(9));
    let braked = braked(SPENT);
    assert_eq!(admissions.admit(alert(2, BOTH), "b", at(3)), braked);
    admissions.brakes.max_passes_per_hour = None;
    let admission = admissions.admit(alert(2, BOTH), "b", at(3));
    assert_eq!(admission, queued("b"));
    assert_eq!(next(&mut admissions, at(u64::MAX)), None);
    assert_eq!(admissions.due(at(3)), Some(Duration::MAX));
}

mod any_sequence;
mod brakes;
mod pending;
mod waits;
