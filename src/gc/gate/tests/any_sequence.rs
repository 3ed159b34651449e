//! Any sequence of triggers, ends and clock steps, against a plain account of what happened.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Alert(usize, &'static [Target]),
    ByHand(Options, &'static [Target]),
    Next,
    Finished(Outcome),
    Withdraw(usize),
    Cancel(usize),
    Brakes(Brakes),
    Clock(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let targets = || select(vec![CONTAINERS, SANDBOXES, BOTH]);
    let options =
        (any::<bool>(), any::<bool>(), 0..4_u64).prop_map(|(dry_run, force, max)| Options {
            dry_run,
            force,
            max_removals: (max > 1).then_some(max),
            assume_finished_after: None,
        });
    let brakes = (
        select(vec![0, 60, 600]),
        select(vec![None, Some(0), Some(1), Some(3)]),
        0..4_u32,
    );
    prop::collection::vec(
        prop_oneof![
            4 => (0..6_usize, targets()).prop_map(|(alert, targets)| Step::Alert(alert, targets)),
            3 => (options, targets()).prop_map(|(options, targets)| Step::ByHand(options, targets)),
            5 => Just(Step::Next),
            4 => select(Outcome::ALL.to_vec()).prop_map(Step::Finished),
            1 => (0..6_usize).prop_map(Step::Withdraw),
            1 => (0..60_usize).prop_map(Step::Cancel),
            1 => brakes.prop_map(|(cooldown, max_passes_per_hour, pause)| Step::Brakes(Brakes {
                cooldown: at(cooldown),
                max_passes_per_hour,
                pause: pause == 0,
            })),
            3 => select(vec![0, 1, 59, 60, 61, 299, 300, 600, 3600]).prop_map(Step::Clock),
        ],
        0..60,
    )
}

/// A pass as the account has it.
#[derive(Clone, Debug, Default)]
struct Wish {
    targets: BTreeSet<Target>,
    by_hand: BTreeSet<Target>,
    alerts: BTreeSet<usize>,
    manual: bool,
    options: Options,
}

#[derive(Default)]
struct Account {
    waiting: BTreeMap<String, Wish>,
    running: Option<(String, Wish)>,
    /// Real ones, ever.
    starts: Vec<Duration>,
    ends: BTreeMap<Target, Duration>,
    /// Passes that ended well, and when.
    answered: BTreeMap<String, Duration>,
}

impl Account {
    fn admitted(&mut self, trigger: &Trigger, alert: Option<usize>, id: &str, answer: &Admission) {
        let id = match answer {
            Admission::Queued => id,
            Admission::Merged(id) => id.as_str(),
            Admission::Duplicate(_) | Admission::Braked(_) | Admission::QueueFull => return,
        };
        if let Some((running, wish)) = &mut self.running
            && running == id
        {
            assert!(
                trigger.cause == Cause::Alert && !wish.options.dry_run,
                "joined {wish:?}"
            );
            wish.alerts.extend(alert);
            return;
        }
        let new = Wish {
            options: trigger.options.clone(),
            ..Wish::default()
        };
        let wish = self.waiting.entry(id.to_owned()).or_insert(new);
        assert_eq!(wish.options, trigger.options);
        let known = alert.is_some_and(|alert| !wish.alerts.insert(alert));
        if !known {
            wish.targets.extend(&trigger.targets);
        }
        if trigger.cause == Cause::Manual {
            wish.manual = true;
            wish.by_hand.extend(&trigger.targets);
        }
    }

    fn started(&mut self, ticket: &Ticket, brakes: Brakes, now: Duration) {
        assert!(self.running.is_none(), "two at a time");
        let wish = self.waiting.remove(&ticket.id).expect("it waited");
        assert_eq!(ticket.options, wish.options);
        assert!(
            !brakes.pause || wish.options.force || wish.options.dry_run,
            "paused: {wish:?}"
        );
        assert!(wish.by_hand.is_subset(&ticket.targets) && ticket.targets.is_subset(&wish.targets));
        for target in ticket.targets.difference(&wish.by_hand) {
            let cool = self
                .ends
                .get(target)
                .is_none_or(|end| now.saturating_sub(*end) >= brakes.cooldown);
            assert!(cool, "{target} is cooling down");
        }
        if wish.by_hand.is_empty() && !ticket.targets.is_empty() {
            let recent = self
                .starts
                .iter()
                .filter(|start| now.saturating_sub(**start) < at(3600))
                .count();
            // Fewer are remembered after the brake was loosened.
            let max = brakes
                .max_passes_per_hour
                .map_or(usize::MAX, |max| max as usize);
            assert!(
                recent < max || self.loosened(),
                "{recent} starts, {brakes:?}"
            );
        }
        if !ticket.options.dry_run && !ticket.targets.is_empty() {
            self.starts.push(now);
        }
        let targets = ticket.targets.clone();
        self.running = Some((ticket.id.clone(), Wish { targets, ..wish }));
    }

    fn loosened(&self) -> bool {
        self.answered.contains_key("loosened")
    }

    fn finished(&mut self, outcome: Outcome, now: Duration) {
        let Some((id, wish)) = self.running.take() else {
            return;
        };
        let well = matches!(
            outcome,
            Outcome::Completed | Outcome::Planned | Outcome::NothingToDo
        );
        if well && !wish.targets.is_empty() {
            self.answered.insert(id, now);
        }
        if !wish.options.dry_run {
            self.ends
                .extend(wish.targets.iter().map(|target| (*target, now)));
        }
    }

    fn judge(&self, trigger: &Trigger, answer: &Admission, brakes: Brakes, now: Duration) {
        match answer {
            Admission::Braked(Brake::Pause) => {
                assert!(brakes.pause && !trigger.options.force && !trigger.options.dry_run);
            }
            Admission::Braked(_) => assert_eq!(trigger.cause, Cause::Alert),
            Admission::QueueFull => assert_eq!(self.waiting.len(), QUEUE_MAX),
            Admission::Duplicate(pass) => {
                assert!(now.saturating_sub(self.answered[pass]) < DUPLICATE_WINDOW);
            }
            Admission::Merged(pass) => {
                let runs = self.running.as_ref().is_some_and(|(id, _)| id == pass);
                assert!(runs || self.waiting.contains_key(pass), "joined nothing");
            }
            Admission::Queued => {}
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 2000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn keeps_its_promises(steps in steps()) {
        let mut gate = gate();
        let mut account = Account::default();
        let mut now = at(0);
        for (number, step) in steps.into_iter().enumerate() {
            let id = number.to_string();
            let mut admit = |trigger: Trigger, alert: Option<usize>| {
                let answer = gate.admit(trigger.clone(), &id, now);
                account.judge(&trigger, &answer, gate.brakes(), now);
                account.admitted(&trigger, alert, &id, &answer);
            };
            match step {
                Step::Alert(number, targets) => admit(alert(number, targets), Some(number)),
                Step::ByHand(options, targets) => admit(by_hand(targets, options), None),
                Step::Next => {
                    if let Some(ticket) = gate.next(now) {
                        account.started(&ticket, gate.brakes(), now);
                    }
                }
                Step::Finished(outcome) => {
                    gate.finished(outcome, now);
                    account.finished(outcome, now);
                }
                Step::Withdraw(number) => {
                    let waits =
                        account.waiting.iter_mut().find(|it| it.1.alerts.contains(&number));
                    let waits = waits.map(|(id, wish)| {
                        wish.alerts.remove(&number);
                        (id, wish)
                    });
                    let alone = waits.filter(|(_, wish)| wish.alerts.is_empty() && !wish.manual);
                    let alone = alone.map(|(id, _)| id.clone());
                    let taken = gate.withdraw(&key(number)).map(|ticket| ticket.id);
                    prop_assert_eq!(&taken, &alone);
                    alone.and_then(|id| account.waiting.remove(&id));
                }
                Step::Cancel(number) => {
                    let taken = gate.cancel(&number.to_string()).map(|ticket| ticket.id);
                    let waited = account.waiting.remove(&number.to_string());
                    prop_assert_eq!(taken.is_some(), waited.is_some());
                }
                Step::Brakes(brakes) => {
                    account.answered.insert("loosened".into(), now);
                    gate.set_brakes(brakes);
                }
                Step::Clock(seconds) => now += at(seconds),
            }
            prop_assert!(gate.queue.len() <= QUEUE_MAX && gate.seen.len() <= SEEN_MAX);
            let waiting: BTreeSet<String> = gate.queue.iter().map(|it| it.id.clone()).collect();
            prop_assert_eq!(waiting, account.waiting.keys().cloned().collect::<BTreeSet<_>>());
        }
    }
}
