//! The kubelet's image collection: records, candidates, order, age rule, space rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crisweep::model::{Container, Image, ImageAge};
use jiff::{SignedDuration, Timestamp};

/// The disk after the age rule's removals, when the kubelet reads it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    /// The listed sizes are free.
    Listed,
    /// Nothing is free: all layers were shared, or the runtime frees them later.
    Nothing,
}

/// A kubelet's image collector at one moment.
pub(crate) struct ImageCollector<'a> {
    /// Its clock.
    pub(crate) now: Timestamp,
    /// When this run started: after the look at the containers left by the container pass.
    pub(crate) started: Timestamp,
    /// How long ago the kubelet started.
    pub(crate) running_for: Duration,
    /// `imageGCHighThresholdPercent`.
    pub(crate) high: i128,
    /// `imageGCLowThresholdPercent`.
    pub(crate) low: i128,
    /// `imageMinimumGCAge`.
    pub(crate) minimum_age: Duration,
    /// `imageMaximumGCAge`; zero: off.
    pub(crate) maximum_age: Duration,
    /// Its remembered ages, by key.
    pub(crate) ages: &'a BTreeMap<String, ImageAge>,
    /// Ids of images mounted by containers; `None`: a status call failed.
    pub(crate) volumes: Option<&'a BTreeSet<String>>,
    /// Capacity and available bytes; `None`: no figures.
    pub(crate) disk: Option<(u64, u64)>,
    /// The gain of the age rule's removals.
    pub(crate) gain: Gain,
    /// Images that the runtime pins, in addition to those marked as pinned.
    pub(crate) pins: &'a dyn Fn(&Image) -> bool,
}

struct Record {
    key: String,
    size: i128,
    pinned: bool,
    first_detected: Timestamp,
    last_used: Option<Timestamp>,
}

impl ImageCollector<'_> {
    /// Returns the keys of the images that one run removes.
    pub(crate) fn images(&self, listed: &[Image], containers: &[Container]) -> BTreeSet<String> {
        let mut removed = BTreeSet::new();
        // The collector is not even started.
        if self.high == 100 && self.maximum_age.is_zero() {
            return removed;
        }
        // One failed status call fails the look.
        let Some(volumes) = self.volumes else {
            return removed;
        };
        let mut in_use: BTreeSet<String> = volumes.clone();
        for container in containers {
            // By id only; other names are ignored.
            if let Some(id) = container.image.names.first() {
                in_use.insert(key(id, &container.image.handler));
            }
        }
        let mut candidates: Vec<Record> = listed
            .iter()
            .map(|image| self.record(image))
            .filter(|record| !record.pinned && !in_use.contains(&record.key))
            .collect();
        candidates.sort_by(|a, b| {
            let order = |it: &Record| (it.last_used, it.first_detected, it.key.clone());
            order(a).cmp(&order(b))
        });
        let mut freed_by_age = 0;
        if !self.maximum_age.is_zero() && self.running_for > self.maximum_age {
            candidates.retain(|record| {
                let old = record
                    .last_used
                    .is_none_or(|at| self.since(at) > signed(self.maximum_age));
                if old {
                    freed_by_age += record.size;
                    removed.insert(record.key.clone());
                }
                !old
            });
        }
        if let Some(wanted) = self.wanted(freed_by_age) {
            self.free_space(&candidates, wanted, &mut removed);
        }
        removed
    }

    fn record(&self, image: &Image) -> Record {
        let key = key(image.id.as_str(), &image.handler);
        let age = self.ages.get(&key);
        Record {
            size: i128::from(image.size_bytes),
            pinned: image.pinned || (self.pins)(image),
            first_detected: age.map_or(self.now, |age| age.first_seen),
            last_used: age.and_then(|age| age.last_used),
            key,
        }
    }

    /// Bytes to free, possibly negative; `None`: the disk is not full, or unreadable.
    fn wanted(&self, freed_by_age: i128) -> Option<i128> {
        let (capacity, available) = self.disk?;
        let capacity = i128::from(capacity);
        let gained = match self.gain {
            Gain::Listed => freed_by_age,
            Gain::Nothing => 0,
        };
        let available = (i128::from(available) + gained).min(capacity);
        if capacity == 0 {
            return None;
        }
        let used_percent = 100 - available * 100 / capacity;
        (used_percent >= self.high).then(|| capacity * (100 - self.low) / 100 - available)
    }

    fn free_space(&self, candidates: &[Record], wanted: i128, removed: &mut BTreeSet<String>) {
        let mut freed = 0;
        for record in candidates {
            if record.last_used.is_some_and(|at| at >= self.started) {
                continue;
            }
            if self.since(record.first_detected) < signed(self.minimum_age) {
                continue;
            }
            removed.insert(record.key.clone());
            freed += record.size;
            if freed >= wanted {
                break;
            }
        }
    }

    fn since(&self, then: Timestamp) -> SignedDuration {
        self.now.duration_since(then)
    }
}

fn key(id: &str, handler: &str) -> String {
    if handler.is_empty() {
        id.to_owned()
    } else {
        format!("{id},{handler}")
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap()
}
