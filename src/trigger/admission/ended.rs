//! What the end of a pass changes: its alerts are answered, its targets cool down, and what it postponed waits for a
//! follow-up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::seen::{AlertKey, AlertReply};
use super::{Admissions, QueuedPass, RunningPass};
use crate::gc::PassOptions;
use crate::model::{Outcome, Pass, Target};
use crate::pass::PassEnd;

impl Admissions {
    /// Notes the end of the running pass. Returns a new follow-up pass for what it postponed, with the id from
    /// `free_id`; `None` if there is none or if a waiting pass takes it over.
    pub fn finished(
        &mut self,
        end: &PassEnd,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<QueuedPass> {
        let RunningPass { pass, since, .. } = self.running.take()?;
        self.answer(&pass, reply(end), now);
        if !pass.options.dry_run {
            let ends = pass.targets.iter().map(|target| (*target, now));
            self.finished.extend(ends);
            self.count_passes(&end.tried, since);
        }
        self.follow_up(&pass, end, now, free_id)
    }

    /// Takes over what a pass of an earlier process did, and when it began and ended; `None`: too long ago to count. In
    /// whatever order: a pass may have waited while a later one ran.
    pub fn remember(&mut self, pass: &Pass, began: Option<Duration>, ended: Option<Duration>) {
        if pass.dry_run {
            return;
        }
        if let Some(ended) = ended {
            for target in pass.targets.keys() {
                let last = self.finished.entry(*target).or_insert(ended);
                *last = ended.max(*last);
            }
        }
        if let Some(began) = began {
            self.count_passes(&pass.tried(), began);
        }
    }

    /// Notes what a pass that is over did for the alerts that asked for it. It does not answer an alert that
    /// another waiting pass still names: that alert waits for the other pass.
    fn answer(&mut self, pass: &QueuedPass, reply: AlertReply, now: Duration) {
        for key in pass.requests.alerts() {
            let mut queue = self.queue.iter();
            let other = queue.find(|other| other.requests.names(key));
            match other.filter(|_| reply == AlertReply::Answered) {
                Some(other) => self.seen.moved([key], &other.id),
                None => self.seen.end(key, reply, Some(now)),
            }
        }
    }

    /// Queues one follow-up of a pass, over the targets that it postponed and that automatic triggers asked for since a pass
    /// left them.
    fn follow_up(
        &mut self,
        before: &QueuedPass,
        end: &PassEnd,
        now: Duration,
        free_id: impl FnOnce() -> String,
    ) -> Option<QueuedPass> {
        let (asked, mut retry_after) = (before.requests.may_be_left(), end.retry_after.clone());
        retry_after.retain(|target, _| asked.contains(target));
        if retry_after.is_empty() || end.dry_run {
            return None;
        }
        let (options, asked) = (PassOptions::default(), (now, self.draw));
        let full = self.is_full(false);
        let is_automatic = |it: &&mut QueuedPass| !it.by_hand && it.options == options;
        if let Some(waiting) = self.queue.iter_mut().find(is_automatic) {
            let moved = waiting.follow(before, &retry_after, asked);
            self.seen.moved(&moved, &waiting.id);
            return None;
        }
        if full {
            return None;
        }
        let mut queued = QueuedPass {
            id: free_id(),
            options,
            ..QueuedPass::default()
        };
        let moved = queued.follow(before, &retry_after, asked);
        self.seen.moved(&moved, &queued.id);
        self.queue.push_back(queued.clone());
        Some(queued)
    }

    /// Counts a pass for each target of which it tried to remove something.
    pub(super) fn count_passes(&mut self, tried: &BTreeSet<Target>, since: Duration) {
        // Manual passes are counted but never bound: keep no more entries than the brake can ask for.
        let bound = self
            .brakes
            .max_passes_per_hour
            .map_or(0, |max| max as usize);
        for target in tried {
            let tried = self.tried.entry(*target).or_default();
            tried.push_back(since);
            tried.make_contiguous().sort_unstable();
            while tried.len() > bound {
                tried.pop_front();
            }
        }
    }
}

impl QueuedPass {
    /// Takes over the targets that an ended pass postponed. A target that already waits here for another reason
    /// does not wait longer because of this. Returns the alerts that wait for this pass now.
    pub(super) fn follow(
        &mut self,
        before: &Self,
        retry_after: &BTreeMap<Target, Duration>,
        (now, draw): (Duration, u32),
    ) -> Vec<AlertKey> {
        for (target, after) in retry_after {
            if self.targets.insert(*target) {
                self.not_before.insert(*target, now.saturating_add(*after));
            }
        }
        let mut postponed = before.requests.clone();
        postponed.keep_only(&retry_after.keys().copied().collect());
        self.requests.follow(&postponed);
        self.asked = self.asked.or(Some((now, draw)));
        postponed.alerts().cloned().collect()
    }
}

/// Maps the end of a pass to the answer for its alerts. A dry run answers no alert.
fn reply(end: &PassEnd) -> AlertReply {
    match end.outcome {
        Outcome::Completed | Outcome::NothingToDo if !end.dry_run => AlertReply::Answered,
        Outcome::Completed
        | Outcome::Planned
        | Outcome::NothingToDo
        | Outcome::Partial
        | Outcome::Aborted
        | Outcome::Interrupted => AlertReply::Unanswered,
    }
}
