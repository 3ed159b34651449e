//! Gauges of kinds that the library lacks: one that may have no value, and a state set. Neither shows 0 for what is not
//! known.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A gauge that is absent from the page while it has no value.
#[derive(Clone, Debug)]
pub(crate) struct OptionalGauge {
    /// The bits of the value; a value that is not a number means none.
    bits: Arc<AtomicU64>,
}

impl Default for OptionalGauge {
    fn default() -> Self {
        Self {
            bits: Arc::new(AtomicU64::new(f64::NAN.to_bits())),
        }
    }
}

impl OptionalGauge {
    /// Sets the value; `None` removes it.
    pub(super) fn set(&self, value: Option<f64>) {
        let bits = value.unwrap_or(f64::NAN).to_bits();
        self.bits.store(bits, Ordering::Relaxed);
    }

    pub(super) fn value(&self) -> Option<f64> {
        let value = f64::from_bits(self.bits.load(Ordering::Relaxed));
        (!value.is_nan()).then_some(value)
    }
}

/// Returns a time in seconds since the epoch.
#[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
pub(super) fn seconds(when: Timestamp) -> f64 {
    when.as_millisecond() as f64 / 1000.0
}

impl TypedMetric for OptionalGauge {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for OptionalGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.value() {
            Some(value) => encoder.encode_gauge(&value),
            None => Ok(()),
        }
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }

    fn is_empty(&self) -> bool {
        self.value().is_none()
    }
}

/// A gauge with one label: one series per state, 1 for the present one, 0 for the others.
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
