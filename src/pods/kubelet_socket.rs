//! The kubelet's pods API on its unix socket. Connects anew for each answer: the kubelet makes a new
//! socket at each start, and an old connection would hide that.

use std::path::Path;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::proto::pods_client::PodsClient;
use super::proto::{ListPodsRequest, ListPodsResponse, Pod};
use super::{ANSWER_MAX_BYTES, Error, ParseError, parse};
use crate::model::PodList;

/// Where the kubelet makes its socket.
pub const PATH: &str = "/var/lib/kubelet/pods/kubelet.sock";

/// Reads the kubelet's pods.
pub(super) async fn list(path: &Path) -> Result<PodList, Error> {
    let max = usize::try_from(ANSWER_MAX_BYTES).unwrap_or(usize::MAX);
    let mut client = PodsClient::new(connect(path).await?).max_decoding_message_size(max);
    let answer = client.list_pods(ListPodsRequest {}).await;
    let answer = answer.map_err(|status| Error::Call {
        path: path.to_owned(),
        advice: advice(&status),
    })?;
    read(answer.into_inner()).map_err(|source| Error::NotPods {
        what: format!("ListPods on {}", path.display()),
        source,
    })
}

async fn connect(path: &Path) -> Result<Channel, Error> {
    let socket = path.to_owned();
    let connector = service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The address is only what goes into the `:authority` header: the connector has the socket.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| Error::Connect {
        path: path.to_owned(),
        source: error.into(),
    })
}

fn read(answer: ListPodsResponse) -> Result<PodList, ParseError> {
    let mut list = PodList::default();
    for (index, Pod { metadata, status }) in answer.pods.into_iter().enumerate() {
        let metadata = metadata.unwrap_or_default();
        let phase = status.unwrap_or_default().phase;
        parse::add(&mut list, &metadata.uid, &metadata.annotations, &phase)
            .ok_or(ParseError::NoUid(index))?;
    }
    Ok(list)
}

fn advice(status: &tonic::Status) -> String {
    match status.code() {
        Code::FailedPrecondition => {
            "the kubelet has not seen all its sources of pods yet (FAILED_PRECONDITION)".to_owned()
        }
        Code::Unimplemented => "this kubelet does not serve v1alpha1.Pods (UNIMPLEMENTED): use \
                                another pods.source"
            .to_owned(),
        Code::OutOfRange => format!("its answer is larger than {ANSWER_MAX_BYTES} bytes"),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => format!("{:?}: {}", status.code(), status.message()),
    }
}
