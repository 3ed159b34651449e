//! The RPCs that crisweep makes, each with a deadline and a message limit.
//!
//! Never retries and never caches an answer: the caller decides what a failure means. Only a list that fails
//! for its size is read in another way (`fallback`).

mod connection;
mod fallback;
mod framing;
mod list_ways;
mod lists;
mod row_body;
mod settings;

use crisweep_proto::cri;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::connection::{RuntimeConnection, request};
use self::fallback::{FallbackList, ListFilter};
use self::framing::{Awaits, Checked, Encoding};
pub use self::settings::{LogRoots, Settings, below};
use super::{ContainerStatus, Defect, Error, Listing, SandboxStatus, Version, convert};
use crate::model::{Container, ContainerId, Filesystems, Image, PodSandbox, PodSandboxId, PodUid};
use crate::system::blocking::BlockingPool;
use crisweep_proto::cri::image_service_client::ImageServiceClient;
use crisweep_proto::cri::runtime_service_client::RuntimeServiceClient;

/// The interface version that the kubelet sends.
const INTERFACE_VERSION: &str = "0.1.0";
/// The methods' names.
const CONTAINER_STATUS: &str = "ContainerStatus";
const SANDBOX_STATUS: &str = "PodSandboxStatus";

/// A CRI runtime. Clones share its connections.
///
/// Connects on the first call, and again after the runtime went away, so it can be made before the socket
/// exists. Calls must run inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<ClientInner>,
    /// No read waits longer, whatever the settings say.
    at_most: Duration,
}

#[derive(Debug)]
struct ClientInner {
    settings: Settings,
    runtime: RuntimeConnection,
    /// `None`: the runtime's connection serves images too.
    image: Option<RuntimeConnection>,
    /// Reads names in the log roots.
    disk: BlockingPool,
    /// How the runtime's lists were last read.
    list_states: fallback::ListStates,
}

/// What the runtime answered to a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalAnswer {
    /// It is done.
    Removed,
    /// There is no such object: another client removed it first.
    NotFound,
}

impl Client {
    /// Makes a client; does not touch the socket.
    pub fn new(settings: Settings) -> Self {
        let link = |endpoint: &Path| RuntimeConnection::new(endpoint, &settings);
        let runtime = link(&settings.endpoint);
        let image = settings.image_endpoint.as_deref().map(link);
        Self {
            shared: Arc::new(ClientInner {
                settings,
                runtime,
                image,
                disk: BlockingPool::new(1),
                list_states: fallback::ListStates::default(),
            }),
            at_most: Duration::MAX,
        }
    }

    /// Returns a client of the same runtime with other timeouts and another message limit. It connects anew
    /// and knows nothing of the lists read before.
    #[must_use]
    pub fn bounded_by(&self, config: &super::Config) -> Self {
        Self::new(Settings {
            timeout: config.timeout,
            removal_timeout: config.removal_timeout,
            max_message_bytes: config.max_message_bytes,
            ..self.shared.settings.clone()
        })
    }

    /// Returns the same client, of which no read waits longer than this.
    #[must_use]
    pub fn within(&self, at_most: Duration) -> Self {
        Self {
            at_most,
            ..self.clone()
        }
    }

    /// Returns the runtime's socket.
    pub fn endpoint(&self) -> String {
        self.shared.settings.endpoint.display().to_string()
    }

    /// Asks for the runtime's version.
    pub async fn version(&self) -> Result<Version, Error> {
        let message = cri::VersionRequest {
            version: INTERFACE_VERSION.to_owned(),
        };
        let (mut rpc, deadline) = self.question();
        let call = rpc.version(request(message, deadline));
        self.runtime()
            .call("Version", deadline, call)
            .await
            .map(|raw| convert::version(&raw))
    }

    /// Asks for the images that sandboxes are made from, as named by the runtime's configuration.
    pub async fn sandbox_images(&self) -> Result<Vec<String>, Error> {
        let (mut rpc, deadline) = self.question();
        let call = rpc.status(request(cri::StatusRequest { verbose: true }, deadline));
        self.runtime()
            .call("Status", deadline, call)
            .await
            .map(|answer| convert::configured_sandbox_images(&answer))
    }

    /// Lists every container, in the best way that works. If some may be missing, the answer says so
    /// ([`Listing::coverage`]).
    pub async fn list_containers(&self) -> Result<Listing<Container>, Error> {
        fallback::read::<cri::ContainerRow>(self).await
    }

    /// Lists every pod sandbox, in the same way.
    pub async fn list_pod_sandboxes(&self) -> Result<Listing<PodSandbox>, Error> {
        fallback::read::<cri::PodSandboxRow>(self).await
    }

    /// Lists every image. The interface has no filter by parts.
    pub async fn list_images(&self) -> Result<Listing<Image>, Error> {
        let read = self
            .image()
            .list::<cri::ImageRow>(&lists::IMAGES, self.timeout());
        read.await
    }

    /// Asks which file systems hold images and writable layers. They are not measured yet.
    pub async fn image_fs_info(&self) -> Result<Filesystems, Error> {
        let (mut rpc, deadline) = (self.image_rpc(), self.timeout());
        let call = rpc.image_fs_info(request(cri::ImageFsInfoRequest {}, deadline));
        self.image()
            .call("ImageFsInfo", deadline, call)
            .await
            .map(convert::filesystems)
    }

    /// Asks about one container; `None` if it is gone.
    pub async fn container_status(
        &self,
        id: &ContainerId,
    ) -> Result<Option<ContainerStatus>, Error> {
        let Some(answer) = self.container_answer(id, false).await? else {
            self.forget_container(id);
            return Ok(None);
        };
        let status = answer.status;
        let status = status.and_then(|raw| convert::container_status(id, raw).ok());
        about(CONTAINER_STATUS, id.as_str(), status)
    }

    /// Asks about one pod sandbox; `None` if it is gone.
    pub async fn sandbox_status(&self, id: &PodSandboxId) -> Result<Option<SandboxStatus>, Error> {
        let Some(answer) = self.sandbox_answer(id, false).await? else {
            self.forget_sandbox(id);
            return Ok(None);
        };
        let status = answer.status;
        let status = status.and_then(|raw| convert::sandbox_status(id, &raw).ok());
        about(SANDBOX_STATUS, id.as_str(), status)
    }

    /// Asks for one container's record by id, as a list would return it, and for its mounted images; `None` if
    /// it is gone.
    async fn container_record(
        &self,
        id: &ContainerId,
        sandbox: Option<PodSandboxId>,
    ) -> Result<Option<(Container, Vec<String>)>, Error> {
        // The sandbox's id is only in the verbose answer, which is expensive for the runtime.
        let Some(answer) = self.container_answer(id, sandbox.is_none()).await? else {
            return Ok(None);
        };
        let mut shared = self.runtime().shared.lock();
        let record = convert::container_record(id, sandbox, answer, &mut shared);
        about(CONTAINER_STATUS, id.as_str(), record.ok())
    }

    /// Asks for one pod sandbox's record by its id; `None` if it is gone.
    async fn sandbox_record(&self, id: &PodSandboxId) -> Result<Option<PodSandbox>, Error> {
        let Some(answer) = self.sandbox_answer(id, false).await? else {
            return Ok(None);
        };
        let mut shared = self.runtime().shared.lock();
        let record = convert::sandbox_record(id, answer, &mut shared);
        about(SANDBOX_STATUS, id.as_str(), record.ok())
    }

    /// Asks which image a pod sandbox was made from; `None` if it is gone or the runtime does not say.
    pub async fn sandbox_made_from(&self, id: &PodSandboxId) -> Result<Option<String>, Error> {
        let Some(answer) = self.sandbox_answer(id, true).await? else {
            return Ok(None);
        };
        let is_its = |status: &cri::PodSandboxStatus| status.id == id.as_str();
        about(
            SANDBOX_STATUS,
            id.as_str(),
            answer.status.as_ref().filter(|it| is_its(it)),
        )?;
        Ok(convert::made_from(&answer))
    }

    async fn container_answer(
        &self,
        id: &ContainerId,
        verbose: bool,
    ) -> Result<Option<cri::ContainerStatusResponse>, Error> {
        let message = cri::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose,
        };
        let (mut rpc, deadline) = self.question();
        let call = rpc.container_status(request(message, deadline));
        found(self.runtime().call(CONTAINER_STATUS, deadline, call).await)
    }

    async fn sandbox_answer(
        &self,
        id: &PodSandboxId,
        verbose: bool,
    ) -> Result<Option<cri::PodSandboxStatusResponse>, Error> {
        let message = cri::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose,
        };
        let (mut rpc, deadline) = self.question();
        let call = rpc.pod_sandbox_status(request(message, deadline));
        found(self.runtime().call(SANDBOX_STATUS, deadline, call).await)
    }

    /// Lists the containers of a sandbox. A row without a container id or sandbox id is an error, because it
    /// could be one of them.
    pub async fn containers_of_sandbox(&self, id: &PodSandboxId) -> Result<Vec<Container>, Error> {
        let is_astray = |row: &Container| row.sandbox_id.is_stand_in();
        let is_its = |row: &Container| row.sandbox_id == *id;
        let part = ListFilter::Sandbox(id.clone());
        self.containers_of(part, is_astray, is_its).await
    }

    /// Lists a pod's containers, in any state. A row without an id is an error, because it could be one of
    /// them.
    pub async fn containers_of_pod(&self, uid: &PodUid) -> Result<Vec<Container>, Error> {
        let is_astray = |row: &Container| row.id.is_stand_in();
        let is_its = |row: &Container| row.pod.as_ref().is_some_and(|pod| pod.uid == *uid);
        let part = ListFilter::Pod(uid.clone());
        self.containers_of(part, is_astray, is_its).await
    }

    /// Says whether the runtime has a container or sandbox of a pod, in any state. A row without an id is an
    /// error, because it could be the pod's.
    pub async fn has_anything_of_pod(&self, uid: &PodUid) -> Result<bool, Error> {
        if !self.containers_of_pod(uid).await?.is_empty() {
            return Ok(true);
        }
        let part = ListFilter::Pod(uid.clone());
        let sandboxes = self.whole_part::<cri::PodSandboxRow>(part).await?;
        let mut pods = sandboxes.iter().filter_map(|row| row.pod.as_ref());
        Ok(pods.any(|pod| pod.uid == *uid))
    }

    /// Lists the containers of a part; refuses rows that may be of it.
    async fn containers_of(
        &self,
        part: ListFilter,
        is_astray: impl Fn(&Container) -> bool,
        is_its: impl Fn(&Container) -> bool,
    ) -> Result<Vec<Container>, Error> {
        let mut rows = self.whole_part::<cri::ContainerRow>(part).await?;
        let astray = rows.iter().filter(|row| is_astray(row)).count();
        none_lacks_an_id(lists::CONTAINERS.unary.name(), astray)?;
        // Some servers ignore some filters and send every row.
        rows.retain(is_its);
        Ok(rows)
    }

    /// Reads a part of a list in one answer, each row of it anew; refuses rows without an id. May also return other
    /// rows.
    async fn whole_part<K: FallbackList>(&self, part: ListFilter) -> Result<Vec<K::Model>, Error> {
        let (rpc, question) = (K::LIST.unary, (K::request(part), Encoding::Plain));
        let shared = Arc::default();
        let page = self
            .runtime()
            .page::<_, K>(&shared, rpc, question, self.timeout());
        let page = page.await?;
        none_lacks_an_id(rpc.name(), page.malformed)?;
        Ok(page.rows)
    }

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
    pub async fn remove_container(&self, id: &ContainerId) -> Result<RemovalAnswer, Error> {
        let message = cri::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        let (mut rpc, deadline) = self.removal();
        let call = rpc.remove_container(request(message, deadline));
        let answer = self.runtime().call("RemoveContainer", deadline, call).await;
        let removed = removed(answer)?;
        self.forget_container(id);
        Ok(removed)
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
    pub async fn remove_pod_sandbox(&self, id: &PodSandboxId) -> Result<RemovalAnswer, Error> {
        let message = cri::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let (mut rpc, deadline) = self.removal();
        let call = rpc.remove_pod_sandbox(request(message, deadline));
        let answer = self.runtime().call("RemovePodSandbox", deadline, call);
        let removed = removed(answer.await)?;
        self.forget_sandbox(id);
        Ok(removed)
    }

    /// Removes an image of a runtime handler (empty: the default handler), with **all its tags, even while
    /// containers use it**. Gone is success. Refuses an empty name, because runtimes treat an empty id as a
    /// prefix of every id.
    pub async fn remove_image(&self, image: &str, handler: &str) -> Result<RemovalAnswer, Error> {
        const METHOD: &str = "RemoveImage";
        if image.is_empty() {
            let status = tonic::Status::invalid_argument("the image has no name");
            return Err(Error::Status {
                method: METHOD,
                status: Box::new(status),
            });
        }
        let image = cri::ImageSpec {
            image: image.to_owned(),
            runtime_handler: handler.to_owned(),
            ..Default::default()
        };
        let message = cri::RemoveImageRequest { image: Some(image) };
        let (mut rpc, deadline) = (self.image_rpc(), self.shared.settings.removal_timeout);
        let call = rpc.remove_image(request(message, deadline));
        removed(self.image().call(METHOD, deadline, call).await)
    }

    fn runtime(&self) -> &RuntimeConnection {
        &self.shared.runtime
    }

    fn image(&self) -> &RuntimeConnection {
        self.shared.image.as_ref().unwrap_or(&self.shared.runtime)
    }

    /// Returns the deadline of a read.
    pub fn timeout(&self) -> Duration {
        self.shared.settings.timeout.min(self.at_most)
    }

    fn question(&self) -> (RuntimeServiceClient<Checked>, Duration) {
        (self.runtime_rpc(), self.timeout())
    }

    fn removal(&self) -> (RuntimeServiceClient<Checked>, Duration) {
        (self.runtime_rpc(), self.shared.settings.removal_timeout)
    }

    fn runtime_rpc(&self) -> RuntimeServiceClient<Checked> {
        RuntimeServiceClient::new(self.runtime().channel(Awaits::One, Encoding::Plain))
            .max_decoding_message_size(self.shared.settings.max_message_bytes)
    }

    fn image_rpc(&self) -> ImageServiceClient<Checked> {
        ImageServiceClient::new(self.image().channel(Awaits::One, Encoding::Plain))
            .max_decoding_message_size(self.shared.settings.max_message_bytes)
    }
}

/// Turns "not found" into `None`.
fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn removed<T>(answer: Result<T, Error>) -> Result<RemovalAnswer, Error> {
    Ok(match found(answer)? {
        Some(_) => RemovalAnswer::Removed,
        None => RemovalAnswer::NotFound,
    })
}

/// containerd 1.6 returns `NOT_FOUND` where later versions return OK.
fn gone_is_success<T>(answer: Result<T, Error>) -> Result<(), Error> {
    found(answer).map(|_| ())
}

/// Rounds up: a grace of half a second must not become zero.
fn whole_seconds(grace: Duration) -> i64 {
    let seconds = grace
        .as_secs()
        .saturating_add(u64::from(grace.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Refuses an answer about another object than this one.
fn about<T>(method: &'static str, id: &str, found: Option<T>) -> Result<Option<T>, Error> {
    found.map(Some).ok_or_else(|| Error::Malformed {
        method,
        defect: Defect::NotAbout(id.to_owned()),
    })
}

/// Refuses an answer with rows that lack an id: each could be the wanted one.
///
/// # Errors
/// If there are any.
pub fn none_lacks_an_id(method: &'static str, count: usize) -> Result<(), Error> {
    if count == 0 {
        return Ok(());
    }
    Err(Error::Malformed {
        method,
        defect: Defect::NoIds(count),
    })
}

#[cfg(test)]
mod tests;
