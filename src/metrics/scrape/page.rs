//! Builds the registry of one scrape; keeps nothing for the next.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::metrics::gauges;
use crate::model::{cut, escape};

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
    /// Adds a gauge, if it has samples. Of two with the same labels the first counts: Prometheus refuses a series that stands
    /// twice, and two names of the runtime may be equal once they are escaped.
    pub(super) fn gauge(
        &mut self,
        name: FamilyName,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let mut once: Vec<Sample> = Vec::new();
        for sample in samples {
            if !once.iter().any(|known| known.labels == sample.labels) {
                once.push(sample);
            }
        }
        self.add(name, help, FamilySamples(once));
    }

    pub(super) fn figure(&mut self, name: FamilyName, help: &str, value: impl Into<SampleValue>) {
        self.gauge(name, help, [sample([], value)]);
    }

    /// Adds a counter without labels, whose value comes from elsewhere.
    pub(super) fn counter<N>(&mut self, name: FamilyName, help: &str, value: N)
    where
        ConstCounter<N>: Metric,
    {
        self.add(name, help, ConstCounter::new(value));
    }

    /// Adds an info metric; the library adds `_info` to its name.
    pub(super) fn info<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [(&'static str, &str); N],
    ) {
        let labels = labels.map(escaped).to_vec();
        self.registry.register(name, help, Info::new(labels));
    }

    fn add(&mut self, FamilyName(name, unit): FamilyName, help: &str, metric: impl Metric) {
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, metric),
            None => self.registry.register(name, help, metric),
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
    Sample {
        labels: labels.map(escaped).to_vec(),
        value: value.into(),
    }
}

/// Escapes control characters, and bounds the length: the runtime's texts and the kernel's paths may contain any. The
/// library escapes only quotes, backslashes and line feeds, and a terminal would obey the others.
fn escaped((name, value): (&'static str, &str)) -> (&'static str, String) {
    let value = cut(value, escape::TEXT_MAX_CHARS);
    (name, escape::lines(value).into_owned())
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
    fn from(value: Timestamp) -> Self {
        Self::Float(gauges::seconds(value))
    }
}

/// The samples of a gauge, in this order.
#[derive(Debug)]
struct FamilySamples(Vec<Sample>);

impl EncodeMetric for FamilySamples {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for Sample { labels, value } in &self.0 {
            if labels.is_empty() {
                value.encode(&mut encoder)?;
            } else {
                value.encode(&mut encoder.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SampleValue {
    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => encoder.encode_gauge(value),
            Self::Float(value) => encoder.encode_gauge(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_equal_once_they_are_escaped_are_one_series() {
        let names = ["a\rb", "a\\rb", &"x".repeat(4_097), &"x".repeat(5_000)];
        let samples = names.map(|name| sample([("namespace", name)], 1_u64));
        let mut page = MetricsPage::default();
        page.gauge(plain("n"), "Namespaces", samples);
        let mut text = String::new();
        page.encode(&mut text).unwrap();
        assert_eq!(text.matches("\nn{").count(), 2, "{text}");
    }

    #[test]
    fn labels_from_outside_move_no_cursor_and_begin_no_line() {
        let wild = "1.7\u{1b}[31m\n# EOF\r\u{9b}2J\u{202e}\u{2028}\"\\";
        let mut page = MetricsPage::default();
        page.info("cri", "The runtime", [("version", wild)]);
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

    #[test]
    fn labels_from_outside_are_bounded() {
        let mut page = MetricsPage::default();
        page.info("cri", "The runtime", [("version", &"v".repeat(1 << 20))]);
        let mut text = String::new();
        page.encode(&mut text).unwrap();
        assert!(text.len() < 2 * escape::TEXT_MAX_CHARS, "{}", text.len());
    }
}
