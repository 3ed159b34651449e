//! A state set: one series per state, 1 for the present one, 0 for the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A gauge with one label.
#[derive(Clone, Debug)]
pub(crate) struct StateSet {
    label: &'static str,
    values: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl StateSet {
    pub(super) fn new(label: &'static str) -> Self {
        Self {
            label,
            values: Arc::default(),
        }
    }

    pub(super) fn set<'a>(&self, values: impl IntoIterator<Item = (&'a str, bool)>) {
        let values = values.into_iter();
        *self.values.lock() = values.map(|(word, is)| (word.to_owned(), is)).collect();
    }
}

impl TypedMetric for StateSet {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for StateSet {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (word, is) in self.values.lock().iter() {
            let labels = [(self.label, word.as_str())];
            let mut series = encoder.encode_family(&labels)?;
            series.encode_gauge(&i64::from(*is))?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }

    fn is_empty(&self) -> bool {
        self.values.lock().is_empty()
    }
}
