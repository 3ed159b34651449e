//! Finds the object of a changing call.

use super::node::Node;
use super::record::{Found, Rpc};

/// Resolves the id in a call to its full id, its readable name, and the object's state.
pub(super) fn look_up(node: &Node, rpc: Rpc, asked: &str) -> (String, String, Found) {
    let nothing = || (asked.to_owned(), String::new(), Found::Nothing);
    match rpc {
        Rpc::StopContainer | Rpc::RemoveContainer => {
            let record = node.containers.get(asked);
            record.map_or_else(nothing, |c| {
                (
                    c.row.id.clone(),
                    c.subject.clone(),
                    Found::Container(c.row.state()),
                )
            })
        }
        Rpc::StopPodSandbox | Rpc::RemovePodSandbox => {
            let record = node.sandboxes.get(asked);
            record.map_or_else(nothing, |s| {
                (
                    s.row.id.clone(),
                    s.subject.clone(),
                    Found::Sandbox(s.row.state()),
                )
            })
        }
        Rpc::RemoveImage => node.find_image(asked).map_or_else(nothing, |image| {
            let tag = image.repo_tags.first().cloned().unwrap_or_default();
            (image.id.clone(), tag, Found::Image)
        }),
        Rpc::Version
        | Rpc::Status
        | Rpc::ListContainers
        | Rpc::StreamContainers
        | Rpc::ContainerStatus
        | Rpc::ListPodSandbox
        | Rpc::StreamPodSandboxes
        | Rpc::PodSandboxStatus
        | Rpc::ListImages
        | Rpc::StreamImages
        | Rpc::ImageFsInfo
        | Rpc::ContainersListStream => nothing(),
    }
}
