//! The kubelet's pods API on its unix socket. Connects again for each answer: the kubelet makes a new socket
//! at each start, and an old connection would hide that.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::file;
use super::last_answer::LastAnswer;
use super::parse::{Author, PodFields, PodListParser, owner};
use super::{ANSWER_MAX_BYTES, Error, Freshness, api_server, client};
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::{PodList, PodUid, SourcePod};
use crate::system::blocking::BlockingPool;
use crate::system::file::TIMEOUT;
use crisweep_proto::pods::pods_client::PodsClient;
use crisweep_proto::pods::{ListPodsRequest, ListPodsResponse};

/// Paths of the kubelet's socket: since Kubernetes 1.36, and in older documents.
pub const PATHS: [&str; 2] = [
    "/var/lib/kubelet/pods-api/pods-api.sock",
    "/var/lib/kubelet/pods/kubelet.sock",
];
/// Timeout of the API server. A pod counts as active until the API server confirms its end.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a failed API server is not asked.
const CONFIRM_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The finished pods that the API server confirms. The kubelet's answer is only its own state: a kubelet that
/// restarts before the API server has that state would run the pod again.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    api_server: Option<(ApiClient, String)>,
    finished: BTreeSet<PodUid>,
    failed_at: Option<Instant>,
}

impl Confirmed {
    pub(super) fn by(api_server: Option<(ApiServer, String)>, disk: &BlockingPool) -> Self {
        Self {
            api_server: api_server.map(|(server, node)| (client(server, disk), node)),
            ..Self::default()
        }
    }

    /// Keeps pods as finished only if the API server confirms it. A pod never runs again after its end is
    /// stored there, so each pod is asked about only until it is confirmed.
    async fn confirm(&mut self, list: &mut PodList) {
        let finished = |uid: &PodUid| list.pods.get(uid).is_some_and(|pod| pod.finished);
        self.finished.retain(finished);
        let is_open = |(uid, pod): (&PodUid, &SourcePod)| {
            pod.finished && !pod.is_static() && !self.finished.contains(uid)
        };
        if list.pods.iter().any(is_open) {
            self.ask(list).await;
        }
        for (uid, pod) in &mut list.pods {
            pod.finished &= self.finished.contains(uid);
        }
    }

    async fn ask(&mut self, list: &PodList) {
        let Some((client, node)) = &self.api_server else {
            return;
        };
        let failed_at = self.failed_at.take();
        if failed_at.is_some_and(|at| at.elapsed() < CONFIRM_AGAIN_AFTER) {
            self.failed_at = failed_at;
            return;
        }
        // Finished is final, so the cache is enough.
        let mut last_answer = LastAnswer::default();
        let asking = api_server::list(client, node, Freshness::Cached, &mut last_answer);
        let answer = tokio::time::timeout(CONFIRM_TIMEOUT, asking).await;
        let error = match answer {
            Ok(Ok(answer)) => {
                let finished = answer.pods.into_iter().filter(|(_, pod)| pod.finished);
                let both =
                    finished.filter(|(uid, _)| list.pods.get(uid).is_some_and(|it| it.finished));
                self.finished.extend(both.map(|(uid, _)| uid));
                return;
            }
            Ok(Err(error)) => error.text(),
            Err(_elapsed) => "it gave no answer in time".to_owned(),
        };
        self.failed_at = Some(Instant::now());
        tracing::warn!(
            error,
            "the API server does not confirm which pods have finished: they count as active"
        );
    }
}

/// Reads the kubelet's pods from the first existing socket.
pub(super) async fn list(
    disk: &BlockingPool,
    paths: &[PathBuf],
    node: &str,
    confirmed: &mut Confirmed,
) -> Result<PodList, Error> {
    let path = first_there(disk, paths).await?.unwrap_or_default();
    let mut list = ask(disk, &path, node).await?;
    confirmed.confirm(&mut list).await;
    Ok(list)
}

/// Returns the first path that is a socket, else the first path.
async fn first_there(disk: &BlockingPool, paths: &[PathBuf]) -> Result<Option<PathBuf>, Error> {
    for path in paths {
        if is_socket(disk, path).await? {
            return Ok(Some(path.clone()));
        }
    }
    Ok(paths.first().cloned())
}

/// Says whether there is a socket.
pub(super) async fn is_socket(disk: &BlockingPool, path: &Path) -> Result<bool, Error> {
    file::within_timeout(disk, path, |path| {
        let metadata = std::fs::metadata(path);
        Ok(metadata.is_ok_and(|metadata| metadata.file_type().is_socket()))
    })
    .await
}

async fn ask(disk: &BlockingPool, path: &Path, node: &str) -> Result<PodList, Error> {
    let max = usize::try_from(ANSWER_MAX_BYTES).unwrap_or(usize::MAX);
    let mut client = PodsClient::new(connect(disk, path).await?).max_decoding_message_size(max);
    let answer = client.list_pods(ListPodsRequest {}).await;
    let what = format!("ListPods on {}", path.display());
    match answer {
        Ok(answer) => read(answer.into_inner(), node).map_err(|cause| Error::caused(what, cause)),
        Err(status) => Err(Error::new(format!("{what}: {}", advice(&status)))),
    }
}

async fn connect(disk: &BlockingPool, path: &Path) -> Result<Channel, Error> {
    let (disk, socket) = (disk.clone(), path.to_owned());
    let connector = service_fn(move |_: Uri| {
        let (disk, socket) = (disk.clone(), socket.clone());
        async move {
            // Even connecting to a socket may touch a hung disk.
            let connect = move || std::os::unix::net::UnixStream::connect(socket);
            let stream = disk.run(TIMEOUT, connect).await;
            let stream = stream.map_err(std::io::Error::other)??;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream).map(TokioIo::new)
        }
    });
    // Only the `:authority` header uses this address; the connector has the socket.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| Error::caused(format!("cannot connect to {}", path.display()), error))
}

fn read(answer: ListPodsResponse, node: &str) -> Result<PodList, String> {
    let mut reading = PodListParser::new(Author::Kubelet, node);
    for pod in answer.pods {
        let metadata = pod.metadata.unwrap_or_default();
        let mut owners = metadata.owner_references.into_iter();
        let controller = owners.find(|owner| owner.controller && owner.kind != "Node");
        reading.add(PodFields {
            uid: &metadata.uid,
            node: &pod.spec.unwrap_or_default().node_name,
            annotations: &metadata.annotations,
            // The kubelet does not serve mirror pods here.
            is_nodes: false,
            owner: controller.and_then(|it| owner(it.kind, it.name)),
            phase: &pod.status.unwrap_or_default().phase,
        })?;
    }
    Ok(reading.end())
}

fn advice(status: &tonic::Status) -> String {
    let code = status.code();
    if code == Code::FailedPrecondition {
        "the kubelet has not seen all its sources of pods yet (FAILED_PRECONDITION)".to_owned()
    } else if code == Code::Unimplemented {
        "this kubelet does not serve v1alpha1.Pods (UNIMPLEMENTED): use another pods.source"
            .to_owned()
    } else {
        format!("{code:?}: {}", status.message())
    }
}

#[cfg(test)]
mod tests {
    use crisweep_proto::pods::{ObjectMeta, OwnerReference, Pod};

    use super::*;

    #[test]
    fn a_pods_controller_is_its_owner() {
        let reference = |kind: &str, controller| OwnerReference {
            kind: kind.into(),
            name: "web-1".into(),
            controller,
        };
        let owner_references = vec![
            reference("Job", false),
            reference("Node", true),
            reference("DaemonSet", true),
        ];
        let metadata = ObjectMeta {
            uid: "u".into(),
            owner_references,
            ..ObjectMeta::default()
        };
        let pod = Pod {
            metadata: Some(metadata),
            ..Pod::default()
        };
        let list = read(ListPodsResponse { pods: vec![pod] }, "n1").unwrap();
        let kinds: Vec<&str> = list.owners.values().map(|it| it.kind.as_str()).collect();
        assert_eq!(kinds, ["DaemonSet"]);
    }
}
