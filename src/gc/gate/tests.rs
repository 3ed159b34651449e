use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn gate() -> Gate {
    Gate::new(Brakes {
        cooldown: MINUTE,
        max_passes_per_hour: None,
        pause: false,
    })
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(number: usize) -> AlertKey {
    (
        format!("fingerprint{number}"),
        "2026-01-01T00:00:00Z".to_owned(),
    )
}

fn alert(number: usize, targets: &[Target]) -> Trigger {
    Trigger {
        cause: Cause::Alert,
        targets: targets.iter().copied().collect(),
        options: Options::default(),
        alert: Some(key(number)),
    }
}

fn by_hand(targets: &[Target], options: Options) -> Trigger {
    Trigger {
        cause: Cause::Manual,
        targets: targets.iter().copied().collect(),
        options,
        alert: None,
    }
}

fn dry() -> Options {
    Options {
        dry_run: true,
        ..Options::default()
    }
}

const CONTAINERS: &[Target] = &[Target::Containers];
const SANDBOXES: &[Target] = &[Target::Sandboxes];
const BOTH: &[Target] = &Target::ALL;

fn merged(id: &str) -> Admission {
    Admission::Merged(id.to_owned())
}

#[test]
fn runs_one_pass_at_a_time_in_order() {
    let mut gate = gate();
    assert_eq!(
        gate.admit(by_hand(BOTH, Options::default()), "a", at(0)),
        Admission::Queued
    );
    assert_eq!(
        gate.admit(by_hand(BOTH, dry()), "b", at(0)),
        Admission::Queued
    );
    assert_eq!(gate.next(at(0)).unwrap().id, "a");
    assert_eq!(gate.next(at(0)), None);
    gate.finished(Outcome::Completed, at(1));
    assert_eq!(gate.next(at(1)).unwrap().id, "b");
    gate.finished(Outcome::Completed, at(2));
    assert_eq!(gate.next(at(2)), None);
}

#[test]
fn joins_only_a_waiting_pass_with_the_same_options() {
    let mut gate = gate();
    let few = Options {
        max_removals: Some(1),
        ..Options::default()
    };
    assert_eq!(
        gate.admit(by_hand(CONTAINERS, dry()), "dry", at(0)),
        Admission::Queued
    );
    assert_eq!(
        gate.admit(alert(1, CONTAINERS), "real", at(0)),
        Admission::Queued
    );
    assert_eq!(
        gate.admit(by_hand(CONTAINERS, few), "few", at(0)),
        Admission::Queued
    );
    assert_eq!(gate.admit(alert(2, SANDBOXES), "x", at(0)), merged("real"));
    assert_eq!(
        gate.admit(by_hand(SANDBOXES, dry()), "x", at(0)),
        merged("dry")
    );
    assert_eq!(
        gate.waiting("real").unwrap().targets,
        BOTH.iter().copied().collect()
    );
    assert!(gate.waiting("dry").unwrap().options.dry_run);
}

#[test]
fn an_alert_joins_the_running_pass_only_if_that_does_all_it_asks_for() {
    for (options, targets, joins) in [
        (Options::default(), BOTH, true),
        (
            Options {
                force: true,
                ..Options::default()
            },
            BOTH,
            true,
        ),
        (Options::default(), SANDBOXES, false),
        (dry(), BOTH, false),
        (
            Options {
                max_removals: Some(1),
                ..Options::default()
            },
            BOTH,
            false,
        ),
        (
            Options {
                assume_finished_after: Some(MINUTE),
                ..Options::default()
            },
            BOTH,
            false,
        ),
    ] {
        let mut gate = gate();
        gate.admit(by_hand(targets, options.clone()), "a", at(0));
        gate.next(at(0)).unwrap();
        let expected = if joins {
            merged("a")
        } else {
            Admission::Queued
        };
        assert_eq!(
            gate.admit(alert(1, CONTAINERS), "b", at(1)),
            expected,
            "{options:?}"
        );
    }
}

#[test]
fn a_person_never_joins_the_running_pass() {
    let mut gate = gate();
    gate.admit(by_hand(BOTH, Options::default()), "a", at(0));
    gate.next(at(0)).unwrap();
    assert_eq!(
        gate.admit(by_hand(BOTH, Options::default()), "b", at(1)),
        Admission::Queued
    );
}

#[test]
fn the_cool_down_ends_exactly_when_it_is_over() {
    let mut gate = gate();
    gate.admit(alert(1, CONTAINERS), "a", at(0));
    gate.next(at(0)).unwrap();
    gate.finished(Outcome::Completed, at(10));
    let left = Admission::Braked(Brake::CoolDown(at(1)));
    assert_eq!(gate.admit(alert(2, CONTAINERS), "b", at(69)), left);
    assert_eq!(
        gate.admit(alert(2, CONTAINERS), "b", at(70)),
        Admission::Queued
    );
}

#[test]
fn the_cool_down_takes_only_its_target_away_and_never_binds_people() {
    let mut gate = gate();
    gate.admit(alert(1, CONTAINERS), "a", at(0));
    gate.next(at(0)).unwrap();
    gate.finished(Outcome::Completed, at(10));
    assert_eq!(gate.admit(alert(2, BOTH), "b", at(11)), Admission::Queued);
    assert_eq!(
        gate.waiting("b").unwrap().targets,
        SANDBOXES.iter().copied().collect()
    );
    assert_eq!(
        gate.admit(by_hand(CONTAINERS, Options::default()), "c", at(11)),
        merged("b")
    );
    assert_eq!(
        gate.next(at(12)).unwrap().targets,
        BOTH.iter().copied().collect()
    );
}

#[test]
fn a_pass_that_ends_while_an_alert_waits_cools_it_down_too() {
    let mut gate = gate();
    gate.admit(by_hand(CONTAINERS, Options::default()), "a", at(0));
    gate.next(at(0)).unwrap();
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), Admission::Queued);
    gate.finished(Outcome::Completed, at(10));
    let ticket = gate.next(at(11)).unwrap();
    assert_eq!(ticket.targets, SANDBOXES.iter().copied().collect());
    assert_eq!(ticket.braked, Some(Brake::CoolDown(at(59))));
}

#[test]
fn an_alert_whose_pass_was_braked_away_may_ask_again() {
    let mut gate = gate();
    gate.admit(
        by_hand(
            CONTAINERS,
            Options {
                force: true,
                ..dry()
            },
        ),
        "dry",
        at(0),
    );
    gate.next(at(0)).unwrap();
    gate.finished(Outcome::Completed, at(1));
    let few = Options {
        max_removals: Some(1),
        ..Options::default()
    };
    gate.admit(by_hand(CONTAINERS, few), "few", at(2));
    gate.next(at(2)).unwrap();
    assert_eq!(
        gate.admit(alert(1, CONTAINERS), "b", at(3)),
        Admission::Queued
    );
    gate.finished(Outcome::Partial, at(4));
    assert_eq!(gate.next(at(5)).unwrap().targets, BTreeSet::new());
    gate.finished(Outcome::NothingToDo, at(5));
    assert_eq!(
        gate.admit(alert(1, CONTAINERS), "c", at(64)),
        Admission::Queued
    );
    assert_eq!(
        gate.next(at(64)).unwrap().targets,
        CONTAINERS.iter().copied().collect()
    );
}

#[test]
fn a_dry_run_cools_nothing_down() {
    let mut gate = gate();
    gate.admit(by_hand(BOTH, dry()), "a", at(0));
    gate.next(at(0)).unwrap();
    gate.finished(Outcome::Completed, at(1));
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), Admission::Queued);
}

#[test]
fn recognises_duplicates_until_their_window_ends() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), merged("a"));
    gate.next(at(2)).unwrap();
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(3)), merged("a"));
    gate.finished(Outcome::Completed, at(10));
    assert_eq!(
        gate.admit(alert(1, BOTH), "b", at(309)),
        Admission::Duplicate("a".into())
    );
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(310)), Admission::Queued);
}

#[test]
fn an_alert_whose_pass_did_not_do_the_job_is_no_duplicate() {
    for outcome in [Outcome::Partial, Outcome::Aborted] {
        let mut gate = gate();
        gate.admit(alert(1, BOTH), "a", at(0));
        gate.next(at(0)).unwrap();
        gate.finished(outcome, at(10));
        assert_eq!(
            gate.admit(alert(1, BOTH), "b", at(70)),
            Admission::Queued,
            "{outcome:?}"
        );
    }
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(gate.cancel("a").unwrap().id, "a");
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), Admission::Queued);
}

#[test]
fn withdraws_a_waiting_pass_only_if_nobody_else_wants_it() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    assert_eq!(gate.withdraw(&key(2)), None);
    assert_eq!(gate.withdraw(&key(1)).unwrap().id, "a");
    assert_eq!(gate.admit(alert(1, BOTH), "b", at(1)), Admission::Queued);
    gate.admit(alert(2, BOTH), "x", at(1));
    assert_eq!(gate.withdraw(&key(1)), None);
    gate.admit(by_hand(BOTH, Options::default()), "x", at(1));
    assert_eq!(gate.withdraw(&key(2)), None);
    assert_eq!(gate.next(at(2)).unwrap().id, "b");
}

#[test]
fn withdraws_nothing_that_runs() {
    let mut gate = gate();
    gate.admit(alert(1, BOTH), "a", at(0));
    gate.next(at(0)).unwrap();
    assert_eq!(gate.withdraw(&key(1)), None);
    assert_eq!(gate.next(at(0)), None);
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
        gate.admit(by_hand(BOTH, Options::default()), "b", at(0)),
        paused
    );
    assert_eq!(gate.next(at(0)), None, "what waits keeps waiting");
    let force = Options {
        force: true,
        ..Options::default()
    };
    assert_eq!(
        gate.admit(by_hand(BOTH, force), "forced", at(0)),
        Admission::Queued
    );
    assert_eq!(
        gate.admit(by_hand(BOTH, dry()), "dry", at(0)),
        Admission::Queued
    );
    assert_eq!(gate.next(at(0)).unwrap().id, "forced");
    gate.finished(Outcome::Completed, at(1));
    assert_eq!(gate.next(at(1)).unwrap().id, "dry");
    gate.finished(Outcome::Completed, at(2));
    assert_eq!(gate.next(at(100)), None);
    gate.set_brakes(Brakes {
        pause: false,
        ..gate.brakes()
    });
    assert_eq!(gate.next(at(100)).unwrap().id, "before");
}

#[test]
fn counts_passes_per_hour_for_alerts_and_lets_people_through() {
    let mut gate = Gate::new(Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: Some(2),
        pause: false,
    });
    let run = |gate: &mut Gate, trigger: Trigger, now: u64| {
        let admission = gate.admit(trigger, "id", at(now));
        if gate.next(at(now)).is_some() {
            gate.finished(Outcome::Partial, at(now));
        }
        admission
    };
    assert_eq!(run(&mut gate, alert(1, BOTH), 0), Admission::Queued);
    assert_eq!(run(&mut gate, by_hand(BOTH, dry()), 1), Admission::Queued);
    assert_eq!(
        run(&mut gate, by_hand(BOTH, Options::default()), 1),
        Admission::Queued
    );
    let braked = Admission::Braked(Brake::PassesPerHour);
    assert_eq!(run(&mut gate, alert(2, BOTH), 3599), braked);
    assert_eq!(
        run(&mut gate, by_hand(BOTH, Options::default()), 3599),
        Admission::Queued
    );
    assert_eq!(run(&mut gate, alert(2, BOTH), 3600), braked);
    assert_eq!(run(&mut gate, alert(2, BOTH), 3601), Admission::Queued);
}

#[test]
fn the_queue_is_bounded() {
    let mut gate = gate();
    let nth = |n: usize| Options {
        max_removals: Some(n as u64 + 1),
        ..Options::default()
    };
    for n in 0..QUEUE_MAX {
        assert_eq!(
            gate.admit(by_hand(BOTH, nth(n)), &n.to_string(), at(0)),
            Admission::Queued
        );
    }
    assert_eq!(
        gate.admit(by_hand(BOTH, nth(QUEUE_MAX)), "x", at(0)),
        Admission::QueueFull
    );
    assert_eq!(gate.admit(alert(1, BOTH), "x", at(0)), Admission::QueueFull);
    assert_eq!(gate.admit(by_hand(BOTH, nth(3)), "x", at(0)), merged("3"));
    assert_eq!(gate.drain().len(), QUEUE_MAX);
    assert_eq!(gate.admit(alert(1, BOTH), "x", at(0)), Admission::Queued);
}

#[test]
fn what_it_remembers_of_alerts_is_bounded() {
    let mut gate = gate();
    gate.admit(by_hand(SANDBOXES, dry()), "dry", at(0));
    gate.next(at(0)).unwrap();
    for n in 0..=SEEN_MAX {
        gate.admit(alert(n, BOTH), "a", at(0));
    }
    assert_eq!(gate.seen.len(), SEEN_MAX);
    assert_eq!(gate.waiting("a").unwrap().alerts.len(), SEEN_MAX);
    // One of them is not remembered, so that all others together cannot take the pass back.
    for n in 0..=SEEN_MAX {
        assert_eq!(gate.withdraw(&key(n)), None, "{n}");
    }
    gate.finished(Outcome::Completed, at(0));
    assert_eq!(gate.next(at(0)).unwrap().id, "a");
}

#[test]
fn extreme_times_do_not_overflow() {
    let mut gate = Gate::new(Brakes {
        cooldown: Duration::MAX,
        max_passes_per_hour: Some(1),
        pause: false,
    });
    gate.admit(alert(1, BOTH), "a", at(5));
    gate.next(at(5)).unwrap();
    gate.finished(Outcome::Partial, at(9));
    let admission = gate.admit(alert(2, BOTH), "b", at(3));
    assert!(
        matches!(admission, Admission::Braked(Brake::CoolDown(_))),
        "{admission:?}"
    );
}

mod any_sequence;
