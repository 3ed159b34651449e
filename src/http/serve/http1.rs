//! Serves an HTTP/1 connection: one request at a time.

use std::convert::Infallible;

use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::guarded_stream::GuardedStream;
use super::{HEAD_MAX_BYTES, HEAD_TIMEOUT, Serving};
use crate::access::Peer;
use crate::access::tls::Tls;

pub(super) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    serving: Serving,
    stream: S,
    peer: Peer,
    tls: Option<Tls>,
) {
    let (connection, shutdown) = (serving.connection.clone(), serving.shutdown.clone());
    let of_peer = peer.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (serving, peer) = (serving.clone(), of_peer.clone());
        let is_old = !serving.is_in_force(&peer, tls.as_ref());
        async move {
            let connection = &serving.connection;
            let exchange = connection.exchange();
            let request = request.map(|body| connection.request(Body::new(body)));
            let mut answer = serving.answer(request, peer, exchange.clone()).await;
            if connection.is_unread() || is_old {
                // Hyper closes this connection after the answer: without the header the client would send its
                // next request on it and lose it.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(answer.map(|body| exchange.answer(body)))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_MAX_BYTES);
    let stream = GuardedStream::new(stream, connection.clone());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let result = tokio::select! {
        result = serving.as_mut() => result,
        () = connection.closed() => {
            tracing::debug!(%peer, "a connection was closed to make room");
            return;
        }
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended with an error");
    }
}
