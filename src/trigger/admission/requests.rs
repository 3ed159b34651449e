//! What automatic triggers ask of one pass, and which of them asked first.

use std::collections::{BTreeMap, BTreeSet};

use super::SEEN_MAX;
use super::seen::AlertKey;
use crate::model::{Target, TriggerInfo};

/// The automatic triggers of a pass, by alert. `None`: those that cannot be withdrawn, which are triggers without an
/// alert, and alerts beyond [`SEEN_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    by_alert: BTreeMap<Option<AlertKey>, Request>,
    /// How many have asked so far.
    count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    trigger: TriggerInfo,
    /// Its place in the order of asking.
    number: u64,
    /// What it asks for; nothing, if its alert resolved while the pass ran.
    targets: BTreeSet<Target>,
    /// The part of it that an ended pass left.
    left: BTreeSet<Target>,
}

impl Requests {
    /// Adds what a trigger asks for. One that asks by itself takes the place of one that an earlier pass left.
    pub(super) fn add(
        &mut self,
        alert: Option<&AlertKey>,
        trigger: &TriggerInfo,
        targets: &BTreeSet<Target>,
    ) {
        let has_room = self.by_alert.len() < SEEN_MAX;
        let alert = alert.filter(|alert| has_room || self.names(alert)).cloned();
        self.count += 1;
        let number = self.count;
        let new = || Request {
            trigger: trigger.clone(),
            number,
            targets: BTreeSet::new(),
            left: BTreeSet::new(),
        };
        let request = self.by_alert.entry(alert).or_insert_with(new);
        if trigger.follow_up {
            request.left.extend(targets.difference(&request.targets));
        } else {
            request.left.retain(|target| !targets.contains(target));
            if request.trigger.follow_up {
                (request.trigger, request.number) = (trigger.clone(), number);
            }
        }
        request.targets.extend(targets);
    }

    /// Adds what an ended pass left for later.
    pub(super) fn follow(&mut self, left: &Self) {
        let mut left: Vec<_> = left.by_alert.iter().collect();
        left.sort_by_key(|(_, request)| request.number);
        for (alert, request) in left {
            let trigger = TriggerInfo {
                follow_up: true,
                ..request.trigger.clone()
            };
            self.add(alert.as_ref(), &trigger, &request.targets);
        }
    }

    /// Returns the trigger that asked first; one that an earlier pass left counts only where no other asks.
    pub(super) fn first(&self) -> Option<&TriggerInfo> {
        let requests = self.by_alert.values();
        let first = requests.min_by_key(|it| (it.trigger.follow_up, it.number));
        first.map(|it| &it.trigger)
    }

    /// Returns everything that is asked for.
    pub(super) fn targets(&self) -> BTreeSet<Target> {
        let requests = self.by_alert.values();
        requests.flat_map(|it| &it.targets).copied().collect()
    }

    /// Returns what is asked for and no ended pass left: if this pass leaves it too, one more follows.
    pub(super) fn may_be_left(&self) -> BTreeSet<Target> {
        let requests = self.by_alert.values();
        let targets = requests.flat_map(|it| it.targets.difference(&it.left));
        targets.copied().collect()
    }

    /// Returns the alerts that can be withdrawn.
    pub(super) fn alerts(&self) -> impl Iterator<Item = &AlertKey> {
        self.by_alert.keys().flatten()
    }

    /// Says whether an alert asks.
    pub(super) fn names(&self, alert: &AlertKey) -> bool {
        self.by_alert.contains_key(&Some(alert.clone()))
    }

    /// Returns what an alert asks for; `None` if it does not ask.
    pub(super) fn of_alert(&mut self, alert: &AlertKey) -> Option<&mut BTreeSet<Target>> {
        let request = self.by_alert.get_mut(&Some(alert.clone()));
        request.map(|it| &mut it.targets)
    }

    pub(super) fn forget(&mut self, alert: &AlertKey) -> bool {
        self.by_alert.remove(&Some(alert.clone())).is_some()
    }

    /// Keeps what is asked of these targets.
    pub(super) fn keep_only(&mut self, targets: &BTreeSet<Target>) {
        self.by_alert.retain(|_, request| {
            request.targets.retain(|target| targets.contains(target));
            !request.targets.is_empty()
        });
    }
}
