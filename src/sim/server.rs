//! The socket and who serves it. A runtime that stops takes its connections down with it, and a
//! runtime that comes back has a new socket.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, UdsConnectInfo};

use super::garble::Garbling;
use super::service::Service;
use super::shared::Shared;
use crate::cri::containerd::containers_server::ContainersServer;
use crate::cri::proto::image_service_server::ImageServiceServer;
use crate::cri::proto::runtime_service_server::RuntimeServiceServer;

/// How long a stopped server may take to let go.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the runtime stands.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    serving: Option<Serving>,
    /// Holds the last socket file's inode, so that the next one cannot get the same number.
    last_inode: Option<OwnedFd>,
    closed: bool,
}

/// A server on its socket.
#[derive(Debug)]
struct Serving {
    /// Dropped to end the server and each of its connections at once.
    alive: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Lifecycle {
    /// Binds the socket and serves. Does nothing if it serves already.
    pub(super) fn start(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        if self.closed {
            return Err(io::Error::other("the simulated runtime was shut down"));
        }
        if self.serving.is_some() {
            return Ok(());
        }
        remove_socket(&shared.socket)?;
        let listener = UnixListener::bind(&shared.socket)?;
        self.last_inode = None;
        let (alive, watcher) = watch::channel(());
        let task = tokio::spawn(serve(listener, Arc::clone(shared), watcher));
        self.serving = Some(Serving { alive, task });
        Ok(())
    }

    /// Takes the socket away and cuts every connection. Returns what has yet to end.
    pub(super) fn stop(&mut self, socket: &Path) -> Option<JoinHandle<()>> {
        let Serving { alive, task } = self.serving.take()?;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        self.last_inode = rustix::fs::open(socket, flags, rustix::fs::Mode::empty()).ok();
        if let Err(error) = remove_socket(socket) {
            tracing::warn!(path = %socket.display(), %error, "cannot remove the simulated socket");
        }
        drop(alive);
        Some(task)
    }

    /// Stops for good.
    pub(super) fn close(&mut self, socket: &Path) -> Option<JoinHandle<()>> {
        self.closed = true;
        let task = self.stop(socket);
        self.last_inode = None;
        task
    }
}

/// Waits until a stopped server has let go of everything.
pub(super) async fn finished(task: Option<JoinHandle<()>>) {
    let Some(mut task) = task else { return };
    if tokio::time::timeout(STOP_TIMEOUT, &mut task).await.is_err() {
        task.abort();
    }
}

/// Removes a socket, but nothing else that might be in its place.
fn remove_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "in the way, and not a socket",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

async fn serve(listener: UnixListener, shared: Arc<Shared>, alive: watch::Receiver<()>) {
    let ending = ended(alive.clone());
    let incoming = UnixListenerStream::new(listener).map_ok(move |stream| Connection {
        stream,
        ended: Box::pin(ended(alive.clone())),
    });
    let service = Arc::new(Service::new(Arc::clone(&shared)));
    let garbling = tower::layer::layer_fn(move |inner| Garbling {
        inner,
        shared: Arc::clone(&shared),
    });
    let served = Server::builder()
        .max_concurrent_streams(u32::MAX)
        .layer(garbling)
        .add_service(RuntimeServiceServer::from_arc(Arc::clone(&service)))
        .add_service(ImageServiceServer::from_arc(Arc::clone(&service)))
        .add_service(ContainersServer::from_arc(service))
        .serve_with_incoming_shutdown(incoming, ending)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "the simulated runtime's server ended");
    }
}

/// Resolves when the server's end has come.
async fn ended(mut alive: watch::Receiver<()>) {
    while alive.changed().await.is_ok() {}
}

/// A client's connection, which breaks when the server ends.
struct Connection {
    stream: UnixStream,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Connection {
    /// Gives the stream, while the server lives; wakes the caller when it does not any more.
    fn living(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut UnixStream>> {
        match self.ended.as_mut().poll(context) {
            Poll::Ready(()) => {
                // Polled again it would panic; for ever ended it stays.
                self.ended = Box::pin(std::future::ready(()));
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.living(context) {
            Ok(stream) => stream.poll_read(context, buffer),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.living(context) {
            Ok(stream) => stream.poll_write(context, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.living(context) {
            Ok(stream) => stream.poll_flush(context),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
