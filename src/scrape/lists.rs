//! How heavy the runtime's lists are, and how heavy they may get before nobody can read them.

use std::time::Duration;

use super::page::{Page, Sample, Value, bytes, plain, sample, seconds};
use crate::cri::{self, ListMode, Listed};
use crate::model::Coverage;
use crate::observe::{Look, Part};

const MIB: u64 = 1024 * 1024;

/// The most that the kubelet takes.
const KUBELET_LIMIT_BYTES: u64 = 16 * MIB;

/// Returns the most that a runtime sends, where we know it.
fn server_limit_bytes(runtime: &str) -> Option<u64> {
    match runtime {
        "containerd" => Some(16 * MIB),
        "cri-o" => Some(80 * MIB),
        _ => None,
    }
}

/// Returns the size and the limit that a list failed for, if it failed for its size.
pub(super) fn too_large(error: &cri::Error) -> Option<(u64, u64)> {
    match error {
        cri::Error::TooLarge { bytes, limit, .. } => Some((*bytes, *limit)),
        cri::Error::Unreachable { .. }
        | cri::Error::Timeout { .. }
        | cri::Error::NotReady { .. }
        | cri::Error::Status { .. }
        | cri::Error::Malformed { .. } => None,
    }
}

/// What is known of one list.
#[derive(Debug)]
struct List {
    name: &'static str,
    response_bytes: Option<u64>,
    limit_bytes: u64,
    /// Only if it was read.
    read: Option<Read>,
}

/// What came of reading a list.
#[derive(Clone, Copy, Debug)]
struct Read {
    mode: ListMode,
    took: Duration,
    /// Rows that made no sense.
    malformed: usize,
    is_whole: bool,
}

impl List {
    fn new<T>(name: &'static str, part: &Part<Listed<T>>, server_limit: Option<u64>) -> Self {
        let limit_bytes = server_limit.map_or(KUBELET_LIMIT_BYTES, |l| l.min(KUBELET_LIMIT_BYTES));
        match part {
            Ok(listed) => Self {
                name,
                response_bytes: Some(listed.response_bytes),
                limit_bytes: listed
                    .limit_bytes
                    .map_or(limit_bytes, |told| told.min(limit_bytes)),
                read: Some(Read {
                    mode: listed.mode,
                    took: listed.duration,
                    malformed: listed.malformed,
                    is_whole: listed.coverage == Coverage::Whole,
                }),
            },
            Err(error) => Self::failed(name, too_large(error), limit_bytes),
        }
    }

    /// A list that failed still has its weight, if it failed for it.
    fn failed(name: &'static str, too_large: Option<(u64, u64)>, limit_bytes: u64) -> Self {
        Self {
            name,
            response_bytes: too_large.map(|(weighs, _)| weighs),
            limit_bytes: too_large.map_or(limit_bytes, |(_, may)| may.min(limit_bytes)),
            read: None,
        }
    }

    fn sample(&self, value: impl Into<Value>) -> Sample {
        sample([("list", self.name)], value)
    }
}

/// Adds the lists of a look.
pub(super) fn encode(look: &Look, page: &mut Page) {
    let server_limit = look
        .runtime
        .as_ref()
        .ok()
        .and_then(|v| server_limit_bytes(&v.runtime));
    encode_lists(
        &[
            List::new("containers", &look.containers, server_limit),
            List::new("sandboxes", &look.sandboxes, server_limit),
            List::new("images", &look.images, server_limit),
        ],
        page,
    );
}

fn encode_lists(lists: &[List], page: &mut Page) {
    page.gauge(
        bytes("cri_list_response"),
        "What the unfiltered list weighs in one answer, also when it is too heavy to be sent",
        lists
            .iter()
            .filter_map(|list| Some(list.sample(list.response_bytes?)))
            .collect(),
    );
    page.gauge(
        bytes("cri_list_limit"),
        "What the list may weigh: the least of what the kubelet takes and the runtime sends",
        lists
            .iter()
            .map(|list| list.sample(list.limit_bytes))
            .collect(),
    );
    let read = || lists.iter().filter_map(|list| Some((list, list.read?)));
    page.gauge(
        seconds("cri_list_duration"),
        "How long the list took to read",
        read().map(|(list, read)| list.sample(read.took)).collect(),
    );
    let modes = read().flat_map(|(list, read)| {
        ListMode::ALL.map(|mode| {
            let labels = [("list", list.name), ("mode", mode.label())];
            sample(labels, mode == read.mode)
        })
    });
    page.gauge(
        plain("cri_list_mode"),
        "How the list was read: 1 for that mode",
        modes.collect(),
    );
    page.gauge(
        plain("cri_list_malformed_rows"),
        "Rows of the list that lack what must be there and are counted nowhere else",
        read()
            .map(|(list, read)| list.sample(read.malformed))
            .collect(),
    );
    page.gauge(
        plain("cri_list_complete"),
        "Whether the list is known to have been read whole",
        read()
            .map(|(list, read)| list.sample(read.is_whole))
            .collect(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(list: List) -> String {
        let (mut page, mut text) = (Page::default(), String::new());
        encode_lists(&[list], &mut page);
        page.encode(&mut text).unwrap();
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_list_that_failed_for_its_size_shows_it() {
        let list = List::failed(
            "containers",
            Some((19_327_280, 16_777_216)),
            KUBELET_LIMIT_BYTES,
        );
        assert_eq!(
            page(list),
            "cri_list_response_bytes{list=\"containers\"} 19327280\n\
             cri_list_limit_bytes{list=\"containers\"} 16777216"
        );
    }

    #[test]
    fn the_smallest_limit_counts() {
        let limit = |told| List::failed("images", Some((1, told)), KUBELET_LIMIT_BYTES).limit_bytes;
        assert_eq!(limit(4 * MIB), 4 * MIB);
        assert_eq!(limit(80 * MIB), 16 * MIB);
    }

    #[test]
    fn a_list_that_failed_otherwise_has_no_size() {
        let list = List::failed("sandboxes", None, KUBELET_LIMIT_BYTES);
        assert_eq!(
            page(list),
            "cri_list_limit_bytes{list=\"sandboxes\"} 16777216"
        );
    }
}
