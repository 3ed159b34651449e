//! Cool-down, pause, passes per hour.

use super::*;

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
