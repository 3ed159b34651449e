//! Requests and answers on the wire: notes deadlines, replaces messages of answers, with status OK, and compresses them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service;

use super::gzip::Compressing;
use super::record::Rpc;
use super::shared::Shared;

/// Wraps a server's services: notes the deadline of each call, replaces its answer if a fault asks for it, and compresses
/// it if the request does.
#[derive(Clone, Debug)]
pub(super) struct Garbling<S> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared>,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for Garbling<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let compressing = match Compressing::of(&mut request, &self.shared.conduct.borrow()) {
            Ok(compressing) => compressing,
            Err(refusal) => return Box::pin(async move { Ok(refusal.into_http()) }),
        };
        let rpc = Rpc::of_path(request.uri().path());
        if rpc.is_none() {
            self.shared.record().unknown += 1;
        }
        let garbage = rpc.and_then(|rpc| {
            let deadline = request.headers().get("grpc-timeout");
            if let Some(deadline) = deadline.and_then(|value| value.to_str().ok()) {
                let mut record = self.shared.record();
                record.deadlines.insert(rpc, deadline.to_owned());
            }
            self.shared.conduct.borrow().garbage_for(rpc)
        });
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let answer = match garbage {
                Some(bytes) => exchanged(answer, &message(&bytes)),
                None => answer,
            };
            Ok(match compressing {
                Some(how) => how.compress(answer).await.unwrap_or_else(Status::into_http),
                None => answer,
            })
        })
    }
}

fn exchanged(answer: Response<Body>, message: &Bytes) -> Response<Body> {
    let message = message.clone();
    answer.map(|body| Body::new(body.map_frame(move |frame| frame.map_data(|_| message.clone()))))
}

/// Adds the gRPC header to a message: not compressed, and its length.
fn message(bytes: &[u8]) -> Bytes {
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    message.put_slice(bytes);
    message.freeze()
}
