//! The runtime and image services, RPC by RPC.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use serde_json::{Value, json};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::gzip::Compressed;
use super::node::now;
use super::profile::Profile;
use super::record::Rpc;
use super::shared::Shared;
use super::{lists, ops, rows};
use crisweep_proto::cri;
use crisweep_proto::cri::image_service_server::ImageService;
use crisweep_proto::cri::runtime_service_server::RuntimeService;

type Answer<T> = Result<Response<T>, Status>;

/// Serves a simulated node.
#[derive(Debug)]
pub(super) struct Service(pub(super) Arc<Shared>);

impl Service {
    async fn admit_stream(&self, rpc: Rpc, service: &str) -> Result<(), Status> {
        self.0.admit(rpc).await?;
        if self.0.conduct.borrow().streaming {
            return Ok(());
        }
        let why = format!("unknown method {rpc:?} for service runtime.v1.{service}");
        Err(Status::unimplemented(why))
    }

    /// Returns the filter, unless the runtime ignores filters.
    fn filter<'a, T>(&self, filter: Option<&'a T>) -> Option<&'a T> {
        filter.filter(|_| !self.0.conduct.borrow().ignores_filters)
    }

    /// Sends rows as a stream of messages.
    fn stream<T, M>(&self, rows: &[&T], message: impl Fn(Vec<T>) -> M) -> Response<BoxStream<M>>
    where
        T: Message + Clone,
        M: Send + 'static,
    {
        let (size, conduct) = (self.0.options.stream_rows, self.0.conduct.borrow());
        Response::new(lists::stream(rows, size, &conduct, message))
    }

    fn profile(&self) -> Profile {
        self.0.options.profile
    }

    /// Returns the limit of an answer before it is compressed.
    fn send_limit<T>(&self, request: &Request<T>) -> usize {
        match request.extensions().get::<Compressed>() {
            Some(Compressed) => usize::MAX,
            None => self.0.conduct.borrow().send_limit_bytes,
        }
    }
}

#[async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        self.0.admit(Rpc::Version).await?;
        Ok(Response::new(cri::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: self.0.options.runtime_name.clone(),
            runtime_version: self.0.options.runtime_version.clone(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(&self, request: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        self.0.admit(Rpc::Status).await?;
        let condition = |kind: &str| cri::RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..cri::RuntimeCondition::default()
        };
        let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
        let config = || self.profile().config(&self.0.node().sandbox_image);
        let info = info("config", request.get_ref().verbose.then(config));
        let status = Some(cri::RuntimeStatus { conditions });
        Ok(Response::new(cri::StatusResponse { status, info }))
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        self.0.admit(Rpc::ListContainers).await?;
        self.profile().may_list(request.get_ref().filter.as_ref())?;
        let node = self.0.node();
        let rows = lists::containers(&node, self.filter(request.get_ref().filter.as_ref()));
        let containers = lists::answer(&rows, self.send_limit(&request))?;
        Ok(Response::new(cri::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<cri::StreamContainersRequest>,
    ) -> Answer<BoxStream<cri::StreamContainersResponse>> {
        self.admit_stream(Rpc::StreamContainers, "RuntimeService")
            .await?;
        let node = self.0.node();
        let rows = lists::containers(&node, self.filter(request.get_ref().filter.as_ref()));
        let message = |containers| cri::StreamContainersResponse { containers };
        Ok(self.stream(&rows, message))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        self.0.admit(Rpc::ContainerStatus).await?;
        let asked = &request.get_ref().container_id;
        self.0.suffer_status(asked).await?;
        let node = self.0.node();
        let record = node.containers.get(asked);
        let record = record.ok_or_else(|| self.profile().not_found("container", asked))?;
        let mut status = cri::ContainerStatus {
            id: record.row.id.clone(),
            metadata: record.row.metadata.clone(),
            state: record.row.state,
            image: record.row.image.clone(),
            created_at: record.row.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            exit_code: record.exit_code,
            image_ref: record.row.image_ref.clone(),
            image_id: record.row.image_id.clone(),
            reason: record.reason.clone(),
            message: String::new(),
            labels: rows::entries(&record.row.labels),
            mounts: record
                .volume_images
                .iter()
                .map(|id| image_mount(id))
                .collect(),
            log_path: record.log_path.clone(),
        };
        self.profile().complete(&node, &mut status);
        let status = Some(status);
        let words = || json!({ "sandboxID": record.row.pod_sandbox_id, "pid": 0 });
        let info = info("info", request.get_ref().verbose.then(words));
        Ok(Response::new(cri::ContainerStatusResponse { status, info }))
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        let asked = &request.get_ref().container_id;
        let call = self.0.begin(Rpc::StopContainer, asked);
        call.edit(|call| call.grace_seconds = request.get_ref().timeout);
        let result = ops::stop_container(&self.0, &call, asked).await;
        call.end(result)
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        let asked = &request.get_ref().container_id;
        let call = self.0.begin(Rpc::RemoveContainer, asked);
        let result = ops::remove_container(&self.0, &call, asked).await;
        call.end(result)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        self.0.admit(Rpc::ListPodSandbox).await?;
        let node = self.0.node();
        let rows = lists::sandboxes(&node, self.filter(request.get_ref().filter.as_ref()));
        let items = lists::answer(&rows, self.send_limit(&request))?;
        Ok(Response::new(cri::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<cri::StreamPodSandboxesRequest>,
    ) -> Answer<BoxStream<cri::StreamPodSandboxesResponse>> {
        self.admit_stream(Rpc::StreamPodSandboxes, "RuntimeService")
            .await?;
        let node = self.0.node();
        let rows = lists::sandboxes(&node, self.filter(request.get_ref().filter.as_ref()));
        let message = |pod_sandboxes| cri::StreamPodSandboxesResponse { pod_sandboxes };
        Ok(self.stream(&rows, message))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        self.0.admit(Rpc::PodSandboxStatus).await?;
        let asked = &request.get_ref().pod_sandbox_id;
        let node = self.0.node();
        let record = node.sandboxes.get(asked).filter(|it| !it.is_note_only);
        let record = record.ok_or_else(|| self.profile().not_found("sandbox", asked))?;
        let row = &record.row;
        let status = Some(cri::PodSandboxStatus {
            id: row.id.clone(),
            metadata: row.metadata.clone(),
            state: row.state,
            created_at: self.profile().status_created_at(row.created_at),
            labels: rows::entries(&row.labels),
            annotations: rows::entries(&row.annotations),
        });
        let words = self.profile().sandbox_info(record);
        let info = info("info", words.filter(|_| request.get_ref().verbose));
        Ok(Response::new(cri::PodSandboxStatusResponse {
            status,
            info,
        }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        let asked = &request.get_ref().pod_sandbox_id;
        let call = self.0.begin(Rpc::StopPodSandbox, asked);
        let result = ops::stop_pod_sandbox(&self.0, &call, asked).await;
        call.end(result)
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        let asked = &request.get_ref().pod_sandbox_id;
        let call = self.0.begin(Rpc::RemovePodSandbox, asked);
        let result = ops::remove_pod_sandbox(&self.0, &call, asked).await;
        call.end(result)
    }
}

/// Returns the `info` of a verbose answer; without words it is empty.
fn info(key: &str, words: Option<Value>) -> BTreeMap<String, String> {
    let entry = words.map(|words| (key.to_owned(), words.to_string()));
    entry.into_iter().collect()
}

/// An image volume, beside every container's usual mounts.
fn image_mount(id: &str) -> cri::Mount {
    cri::Mount {
        container_path: "/data".to_owned(),
        readonly: true,
        image: Some(rows::image_spec(id, "")),
        ..cri::Mount::default()
    }
}

#[async_trait]
impl ImageService for Service {
    async fn list_images(
        &self,
        request: Request<cri::ListImagesRequest>,
    ) -> Answer<cri::ListImagesResponse> {
        self.0.admit(Rpc::ListImages).await?;
        let node = self.0.node();
        let rows = lists::images(&node, request.get_ref().filter.as_ref());
        let images = lists::answer(&rows, self.send_limit(&request))?;
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<cri::StreamImagesRequest>,
    ) -> Answer<BoxStream<cri::StreamImagesResponse>> {
        self.admit_stream(Rpc::StreamImages, "ImageService").await?;
        let node = self.0.node();
        let rows = lists::images(&node, request.get_ref().filter.as_ref());
        let message = |images| cri::StreamImagesResponse { images };
        Ok(self.stream(&rows, message))
    }

    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Answer<cri::RemoveImageResponse> {
        let spec = request.into_inner().image.unwrap_or_default();
        let asked = spec.image;
        let call = self.0.begin(Rpc::RemoveImage, &asked);
        call.edit(|call| call.handler = spec.runtime_handler);
        let result = ops::remove_image(&self.0, &call, &asked).await;
        call.end(result)
    }

    async fn image_fs_info(
        &self,
        _: Request<cri::ImageFsInfoRequest>,
    ) -> Answer<cri::ImageFsInfoResponse> {
        self.0.admit(Rpc::ImageFsInfo).await?;
        let mountpoint = self.0.mountpoint().display().to_string();
        // One guard for both: in one expression the second lock would wait for the first.
        let node = self.0.node();
        let usage = cri::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(cri::FilesystemIdentifier { mountpoint }),
            used_bytes: Some(cri::UInt64Value {
                value: node.used_image_bytes(),
            }),
            inodes_used: Some(cri::UInt64Value {
                value: node.used_inodes(),
            }),
        };
        Ok(Response::new(cri::ImageFsInfoResponse {
            container_filesystems: self.profile().container_filesystems(&usage),
            image_filesystems: vec![usage],
        }))
    }
}
