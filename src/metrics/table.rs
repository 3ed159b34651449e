//! Families whose labels are closed sets: every series exists from the start. Never grows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// An enum that is a label: its name, and all that it can be.
pub(super) trait Label: Copy + Ord + fmt::Debug + Send + Sync + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// Every value.
    const VALUES: &'static [Self];
    /// Returns the value as it is written.
    fn text(self) -> &'static str;
}

/// A set of labels: one label, or a tuple of them.
pub(super) trait Labels: Copy + Ord + fmt::Debug + Send + Sync + 'static {
    /// Returns every combination.
    fn combinations() -> Vec<Self>;
    /// Returns names and values.
    fn pairs(self) -> Vec<(&'static str, &'static str)>;
}

impl<A: Label> Labels for A {
    fn combinations() -> Vec<Self> {
        A::VALUES.to_vec()
    }

    fn pairs(self) -> Vec<(&'static str, &'static str)> {
        vec![(A::NAME, self.text())]
    }
}

impl<A: Label, B: Label> Labels for (A, B) {
    fn combinations() -> Vec<Self> {
        A::VALUES
            .iter()
            .flat_map(|&a| B::VALUES.iter().map(move |&b| (a, b)))
            .collect()
    }

    fn pairs(self) -> Vec<(&'static str, &'static str)> {
        vec![(A::NAME, self.0.text()), (B::NAME, self.1.text())]
    }
}

impl<A: Label, B: Label, C: Label> Labels for (A, B, C) {
    fn combinations() -> Vec<Self> {
        <(A, B)>::combinations()
            .into_iter()
            .flat_map(|(a, b)| C::VALUES.iter().map(move |&c| (a, b, c)))
            .collect()
    }

    fn pairs(self) -> Vec<(&'static str, &'static str)> {
        let mut pairs = (self.0, self.1).pairs();
        pairs.extend(self.2.pairs());
        pairs
    }
}

/// A family with every series made beforehand: each reads 0 before its first event, so that
/// `increase()` sees that event, and the order on the page is always the same. (The library's own
/// `Family` is a hash map that begins empty.)
#[derive(Debug)]
pub(super) struct Table<L, M>(Arc<BTreeMap<L, M>>);

impl<L: Labels, M> Table<L, M> {
    /// Makes every series with `make`.
    pub(super) fn new(make: impl Fn() -> M) -> Self {
        Self(Arc::new(
            L::combinations()
                .into_iter()
                .map(|labels| (labels, make()))
                .collect(),
        ))
    }

    /// Returns the series with these labels; `Some` for all that [`Label::VALUES`] lists.
    pub(super) fn get(&self, labels: L) -> Option<&M> {
        self.0.get(&labels)
    }
}

impl<L, M> Clone for Table<L, M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: Labels, M: EncodeMetric + TypedMetric> EncodeMetric for Table<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, metric) in self.0.iter().filter(|(_, metric)| !metric.is_empty()) {
            let pairs = labels.pairs();
            metric.encode(encoder.encode_family(&pairs)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.0.values().all(EncodeMetric::is_empty)
    }
}
