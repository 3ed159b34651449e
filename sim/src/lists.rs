//! List answers: filters first, then the send limit, as containerd does it.

use prost::Message;
use tonic::Status;
use tonic::codegen::BoxStream;

use super::conduct::Conduct;
use super::node::{ContainerRecord, Node, SandboxRecord};
use crisweep_proto::cri;

/// Size of the key in front of each row, in every list answer.
const KEY_BYTES: usize = 1;

/// Returns the containers that match the filter.
pub(super) fn containers<'a>(
    node: &'a Node,
    filter: Option<&cri::ContainerFilter>,
) -> Vec<&'a cri::Container> {
    let Some(filter) = filter else {
        return node.containers.values().map(|c| &c.row).collect();
    };
    let state = filter.state.map(|value| value.state());
    let (id, sandbox) = (filter.id.as_str(), filter.pod_sandbox_id.as_str());
    let matches = |row: &&cri::Container| {
        state.is_none_or(|state| row.state() == state)
            && has_labels(&row.labels, &filter.label_selector)
    };
    let found: Vec<_> = match (id, sandbox) {
        ("", "") => node.containers.values().collect(),
        ("", _) => {
            let ids = node.containers_of(sandbox);
            ids.iter()
                .filter_map(|id| node.containers.get(id))
                .collect()
        }
        (_, _) => {
            let is_in =
                |it: &&ContainerRecord| [it.row.pod_sandbox_id.as_str(), ""].contains(&sandbox);
            node.containers.get(id).filter(is_in).into_iter().collect()
        }
    };
    found.into_iter().map(|c| &c.row).filter(matches).collect()
}

/// Returns the sandboxes that match the filter.
pub(super) fn sandboxes<'a>(
    node: &'a Node,
    filter: Option<&cri::PodSandboxFilter>,
) -> Vec<&'a cri::PodSandbox> {
    let Some(filter) = filter else {
        return node.sandboxes.values().map(|s| &s.row).collect();
    };
    let has_container = |record: &&SandboxRecord| !record.is_note_only;
    let state = filter.state.map(|value| value.state());
    let matches = |row: &&cri::PodSandbox| {
        state.is_none_or(|state| row.state() == state)
            && has_labels(&row.labels, &filter.label_selector)
    };
    if !filter.id.is_empty() {
        let found = node.sandboxes.get(&filter.id).filter(has_container);
        return found.map(|s| &s.row).into_iter().filter(matches).collect();
    }
    node.sandboxes
        .values()
        .filter(has_container)
        .map(|s| &s.row)
        .filter(matches)
        .collect()
}

/// Returns the images that match the filter.
pub(super) fn images<'a>(node: &'a Node, filter: Option<&cri::ImageFilter>) -> Vec<&'a cri::Image> {
    let asked = filter
        .and_then(|filter| filter.image.as_ref())
        .map(|spec| spec.image.as_str());
    match asked.filter(|reference| !reference.is_empty()) {
        Some(reference) => node.find_image(reference).into_iter().collect(),
        None => node.images.values().collect(),
    }
}

/// Returns the weight of an answer with these rows.
pub(super) fn weight<T: Message>(rows: &[&T]) -> usize {
    let weigh = |row: &&T| {
        let length = row.encoded_len();
        KEY_BYTES + prost::length_delimiter_len(length) + length
    };
    rows.iter().map(weigh).sum()
}

/// Copies rows into one answer; fails if it is over the server's limit.
pub(super) fn answer<T: Message + Clone>(rows: &[&T], limit: usize) -> Result<Vec<T>, Status> {
    check_size(weight(rows), limit)?;
    Ok(rows.iter().map(|row| (*row).clone()).collect())
}

/// Refuses a message over the server's limit.
pub(super) fn check_size(size: usize, limit: usize) -> Result<(), Status> {
    if size <= limit {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "grpc: trying to send message larger than max ({size} vs. {limit})"
    )))
}

/// Splits rows into messages of `size` rows. The stream breaks at a message over the limit, and after a configured
/// number of messages, or at its end if it has no more.
pub(super) fn stream<T, M>(
    rows: &[&T],
    size: usize,
    conduct: &Conduct,
    message: impl Fn(Vec<T>) -> M,
) -> BoxStream<M>
where
    T: Message + Clone,
    M: Send + 'static,
{
    let (whole, end) = conduct.stream_break.clone().unzip();
    let chunks = rows.chunks(size).take(whole.unwrap_or(usize::MAX));
    let messages = chunks.map(|chunk| answer(chunk, conduct.send_limit_bytes).map(&message));
    // The server sends nothing after the first error.
    let items: Vec<_> = messages.chain(end.map(Err)).collect();
    Box::pin(futures_util::stream::iter(items))
}

type Pairs = std::collections::BTreeMap<String, String>;

fn has_labels(labels: &Pairs, wanted: &Pairs) -> bool {
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
