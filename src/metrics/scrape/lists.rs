//! The weights of the runtime's lists, and the limits above which clients cannot read them.

use std::time::Duration;

use super::page::{MetricsPage, Sample, bytes, plain, sample, seconds};
use crate::model::Coverage;
use crate::snapshot::{ListResult, Look, Weight};

/// The samples of the lists added so far.
#[derive(Default)]
struct ListSamples {
    sizes: Vec<Sample>,
    limits: Vec<Sample>,
    durations: Vec<Sample>,
    modes: Vec<Sample>,
    malformed: Vec<Sample>,
    complete: Vec<Sample>,
}

impl ListSamples {
    fn add<T>(&mut self, name: &str, weight: Weight, part: &ListResult<T>, took: Duration) {
        let list = [("list", name)];
        self.sizes.extend(weight.bytes.map(|it| sample(list, it)));
        self.limits.push(sample(list, weight.limit_bytes));
        let Ok(listed) = part else { return };
        self.durations.push(sample(list, took));
        let labels = [("list", name), ("mode", listed.mode.label())];
        self.modes.push(sample(labels, true));
        let malformed = listed.malformed + listed.odd;
        self.malformed.push(sample(list, malformed));
        let is_whole = listed.coverage == Coverage::Whole;
        self.complete.push(sample(list, is_whole));
    }

    fn encode(self, page: &mut MetricsPage) {
        let help = "Size of the unfiltered list in one answer, even if it is too large to be sent";
        page.gauge(bytes("cri_list_response"), help, self.sizes);
        let help =
            "Largest list that can be read: the lower of the kubelet's and the runtime's limit";
        page.gauge(bytes("cri_list_limit"), help, self.limits);
        let help = "How long the list took to read";
        page.gauge(seconds("cri_list_duration"), help, self.durations);
        let help = "How the list was read: always 1, and only the mode that was used has a sample";
        page.gauge(plain("cri_list_mode"), help, self.modes);
        let help =
            "Rows of the list that lack a required field, contradict another row, or repeat one";
        page.gauge(plain("cri_list_malformed_rows"), help, self.malformed);
        let help = "Whether the list is known to have been read whole";
        page.gauge(plain("cri_list_complete"), help, self.complete);
    }
}

pub(super) fn encode(look: &Look, page: &mut MetricsPage) {
    let (of, took) = (look.weights(), look.timings);
    let mut lists = ListSamples::default();
    lists.add(
        "containers",
        of.containers,
        &look.containers,
        took.containers,
    );
    lists.add("sandboxes", of.sandboxes, &look.sandboxes, took.sandboxes);
    lists.add("images", of.images, &look.images, took.images);
    lists.encode(page);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Error;

    fn failed(bytes: Option<u64>) -> String {
        let (mut page, mut text) = (MetricsPage::default(), String::new());
        let weight = Weight {
            bytes,
            limit_bytes: 16_777_216,
        };
        let part: ListResult<()> = Err(Error::Timeout {
            method: "ListContainers",
            after: Duration::ZERO,
        });
        let mut lists = ListSamples::default();
        lists.add("containers", weight, &part, Duration::ZERO);
        lists.encode(&mut page);
        page.encode(&mut text).unwrap();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_list_that_failed_for_its_size_shows_it() {
        assert_eq!(
            failed(Some(19_327_280)),
            "cri_list_response_bytes{list=\"containers\"} 19327280\n\
             cri_list_limit_bytes{list=\"containers\"} 16777216"
        );
    }

    #[test]
    fn a_list_that_failed_otherwise_has_no_size() {
        let expected = "cri_list_limit_bytes{list=\"containers\"} 16777216";
        assert_eq!(failed(None), expected);
    }
}
