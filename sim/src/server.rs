//! Serves the socket. A runtime that stops breaks its connections.

use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::service::Routes;
use tower::ServiceExt;

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

async fn serve(listener: UnixListener, shared: Arc<Shared>, mut alive: watch::Receiver<()>) {
    let service = Arc::new(Service(Arc::clone(&shared)));
    let inner = Routes::new(RuntimeServiceServer::from_arc(Arc::clone(&service)))
        .add_service(ImageServiceServer::from_arc(Arc::clone(&service)))
        .add_service(ContainersServer::from_arc(service));
    let garbling = Garbling { inner, shared };
    let garbling = garbling.map_request(|request: Request<Incoming>| request.map(Body::new));
    let garbling = TowerToHyperService::new(garbling);
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.max_concurrent_streams(None);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(http.serve_connection(TokioIo::new(stream), garbling.clone()));
            }
            Some(_) = connections.join_next() => {}
            _ = alive.changed() => return connections.shutdown().await,
        }
    }
}
