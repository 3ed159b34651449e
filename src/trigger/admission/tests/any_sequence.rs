//! Any sequence of triggers, pass ends and clock steps, compared with a plain log of events.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;

use super::*;
use crate::fleet::Standing;

#[derive(Clone, Debug)]
enum Step {
    Alert(usize, &'static [Target]),
    ByHand(PassOptions, &'static [Target]),
    Next,
    /// The outcome, and for how long the containers are postponed.
    Finished(Outcome, Option<u64>),
    Withdraw(usize),
    Cancel(usize),
    Brakes(Brakes),
    /// What the fleet asks for, and whether half of the next jitter is drawn or nothing.
    Fleet(Standing, bool),
    Clock(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let targets = || select(vec![CONTAINERS, SANDBOXES, BOTH]);
    let options =
        (any::<bool>(), any::<bool>(), 0..4_u64).prop_map(|(dry_run, force, max)| PassOptions {
            dry_run,
            force,
            max_removals: (max > 1).then_some(max),
            ..PassOptions::default()
        });
    let brakes = (
        select(vec![0, 60, 600]),
        select(vec![None, Some(0), Some(1), Some(3)]),
        0..4_u32,
        select(vec![None, Some(at(100))]),
    );
    let fleet = (
        0..12_u32,
        select(vec![&[], CONTAINERS, BOTH]),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(brake, budget, has_slot, draw)| {
            let says = |number: u32| (brake == number).then(|| HELD.to_owned());
            let standing = Standing {
                held: says(0),
                unknown: says(1),
                storm: says(2),
                budget: set(budget),
                has_slot,
            };
            Step::Fleet(standing, draw)
        });
    prop::collection::vec(
        prop_oneof![
            4 => (0..6_usize, targets()).prop_map(|(alert, targets)| Step::Alert(alert, targets)),
            3 => (options, targets()).prop_map(|(options, targets)| Step::ByHand(options, targets)),
            5 => Just(Step::Next),
            4 => (select(Outcome::ALL.to_vec()), select(vec![None, Some(30), Some(4000)]))
                .prop_map(|(outcome, left)| Step::Finished(outcome, left)),
            1 => (0..6_usize).prop_map(Step::Withdraw),
            1 => (0..60_usize).prop_map(Step::Cancel),
            1 => brakes.prop_map(|(cooldown, max_passes_per_hour, pause, jitter)| Step::Brakes(Brakes {
                cooldown: at(cooldown),
                max_passes_per_hour,
                jitter,
                pause: pause == 0,
            })),
            2 => fleet,
            3 => select(vec![0, 1, 59, 60, 61, 299, 300, 600, 3600]).prop_map(Step::Clock),
        ],
        0..60,
    )
}

/// Reason of a refusal by the fleet's hold.
const HELD: &str = "held";
/// Draws half of a jitter.
const HALF: u32 = 1 << 31;

/// A pass in the log.
#[derive(Clone, Debug, Default)]
struct ExpectedPass {
    targets: BTreeSet<Target>,
    by_hand: bool,
    /// Targets that another pass postponed, and until when.
    due: BTreeMap<Target, Duration>,
    /// What each alert asks for; nothing, if it resolved while the pass ran.
    alerts: BTreeMap<usize, BTreeSet<Target>>,
    /// When its jitter began, and whether half of it is drawn.
    asked: Option<(Duration, bool)>,
    options: PassOptions,
}

impl ExpectedPass {
    fn automatic(&self) -> BTreeSet<Target> {
        self.alerts.values().flatten().copied().collect()
    }

    /// The part of it that is about these targets.
    fn part(&self, targets: &BTreeSet<Target>) -> Self {
        Self {
            targets: targets.clone(),
            alerts: asked_of(&self.alerts, |target| targets.contains(target)),
            ..self.clone()
        }
    }
}

fn asked_of(
    alerts: &BTreeMap<usize, BTreeSet<Target>>,
    counts: impl Fn(&Target) -> bool,
) -> BTreeMap<usize, BTreeSet<Target>> {
    let asked = alerts.iter().map(|(alert, asked)| {
        let asked: BTreeSet<Target> = asked.iter().filter(|it| counts(it)).copied().collect();
        (*alert, asked)
    });
    asked.filter(|(_, asked)| !asked.is_empty()).collect()
}

#[derive(Default)]
struct Account {
    waiting: BTreeMap<String, ExpectedPass>,
    running: Option<(String, ExpectedPass)>,
    since: Duration,
    /// When passes began that tried a target, since the start.
    passes_tried: Vec<(Target, Duration)>,
    ends: BTreeMap<Target, Duration>,
    /// Passes that ended well, and when.
    answered: BTreeMap<String, Duration>,
    fleet: Standing,
    draw: bool,
}

impl Account {
    /// `id` is the pass that the trigger queued or joined; `ticket` is that pass if it waits.
    fn admitted(
        &mut self,
        trigger: &Trigger,
        alert: Option<usize>,
        (id, ticket): (&str, Option<&QueuedPass>),
        now: Duration,
    ) {
        let automatic = trigger.info.cause == Cause::Alert;
        let Some(ticket) = ticket else {
            if let Some((_, expected)) = self.running.as_mut().filter(|(running, _)| running == id)
            {
                assert!(
                    automatic && !expected.options.dry_run,
                    "joined {expected:?}"
                );
                if let Some(alert) = alert {
                    let asked = expected.alerts.entry(alert).or_default();
                    if asked.is_empty() {
                        asked.extend(trigger.targets.intersection(&expected.targets));
                    }
                }
            }
            return;
        };
        let new = ExpectedPass {
            options: trigger.options.clone(),
            by_hand: !automatic,
            ..ExpectedPass::default()
        };
        let expected = self.waiting.entry(id.to_owned()).or_insert(new);
        assert_eq!(expected.options, trigger.options);
        assert!(
            automatic || expected.by_hand,
            "a person joined an automatic pass"
        );
        let most = expected.targets.union(&trigger.targets).copied().collect();
        assert!(ticket.targets.is_superset(&expected.targets) && ticket.targets.is_subset(&most));
        expected.targets.clone_from(&ticket.targets);
        expected
            .due
            .retain(|target, _| ticket.not_before.contains_key(target));
        if let Some(alert) = alert {
            // One that is known to wait asks for no more than before, and none for what reached its hourly limit.
            let before = expected.alerts.entry(alert).or_default();
            let most = before.union(&trigger.targets).copied().collect();
            let mut requests = ticket.requests.clone();
            let asked = requests.of_alert(&alert_key(&key(alert))).unwrap();
            assert!(asked.is_superset(before) && asked.is_subset(&most));
            before.clone_from(asked);
        }
        assert_eq!(ticket.requests.targets(), expected.automatic());
        if automatic {
            expected.asked = expected.asked.or(Some((now, self.draw)));
        } else {
            assert!(ticket.targets.is_superset(&trigger.targets));
        }
    }

    fn started(
        &mut self,
        ticket: &QueuedPass,
        rest: Option<&QueuedPass>,
        brakes: Brakes,
        now: Duration,
    ) {
        assert!(self.running.is_none(), "two at a time");
        let expected = self.waiting.remove(&ticket.id).expect("it waited");
        assert_eq!(ticket.options, expected.options);
        let stops = brakes.pause || self.fleet.held.is_some();
        let is_free = expected.options.force || expected.options.dry_run;
        assert!(!stops || is_free, "paused: {expected:?}");
        assert!(!ticket.targets.is_empty());
        let left = rest.map(|rest| rest.targets.clone()).unwrap_or_default();
        assert!(left.is_disjoint(&ticket.targets), "{left:?}");
        assert_eq!(
            left.union(&ticket.targets)
                .copied()
                .collect::<BTreeSet<_>>(),
            expected.targets
        );
        let targets = expected.targets.iter().copied();
        let ready = targets.filter(|target| !self.is_held(&expected, *target, brakes, now));
        let ready: BTreeSet<Target> = ready.collect();
        // After the brake was loosened, fewer attempts are remembered.
        assert!(
            ticket.targets == ready || self.loosened(),
            "{ready:?} of {expected:?}"
        );
        self.heeds_the_fleet(ticket, &expected);
        if let Some(rest) = rest {
            assert!(!expected.by_hand, "a person waits: {expected:?}");
            self.waiting
                .insert(rest.id.clone(), expected.part(&rest.targets));
        }
        self.since = now;
        self.running = Some((ticket.id.clone(), expected.part(&ticket.targets)));
    }

    /// An automatic pass begins only while alerts want all of it and no brake of the fleet would end it.
    fn heeds_the_fleet(&self, ticket: &QueuedPass, expected: &ExpectedPass) {
        let bound = ticket.braked();
        if expected.options.force || expected.options.dry_run || expected.by_hand {
            assert_eq!(bound, set(&[]));
            return;
        }
        assert_eq!(bound, ticket.targets);
        let is_wanted = bound.is_subset(&expected.automatic());
        assert!(is_wanted, "it is not wanted: {ticket:?}");
        assert_eq!(self.fleet.stops_automatic(), None);
        assert!(self.fleet.has_slot || self.fleet.budget.is_disjoint(&bound));
    }

    fn is_held(
        &self,
        expected: &ExpectedPass,
        target: Target,
        brakes: Brakes,
        now: Duration,
    ) -> bool {
        let end = self.ends.get(&target);
        let cools = end.is_some_and(|end| now.saturating_sub(*end) < brakes.cooldown);
        let waits = expected.due.get(&target).is_some_and(|due| *due > now);
        let half = brakes.jitter.unwrap_or_default() / 2;
        let jitters = expected
            .asked
            .is_some_and(|(since, draw)| draw && now < since + half);
        let lacks_slot = self.fleet.budget.contains(&target) && !self.fleet.has_slot;
        let stops = self.fleet.waits().is_some() || lacks_slot;
        let held = cools || waits || jitters || stops || self.is_spent(target, brakes, now);
        !expected.by_hand && held
    }

    fn is_spent(&self, target: Target, brakes: Brakes, now: Duration) -> bool {
        let recent = |(other, since): &&(Target, Duration)| {
            *other == target && now.saturating_sub(*since) < at(3600)
        };
        let count = self.passes_tried.iter().filter(recent).count();
        brakes
            .max_passes_per_hour
            .is_some_and(|max| count >= max as usize)
    }

    fn loosened(&self) -> bool {
        self.answered.contains_key("loosened")
    }

    /// `may_be_left`: what alerts asked for of the pass since an earlier pass left it.
    fn finished(
        &mut self,
        over: &PassEnd,
        may_be_left: &BTreeSet<Target>,
        follow_up: Option<&QueuedPass>,
        now: Duration,
    ) {
        let Some((id, expected)) = self.running.take() else {
            assert_eq!(follow_up, None);
            return;
        };
        if matches!(over.outcome, Outcome::Completed | Outcome::NothingToDo) {
            self.answered.insert(id, now);
        }
        if !expected.options.dry_run {
            self.ends
                .extend(expected.targets.iter().map(|target| (*target, now)));
            let since = self.since;
            self.passes_tried
                .extend(over.tried.iter().map(|target| (*target, since)));
        }
        let mut retry_after = over.retry_after.clone();
        assert!(may_be_left.is_subset(&expected.automatic()));
        retry_after.retain(|target, _| may_be_left.contains(target));
        if retry_after.is_empty() {
            assert_eq!(follow_up, None);
            return;
        }
        let waits = self
            .waiting
            .iter_mut()
            .find(|(_, it)| it.options == PassOptions::default() && !it.by_hand);
        let into = match (follow_up, waits) {
            (None, Some((_, waits))) => waits,
            (Some(ticket), None) => self.waiting.entry(ticket.id.clone()).or_default(),
            (None, None) => panic!("the place of automatic passes was taken"),
            (Some(_), Some(_)) => panic!("two pending passes"),
        };
        for (target, after) in &retry_after {
            if into.targets.insert(*target) {
                into.due.insert(*target, now + *after);
            }
        }
        for (alert, asked) in asked_of(&expected.alerts, |target| retry_after.contains_key(target))
        {
            into.alerts.entry(alert).or_default().extend(asked);
        }
        into.asked = into.asked.or(Some((now, self.draw)));
    }

    /// Takes a resolved alert back; returns the pass that nothing else wants.
    fn withdrawn(&mut self, alert: usize) -> Option<String> {
        if let Some((_, expected)) = &mut self.running {
            expected.alerts.entry(alert).and_modify(BTreeSet::clear);
        }
        let waiting = self.waiting.values_mut();
        for expected in waiting.filter(|it| it.alerts.contains_key(&alert)) {
            expected.alerts.remove(&alert);
            let wanted = expected.automatic();
            expected
                .targets
                .retain(|target| expected.by_hand || wanted.contains(target));
            expected.due.retain(|target, _| wanted.contains(target));
            expected.asked = expected.asked.filter(|_| !wanted.is_empty());
        }
        let mut waiting = self.waiting.iter();
        let unwanted = waiting.find(|(_, expected)| expected.targets.is_empty());
        let id = unwanted.map(|(id, _)| id.clone())?;
        self.waiting.remove(&id);
        Some(id)
    }

    fn set_fleet(&mut self, fleet: Standing, draw: bool, now: Duration) {
        let before = std::mem::replace(&mut self.fleet, fleet);
        self.draw = draw;
        if before.stops_automatic().is_some() && self.fleet.stops_automatic().is_none() {
            for expected in self
                .waiting
                .values_mut()
                .filter(|expected| !expected.by_hand)
            {
                expected.asked = Some((now, draw));
            }
        }
    }

    fn judge(&self, trigger: &Trigger, answer: &Admission, brakes: Brakes, now: Duration) {
        let pass = answer.pass.as_deref().unwrap_or_default();
        match answer.result {
            AlertResult::Braked if answer.why.as_deref() == Some(PAUSED) => {
                assert!(brakes.pause && !trigger.options.force && !trigger.options.dry_run);
            }
            AlertResult::Braked if answer.why.as_deref() == Some(HELD) => {
                let is_free = trigger.options.force || trigger.options.dry_run;
                assert!(self.fleet.held.is_some() && !is_free);
            }
            AlertResult::Braked => {
                assert_eq!(trigger.info.cause, Cause::Alert);
                let spent = |target: &Target| self.is_spent(*target, brakes, now);
                assert!(trigger.targets.iter().all(spent), "{trigger:?}");
            }
            AlertResult::Unavailable => {
                assert_eq!(trigger.info.cause, Cause::Manual);
                let by_hand = self
                    .waiting
                    .values()
                    .filter(|expected| expected.by_hand)
                    .count();
                assert_eq!(by_hand, BY_HAND_MAX);
            }
            AlertResult::Duplicate => {
                assert!(now.saturating_sub(self.answered[pass]) < DUPLICATE_WINDOW);
            }
            AlertResult::Merged => {
                let runs = self.running.as_ref().is_some_and(|(id, _)| id == pass);
                assert!(runs || self.waiting.contains_key(pass), "joined nothing");
            }
            AlertResult::Accepted => assert!(!self.waiting.contains_key(pass)),
            AlertResult::OtherNode
            | AlertResult::Resolved
            | AlertResult::Withdrawn
            | AlertResult::NotRouted
            | AlertResult::BadTarget
            | AlertResult::Holds
            | AlertResult::Malformed
            | AlertResult::Refused => panic!("no answer to a trigger: {answer:?}"),
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 2000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn keeps_its_promises(steps in steps()) {
        let mut admissions = admissions();
        let mut account = Account::default();
        let mut now = at(0);
        for (number, step) in steps.into_iter().enumerate() {
            let id = number.to_string();
            let mut admit = |trigger: Trigger, alert: Option<usize>| {
                let answer = admissions.admit(trigger.clone(), &id, now);
                account.judge(&trigger, &answer, admissions.brakes, now);
                let merged = answer.result == AlertResult::Merged;
                let into = answer.pass.as_ref().filter(|_| merged).unwrap_or(&id);
                let ticket = admissions.waiting().find(|ticket| ticket.id == *into);
                account.admitted(&trigger, alert, (into, ticket), now);
            };
            match step {
                Step::Alert(number, targets) => admit(alert(number, targets), Some(number)),
                Step::ByHand(options, targets) => admit(by_hand(targets, options), None),
                Step::Next => {
                    let due = admissions.due(now);
                    let next = admissions.next(now, || format!("rest of {id}"));
                    prop_assert_eq!(next.is_some(), due.is_some_and(|due| due <= now)
                        && account.running.is_none());
                    if let Some((ticket, rest)) = next {
                        account.started(&ticket, rest.as_ref(), admissions.brakes, now);
                    }
                }
                Step::Finished(outcome, left) => {
                    let targets = account.running.as_ref().map(|(_, expected)| expected.targets.clone());
                    let left = left.map(|seconds| (Target::Containers, at(seconds)));
                    let over = PassEnd {
                        tried: targets.unwrap_or_default(),
                        retry_after: left.into_iter().collect(),
                        ..over(outcome)
                    };
                    let running = admissions.running.as_ref();
                    let may_be_left = running.map(|it| it.pass.requests.may_be_left());
                    let may_be_left = may_be_left.unwrap_or_default();
                    let follow_up = admissions.finished(&over, now, || format!("after {id}"));
                    account.finished(&over, &may_be_left, follow_up.as_ref(), now);
                }
                Step::Withdraw(number) => {
                    let taken = admissions.withdraw(&key(number)).map(|ticket| ticket.id);
                    prop_assert_eq!(taken, account.withdrawn(number));
                }
                Step::Cancel(number) => {
                    let taken = admissions.cancel(&number.to_string()).map(|ticket| ticket.id);
                    let waited = account.waiting.remove(&number.to_string());
                    prop_assert_eq!(taken.is_some(), waited.is_some());
                }
                Step::Brakes(brakes) => {
                    account.answered.insert("loosened".into(), now);
                    admissions.brakes = brakes;
                }
                Step::Fleet(standing, draw) => {
                    admissions.draw = if draw { HALF } else { 0 };
                    admissions.set_fleet(standing.clone(), now);
                    account.set_fleet(standing, draw, now);
                }
                Step::Clock(seconds) => now += at(seconds),
            }
            prop_assert!(admissions.queue.len() <= QUEUE_MAX && admissions.seen.len() <= SEEN_MAX);
            let waiting: BTreeSet<String> = admissions.queue.iter().map(|it| it.id.clone()).collect();
            prop_assert_eq!(waiting, account.waiting.keys().cloned().collect::<BTreeSet<_>>());
        }
    }
}
