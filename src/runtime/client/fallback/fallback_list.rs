//! The two lists that the fallbacks read, and how to ask for a part of each.

use prost::Message;

use super::super::lists::{CONTAINERS, ListRpc, SANDBOXES};
use super::{Client, ListState, ListStates};
use crate::model::{
    Container, ContainerId, ContainerState, HasId, PodSandbox, PodSandboxId, PodSandboxState,
    PodUid,
};
use crate::runtime::Error;
use crate::runtime::convert::{WireRow, selector_of};
use crisweep_proto::cri::{self, ContainerState as State, PodSandboxState as SandboxState};

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::runtime::client) enum ListFilter {
    /// Objects in this state, by its number.
    State(i32),
    /// Objects of this pod.
    Pod(PodUid),
    /// The containers of this sandbox, or the sandbox itself.
    Sandbox(PodSandboxId),
}

/// A record of a list.
pub(in crate::runtime::client) trait ListedRecord: HasId {
    /// Its pod.
    fn pod(&self) -> Option<&PodUid>;
    /// The sandbox that it names, or itself.
    fn sandbox(&self) -> &PodSandboxId;
    /// Says whether its state is final.
    fn is_over(&self) -> bool;
}

/// A record read by id, and its mounted images.
pub(super) type ReadRecord<M> = (M, Vec<String>);

/// A list that the fallbacks can read.
pub(in crate::runtime::client) trait FallbackList:
    WireRow<Model: ListedRecord + Clone>
{
    /// The request of its unary RPC.
    type Request: Message + 'static;
    /// The other list: it has records of the same pods.
    type Other: FallbackList;
    /// Its RPCs.
    const LIST: ListRpc;
    /// Its name, in logs.
    const NAME: &'static str;
    /// containerd's label of such records.
    const LABEL: &'static str;
    /// Every state, in the order in which objects move.
    const STATES: &'static [i32];
    /// The state that shows a living pod.
    const LIVING: i32;
    /// That state, and the states of objects that may live.
    const MAY_LIVE: &'static [i32];

    fn list_state(list_states: &ListStates) -> &ListState<Self::Model>;
    fn request(question: ListFilter) -> Self::Request;
    /// Asks for one record by id; `None` if it is gone. Cheaper if the sandbox is known.
    fn record(
        client: &Client,
        id: &str,
        sandbox: Option<PodSandboxId>,
    ) -> impl Future<Output = Result<Option<ReadRecord<Self::Model>>, Error>> + Send;
}

impl ListedRecord for Container {
    fn pod(&self) -> Option<&PodUid> {
        self.pod.as_ref().map(|pod| &pod.uid)
    }

    fn sandbox(&self) -> &PodSandboxId {
        &self.sandbox_id
    }

    fn is_over(&self) -> bool {
        self.state == ContainerState::Exited
    }
}

impl ListedRecord for PodSandbox {
    fn pod(&self) -> Option<&PodUid> {
        self.pod.as_ref().map(|pod| &pod.uid)
    }

    fn sandbox(&self) -> &PodSandboxId {
        &self.id
    }

    fn is_over(&self) -> bool {
        self.state == PodSandboxState::NotReady
    }
}

impl FallbackList for cri::ContainerRow {
    type Request = cri::ListContainersRequest;
    type Other = cri::PodSandboxRow;
    const LIST: ListRpc = CONTAINERS;
    const NAME: &'static str = "containers";
    const LABEL: &'static str = "container";
    const STATES: &'static [i32] = &[
        State::ContainerCreated as i32,
        State::ContainerRunning as i32,
        State::ContainerUnknown as i32,
        State::ContainerExited as i32,
    ];
    const LIVING: i32 = State::ContainerRunning as i32;
    const MAY_LIVE: &'static [i32] = &[Self::LIVING, State::ContainerUnknown as i32];

    fn list_state(list_states: &ListStates) -> &ListState<Container> {
        &list_states.containers
    }

    fn request(question: ListFilter) -> Self::Request {
        let mut filter = cri::ContainerFilter::default();
        match question {
            ListFilter::State(state) => filter.state = Some(cri::ContainerStateValue { state }),
            ListFilter::Pod(uid) => filter.label_selector = selector_of(&uid),
            ListFilter::Sandbox(id) => filter.pod_sandbox_id = id.to_string(),
        }
        let filter = Some(filter);
        cri::ListContainersRequest { filter }
    }

    async fn record(
        client: &Client,
        id: &str,
        sandbox: Option<PodSandboxId>,
    ) -> Result<Option<ReadRecord<Container>>, Error> {
        match ContainerId::new(id) {
            Some(id) => client.container_record(&id, sandbox).await,
            None => Ok(None),
        }
    }
}

impl FallbackList for cri::PodSandboxRow {
    type Request = cri::ListPodSandboxRequest;
    type Other = cri::ContainerRow;
    const LIST: ListRpc = SANDBOXES;
    const NAME: &'static str = "sandboxes";
    const LABEL: &'static str = "sandbox";
    const STATES: &'static [i32] = &[
        SandboxState::SandboxReady as i32,
        SandboxState::SandboxNotready as i32,
    ];
    const LIVING: i32 = SandboxState::SandboxReady as i32;
    const MAY_LIVE: &'static [i32] = &[Self::LIVING];

    fn list_state(list_states: &ListStates) -> &ListState<PodSandbox> {
        &list_states.sandboxes
    }

    fn request(question: ListFilter) -> Self::Request {
        let mut filter = cri::PodSandboxFilter::default();
        match question {
            ListFilter::State(state) => filter.state = Some(cri::PodSandboxStateValue { state }),
            ListFilter::Pod(uid) => filter.label_selector = selector_of(&uid),
            ListFilter::Sandbox(id) => filter.id = id.to_string(),
        }
        let filter = Some(filter);
        cri::ListPodSandboxRequest { filter }
    }

    async fn record(
        client: &Client,
        id: &str,
        _sandbox: Option<PodSandboxId>,
    ) -> Result<Option<ReadRecord<PodSandbox>>, Error> {
        let Some(id) = PodSandboxId::new(id) else {
            return Ok(None);
        };
        let row = client.sandbox_record(&id).await?;
        Ok(row.map(|row| (row, Vec::new())))
    }
}
