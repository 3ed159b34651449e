//! The two RPCs that each list has: streamed where the runtime can, in one answer where it cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Response, Status};
use tower::ServiceExt;

use super::link::{Link, request};
use super::pieces::Pieces;
use crate::cri::codec::{ListCodec, Page};
use crate::cri::convert::Row;
use crate::cri::{Error, ListMode};

/// An RPC's name, and its path on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpc {
    pub(super) name: &'static str,
    path: &'static str,
}

/// The two RPCs that read one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListRpc {
    streaming: Rpc,
    pub(super) unary: Rpc,
    missing: fn(&Missing) -> &AtomicU64,
}

pub(super) const CONTAINERS: ListRpc = ListRpc {
    streaming: Rpc {
        name: "StreamContainers",
        path: "/runtime.v1.RuntimeService/StreamContainers",
    },
    unary: Rpc {
        name: "ListContainers",
        path: "/runtime.v1.RuntimeService/ListContainers",
    },
    missing: |missing| &missing.containers,
};

pub(super) const SANDBOXES: ListRpc = ListRpc {
    streaming: Rpc {
        name: "StreamPodSandboxes",
        path: "/runtime.v1.RuntimeService/StreamPodSandboxes",
    },
    unary: Rpc {
        name: "ListPodSandbox",
        path: "/runtime.v1.RuntimeService/ListPodSandbox",
    },
    missing: |missing| &missing.sandboxes,
};

pub(super) const IMAGES: ListRpc = ListRpc {
    streaming: Rpc {
        name: "StreamImages",
        path: "/runtime.v1.ImageService/StreamImages",
    },
    unary: Rpc {
        name: "ListImages",
        path: "/runtime.v1.ImageService/ListImages",
    },
    missing: |missing| &missing.images,
};

/// For each list the number of the connection on which its streaming RPC was found missing. It holds
/// for that connection alone: a restarted runtime may have been upgraded.
#[derive(Debug, Default)]
pub(super) struct Missing {
    containers: AtomicU64,
    sandboxes: AtomicU64,
    images: AtomicU64,
}

impl Link {
    /// Reads a whole list over its streaming RPC, or in one answer. Where a message of the stream is over
    /// the limit, the one answer is too, but its error says what all of it weighs.
    pub(super) async fn list<R: Row>(
        &self,
        rpc: &ListRpc,
        deadline: Duration,
    ) -> Result<(ListMode, Page<R::Model>), Error> {
        match self.streamed::<R>(rpc, deadline).await {
            Ok(Some(page)) => return Ok((ListMode::Streaming, page)),
            Ok(None) | Err(Error::TooLarge { .. }) => {}
            Err(error) => return Err(error),
        }
        // An unfiltered request has no fields, so `()` encodes as any of them.
        let page = self.page::<(), R>(rpc.unary, (), deadline).await?;
        Ok((ListMode::Unary, page))
    }

    /// Reads one answer.
    pub(super) async fn page<Q, R>(
        &self,
        rpc: Rpc,
        message: Q,
        deadline: Duration,
    ) -> Result<Page<R::Model>, Error>
    where
        Q: Message + 'static,
        R: Row,
    {
        let answer = async {
            let whole = self.read::<Q, R>(rpc.path, message, deadline).await?;
            let missing = || Status::internal("Missing response message.");
            whole.map(Response::new).ok_or_else(missing)
        };
        self.call(rpc.name, deadline, answer).await
    }

    /// Reads a list over its streaming RPC; `None` if the runtime has none.
    async fn streamed<R: Row>(
        &self,
        rpc: &ListRpc,
        deadline: Duration,
    ) -> Result<Option<Page<R::Model>>, Error> {
        let missing_on = (rpc.missing)(&self.missing);
        let connection = self.connection();
        if connection > 0 && missing_on.load(Ordering::Relaxed) == connection {
            return Ok(None);
        }
        let answer = self.read_stream::<R>(rpc.streaming.path, deadline);
        match self.call(rpc.streaming.name, deadline, answer).await {
            Err(error) if error.is_unimplemented() => {
                // If it was another connection that answered, the next list asks again.
                missing_on.store(connection, Ordering::Relaxed);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Reads a stream to its end; no message at all is an empty list.
    async fn read_stream<R: Row>(
        &self,
        path: &'static str,
        deadline: Duration,
    ) -> Result<Response<Page<R::Model>>, Status> {
        let whole = self.read::<(), R>(path, (), deadline).await?;
        Ok(Response::new(whole.unwrap_or_default()))
    }

    /// Reads an answer, which comes in pieces, to its end; `None` if nothing came. What came before an
    /// error is thrown away: half a list would make the other half look deleted.
    async fn read<Q, R>(
        &self,
        path: &'static str,
        message: Q,
        deadline: Duration,
    ) -> Result<Option<Page<R::Model>>, Status>
    where
        Q: Message + 'static,
        R: Row,
    {
        let limit = self.max_message_bytes;
        let channel = self
            .channel()
            .map_response(move |response| response.map(|body| Pieces::new(body, limit)));
        let mut grpc = Grpc::new(channel).max_decoding_message_size(limit);
        grpc.ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(path);
        let codec = ListCodec::<Q, R>::new(Arc::clone(&self.shared));
        let mut pieces = grpc
            .server_streaming(request(message, deadline), path, codec)
            .await?
            .into_inner();
        let mut whole: Option<Page<R::Model>> = None;
        while let Some(piece) = pieces.message().await? {
            whole.get_or_insert_default().add(piece);
        }
        Ok(whole)
    }
}
