//! Accepts connections, within bounds, until the service goes down.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Connections at a time; later ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 256;
/// A request's head must have arrived by then, also the next one on a kept connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// A request's head may be this long.
const HEAD_MAX_BYTES: usize = 32 << 10;
/// How long open connections are waited for once the last pass is over.
const DRAIN: Duration = Duration::from_secs(3);
/// Rest after a failed accept (no descriptors left), so that it does not spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// When a server stops accepting, and from when on it no longer waits for what is open.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Nothing new is accepted.
    pub shutdown: CancellationToken,
    /// The last pass is over: whoever waits for it can be answered now.
    pub passes_over: CancellationToken,
}

/// Serves until `stop.shutdown`, then until the open requests are answered.
pub async fn serve(listener: TcpListener, router: Router, stop: Stop, permits: Arc<Semaphore>) {
    let Stop {
        shutdown,
        passes_over,
    } = stop;
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&permits).acquire_owned() => permit,
            () = shutdown.cancelled() => break,
        };
        let Ok(permit) = permit else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => {
                let (router, shutdown) = (router.clone(), shutdown.clone());
                connections.spawn(async move {
                    connection(stream, peer, router, shutdown).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    let patience = async {
        passes_over.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = drained => {}
        () = patience => tracing::warn!("open connections were cut at the end"),
    }
}

/// Returns the bound on connections, shared by all listeners.
pub fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            Ok::<_, Infallible>(
                router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {}),
            )
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_MAX_BYTES.max(8192));
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let result = tokio::select! {
        result = serving.as_mut() => result,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended with an error");
    }
}
