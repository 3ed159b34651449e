//! Compressed answers, as grpc-go gives them: in the encoding of the request, and compared with the limit as sent.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::HeaderValue;
use tonic::codegen::http::{Request, Response};
use tower::Service;

use super::lists::check_size;
use super::shared::Shared;

const ENCODING: &str = "grpc-encoding";
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// A request whose answer is compressed has this extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressed;

/// Wraps a server's services: compresses the answers of requests that name gzip as their encoding, or refuses them.
/// The requests themselves are not compressed.
#[derive(Clone, Debug)]
pub(super) struct Compressing<S> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared>,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S> Service<Request<Body>> for Compressing<S>
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
        if request.headers().get(ENCODING) != Some(&GZIP) {
            return Box::pin(self.inner.call(request));
        }
        let (gzip, limit) = {
            let conduct = self.shared.conduct.borrow();
            (conduct.gzip, conduct.send_limit_bytes)
        };
        let Some(takes) = gzip else {
            let text = "grpc: Decompressor is not installed for grpc-encoding \"gzip\"";
            let refusal = Status::unimplemented(text).into_http();
            return Box::pin(async move { Ok(refusal) });
        };
        request.headers_mut().remove(ENCODING);
        request.extensions_mut().insert(Compressed);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            tokio::time::sleep(takes).await;
            Ok(compressed(answer, limit)
                .await
                .unwrap_or_else(Status::into_http))
        })
    }
}

async fn compressed(answer: Response<Body>, limit: usize) -> Result<Response<Body>, Status> {
    let (mut parts, body) = answer.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned().map(Ok);
    let mut bytes = body.to_bytes();
    let mut out = BytesMut::new();
    while !bytes.is_empty() {
        let message = take_message(&mut bytes);
        let message = compress(&message).map_err(|error| Status::internal(error.to_string()))?;
        check_size(message.len(), limit)?;
        out.put_u8(1);
        out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        out.put_slice(&message);
    }
    parts.headers.insert(ENCODING, GZIP);
    let body = Full::new(out.freeze()).with_trailers(async { trailers });
    Ok(Response::from_parts(parts, Body::new(body)))
}

/// Takes the next message off the bytes.
fn take_message(bytes: &mut Bytes) -> Bytes {
    bytes.advance(1);
    let length = usize::try_from(bytes.get_u32()).unwrap_or(usize::MAX);
    bytes.split_to(length.min(bytes.len()))
}

fn compress(message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(message)?;
    encoder.finish()
}
