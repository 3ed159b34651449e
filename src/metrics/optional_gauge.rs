//! A gauge that may have no value. Never shows 0 for what is not known.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
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
