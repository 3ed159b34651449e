//! Small runtimes on sockets in temporary directories, for the tests of this room.

use crisweep_proto::cri;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::{LogRoots, Settings};
use crisweep_proto::cri::image_service_server::{ImageService, ImageServiceServer};
use crisweep_proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};

/// A server with its own threads: dropping it ends it like a killed process, with all connections.
pub(super) struct Server {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// Listens on `path` when it returns. Replaces an existing socket file.
    pub(super) fn start(path: &Path, routes: Routes) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            let incoming = UnixListenerStream::new(listener);
            let server = tonic::transport::Server::builder().add_routes(routes);
            server.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            runtime: Some(runtime),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

/// A socket path, and settings with short timeouts.
pub(super) fn place() -> (tempfile::TempDir, PathBuf, Settings) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cri.sock");
    let settings = Settings {
        endpoint: path.clone(),
        image_endpoint: None,
        timeout: Duration::from_secs(10),
        removal_timeout: Duration::from_secs(10),
        max_message_bytes: 64 << 20,
        log_roots: LogRoots {
            pods: dir.path().join("pods"),
            containers: dir.path().join("containers"),
        },
    };
    (dir, path, settings)
}

/// Answers every RPC with a message of these bytes and status OK.
pub(super) fn raw_answer(message: &[u8]) -> Routes {
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let answer = move || async move {
        (
            [("content-type", "application/grpc"), ("grpc-status", "0")],
            body,
        )
    };
    Routes::from(axum::Router::new().fallback(answer))
}

/// Answers every RPC with these bytes, then with this status and text; `None`: without a status.
pub(super) fn raw_body(bytes: Vec<u8>, end: Option<[&'static str; 2]>) -> Routes {
    let answer = move || {
        let trailers = end.map(|[code, text]| {
            let mut trailers = tonic::codegen::http::HeaderMap::new();
            trailers.insert("grpc-status", code.parse().unwrap());
            trailers.insert("grpc-message", text.parse().unwrap());
            Frame::trailers(trailers)
        });
        let frames = [Some(Frame::data(Bytes::from(bytes))), trailers];
        let frames = frames.into_iter().flatten().map(Ok::<_, Infallible>);
        let body = StreamBody::new(tokio_stream::iter(frames));
        let answer = (
            [("content-type", "application/grpc")],
            axum::body::Body::new(body),
        );
        async move { answer }
    };
    Routes::from(axum::Router::new().fallback(answer))
}

/// A runtime that answers from values. Everything else is UNIMPLEMENTED.
#[derive(Clone, Default)]
pub(super) struct Fake {
    pub(super) name: String,
    pub(super) containers: Vec<cri::Container>,
    pub(super) sandboxes: Vec<cri::PodSandbox>,
    pub(super) images: Vec<cri::Image>,
    /// Rows per message of a streamed list; `None`: cannot stream.
    pub(super) rows_per_message: Option<usize>,
    /// Ends each stream with this after its messages.
    pub(super) breaks_streams: Option<Status>,
    /// The answer to every call except streams.
    pub(super) refusal: Option<Status>,
    /// Never answers Version.
    pub(super) hangs: bool,
    /// Ignores filters.
    pub(super) ignores_filters: bool,
    /// The answer to the unfiltered list of containers.
    pub(super) refusal_of_unfiltered: Option<Status>,
    /// Every call, and its `grpc-timeout`.
    pub(super) calls: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Fake {
    pub(super) fn serve(&self, path: &Path) -> Server {
        let mut routes = Routes::builder();
        routes.add_service(RuntimeServiceServer::new(self.clone()));
        routes.add_service(ImageServiceServer::new(self.clone()));
        Server::start(path, routes.routes())
    }

    pub(super) fn called(&self, method: &str) -> usize {
        self.calls
            .lock()
            .iter()
            .filter(|(name, _)| *name == method)
            .count()
    }

    pub(super) fn deadline_of(&self, method: &str) -> String {
        let calls = self.calls.lock();
        calls
            .iter()
            .rfind(|(name, _)| *name == method)
            .unwrap()
            .1
            .clone()
    }

    fn note<T>(&self, method: &'static str, request: &Request<T>) {
        let deadline = request.metadata().get("grpc-timeout");
        let deadline = deadline
            .map_or("", |value| value.to_str().unwrap())
            .to_owned();
        self.calls.lock().push((method, deadline));
    }

    fn answer<Q, A>(&self, method: &'static str, request: &Request<Q>, answer: A) -> Answer<A> {
        self.note(method, request);
        self.refusal.clone().map_or(Ok(Response::new(answer)), Err)
    }

    fn stream<R: Clone, A: Send + 'static>(
        &self,
        rows: &[R],
        message: fn(Vec<R>) -> A,
    ) -> Stream<A> {
        let size = self
            .rows_per_message
            .ok_or_else(|| Status::unimplemented("unknown method"))?;
        let mut messages: Vec<_> = rows.chunks(size).map(|c| Ok(message(c.to_vec()))).collect();
        messages.extend(self.breaks_streams.clone().map(Err));
        Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
    }
}

type Answer<A> = Result<Response<A>, Status>;
type Stream<A> = Result<Response<BoxStream<A>>, Status>;

#[tonic::async_trait]
impl RuntimeService for Fake {
    async fn version(&self, r: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        if self.hangs {
            self.note("Version", &r);
            std::future::pending::<()>().await;
        }
        let version = cri::VersionResponse {
            runtime_name: self.name.clone(),
            runtime_version: "1.2.3".into(),
            ..Default::default()
        };
        self.answer("Version", &r, version)
    }

    async fn status(&self, r: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        let condition = cri::RuntimeCondition {
            r#type: "NetworkReady".into(),
            ..Default::default()
        };
        let mut answer = cri::StatusResponse {
            status: Some(cri::RuntimeStatus {
                conditions: vec![condition],
            }),
            ..Default::default()
        };
        if r.get_ref().verbose {
            answer
                .info
                .insert("config".into(), r#"{"sandboxImage":"pause:3.9"}"#.into());
        }
        self.answer("Status", &r, answer)
    }

    async fn list_containers(
        &self,
        r: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        if let Some(refusal) = &self.refusal_of_unfiltered
            && r.get_ref().filter.is_none()
        {
            return Err(refusal.clone());
        }
        let filter = r.get_ref().filter.clone().unwrap_or_default();
        let mut containers = self.containers.clone();
        if !filter.pod_sandbox_id.is_empty() && !self.ignores_filters {
            containers.retain(|c| c.pod_sandbox_id == filter.pod_sandbox_id);
        }
        self.answer(
            "ListContainers",
            &r,
            cri::ListContainersResponse { containers },
        )
    }

    async fn stream_containers(
        &self,
        r: Request<cri::StreamContainersRequest>,
    ) -> Stream<cri::StreamContainersResponse> {
        self.note("StreamContainers", &r);
        self.stream(&self.containers, |containers| {
            cri::StreamContainersResponse { containers }
        })
    }

    async fn list_pod_sandbox(
        &self,
        r: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        let items = self.sandboxes.clone();
        self.answer("ListPodSandbox", &r, cri::ListPodSandboxResponse { items })
    }

    async fn stream_pod_sandboxes(
        &self,
        r: Request<cri::StreamPodSandboxesRequest>,
    ) -> Stream<cri::StreamPodSandboxesResponse> {
        self.note("StreamPodSandboxes", &r);
        self.stream(&self.sandboxes, |pod_sandboxes| {
            cri::StreamPodSandboxesResponse { pod_sandboxes }
        })
    }

    async fn container_status(
        &self,
        r: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        let id = &r.get_ref().container_id;
        let found = self.containers.iter().find(|c| c.id.starts_with(id));
        let status = found.ok_or_else(|| Status::not_found("no such container"))?;
        let status = cri::ContainerStatus {
            id: status.id.clone(),
            state: status.state,
            finished_at: 5_000_000_000,
            exit_code: 137,
            reason: "OOMKilled".into(),
            ..Default::default()
        };
        let answer = cri::ContainerStatusResponse {
            status: Some(status),
            ..Default::default()
        };
        self.answer("ContainerStatus", &r, answer)
    }

    async fn pod_sandbox_status(
        &self,
        r: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        let id = &r.get_ref().pod_sandbox_id;
        let found = self.sandboxes.iter().find(|s| s.id.starts_with(id));
        let found = found.ok_or_else(|| Status::not_found("no such sandbox"))?;
        let status = cri::PodSandboxStatus {
            id: found.id.clone(),
            state: found.state,
            ..Default::default()
        };
        let answer = cri::PodSandboxStatusResponse {
            status: Some(status),
            ..Default::default()
        };
        self.answer("PodSandboxStatus", &r, answer)
    }

    async fn stop_container(
        &self,
        r: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        assert_eq!(
            r.get_ref().timeout,
            3,
            "half a second more than two is three"
        );
        self.answer("StopContainer", &r, cri::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        r: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        self.answer("RemoveContainer", &r, cri::RemoveContainerResponse {})
    }

    async fn stop_pod_sandbox(
        &self,
        r: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        self.answer("StopPodSandbox", &r, cri::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        r: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        self.answer("RemovePodSandbox", &r, cri::RemovePodSandboxResponse {})
    }
}

#[tonic::async_trait]
impl ImageService for Fake {
    async fn list_images(
        &self,
        r: Request<cri::ListImagesRequest>,
    ) -> Answer<cri::ListImagesResponse> {
        let images = self.images.clone();
        self.answer("ListImages", &r, cri::ListImagesResponse { images })
    }

    async fn stream_images(
        &self,
        r: Request<cri::StreamImagesRequest>,
    ) -> Stream<cri::StreamImagesResponse> {
        self.note("StreamImages", &r);
        self.stream(&self.images, |images| cri::StreamImagesResponse { images })
    }

    async fn remove_image(
        &self,
        r: Request<cri::RemoveImageRequest>,
    ) -> Answer<cri::RemoveImageResponse> {
        self.answer("RemoveImage", &r, cri::RemoveImageResponse {})
    }

    async fn image_fs_info(
        &self,
        r: Request<cri::ImageFsInfoRequest>,
    ) -> Answer<cri::ImageFsInfoResponse> {
        let usage = cri::FilesystemUsage {
            fs_id: Some(cri::FilesystemIdentifier {
                mountpoint: "/img".into(),
            }),
            ..Default::default()
        };
        let answer = cri::ImageFsInfoResponse {
            image_filesystems: vec![usage],
            ..Default::default()
        };
        self.answer("ImageFsInfo", &r, answer)
    }
}
