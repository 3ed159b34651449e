//! Builds the registry of one scrape; keeps nothing for the next.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::model::escape;

/// The metrics of one scrape, in order.
#[derive(Debug, Default)]
pub(super) struct MetricsPage {
    registry: Registry,
}

/// A family's name. The library adds the unit to it, and a full stop to the help.
#[derive(Debug)]
pub(super) struct FamilyName(String, Option<Unit>);

/// A name without a unit.
pub(super) fn plain(name: impl Into<String>) -> FamilyName {
    FamilyName(name.into(), None)
}

/// A name that ends in `_bytes`.
pub(super) fn bytes(name: impl Into<String>) -> FamilyName {
    FamilyName(name.into(), Some(Unit::Bytes))
}

/// A name that ends in `_seconds`.
pub(super) fn seconds(name: impl Into<String>) -> FamilyName {
    FamilyName(name.into(), Some(Unit::Seconds))
}

impl MetricsPage {
    /// Adds a gauge, if it has samples.
    pub(super) fn gauge(&mut self, name: FamilyName, help: &str, samples: Vec<Sample>) {
        self.add(name, help, FamilyKind::Gauge, samples);
    }

    /// Adds a counter whose value comes from elsewhere, if it has samples.
    pub(super) fn counter(&mut self, name: FamilyName, help: &str, samples: Vec<Sample>) {
        self.add(name, help, FamilyKind::Counter, samples);
    }

    /// Adds an info metric; the library adds `_info` to its name.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: Vec<(&'static str, String)>) {
        let labels: Vec<_> = labels.into_iter().map(escaped).collect();
        self.registry.register(name, help, Info::new(labels));
    }

    fn add(
        &mut self,
        FamilyName(name, unit): FamilyName,
        help: &str,
        kind: FamilyKind,
        samples: Vec<Sample>,
    ) {
        let samples = FamilySamples { kind, samples };
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, samples),
            None => self.registry.register(name, help, samples),
        }
    }

    /// Appends the page to `text` as `OpenMetrics`, without an end mark.
    pub(super) fn encode(&self, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.registry)
    }
}

/// One figure and its labels.
#[derive(Debug)]
pub(super) struct Sample {
    labels: Vec<(&'static str, String)>,
    value: SampleValue,
}

pub(super) fn sample<const N: usize>(
    labels: [(&'static str, &str); N],
    value: impl Into<SampleValue>,
) -> Sample {
    let labels = labels
        .into_iter()
        .map(|(name, value)| escaped((name, value.to_owned())))
        .collect();
    Sample {
        labels,
        value: value.into(),
    }
}

/// Escapes control characters: the runtime's texts and the kernel's paths may contain any. The library
/// escapes only quotes, backslashes and line feeds, and a terminal would obey the others.
fn escaped((name, value): (&'static str, String)) -> (&'static str, String) {
    (name, escape::lines(&value).into_owned())
}

/// A figure. Integers stay integers, so that no byte is lost by rounding.
#[derive(Clone, Copy, Debug)]
pub(super) enum SampleValue {
    Whole(u64),
    Float(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for SampleValue {
    fn from(value: usize) -> Self {
        Self::Whole(value.try_into().unwrap_or(u64::MAX))
    }
}

impl From<bool> for SampleValue {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Duration> for SampleValue {
    fn from(value: Duration) -> Self {
        Self::Float(value.as_secs_f64())
    }
}

impl From<Timestamp> for SampleValue {
    #[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
    fn from(value: Timestamp) -> Self {
        Self::Float(value.as_millisecond() as f64 / 1000.0)
    }
}

#[derive(Clone, Copy, Debug)]
enum FamilyKind {
    Counter,
    Gauge,
}

/// A family whose samples keep their order.
#[derive(Debug)]
struct FamilySamples {
    kind: FamilyKind,
    samples: Vec<Sample>,
}

impl EncodeMetric for FamilySamples {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for sample in &self.samples {
            if sample.labels.is_empty() {
                encode_value(self.kind, sample.value, &mut encoder)?;
            } else {
                let mut encoder = encoder.encode_family(&sample.labels)?;
                encode_value(self.kind, sample.value, &mut encoder)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        match self.kind {
            FamilyKind::Counter => MetricType::Counter,
            FamilyKind::Gauge => MetricType::Gauge,
        }
    }

    fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

fn encode_value(
    kind: FamilyKind,
    value: SampleValue,
    encoder: &mut MetricEncoder<'_>,
) -> fmt::Result {
    match (kind, value) {
        (FamilyKind::Gauge, SampleValue::Whole(value)) => encoder.encode_gauge(&value),
        (FamilyKind::Gauge, SampleValue::Float(value)) => encoder.encode_gauge(&value),
        (FamilyKind::Counter, SampleValue::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (FamilyKind::Counter, SampleValue::Float(value)) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_from_outside_move_no_cursor_and_begin_no_line() {
        let wild = "1.7\u{1b}[31m\n# EOF\r\u{9b}2J\u{202e}\u{2028}\"\\";
        let mut page = MetricsPage::default();
        page.info("cri", "The runtime", vec![("version", wild.to_owned())]);
        let samples = vec![sample([("mountpoint", wild)], 1_u64)];
        page.gauge(plain("cri_fs"), "Its file system", samples);
        let mut text = String::new();
        page.encode(&mut text).unwrap();
        let tame = r#"1.7\\u{1b}[31m\n# EOF\\r\\u{9b}2J\\u{202e}\\u{2028}\"\\""#;
        assert!(
            text.contains(&format!("cri_info{{version=\"{tame}}} 1\n")),
            "{text}"
        );
        assert!(
            text.contains(&format!("cri_fs{{mountpoint=\"{tame}}} 1\n")),
            "{text}"
        );
        let acts = |c: char| c != '\n' && c.is_control();
        assert!(!text.contains(acts), "{text:?}");
    }
}
