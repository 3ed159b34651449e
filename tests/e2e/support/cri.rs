//! A plain CRI client: makes pods and reads lists, sharing nothing with the service but the schema.

use std::path::Path;
use std::time::Duration;

use crisweep_proto::cri::image_service_client::ImageServiceClient;
use crisweep_proto::cri::runtime_service_client::RuntimeServiceClient;
use crisweep_proto::cri::{
    Container, ContainerConfig, ContainerFilter, ContainerStatus, ContainerStatusRequest,
    CreateContainerRequest, Image, ListContainersRequest, ListImagesRequest, ListPodSandboxRequest,
    PodSandbox, PodSandboxConfig, PodSandboxStatusRequest, RemoveContainerRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest, StopPodSandboxRequest,
    VersionRequest, VersionResponse,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// A call's deadline: making a pod on a busy machine takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Far above what a test node's lists weigh.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A connection to a runtime. Clones share it.
#[derive(Clone)]
pub(crate) struct Cri {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Cri {
    /// Connects to the runtime behind a socket.
    pub(crate) async fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).await.unwrap()
    }

    /// Connects, or says why not.
    pub(crate) async fn try_connect(socket: &Path) -> Result<Self, String> {
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .unwrap()
            .timeout(TIMEOUT)
            .connect()
            .await
            .map_err(|error| format!("{error:?}"))?;
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES),
        })
    }

    /// Asks who answers.
    pub(crate) async fn version(&self) -> Result<VersionResponse, Status> {
        let response = self
            .runtime
            .clone()
            .version(VersionRequest::default())
            .await?;
        Ok(response.into_inner())
    }

    /// Returns every container record.
    pub(crate) async fn containers(&self) -> Vec<Container> {
        self.try_containers().await.unwrap()
    }

    /// Returns every container record, or how the list failed.
    pub(crate) async fn try_containers(&self) -> Result<Vec<Container>, Status> {
        let request = ListContainersRequest::default();
        let response = self.runtime.clone().list_containers(request).await?;
        Ok(response.into_inner().containers)
    }

    /// Returns every sandbox record.
    pub(crate) async fn sandboxes(&self) -> Vec<PodSandbox> {
        let request = ListPodSandboxRequest::default();
        self.runtime
            .clone()
            .list_pod_sandbox(request)
            .await
            .unwrap()
            .into_inner()
            .items
    }

    /// Returns every image.
    pub(crate) async fn images(&self) -> Vec<Image> {
        let request = ListImagesRequest::default();
        self.images
            .clone()
            .list_images(request)
            .await
            .unwrap()
            .into_inner()
            .images
    }

    /// Returns what lists do not say of a container: when it ended, and how.
    pub(crate) async fn container_status(&self, id: &str) -> Result<ContainerStatus, Status> {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let response = self
            .runtime
            .clone()
            .container_status(request)
            .await?
            .into_inner();
        response
            .status
            .ok_or_else(|| Status::internal("an answer without a status"))
    }

    /// Asks about a container, for more than it needs if `verbose`.
    pub(crate) async fn ask(&self, id: &str, verbose: bool) {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose,
        };
        self.runtime
            .clone()
            .container_status(request)
            .await
            .unwrap();
    }

    /// Asks what the service asks right before it removes a sandbox.
    pub(crate) async fn ask_about_sandbox(&self, id: &str) {
        let status = PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let containers = ListContainersRequest {
            filter: Some(ContainerFilter {
                pod_sandbox_id: id.to_owned(),
                ..Default::default()
            }),
        };
        let mut runtime = self.runtime.clone();
        runtime.pod_sandbox_status(status).await.unwrap();
        runtime.list_containers(containers).await.unwrap();
    }

    /// Makes a pod's sandbox and returns its id.
    pub(crate) async fn run_sandbox(&self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            ..RunPodSandboxRequest::default()
        };
        self.runtime
            .clone()
            .run_pod_sandbox(request)
            .await
            .unwrap()
            .into_inner()
            .pod_sandbox_id
    }

    /// Makes a container and returns its id.
    pub(crate) async fn create_container(
        &self,
        sandbox_id: &str,
        sandbox: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> String {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox.clone()),
        };
        self.runtime
            .clone()
            .create_container(request)
            .await
            .unwrap()
            .into_inner()
            .container_id
    }

    /// Starts a container.
    pub(crate) async fn start_container(&self, id: &str) {
        let request = StartContainerRequest {
            container_id: id.to_owned(),
        };
        self.runtime.clone().start_container(request).await.unwrap();
    }

    /// Stops a sandbox, as the kubelet does when its pod ends.
    pub(crate) async fn stop_sandbox(&self, id: &str) {
        let request = StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.runtime
            .clone()
            .stop_pod_sandbox(request)
            .await
            .unwrap();
    }

    /// Removes a sandbox with all that it holds.
    pub(crate) async fn remove_sandbox(&self, id: &str) {
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.runtime
            .clone()
            .remove_pod_sandbox(request)
            .await
            .unwrap();
    }

    /// Removes a container, whatever its state.
    pub(crate) async fn remove_container(&self, id: &str) {
        let request = RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        self.runtime
            .clone()
            .remove_container(request)
            .await
            .unwrap();
    }
}
