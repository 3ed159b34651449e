//! The RPCs that stop and remove containers and sandboxes.

use crisweep_proto::cri;
use std::time::Duration;

use super::connection::request;
use super::{Client, found};
use crate::model::{ContainerId, PodSandboxId};
use crate::runtime::Error;

impl Client {
    /// Stops a container, killing it after `grace`. Gone is success.
    pub async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), Error> {
        let message = cri::StopContainerRequest {
            container_id: id.to_string(),
            timeout: whole_seconds(grace),
        };
        let deadline = self.shared.settings.removal_timeout.saturating_add(grace);
        let mut rpc = self.runtime_rpc();
        let call = rpc.stop_container(request(message, deadline));
        gone_is_success(self.runtime().call("StopContainer", deadline, call).await)
    }

    /// Removes a container: **kills it first if it runs**. Gone is success.
    pub async fn remove_container(&self, id: &ContainerId) -> Result<(), Error> {
        let message = cri::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        let (mut rpc, deadline) = self.removal();
        let call = rpc.remove_container(request(message, deadline));
        gone_is_success(self.runtime().call("RemoveContainer", deadline, call).await)?;
        self.forget_container(id);
        Ok(())
    }

    /// Stops a pod sandbox and what it holds. Gone is success.
    pub async fn stop_pod_sandbox(&self, id: &PodSandboxId) -> Result<(), Error> {
        let message = cri::StopPodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let (mut rpc, deadline) = self.removal();
        let call = rpc.stop_pod_sandbox(request(message, deadline));
        gone_is_success(self.runtime().call("StopPodSandbox", deadline, call).await)
    }

    /// Removes a pod sandbox: **kills and removes what it holds**. Gone is success.
    pub async fn remove_pod_sandbox(&self, id: &PodSandboxId) -> Result<(), Error> {
        let message = cri::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let (mut rpc, deadline) = self.removal();
        let call = rpc.remove_pod_sandbox(request(message, deadline));
        let answer = self.runtime().call("RemovePodSandbox", deadline, call);
        gone_is_success(answer.await)?;
        self.forget_sandbox(id);
        Ok(())
    }
}

/// containerd 1.6 returns `NOT_FOUND` where later versions return OK.
pub(super) fn gone_is_success<T>(answer: Result<T, Error>) -> Result<(), Error> {
    found(answer).map(|_| ())
}

/// Rounds up: a grace of half a second must not become zero.
fn whole_seconds(grace: Duration) -> i64 {
    let seconds = grace
        .as_secs()
        .saturating_add(u64::from(grace.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
