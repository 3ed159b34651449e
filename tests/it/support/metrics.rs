//! A metrics page, as values.

use std::collections::BTreeMap;

/// Samples by name and labels.
#[derive(Debug)]
pub(crate) struct Page(BTreeMap<String, f64>);

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Self(samples.collect())
    }

    /// Returns a sample, written as on the page with its labels in any order.
    pub(crate) fn get(&self, sample: &str) -> Option<f64> {
        let wanted = parts(sample);
        let mut found = self.0.iter().filter(|(name, _)| parts(name) == wanted);
        let value = found.next().map(|(_, value)| *value);
        assert!(found.next().is_none(), "{sample} is there twice");
        value
    }

    /// Asserts a sample's value.
    #[track_caller]
    pub(crate) fn is(&self, sample: &str, value: f64) {
        assert_eq!(self.get(sample), Some(value), "{sample}");
    }

    /// Returns the sum over all samples of a family that have this label pair.
    pub(crate) fn sum(&self, family: &str, label: &str) -> f64 {
        let of_family = self.0.iter().filter(|(name, _)| {
            let (family_name, labels) = parts(name);
            family_name == family && labels.contains(&label)
        });
        of_family.map(|(_, value)| value).sum()
    }
}

fn parts(sample: &str) -> (&str, Vec<&str>) {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
    let mut labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
    labels.sort_unstable();
    (name, labels)
}
