//! containerd's own container service: every id, and the pod in its labels. It streams one record at a time, so
//! it has no size limit. Holds at most one record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::{Response, Status};

use super::super::connection::{RuntimeConnection, request};
use super::super::framing::{Awaits, Encoding};
use crate::model::PodUid;
use crate::runtime::convert::POD_UID_LABEL;
use crate::runtime::{Defect, Error};
use crisweep_proto::containerd::ListContainersRequest;
use crisweep_proto::containerd::containers_client::ContainersClient;

/// The namespace of the CRI plugin.
const NAMESPACE: &str = "k8s.io";
/// The most ids that are read; far above what a node can hold.
const IDS_MAX: usize = 1_000_000;

/// Ids, and the pod in each one's labels.
pub(super) type Ids = BTreeMap<Box<str>, Option<PodUid>>;

/// Asks for the ids of all records of a kind; `None` if the runtime has no such service. `missing` is the
/// connection on which that was found.
pub(super) async fn ids(
    link: &RuntimeConnection,
    missing: &AtomicU64,
    label: &str,
    deadline: Duration,
) -> Result<Option<Ids>, Error> {
    let connection = link.connection();
    if connection > 0 && missing.load(Ordering::Relaxed) == connection {
        return Ok(None);
    }
    match link
        .call(
            "containers.ListStream",
            deadline,
            read(link, label, deadline),
        )
        .await
    {
        Err(error) if error.is_unimplemented() => {
            missing.store(connection, Ordering::Relaxed);
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

async fn read(
    link: &RuntimeConnection,
    label: &str,
    deadline: Duration,
) -> Result<Response<Ids>, Status> {
    let mut client = ContainersClient::new(link.channel(Awaits::OneByOne, Encoding::Plain))
        .max_decoding_message_size(link.max_message_bytes);
    let filters = vec![format!("labels.\"io.cri-containerd.kind\"=={label}")];
    let mut request = request(ListContainersRequest { filters }, deadline);
    let namespace = MetadataValue::from_static(NAMESPACE);
    request
        .metadata_mut()
        .insert("containerd-namespace", namespace);
    let mut stream = client.list_stream(request).await?.into_inner();
    let mut ids = Ids::new();
    while let Some(message) = stream.message().await? {
        let Some(mut container) = message.container else {
            continue;
        };
        if ids.len() >= IDS_MAX {
            return Err(Defect::TooManyIds(IDS_MAX).into());
        }
        let uid = container.labels.remove(POD_UID_LABEL).and_then(PodUid::new);
        ids.insert(container.id.into(), uid);
    }
    Ok(Response::new(ids))
}
