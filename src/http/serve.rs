//! Accepts connections, within limits, until the service shuts down.

mod http1;
mod http2;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub use super::connections::Connections;
use super::connections::{Connection, Exchange};
pub use super::unix_socket::UnixSocket;
use crate::access::tls::{PeerIdentity, Tls};
use crate::access::{self, Listen, Peer};
use crate::telemetry::LineLimit;

/// Connections of one listener; more wait in the kernel's backlog. Larger than the sum of idle connections and
/// request limits, so it is seldom reached.
const CONNECTIONS_MAX: usize = 850;
/// Time in which a request's head must arrive, also on a kept-alive connection. With HTTP/2: how long a connection
/// may be without a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest request head.
const HEAD_MAX_BYTES: usize = 32 << 10;
/// A client that reads nothing of an answer for this long is considered dead: its connection and its answer,
/// which may be the whole node as JSON, are dropped.
const STALL_MAX: Duration = Duration::from_secs(30);
/// How long the rest is read after an early answer (413) or a refused handshake. Without this the kernel would send a
/// reset and the client could lose the answer.
const LINGER: Duration = Duration::from_secs(1);
/// How long open connections may go on after the last pass has ended, and how long a connection without a request may
/// after it was asked to close.
const DRAIN: Duration = Duration::from_secs(2);
/// Pause after a failed accept (no descriptors left), so that the loop does not spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Log lines about failed accepts in a minute, and about refused client certificates.
const LINES_A_MINUTE: u32 = 5;

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
        Listen::Tcp(address) => listen_tcp(web, *address).map(Listener::Tcp),
        Listen::Unix(path) => {
            UnixSocket::bind(path, web.socket_mode, web.socket_owner).map(Listener::Unix)
        }
    }
}

fn listen_tcp(web: &access::Config, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if address.is_ipv6() && address.ip().is_unspecified() {
        // IPv4 too, whatever net.ipv6.bindv6only says, unless it has an address of its own.
        let is_four = |it: &Listen| match it {
            Listen::Tcp(own) => own.is_ipv4() && own.port() == address.port(),
            Listen::Unix(_) => false,
        };
        rustix::net::sockopt::set_ipv6_v6only(&socket, web.listen.iter().any(is_four))?;
    }
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit both. The end of an answer must not wait until its client confirms what came before:
    // a client may take 40 ms for that.
    socket.set_nodelay(true)?;
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

    async fn accept(&self) -> io::Result<(AcceptedStream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let peer = Peer::tcp(peer, stream.local_addr()?);
                Ok((AcceptedStream::Tcp(stream), peer))
            }
            Self::Unix(socket) => {
                let (stream, uid) = socket.accept().await?;
                Ok((AcceptedStream::Unix(stream), Peer::unix(uid)))
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
enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection and what serves it.
#[derive(Clone)]
struct Serving {
    router: Router,
    connection: Connection,
    shutdown: CancellationToken,
    access: access::Current,
    began: Instant,
    /// Bounds the lines about refused client certificates.
    refusals: Arc<LineLimit>,
}

/// Serves until `stop.shutdown`, then until the open requests are answered.
pub async fn serve(
    listener: Listener,
    router: Router,
    stop: Stop,
    connections: Connections,
    access: access::Current,
) {
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    let limit = || LineLimit::new(LINES_A_MINUTE, Duration::from_secs(60));
    let (lines, refusals) = (limit(), Arc::new(limit()));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &mut tasks) => accepted,
            () = stop.shutdown.cancelled() => break,
        };
        match accepted {
            Ok(accepted) => {
                let serving = Serving {
                    router: router.clone(),
                    connection: connections.take(),
                    shutdown: stop.shutdown.clone(),
                    access: access.clone(),
                    began,
                    refusals: Arc::clone(&refusals),
                };
                tasks.spawn(serving.begin(accepted));
                // The new connection may already carry its request: let it be read before newer connections
                // push it out.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                if let Some(left_out) = lines.admit(began.elapsed()) {
                    let left_out = NonZeroU64::new(left_out);
                    tracing::warn!(%error, left_out, "a connection could not be accepted");
                }
                connections.make_room();
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    drop(listener);
    let drained = async { while tasks.join_next().await.is_some() {} };
    let patience = async {
        stop.passes_over.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = drained => {}
        () = patience => tracing::warn!("open connections were closed at shutdown"),
    }
}

async fn accept(
    listener: &Listener,
    tasks: &mut JoinSet<()>,
) -> io::Result<(AcceptedStream, Peer)> {
    while tasks.try_join_next().is_some() {}
    while tasks.len() >= CONNECTIONS_MAX {
        tasks.join_next().await;
    }
    listener.accept().await
}

impl Serving {
    /// Shakes hands where TLS is configured, then serves. A unix socket never speaks TLS.
    async fn begin(self, (stream, peer): (AcceptedStream, Peer)) {
        match (stream, self.access.get().tls()) {
            (AcceptedStream::Unix(stream), _) => http1::serve(self, stream, peer, None).await,
            (AcceptedStream::Tcp(stream), None) => http1::serve(self, stream, peer, None).await,
            (AcceptedStream::Tcp(stream), Some(tls)) => {
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(HEAD_TIMEOUT, shake_hands(stream, &tls)) => shaken,
                    () = self.connection.closed() => return,
                    () = self.shutdown.cancelled() => return,
                };
                match shaken {
                    Ok(Ok((stream, certificate))) => {
                        let peer = peer.with_certificate(certificate);
                        self.serve_tls(stream, peer, tls).await;
                    }
                    Ok(Err(error)) => self.log_refusal(&peer, &error),
                    Err(_elapsed) => tracing::debug!(%peer, "the TLS handshake took too long"),
                }
            }
        }
    }

    /// Logs why there is no TLS connection.
    fn log_refusal(&self, peer: &Peer, error: &io::Error) {
        let Some(why) = access::tls::refusal(error) else {
            return tracing::debug!(%peer, %error, "no TLS connection");
        };
        if let Some(left_out) = self.refusals.admit(self.began.elapsed()) {
            let left_out = NonZeroU64::new(left_out);
            tracing::warn!(%peer, why, left_out, "refused");
        }
    }

    /// Serves the version of HTTP that the handshake chose.
    async fn serve_tls(self, stream: TlsStream<TcpStream>, peer: Peer, tls: Tls) {
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            tracing::debug!(%peer, "a client speaks HTTP/2");
            http2::serve(self, stream, peer, Some(tls)).await;
        } else {
            http1::serve(self, stream, peer, Some(tls)).await;
        }
    }

    /// Says whether new connections are secured as this one is. If not, the client has to connect anew, so that an
    /// old certificate or plain HTTP ends soon.
    fn is_in_force(&self, peer: &Peer, tls: Option<&Tls>) -> bool {
        peer.is_unix() || is_same(tls, self.access.get().tls().as_ref())
    }

    /// Lets the router answer a request.
    async fn answer(
        &self,
        mut request: Request<Body>,
        peer: Peer,
        exchange: Exchange,
    ) -> Response<Body> {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(exchange);
        let answer = self.router.clone().oneshot(request).await;
        answer.unwrap_or_else(|never| match never {})
    }
}

fn is_same(of_connection: Option<&Tls>, now: Option<&Tls>) -> bool {
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
        close(stream).await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    match tls.accept(stream).await {
        Ok(shaken) => Ok(shaken),
        Err((error, stream)) => {
            // A client of TLS 1.3 may have sent its request before it hears that its certificate is refused.
            drop(tokio::time::timeout(LINGER, close(stream)).await);
            Err(error)
        }
    }
}

/// Closes a connection once the client has closed it. Bytes that stay unread would make the kernel reset it, and the
/// client could lose the last words that it was sent.
async fn close(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut left = stream.take(HEAD_MAX_BYTES as u64);
    tokio::io::copy(&mut left, &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[tokio::test]
    async fn an_accepted_connection_sends_at_once() {
        let web = access::Config::default();
        let listener = listen_tcp(&web, "127.0.0.1:0".parse().unwrap()).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        assert!(client.is_ok());
        assert!(accepted.unwrap().0.nodelay().unwrap());
    }

    #[tokio::test]
    async fn all_ipv6_addresses_may_be_listened_on_beside_some_or_all_of_ipv4() {
        for own in ["0.0.0.0:0", "127.0.0.1:0"] {
            let mut web = access::Config::default();
            let four = listen_tcp(&web, own.parse().unwrap()).unwrap();
            let address = four.local_addr().unwrap();
            web.listen = vec![Listen::Tcp(address)];
            let six = (Ipv6Addr::UNSPECIFIED, address.port()).into();
            listen_tcp(&web, six).unwrap();
        }
    }
}
