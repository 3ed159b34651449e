//! The simulated runtime, seen through its socket.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod demo;
mod lists;
mod removal;
mod server;

use std::time::Duration;

use crisweep_sim::*;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crisweep_proto::cri::image_service_client::ImageServiceClient;
use crisweep_proto::cri::runtime_service_client::RuntimeServiceClient;
use crisweep_proto::cri::{self, ContainerState, PodSandboxState};

const PATIENCE: Duration = Duration::from_secs(10);

/// A served node and clients of it.
struct Rig {
    sim: Sim,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    directory: TempDir,
}

impl Rig {
    async fn new(node: NodeBuilder, options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sim = Sim::start(directory.path().join("cri.sock"), node.build(), options).unwrap();
        let channel = connect(&sim).await;
        let runtime =
            RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
        let images = ImageServiceClient::new(channel);
        Self {
            sim,
            runtime,
            images,
            directory,
        }
    }

    async fn with(pod: PodSpec) -> Self {
        Self::new(NodeBuilder::new().pod(pod), Options::default()).await
    }

    fn container(&self, subject: &str) -> String {
        self.sim.container_id(subject).unwrap()
    }

    fn sandbox(&self, subject: &str) -> String {
        self.sim.sandbox_id(subject).unwrap()
    }

    async fn remove_container(&self, id: &str) -> Result<(), Status> {
        let request = cri::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        self.runtime
            .clone()
            .remove_container(request)
            .await
            .map(|_| ())
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), Status> {
        let request = cri::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.runtime
            .clone()
            .remove_pod_sandbox(request)
            .await
            .map(|_| ())
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), Status> {
        let request = cri::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.runtime
            .clone()
            .stop_pod_sandbox(request)
            .await
            .map(|_| ())
    }

    async fn remove_image(&self, reference: &str) -> Result<(), Status> {
        let image = cri::ImageSpec {
            image: reference.to_owned(),
            ..Default::default()
        };
        let request = cri::RemoveImageRequest { image: Some(image) };
        self.images.clone().remove_image(request).await.map(|_| ())
    }

    async fn status(&self, id: &str) -> Result<cri::ContainerStatus, Status> {
        let request = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.runtime.clone().container_status(request).await?;
        Ok(answer.into_inner().status.unwrap())
    }

    async fn list(
        &self,
        filter: Option<cri::ContainerFilter>,
    ) -> Result<Vec<cri::Container>, Status> {
        let request = cri::ListContainersRequest { filter };
        let answer = self.runtime.clone().list_containers(request).await?;
        Ok(answer.into_inner().containers)
    }

    async fn list_sandboxes(
        &self,
        filter: Option<cri::PodSandboxFilter>,
    ) -> Result<Vec<cri::PodSandbox>, Status> {
        let request = cri::ListPodSandboxRequest { filter };
        Ok(self
            .runtime
            .clone()
            .list_pod_sandbox(request)
            .await?
            .into_inner()
            .items)
    }

    async fn version(&self) -> Result<cri::VersionResponse, Status> {
        let request = cri::VersionRequest::default();
        self.runtime
            .clone()
            .version(request)
            .await
            .map(tonic::Response::into_inner)
    }
}

async fn connect(sim: &Handle) -> Channel {
    Endpoint::try_from(sim.endpoint())
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// Waits until a condition holds; fails if it does not.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

fn codes(calls: &[Call]) -> Vec<Code> {
    calls.iter().map(|call| call.ended.unwrap().code).collect()
}
