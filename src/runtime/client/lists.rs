//! The two RPCs of each list: streaming if the runtime supports it, else unary.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crisweep_proto::cri;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;
use tower::ServiceExt;

use super::Client;
use super::connection::{RuntimeConnection, request};
use super::framing::Awaits;
use super::row_body::RowBody;
use super::streams::{LISTS_WITHOUT, ListStream, ListStreams};
use crate::model::{Container, Coverage, PodSandbox};
use crate::runtime::codec::{ListChunk, RowReader};
use crate::runtime::convert::{Interner, WireRow};
use crate::runtime::{Defect, Error, ListMode, Listing};

/// An RPC's path on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpc(&'static str);

impl Rpc {
    /// Returns its name, the last part of its path.
    pub(super) fn name(self) -> &'static str {
        self.0.rsplit('/').next().unwrap_or(self.0)
    }
}

/// The two RPCs that read one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListRpc {
    streaming: Rpc,
    pub(super) unary: Rpc,
    stream: fn(&ListStreams) -> &Mutex<ListStream>,
}

pub(super) const CONTAINERS: ListRpc = ListRpc {
    streaming: Rpc("/runtime.v1.RuntimeService/StreamContainers"),
    unary: Rpc("/runtime.v1.RuntimeService/ListContainers"),
    stream: |streams| &streams.containers,
};

pub(super) const SANDBOXES: ListRpc = ListRpc {
    streaming: Rpc("/runtime.v1.RuntimeService/StreamPodSandboxes"),
    unary: Rpc("/runtime.v1.RuntimeService/ListPodSandbox"),
    stream: |streams| &streams.sandboxes,
};

pub(super) const IMAGES: ListRpc = ListRpc {
    streaming: Rpc("/runtime.v1.ImageService/StreamImages"),
    unary: Rpc("/runtime.v1.ImageService/ListImages"),
    stream: |streams| &streams.images,
};

impl Client {
    /// Lists every container without the fallbacks: costs one call, and fails for a list over its limit.
    pub async fn containers_at_once(&self) -> Result<Listing<Container>, Error> {
        self.runtime().begin::<cri::ContainerRow>();
        let read = self.at_once::<cri::ContainerRow>(self.runtime(), &CONTAINERS);
        read.await
    }

    /// Lists every pod sandbox in the same way.
    pub async fn sandboxes_at_once(&self) -> Result<Listing<PodSandbox>, Error> {
        self.runtime().begin::<cri::PodSandboxRow>();
        let read = self.at_once::<cri::PodSandboxRow>(self.runtime(), &SANDBOXES);
        read.await
    }

    pub(super) async fn at_once<R: WireRow>(
        &self,
        connection: &RuntimeConnection,
        rpc: &ListRpc,
    ) -> Result<Listing<R::Model>, Error> {
        let started = Instant::now();
        let (mode, page) = connection.list::<R>(rpc, self.timeout()).await?;
        Ok(whole(mode, page, None, started))
    }
}

/// Returns a list that was read at once, by a call that started then.
pub(super) fn whole<M>(
    mode: ListMode,
    mut page: ListChunk<M>,
    limit_bytes: Option<u64>,
    started: Instant,
) -> Listing<M> {
    // The rows stay until the next look.
    page.rows.shrink_to_fit();
    Listing {
        rows: page.rows.into(),
        malformed: page.malformed,
        mounted: BTreeMap::new(),
        odd: 0,
        coverage: Coverage::Whole,
        cut_short: false,
        response_bytes: page.bytes,
        limit_bytes,
        mode,
        duration: started.elapsed(),
    }
}

impl RuntimeConnection {
    /// Reads a whole list over its streaming RPC, or unary. If a message of the stream is over the limit, the
    /// unary answer is too, but its error reports the whole weight. A broken stream fails the list, unless it
    /// always breaks. A refused one fails it each time.
    pub(super) async fn list<R: WireRow>(
        &self,
        rpc: &ListRpc,
        deadline: Duration,
    ) -> Result<(ListMode, ListChunk<R::Model>), Error> {
        let breaks = match self.streamed::<R>(rpc, deadline).await {
            Ok(Some(page)) => {
                self.stream(rpc).breaks = 0;
                return Ok((ListMode::Streaming, page));
            }
            Ok(None) | Err(Error::TooLarge { .. }) => false,
            // A refusal concerns the list, however it is read; and a runtime that hangs also hangs in a unary
            // call.
            Err(error) if !error.may_be_the_streams() || !self.stream(rpc).broke() => {
                return Err(error);
            }
            Err(error) => {
                tracing::debug!(%error, "a stream keeps breaking; its list is read in one answer");
                true
            }
        };
        // An unfiltered request has no fields, so `()` encodes it.
        let page = self
            .page::<(), R>(&self.shared, rpc.unary, (), deadline)
            .await;
        let answered = !matches!(&page, Err(error) if error.is_lost());
        if breaks && answered {
            // The broken stream may have broken the connection too.
            self.leave_stream(rpc, self.connection(), Some(LISTS_WITHOUT));
        }
        Ok((ListMode::Unary, page?))
    }

    fn stream(&self, rpc: &ListRpc) -> MutexGuard<'_, ListStream> {
        let stream = (rpc.stream)(&self.streams);
        stream.lock()
    }

    /// Reads this many lists without a stream on a connection; `None`: all of them.
    fn leave_stream(&self, rpc: &ListRpc, useless_on: u64, lists: Option<u32>) {
        let mut stream = self.stream(rpc);
        stream.useless_on = useless_on;
        stream.lists_left = lists;
    }

    /// Reads one answer; its rows share equal values with all that `shared` knows.
    pub(super) async fn page<Q, R>(
        &self,
        shared: &Arc<Mutex<Interner>>,
        rpc: Rpc,
        message: Q,
        deadline: Duration,
    ) -> Result<ListChunk<R::Model>, Error>
    where
        Q: Message + 'static,
        R: WireRow,
    {
        let answer = async {
            let whole = self.read::<Q, R>(shared, rpc.0, message, deadline);
            let whole = whole.await?;
            whole.map(Response::new).ok_or_else(|| Defect::Empty.into())
        };
        self.call(rpc.name(), deadline, answer).await
    }

    /// Reads a list over its streaming RPC; `None` if the runtime lacks it.
    async fn streamed<R: WireRow>(
        &self,
        rpc: &ListRpc,
        deadline: Duration,
    ) -> Result<Option<ListChunk<R::Model>>, Error> {
        let connection = self.connection();
        if !self.stream(rpc).is_worth_a_try(connection) {
            return Ok(None);
        }
        let answer = self.read_stream::<R>(rpc.streaming.0, deadline);
        match self.call(rpc.streaming.name(), deadline, answer).await {
            Err(error) if error.is_unimplemented() => {
                // If another connection answered, the next list asks again.
                self.leave_stream(rpc, connection, None);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Reads a stream to its end; a stream without messages is an empty list.
    async fn read_stream<R: WireRow>(
        &self,
        path: &'static str,
        deadline: Duration,
    ) -> Result<Response<ListChunk<R::Model>>, Status> {
        let whole = self.read::<(), R>(&self.shared, path, (), deadline).await?;
        Ok(Response::new(whole.unwrap_or_default()))
    }

    /// Reads an answer to its end; `None` if nothing came. Drops everything before an error: half a list would make the
    /// other half look deleted.
    async fn read<Q, R>(
        &self,
        shared: &Arc<Mutex<Interner>>,
        path: &'static str,
        message: Q,
        deadline: Duration,
    ) -> Result<Option<ListChunk<R::Model>>, Status>
    where
        Q: Message + 'static,
        R: WireRow,
    {
        let rows = Arc::new(Mutex::new(RowReader::<R>::new(Arc::clone(shared))));
        let reader = Arc::clone(&rows);
        let channel = self.channel(Awaits::Any);
        let channel =
            channel.map_response(move |answer| answer.map(|body| RowBody::new(body, reader)));
        let mut grpc = Grpc::new(channel).max_decoding_message_size(self.max_message_bytes);
        grpc.ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<Q, ()>::default();
        let answer = grpc.server_streaming(request(message, deadline), path, codec);
        // The body keeps the messages, so this waits for the end and its status.
        let end = answer.await?.into_inner().message().await?;
        debug_assert_eq!(end, None);
        let page = rows.lock().take();
        Ok(page)
    }
}
