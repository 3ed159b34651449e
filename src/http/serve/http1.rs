//! Serves an HTTP/1 connection: one request at a time.

use std::convert::Infallible;

use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{HEAD_MAX_BYTES, HEAD_TIMEOUT, LINGER, STALL_MAX, Serving};
use crate::access::Peer;
use crate::access::tls::Tls;
use crate::system::stall::StallGuard;

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
    let of_stream = connection.clone();
    // Hyper flushes once it has written all: then the answer is sent.
    let mut stream = StallGuard::watched(stream, STALL_MAX, move || of_stream.sent());
    let result = {
        let serving = builder.serve_connection(TokioIo::new(&mut stream), service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            result = serving.as_mut() => result,
            () = connection.closed() => {
                tracing::debug!(%peer, "a connection was closed to make room");
                return;
            }
            () = shutdown.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    };
    match result {
        Ok(()) if connection.is_unread() => tokio::select! {
            () = read_rest(stream) => {}
            () = connection.closed() => {}
        },
        Ok(()) => {}
        Err(error) => tracing::debug!(%peer, %error, "a connection ended with an error"),
    }
}

/// Reads what is left of a body after an early answer, until the client closes or [`LINGER`] is over.
async fn read_rest(mut stream: impl AsyncRead + Unpin) {
    let mut sink = tokio::io::sink();
    let read = tokio::io::copy(&mut stream, &mut sink);
    // A read error ends the reading too.
    let _ = tokio::time::timeout(LINGER, read).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::super::Connections;
    use super::*;
    use crate::access::{self, Access};

    #[tokio::test]
    async fn the_rest_of_a_request_is_read_for_a_while() {
        let access = Access::new(&access::Config::default(), None).await.unwrap();
        // Pause only now: a paused clock would run through the timeouts of the disk reads above.
        tokio::time::pause();
        let serving = Serving {
            router: Router::new(),
            connection: Connections::default().take(),
            shutdown: CancellationToken::new(),
            access: access::Current::new(access),
            began: Instant::now(),
            refusals: std::sync::Arc::new(crate::telemetry::LineLimit::new(1, STALL_MAX)),
        };
        let peer = (
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        );
        let (server, client) = tokio::io::duplex(64);
        let serving = tokio::spawn(serve(serving, server, Peer::tcp(peer.0, peer.1), None));
        let (mut answer, mut upload) = tokio::io::split(client);
        let head = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
        upload.write_all(head).await.unwrap();
        let mut status = [0; 12];
        answer.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 404");
        let mut rest = String::new();
        answer.read_to_string(&mut rest).await.unwrap();
        let began = Instant::now();
        // The server still reads data that comes after its answer.
        upload.write_all(&[0; 1_000]).await.unwrap();
        assert!(!serving.is_finished());
        serving.await.unwrap();
        let open = began.elapsed();
        assert!(open <= LINGER + Duration::from_millis(1), "{open:?}");
    }
}
