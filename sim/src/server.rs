//! Serves the socket. A runtime that stops breaks its connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, UdsConnectInfo};

use super::garble::Garbling;
use super::service::Service;
use super::shared::Shared;
use crisweep_proto::containerd::containers_server::ContainersServer;
use crisweep_proto::cri::image_service_server::ImageServiceServer;
use crisweep_proto::cri::runtime_service_server::RuntimeServiceServer;

/// Binds the socket and serves. Does nothing if it serves already.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let serve = |listener, alive| serve(listener, Arc::clone(shared), alive);
    shared.lifecycle().start(&shared.socket, serve)
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

/// Resolves when the server ends.
async fn ended(mut alive: watch::Receiver<()>) {
    while alive.changed().await.is_ok() {}
}

/// A client's connection, which breaks when the server ends.
struct Connection {
    stream: UnixStream,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Connection {
    /// Returns the stream while the server lives; wakes the caller when it ends.
    fn living(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut UnixStream>> {
        match self.ended.as_mut().poll(context) {
            Poll::Ready(()) => {
                // A second poll would panic, so it stays ended.
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
