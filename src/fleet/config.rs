//! `fleet:` - where the brakes for all nodes are. Reads nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::budget::Slots;
use crate::model::Target;
use crate::model::setting::{As, ListOf, Off, Optional, Time, Whole, settings, text_kinds};

/// Bounds of `budget.lease_duration`.
const LEASE_MIN: Duration = Duration::from_secs(3);
const LEASE_MAX: Duration = Duration::from_secs(3600);

settings! {
    /// `fleet:` - brakes that hold for all nodes at once.
    #[derive(Eq)]
    pub struct Config {
        /// The namespace of the objects below. The API server and its credentials are those of `pods`.
        #[serde(with = "As::<Optional<ObjectName>>")]
        pub namespace: Option<String> = None,
        /// A `ConfigMap` whose key `hold` says `"true"` while passes are held on all nodes, and whose key `reason` says
        /// why. While it was never read, automatic passes wait. `null`: there is no such switch.
        #[serde(with = "As::<Optional<ObjectName>>")]
        pub hold_config_map: Option<String> = None,
        /// How long an alert with the label `crisweep: hold` holds automatic passes on this node after it was last seen
        /// firing. A resolved alert ends the hold sooner. 0: such alerts are ignored.
        #[serde(with = "As::<Off<Time>>")]
        pub storm_hold: Option<Duration> = Some(Duration::from_secs(3600)),
        /// How many nodes may run automatic passes at a time.
        pub budget: Budget = Budget::default(),
    }
}

settings! {
    /// `fleet.budget:` - how many nodes may run automatic passes at a time.
    #[derive(Eq)]
    pub struct Budget {
        /// How many nodes may run automatic passes at a time. Each takes one of the Leases `crisweep-budget-0`, `-1`,
        /// ..., which must exist; without one, or without the API server, automatic passes wait.
        #[serde(with = "As::<Off<Whole<u32, 0, 100>>>")]
        pub max_nodes: Option<u32> = None,
        /// The targets that the budget binds. Empty: all.
        #[serde(with = "As::<ListOf<TargetName, BTreeSet<Target>>>")]
        pub targets: BTreeSet<Target> = BTreeSet::new(),
        /// How long a Lease stays taken when its node goes away, from 3s to 1h. Renewed three times in it.
        #[serde(with = "As::<Time>")]
        pub lease_duration: Duration = Duration::from_secs(60),
    }
}

impl Config {
    /// Returns the key that has the API server asked; `None`: it is not.
    pub fn asking_key(&self) -> Option<&'static str> {
        match (&self.hold_config_map, self.budget.max_nodes) {
            (Some(_), _) => Some("fleet.hold_config_map"),
            (None, Some(_)) => Some("fleet.budget.max_nodes"),
            (None, None) => None,
        }
    }

    /// Checks the keys against each other; calls `refuse` with a key and its problem.
    pub fn validate(&self, refuse: &mut dyn FnMut(&str, String)) {
        let duration = self.budget.lease_duration;
        if !(LEASE_MIN..=LEASE_MAX).contains(&duration) {
            let text = format!(
                "is {}, but must be from 3s to 1h",
                humantime::format_duration(duration)
            );
            refuse("fleet.budget.lease_duration", text);
        }
        if let Some(key) = self.asking_key()
            && self.namespace.is_none()
        {
            refuse(key, "is set, but fleet.namespace is not".to_owned());
        }
    }

    /// Returns the path of the `ConfigMap` at the API server.
    pub fn hold_path(&self) -> Option<String> {
        let (namespace, name) = (self.namespace.as_ref()?, self.hold_config_map.as_ref()?);
        Some(format!("/api/v1/namespaces/{namespace}/configmaps/{name}"))
    }

    /// Returns the slots of the budget, for this node.
    pub fn slots(&self, node: &str) -> Option<Slots> {
        let (namespace, count) = (self.namespace.as_ref()?, self.budget.max_nodes?);
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Some(Slots {
            path: format!("{leases}/crisweep-budget-"),
            count,
            duration: self.budget.lease_duration,
            node: node.to_owned(),
        })
    }

    /// Returns the targets whose automatic passes need a slot.
    pub(super) fn budgeted(&self) -> BTreeSet<Target> {
        match self.budget.max_nodes {
            None => BTreeSet::new(),
            Some(_) if self.budget.targets.is_empty() => Target::ALL.into(),
            Some(_) => self.budget.targets.clone(),
        }
    }
}

text_kinds! {
    /// The name of a target.
    TargetName -> Target, "`containers`, `sandboxes`, `logs` or `images`", |text| {
        Target::ALL
            .into_iter()
            .find(|target| target.label() == text)
    };

    /// The name of an object. It stands in a path, so nothing else may be in it.
    ObjectName -> String, "a name of up to 253 of a-z, 0-9, - and ., with a letter or digit at both ends", |text| {
        let is_alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends = [bytes.first()?, bytes.last()?];
        let is_name = bytes.len() <= 253
            && ends.into_iter().all(is_alphanumeric)
            && bytes
                .iter()
                .all(|b| is_alphanumeric(b) || b"-.".contains(b))
            && !text.contains("..");
        is_name.then(|| text.to_owned())
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::setting::TextKind;

    #[test]
    fn a_name_cannot_leave_its_place_in_a_path() {
        for good in ["a", "crisweep-brakes", "a.b-c.9"] {
            assert!(ObjectName::read(good).is_some(), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", "-a", "a-", "A", "a/b", "..", "a..b", "a?b", "a%2f", &long,
        ] {
            assert_eq!(ObjectName::read(bad), None, "{bad}");
        }
    }
}
