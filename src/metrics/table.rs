//! Families whose labels are closed sets, so that a page has a bounded number of series.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};
use strum::VariantArray;

use super::gauges::OptionalGauge;

/// An enum that is a label.
pub(crate) trait Label:
    Copy + Eq + fmt::Debug + Send + Sync + Into<&'static str> + VariantArray + 'static
{
    /// The label's name.
    const NAME: &'static str;
    /// Every value.
    const VALUES: &'static [Self] = Self::VARIANTS;
}

/// A set of labels: one label, or a pair of a set and one more label.
pub(crate) trait LabelSet: Copy + Eq + fmt::Debug + Send + Sync + 'static {
    fn combinations() -> Vec<Self>;
    /// Returns names and values.
    fn pairs(self) -> Vec<(&'static str, &'static str)>;
}

impl<A: Label> LabelSet for A {
    fn combinations() -> Vec<Self> {
        A::VALUES.to_vec()
    }

    fn pairs(self) -> Vec<(&'static str, &'static str)> {
        vec![(A::NAME, self.into())]
    }
}

impl<A: LabelSet, B: Label> LabelSet for (A, B) {
    fn combinations() -> Vec<Self> {
        A::combinations()
            .into_iter()
            .flat_map(|a| B::VALUES.iter().map(move |&b| (a, b)))
            .collect()
    }

    fn pairs(self) -> Vec<(&'static str, &'static str)> {
        let mut pairs = self.0.pairs();
        pairs.push((B::NAME, self.1.into()));
        pairs
    }
}

/// A family whose series are all made beforehand and shown after first use, so that a page has no series for
/// events that never happen. Some are shown from the start, because `increase()` misses the event that
/// creates a series. The order on the page is fixed. (The library's `Family` is an empty hash map at first.)
#[derive(Debug)]
pub(crate) struct Table<L, M>(Arc<[TableEntry<L, M>]>);

#[derive(Debug)]
struct TableEntry<L, M> {
    labels: L,
    shown: AtomicBool,
    metric: M,
}

impl<L: LabelSet, M> Table<L, M> {
    /// Makes every series with `make`; each is shown after first use.
    pub(super) fn new(make: impl Fn() -> M) -> Self {
        Self::showing(|_| false, make)
    }

    /// Makes every series with `make`; those that `from_start` selects show 0 from the start.
    pub(super) fn showing(from_start: impl Fn(L) -> bool, make: impl Fn() -> M) -> Self {
        let entry = |labels| TableEntry {
            labels,
            shown: AtomicBool::new(from_start(labels)),
            metric: make(),
        };
        Self(L::combinations().into_iter().map(entry).collect())
    }

    /// Returns the series with these labels, and shows it from now on; `Some` for all values of
    /// [`Label::VALUES`].
    pub(super) fn get(&self, labels: L) -> Option<&M> {
        let entry = self.0.iter().find(|entry| entry.labels == labels)?;
        entry.shown.store(true, Ordering::Relaxed);
        Some(&entry.metric)
    }

    fn shown(&self) -> impl Iterator<Item = (L, &M)> {
        let entries = self.0.iter();
        let shown = entries.filter(|entry| entry.shown.load(Ordering::Relaxed));
        shown.map(|entry| (entry.labels, &entry.metric))
    }
}

impl<L: LabelSet> Table<L, Counter> {
    /// Counts one more event with these labels.
    pub(crate) fn count(&self, labels: L) {
        self.add(labels, 1);
    }

    /// Counts this number of events with these labels.
    pub(crate) fn add(&self, labels: L, number: u64) {
        self.get(labels).map(|counter| counter.inc_by(number));
    }
}

impl<L: LabelSet> Table<L, OptionalGauge> {
    /// Sets the value with these labels; `None` removes it.
    pub(super) fn set(&self, labels: L, value: Option<f64>) {
        if let Some(gauge) = self.get(labels) {
            gauge.set(value);
        }
    }
}

impl<L: LabelSet, M: Default> Default for Table<L, M> {
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<L, M> Clone for Table<L, M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: LabelSet, M: EncodeMetric + TypedMetric> EncodeMetric for Table<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, metric) in self.shown().filter(|(_, metric)| !metric.is_empty()) {
            let pairs = labels.pairs();
            metric.encode(encoder.encode_family(&pairs)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.shown().all(|(_, metric)| metric.is_empty())
    }
}
