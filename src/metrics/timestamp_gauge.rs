//! The time of an event that may not have happened yet. Never shows 0, which would be the year 1970.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A gauge of an event's last time; absent before the first.
#[derive(Clone, Debug)]
pub(super) struct TimestampGauge {
    /// Milliseconds since the epoch, or [`NEVER`].
    millis: Arc<AtomicI64>,
}

const NEVER: i64 = i64::MIN;

impl Default for TimestampGauge {
    fn default() -> Self {
        Self {
            millis: Arc::new(AtomicI64::new(NEVER)),
        }
    }
}

impl TimestampGauge {
    /// Notes that it never happened, as far as is known.
    pub(super) fn clear(&self) {
        self.millis.store(NEVER, Ordering::Relaxed);
    }

    /// Notes that it happened at `when`.
    pub(super) fn set(&self, when: Timestamp) {
        self.millis.store(when.as_millisecond(), Ordering::Relaxed);
    }
}

impl TypedMetric for TimestampGauge {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for TimestampGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
        let seconds = self.millis.load(Ordering::Relaxed) as f64 / 1000.0;
        encoder.encode_gauge(&seconds)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }

    fn is_empty(&self) -> bool {
        self.millis.load(Ordering::Relaxed) == NEVER
    }
}
