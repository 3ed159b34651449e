//! Compressed answers, as grpc-go gives them: in the encoding of the request, and compared with the limit as sent.

use std::io::Write;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::HeaderValue;
use tonic::codegen::http::{Request, Response};

use super::conduct::Conduct;
use super::lists::check_size;

const ENCODING: &str = "grpc-encoding";
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// A request whose answer is compressed has this extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressed;

/// How the answer of a request is compressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressing {
    takes: Duration,
    limit: usize,
}

impl Compressing {
    /// Returns how to compress the answer, if the request names gzip as its encoding. The request itself is not
    /// compressed.
    ///
    /// # Errors
    /// If the runtime cannot.
    pub(super) fn of(
        request: &mut Request<Body>,
        conduct: &Conduct,
    ) -> Result<Option<Self>, Status> {
        if request.headers().get(ENCODING) != Some(&GZIP) {
            return Ok(None);
        }
        let text = "grpc: Decompressor is not installed for grpc-encoding \"gzip\"";
        let takes = conduct.gzip.ok_or_else(|| Status::unimplemented(text))?;
        request.headers_mut().remove(ENCODING);
        request.extensions_mut().insert(Compressed);
        let limit = conduct.send_limit_bytes;
        Ok(Some(Self { takes, limit }))
    }

    pub(super) async fn compress(self, answer: Response<Body>) -> Result<Response<Body>, Status> {
        tokio::time::sleep(self.takes).await;
        let (mut parts, body) = answer.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().map(Ok);
        let mut bytes = body.to_bytes();
        let mut out = BytesMut::new();
        while !bytes.is_empty() {
            let message = take_message(&mut bytes);
            let message =
                compressed(&message).map_err(|error| Status::internal(error.to_string()))?;
            check_size(message.len(), self.limit)?;
            out.put_u8(1);
            out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
            out.put_slice(&message);
        }
        parts.headers.insert(ENCODING, GZIP);
        let body = Full::new(out.freeze()).with_trailers(async { trailers });
        Ok(Response::from_parts(parts, Body::new(body)))
    }
}

/// Takes the next message off the bytes.
fn take_message(bytes: &mut Bytes) -> Bytes {
    bytes.advance(1);
    let length = usize::try_from(bytes.get_u32()).unwrap_or(usize::MAX);
    bytes.split_to(length.min(bytes.len()))
}

fn compressed(message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(message)?;
    encoder.finish()
}
