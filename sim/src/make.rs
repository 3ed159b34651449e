//! The RPCs that create objects. They do not tell the kubelet, which has its own list of pods.

use tonic::Status;

use super::node::{ContainerRecord, SandboxRecord, now};
use super::record::Rpc;
use super::refusals::{bad_id, not_found};
use super::rows;
use super::shared::Shared;
use crisweep_proto::cri::{self, ContainerState, NamespaceMode, PodSandboxState};

pub(super) async fn run_pod_sandbox(
    shared: &Shared,
    request: cri::RunPodSandboxRequest,
) -> Result<cri::RunPodSandboxResponse, Status> {
    shared.admit(Rpc::RunPodSandbox).await?;
    let config = request.config.unwrap_or_default();
    let metadata = config
        .metadata
        .ok_or_else(|| Status::unknown("sandbox config lacks metadata"))?;
    let mut node = shared.node();
    if node.find_image(&node.sandbox_image).is_none() {
        let image = &node.sandbox_image;
        return Err(Status::unknown(format!(
            "failed to get sandbox image \"{image}\": not found"
        )));
    }
    let options = config.linux.and_then(|linux| linux.security_context);
    let options = options.and_then(|context| context.namespace_options);
    let host_network = options.is_some_and(|o| o.network() == NamespaceMode::Node);
    let id = node.ids.digest();
    let record = SandboxRecord {
        host_network,
        subject: format!(
            "{}/{}#{}",
            metadata.namespace, metadata.name, metadata.attempt
        ),
        log_directory: config.log_directory,
        made_from: node.sandbox_image.clone(),
        network_is_down: false,
        removals_at_network: 0,
        is_note_only: false,
        row: cri::PodSandbox {
            id: id.clone(),
            metadata: Some(metadata),
            state: PodSandboxState::SandboxReady.into(),
            created_at: now(),
            labels: config.labels,
            annotations: config.annotations,
            runtime_handler: request.runtime_handler,
        },
    };
    node.sandboxes.insert(id.clone(), record);
    Ok(cri::RunPodSandboxResponse { pod_sandbox_id: id })
}

pub(super) async fn create_container(
    shared: &Shared,
    request: cri::CreateContainerRequest,
) -> Result<cri::CreateContainerResponse, Status> {
    shared.admit(Rpc::CreateContainer).await?;
    let config = request.config.unwrap_or_default();
    let metadata = config
        .metadata
        .ok_or_else(|| Status::unknown("container config lacks metadata"))?;
    let mut node = shared.node();
    let asked = &request.pod_sandbox_id;
    let found = node
        .find_sandbox(asked)
        .map_err(|bad| bad_id("sandbox", asked, bad))?;
    let sandbox_id = found.ok_or_else(|| not_found("sandbox", asked))?;
    let sandbox = node.sandboxes.get(&sandbox_id);
    let sandbox = sandbox.ok_or_else(|| not_found("sandbox", asked))?;
    let pod = sandbox.row.metadata.clone().unwrap_or_default();
    let log_path = format!("{}/{}", sandbox.log_directory, config.log_path);
    let reference = config.image.unwrap_or_default().image;
    let image = node.find_image(&reference).map(|image| image.id.clone());
    let image = image.ok_or_else(|| {
        Status::not_found(format!(
            "failed to resolve image \"{reference}\": not found"
        ))
    })?;
    let id = node.ids.digest();
    let subject = format!(
        "{}/{}/{}#{}",
        pod.namespace, pod.name, metadata.name, metadata.attempt
    );
    node.insert_container(ContainerRecord {
        row: cri::Container {
            id: id.clone(),
            pod_sandbox_id: sandbox_id,
            metadata: Some(metadata),
            image: Some(rows::image_spec(&image, &reference)),
            image_ref: image,
            state: ContainerState::ContainerCreated.into(),
            created_at: now(),
            labels: config.labels,
            annotations: config.annotations,
            image_id: String::new(),
        },
        started_at: 0,
        finished_at: 0,
        exit_code: 0,
        reason: String::new(),
        log_path,
        volume_images: Vec::new(),
        subject,
        removing: false,
    });
    Ok(cri::CreateContainerResponse { container_id: id })
}
