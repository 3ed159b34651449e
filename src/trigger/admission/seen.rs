//! Remembers alerts to recognise duplicates. Each operation is logarithmic: a storm brings thousands of new
//! alerts a second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::SEEN_MAX;

/// An alert's identity: fingerprint and start.
pub(super) type AlertKey = (String, String);

/// An alert and the pass that it led to.
#[derive(Debug)]
pub(super) struct SeenAlert {
    pub(super) pass: String,
    pub(super) at: Duration,
    /// The result of the pass for this alert; `None` while it waits or runs.
    pub(super) reply: Option<AlertReply>,
}

/// What an ended pass did for its alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlertReply {
    /// The pass did what the alert asked for.
    Answered,
    /// The pass failed, or was cancelled.
    Unanswered,
}

/// The remembered alerts; at most [`SEEN_MAX`].
#[derive(Debug, Default)]
pub(super) struct SeenAlerts {
    by_key: BTreeMap<AlertKey, SeenAlert>,
    /// Alerts whose pass has ended, in the order in which they are forgotten.
    over: BTreeSet<(Duration, AlertKey)>,
}

impl SeenAlerts {
    pub(super) fn get(&self, key: &AlertKey) -> Option<&SeenAlert> {
        self.by_key.get(key)
    }

    /// Remembers an alert that waits for a pass. If there are too many, forgets the one whose pass ended first.
    pub(super) fn remember(&mut self, key: AlertKey, pass: String, now: Duration) {
        self.forget(&key);
        if self.by_key.len() >= SEEN_MAX {
            let over = self.over.first().map(|(_, key)| key);
            // The passes of all keys still wait: a duplicate of a forgotten key only merges again.
            let victim = over.or_else(|| self.by_key.keys().next());
            if let Some(victim) = victim.cloned() {
                self.forget(&victim);
            }
        }
        let seen = SeenAlert {
            pass,
            at: now,
            reply: None,
        };
        self.by_key.insert(key, seen);
    }

    /// Notes that alerts now wait for another pass.
    pub(super) fn moved<'a>(&mut self, keys: impl IntoIterator<Item = &'a AlertKey>, pass: &str) {
        for key in keys {
            if let Some((key, mut seen)) = self.by_key.remove_entry(key) {
                self.over.remove(&(seen.at, key.clone()));
                (seen.pass, seen.reply) = (pass.to_owned(), None);
                self.by_key.insert(key, seen);
            }
        }
    }

    /// Notes that an alert's pass has ended, and when; `None`: it never began. If one part of an alert is
    /// unanswered, the whole alert is.
    pub(super) fn end(&mut self, key: &AlertKey, reply: AlertReply, at: Option<Duration>) {
        let Some(seen) = self.by_key.get_mut(key) else {
            return;
        };
        let before = (seen.at, key.clone());
        self.over.remove(&before);
        seen.at = at.unwrap_or(seen.at);
        if seen.reply != Some(AlertReply::Unanswered) {
            seen.reply = Some(reply);
        }
        self.over.insert((seen.at, before.1));
    }

    pub(super) fn forget(&mut self, key: &AlertKey) {
        if let Some((key, seen)) = self.by_key.remove_entry(key) {
            self.over.remove(&(seen.at, key));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert!(self.over.len() <= self.by_key.len());
        self.by_key.len()
    }
}
