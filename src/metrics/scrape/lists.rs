//! The weights of the runtime's lists, and the limits above which clients cannot read them.

use std::time::Duration;

use super::page::{MetricsPage, Sample, SampleValue, bytes, plain, sample, seconds};
use crate::model::Coverage;
use crate::runtime::{ListMode, Listing};
use crate::snapshot::{Look, LookResult, Weight};

struct ListFigures {
    name: &'static str,
    weight: Weight,
    /// Only if it was read.
    read: Option<ListReading>,
}

/// The result of reading a list.
#[derive(Clone, Copy)]
struct ListReading {
    mode: ListMode,
    took: Duration,
    /// Rows without a required field.
    malformed: usize,
    is_whole: bool,
}

impl ListFigures {
    fn new<T>(
        name: &'static str,
        weight: Weight,
        part: &LookResult<Listing<T>>,
        took: Duration,
    ) -> Self {
        let read = part.as_ref().ok().map(|listed| ListReading {
            mode: listed.mode,
            took,
            malformed: listed.malformed + listed.odd,
            is_whole: listed.coverage == Coverage::Whole,
        });
        Self { name, weight, read }
    }

    fn sample(&self, value: impl Into<SampleValue>) -> Sample {
        sample([("list", self.name)], value)
    }
}

/// Adds the lists of a look.
pub(super) fn encode(look: &Look, page: &mut MetricsPage) {
    let (weights, took) = (look.weights(), look.timings);
    let lists = [
        ListFigures::new(
            "containers",
            weights.containers,
            &look.containers,
            took.containers,
        ),
        ListFigures::new(
            "sandboxes",
            weights.sandboxes,
            &look.sandboxes,
            took.sandboxes,
        ),
        ListFigures::new("images", weights.images, &look.images, took.images),
    ];
    encode_lists(&lists, page);
}

fn encode_lists(lists: &[ListFigures], page: &mut MetricsPage) {
    let all = || lists.iter();
    let read = || all().filter_map(|list| Some((list, list.read?)));
    page.gauge(
        bytes("cri_list_response"),
        "Size of the unfiltered list in one answer, even if it is too large to be sent",
        all().filter_map(|list| Some(list.sample(list.weight.bytes?))),
    );
    page.gauge(
        bytes("cri_list_limit"),
        "Largest list that can be read: the lower of the kubelet's and the runtime's limit",
        all().map(|list| list.sample(list.weight.limit_bytes)),
    );
    page.gauge(
        seconds("cri_list_duration"),
        "How long the list took to read",
        read().map(|(list, read)| list.sample(read.took)),
    );
    page.gauge(
        plain("cri_list_mode"),
        "How the list was read: always 1, and only the mode that was used has a sample",
        read().map(|(list, read)| sample([("list", list.name), ("mode", read.mode.label())], true)),
    );
    page.gauge(
        plain("cri_list_malformed_rows"),
        "Rows of the list that lack a required field, contradict another row, or repeat one",
        read().map(|(list, read)| list.sample(read.malformed)),
    );
    page.gauge(
        plain("cri_list_complete"),
        "Whether the list is known to have been read whole",
        read().map(|(list, read)| list.sample(read.is_whole)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(list: ListFigures) -> String {
        let (mut page, mut text) = (MetricsPage::default(), String::new());
        encode_lists(&[list], &mut page);
        page.encode(&mut text).unwrap();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn failed(bytes: Option<u64>) -> String {
        page(ListFigures {
            name: "containers",
            weight: Weight {
                bytes,
                limit_bytes: 16_777_216,
            },
            read: None,
        })
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
