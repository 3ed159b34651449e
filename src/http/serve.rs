//! Accepts connections, within bounds, until the service goes down.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Connections at a time; later ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 256;
/// A request's head must have arrived by then, also the next one on a kept connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// From so many connections on, new ones are kept shorter: idle or slow ones must not lock others out.
const CROWDED: usize = CONNECTIONS_MAX / 2;
/// [`HEAD_TIMEOUT`] when crowded.
const HEAD_TIMEOUT_CROWDED: Duration = Duration::from_secs(2);
/// A request's head may be this long.
const HEAD_MAX_BYTES: usize = 32 << 10;
/// Somebody who takes nothing of an answer for so long is gone: the answer is let go, which may be
/// the whole node as JSON, and the connection with it.
const STALL_MAX: Duration = Duration::from_secs(30);
/// How long open connections are waited for once the last pass is over.
const DRAIN: Duration = Duration::from_secs(2);
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
                let crowded = permits.available_permits() < CONNECTIONS_MAX - CROWDED;
                connections.spawn(async move {
                    connection(stream, peer, router, crowded, shutdown).await;
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
    crowded: bool,
    shutdown: CancellationToken,
) {
    let head_timeout = if crowded {
        HEAD_TIMEOUT_CROWDED
    } else {
        HEAD_TIMEOUT
    };
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
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_MAX_BYTES);
    let serving = builder.serve_connection(TokioIo::new(Impatient::new(stream)), service);
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

/// A stream that fails once its peer has taken nothing for [`STALL_MAX`].
struct Impatient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Impatient<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            stalled: None,
        }
    }

    fn or_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), cx) {
            self.stalled = None;
            return Poll::Ready(written);
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_MAX)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.or_stalled(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.or_stalled(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.or_stalled(cx, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.or_stalled(cx, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_of_an_answer_is_let_go() {
        let (server, _client) = tokio::io::duplex(8);
        let began = Instant::now();
        let error = Impatient::new(server)
            .write_all(&[0; 64])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_it_slowly_gets_all_of_it() {
        let (server, mut client) = tokio::io::duplex(8);
        let reading = tokio::spawn(async move {
            let mut taken = 0;
            for _ in 0..8 {
                tokio::time::sleep(STALL_MAX * 9 / 10).await;
                taken += client.read(&mut [0; 8]).await.unwrap();
            }
            taken
        });
        Impatient::new(server).write_all(&[0; 64]).await.unwrap();
        assert_eq!(reading.await.unwrap(), 64);
    }
}
