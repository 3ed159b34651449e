//! The peer: the cost of answering without any work.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use tokio::net::TcpListener;

/// The first argument of a peer process.
pub(crate) const CHILD: &str = "--peer";

/// Serves until it is killed; its first line of output is its address.
pub(crate) async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("its address");
    println!("{address}");
    let answer = |body: Bytes| async move { format!("{}\n", body.len()) };
    let limit = axum::extract::DefaultBodyLimit::disable();
    let router = Router::new().route("/webhook/alertmanager", post(answer));
    axum::serve(listener, router.layer(limit))
        .await
        .expect("the peer");
}
