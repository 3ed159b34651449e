//! A whole list at once: over its streaming RPC if the runtime has it, else in one unary answer, which is compressed if
//! it is over the limit otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crisweep_proto::cri;
use parking_lot::Mutex;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;
use tower::ServiceExt;

use super::Client;
use super::connection::{RuntimeConnection, request};
use super::framing::{Awaits, Encoding};
use super::list_ways::LISTS_WITHOUT;
use super::row_body::RowBody;
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
}

pub(super) const CONTAINERS: ListRpc = ListRpc {
    streaming: Rpc("/runtime.v1.RuntimeService/StreamContainers"),
    unary: Rpc("/runtime.v1.RuntimeService/ListContainers"),
};

pub(super) const SANDBOXES: ListRpc = ListRpc {
    streaming: Rpc("/runtime.v1.RuntimeService/StreamPodSandboxes"),
    unary: Rpc("/runtime.v1.RuntimeService/ListPodSandbox"),
};

pub(super) const IMAGES: ListRpc = ListRpc {
    streaming: Rpc("/runtime.v1.ImageService/StreamImages"),
    unary: Rpc("/runtime.v1.ImageService/ListImages"),
};

impl Client {
    /// Lists every container without the fallbacks that read it in parts, so a list over its limit may fail.
    pub async fn containers_at_once(&self) -> Result<Listing<Container>, Error> {
        let link = self.runtime();
        link.begin::<cri::ContainerRow>();
        let read = link.list::<cri::ContainerRow>(&CONTAINERS, self.timeout());
        read.await
    }

    /// Lists every pod sandbox in the same way.
    pub async fn sandboxes_at_once(&self) -> Result<Listing<PodSandbox>, Error> {
        let link = self.runtime();
        link.begin::<cri::PodSandboxRow>();
        let read = link.list::<cri::PodSandboxRow>(&SANDBOXES, self.timeout());
        read.await
    }
}

/// Returns a list that was read at once. `limit_bytes`: what it exceeds uncompressed.
fn at_once<M>(mode: ListMode, mut page: ListChunk<M>, limit_bytes: Option<u64>) -> Listing<M> {
    // The rows stay until the next look.
    page.rows.shrink_to_fit();
    Listing {
        rows: page.rows.into(),
        malformed: page.malformed,
        mounted: BTreeMap::new(),
        odd: 0,
        coverage: Coverage::Whole,
        whole_pods: BTreeSet::new(),
        cut_short: false,
        response_bytes: page.bytes,
        limit_bytes,
        mode,
    }
}

impl RuntimeConnection {
    /// Reads a whole list over its streaming RPC, or unary, or compressed. If the stream is over the limit, the
    /// unary answer is too, but its error reports the whole weight. A broken stream fails the list, unless it always
    /// breaks. A refused one fails it each time.
    pub(super) async fn list<R: WireRow>(
        &self,
        rpc: &ListRpc,
        deadline: Duration,
    ) -> Result<Listing<R::Model>, Error> {
        let breaks = match self.streamed::<R>(rpc, deadline).await {
            Ok(Some(page)) => {
                self.streams.of(rpc.unary.0).breaks = 0;
                return Ok(at_once(ListMode::Streaming, page, None));
            }
            Ok(None) | Err(Error::TooLarge { .. }) => false,
            // A refusal concerns the list, however it is read.
            Err(error) if !error.may_be_the_streams() || !self.streams.of(rpc.unary.0).broke() => {
                return Err(error);
            }
            Err(error) => {
                tracing::debug!(%error, "a stream keeps breaking; its list is read in one answer");
                true
            }
        };
        // An unfiltered request has no fields, so `()` encodes it.
        let page = self
            .page::<(), R>(&self.shared, rpc.unary, ((), Encoding::Plain), deadline)
            .await;
        if breaks {
            let mut stream = self.streams.of(rpc.unary.0);
            match &page {
                // The broken stream may have broken the connection too.
                Err(error) if error.is_lost() => {}
                // The unary answer hangs too, so the stream is not the cause.
                Err(error) if error.is_timeout() => stream.breaks = 0,
                _ => stream.leave(self.connection(), Some(LISTS_WITHOUT)),
            }
        }
        let error = match page {
            Ok(page) => return Ok(at_once(ListMode::Unary, page, None)),
            Err(error) => error,
        };
        let Error::TooLarge { bytes, limit, .. } = error else {
            return Err(error);
        };
        if bytes > self.max_message_bytes as u64 {
            return Err(error);
        }
        // Half: the caller waits as long as for one call, and a refusal tells more than no answer.
        let compressed = self.compressed::<R>(rpc, deadline / 2).await;
        let page = compressed.ok_or(error)?;
        Ok(at_once(ListMode::Compressed, page, Some(limit)))
    }

    /// Reads a list compressed; `None` if that does not work.
    async fn compressed<R: WireRow>(
        &self,
        rpc: &ListRpc,
        deadline: Duration,
    ) -> Option<ListChunk<R::Model>> {
        let connection = self.connection();
        if !self.compressed.of(rpc.unary.0).is_worth_a_try(connection) {
            return None;
        }
        let list = self.page::<(), R>(&self.shared, rpc.unary, ((), Encoding::Gzip), deadline);
        let list = list.await;
        let mut way = self.compressed.of(rpc.unary.0);
        let error = match list {
            Ok(page) => {
                way.breaks = 0;
                return Some(page);
            }
            Err(error) => error,
        };
        tracing::debug!(list = rpc.unary.name(), %error, "a list cannot be read compressed");
        if !error.is_lost() {
            let lists = (!error.is_unimplemented()).then_some(LISTS_WITHOUT);
            way.leave(connection, lists);
        } else if way.broke() {
            // A compressed answer may end the runtime each time, so it is not asked for on the next connection either.
            way.leave(connection + 1, Some(LISTS_WITHOUT));
        }
        None
    }

    /// Reads one answer. `question`: the message, and the encoding to ask for; the rows share equal values with all that
    /// `shared` knows.
    pub(super) async fn page<Q, R>(
        &self,
        shared: &Arc<Mutex<Interner>>,
        rpc: Rpc,
        question: (Q, Encoding),
        deadline: Duration,
    ) -> Result<ListChunk<R::Model>, Error>
    where
        Q: Message + 'static,
        R: WireRow,
    {
        let answer = async {
            let whole = self.read::<Q, R>(shared, rpc, question, deadline).await?;
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
        if !self.streams.of(rpc.unary.0).is_worth_a_try(connection) {
            return Ok(None);
        }
        let answer = async {
            let question = ((), Encoding::Plain);
            let whole = self.read::<(), R>(&self.shared, rpc.streaming, question, deadline);
            // A stream without messages is an empty list.
            Ok(Response::new(whole.await?.unwrap_or_default()))
        };
        match self.call(rpc.streaming.name(), deadline, answer).await {
            Err(error) if error.is_unimplemented() => {
                // If another connection answered, the next list asks again.
                self.streams.of(rpc.unary.0).leave(connection, None);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Reads an answer to its end; `None` if nothing came. Drops everything before an error: half a list would make the
    /// other half look deleted.
    async fn read<Q, R>(
        &self,
        shared: &Arc<Mutex<Interner>>,
        rpc: Rpc,
        (message, encoding): (Q, Encoding),
        deadline: Duration,
    ) -> Result<Option<ListChunk<R::Model>>, Status>
    where
        Q: Message + 'static,
        R: WireRow,
    {
        let rows = Arc::new(Mutex::new(RowReader::<R>::new(Arc::clone(shared))));
        let reader = Arc::clone(&rows);
        let limit_bytes = self.max_message_bytes;
        let channel = self
            .channel(Awaits::Any, encoding)
            .map_response(move |answer| answer.map(|body| RowBody::new(body, reader, limit_bytes)));
        let mut grpc = Grpc::new(channel).max_decoding_message_size(limit_bytes);
        grpc.ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(rpc.0);
        let codec = ProstCodec::<Q, ()>::default();
        let answer = grpc.server_streaming(request(message, deadline), path, codec);
        // The body keeps the messages, so this waits for the end and its status.
        let end = answer.await?.into_inner().message().await?;
        debug_assert_eq!(end, None);
        let page = rows.lock().take();
        Ok(page)
    }
}
