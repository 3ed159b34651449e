//! Accepts connections, within limits, until the service shuts down.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::connections::Connection;
pub use super::connections::Connections;
pub use super::unix_socket::UnixSocket;
use crate::access::tls::{PeerIdentity, Tls};
use crate::access::{self, Listen, Peer};

/// Connections of one listener; more wait in the kernel's backlog. Larger than the sum of idle connections and
/// request limits, so it is seldom reached.
const CONNECTIONS_MAX: usize = 850;
/// Time in which a request's head must arrive, also on a kept-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest request head.
const HEAD_MAX_BYTES: usize = 32 << 10;
/// A client that reads nothing of an answer for this long is considered dead: its connection and its answer,
/// which may be the whole node as JSON, are dropped.
const STALL_MAX: Duration = Duration::from_secs(30);
/// How long the rest of a body is read after an early answer (413). Without this the kernel would send a reset
/// and the client could lose the answer.
const LINGER: Duration = Duration::from_secs(1);
/// How long open connections may go on after the last pass has ended.
const DRAIN: Duration = Duration::from_secs(2);
/// Pause after a failed accept (no descriptors left), so that the loop does not spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Kernel send buffer of a connection. The kernel's default would hold megabytes of an answer that the peer
/// does not read.
const SEND_BUFFER_BYTES: u32 = 256 << 10;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Listens on an address.
///
/// # Errors
/// If another process listens on it, it is not this machine's, or the unix socket cannot be made.
pub fn listen(web: &access::Config, listen: &Listen) -> io::Result<Listener> {
    match listen {
        Listen::Tcp(address) => listen_tcp(*address).map(Listener::Tcp),
        Listen::Unix(path) => {
            UnixSocket::bind(path, web.socket_mode, web.socket_owner).map(Listener::Unix)
        }
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// When a server stops accepting, and when it stops waiting for open requests.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// The server accepts nothing new.
    pub shutdown: CancellationToken,
    /// The last pass is over: the requests that wait for it can be answered now.
    pub passes_over: CancellationToken,
}

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// Of an address.
    Tcp(TcpListener),
    /// Of a path.
    Unix(UnixSocket),
}

impl Listener {
    /// Returns the TCP address that it is bound to.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let peer = Peer::tcp(peer, stream.local_addr()?);
                Ok((Stream::Tcp(stream), peer))
            }
            Self::Unix(socket) => {
                let (stream, uid) = socket.accept().await?;
                Ok((Stream::Unix(stream), Peer::unix(uid)))
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(error) => write!(f, "unknown address ({error})"),
            },
            Self::Unix(socket) => write!(f, "unix:{}", socket.path().display()),
        }
    }
}

/// An accepted connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection and what serves it.
struct Serving {
    router: Router,
    connection: Connection,
    shutdown: CancellationToken,
    access: access::Current,
}

/// Serves until `stop.shutdown`, then until the open requests are answered.
pub async fn serve(
    listener: Listener,
    router: Router,
    stop: Stop,
    connections: Connections,
    access: access::Current,
) {
    let Stop {
        shutdown,
        passes_over,
    } = stop;
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &mut tasks) => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok(accepted) => {
                let serving = Serving {
                    router: router.clone(),
                    connection: connections.take(),
                    shutdown: shutdown.clone(),
                    access: access.clone(),
                };
                tasks.spawn(serving.begin(accepted));
                // The new connection may already carry its request: let it be read before newer connections
                // push it out.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                connections.make_room();
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    drop(listener);
    let drained = async { while tasks.join_next().await.is_some() {} };
    let patience = async {
        passes_over.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = drained => {}
        () = patience => tracing::warn!("open connections were closed at shutdown"),
    }
}

async fn accept(listener: &Listener, tasks: &mut JoinSet<()>) -> io::Result<(Stream, Peer)> {
    while tasks.try_join_next().is_some() {}
    while tasks.len() >= CONNECTIONS_MAX {
        tasks.join_next().await;
    }
    listener.accept().await
}

impl Serving {
    /// Shakes hands where TLS is configured, then serves. A unix socket never speaks TLS.
    async fn begin(self, (stream, peer): (Stream, Peer)) {
        match (stream, self.access.get().tls()) {
            (Stream::Unix(stream), _) => self.serve(stream, peer, None).await,
            (Stream::Tcp(stream), None) => self.serve(stream, peer, None).await,
            (Stream::Tcp(stream), Some(tls)) => {
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(HEAD_TIMEOUT, shake_hands(stream, &tls)) => shaken,
                    () = self.connection.closed() => return,
                    () = self.shutdown.cancelled() => return,
                };
                match shaken {
                    Ok(Ok((stream, certificate))) => {
                        let peer = peer.with_certificate(certificate);
                        self.serve(stream, peer, Some(tls)).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS connection"),
                    Err(_elapsed) => tracing::debug!(%peer, "the TLS handshake took too long"),
                }
            }
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self,
        stream: S,
        peer: Peer,
        tls: Option<Tls>,
    ) {
        let Self {
            router,
            connection,
            shutdown,
            access,
        } = self;
        let is_unix = peer.is_unix();
        let (of_requests, of_peer) = (connection.clone(), peer.clone());
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (router, connection, peer) = (router.clone(), of_requests.clone(), of_peer.clone());
            let is_old = !is_unix && !is_in_force(tls.as_ref(), access.get().tls().as_ref());
            async move {
                let mut request = request.map(|body| connection.request(Body::new(body)));
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(connection.clone());
                let answer = router.oneshot(request).await;
                let mut answer = answer.unwrap_or_else(|never| match never {});
                if connection.is_unread() || is_old {
                    // Hyper closes this connection after the answer: without the header the client would send its
                    // next request on it and lose it.
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(answer.map(|body| connection.answer(body)))
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
                tracing::debug!(%peer, "an idle connection was closed to make room");
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
}

/// Says whether new connections are secured as this one is. If not, the client has to connect anew, so that an old
/// certificate or plain HTTP ends soon.
fn is_in_force(of_connection: Option<&Tls>, now: Option<&Tls>) -> bool {
    match (of_connection, now) {
        (None, None) => true,
        (Some(mine), Some(now)) => mine.is_same(now),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Shakes hands; tells a client that speaks plain HTTP that it has to speak TLS.
async fn shake_hands(
    mut stream: TcpStream,
    tls: &Tls,
) -> io::Result<(TlsStream<TcpStream>, Option<PeerIdentity>)> {
    /// The first byte of a TLS connection.
    const HANDSHAKE: u8 = 0x16;
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first != [HANDSHAKE] {
        let answer = b"HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain\r\n\r\n\
            crisweep speaks TLS here: use https\n";
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // Unread bytes would make the kernel reset the connection, and the client could lose the answer.
        let mut left = (&mut stream).take(HEAD_MAX_BYTES as u64);
        tokio::io::copy(&mut left, &mut tokio::io::sink()).await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    tls.accept(stream).await
}

/// A stream that fails if its peer reads nothing for [`STALL_MAX`], reports when everything is sent, and
/// lingers at its end.
struct GuardedStream<S> {
    stream: S,
    connection: Connection,
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> GuardedStream<S> {
    fn new(stream: S, connection: Connection) -> Self {
        Self {
            stream,
            connection,
            stalled: None,
            lingering: None,
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

impl<S: AsyncRead + Unpin> GuardedStream<S> {
    /// Reads and drops incoming bytes until the peer closes or the time is over.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        match &mut self.lingering {
            Some(until) => until.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
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
        // Hyper flushes when it has nothing left to write.
        ready!(self.or_stalled(cx, AsyncWrite::poll_flush))?;
        self.connection.sent();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(self.or_stalled(cx, AsyncWrite::poll_shutdown))?;
            if !self.connection.is_unread() {
                return Poll::Ready(Ok(()));
            }
            self.lingering = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        self.linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn closes_a_connection_whose_peer_reads_nothing() {
        let (server, _client) = tokio::io::duplex(8);
        let began = Instant::now();
        let error = GuardedStream::new(server, Connections::default().take())
            .write_all(&[0; 64])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_the_whole_answer() {
        let (server, mut client) = tokio::io::duplex(8);
        let reading = tokio::spawn(async move {
            let mut taken = 0;
            for _ in 0..8 {
                tokio::time::sleep(STALL_MAX * 9 / 10).await;
                taken += client.read(&mut [0; 8]).await.unwrap();
            }
            taken
        });
        GuardedStream::new(server, Connections::default().take())
            .write_all(&[0; 64])
            .await
            .unwrap();
        assert_eq!(reading.await.unwrap(), 64);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_request_is_read_for_a_while() {
        let (server, mut client) = tokio::io::duplex(8);
        let began = Instant::now();
        let sending =
            tokio::spawn(async move { client.write_all(&[0; 1_000]).await.map(|()| client) });
        let connection = Connections::default().take();
        // An unread request body.
        drop(connection.request(Body::from("longer")));
        let mut server = GuardedStream::new(server, connection);
        server.shutdown().await.unwrap();
        let client = sending.await.unwrap().unwrap();
        assert!(
            began.elapsed() <= LINGER + Duration::from_millis(1),
            "{began:?}"
        );
        drop(client);
    }
}
