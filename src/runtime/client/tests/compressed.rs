//! Lists over the runtime's limit that it sends compressed.

use std::sync::atomic::{AtomicU32, Ordering};

use tonic::codegen::http::{HeaderMap, Response};

use super::*;
use crate::model::Coverage;
use crate::runtime::client::list_ways::{BREAKS_MAX, LISTS_WITHOUT};

/// A runtime that compresses, whose limit no list of [`node`] keeps, but each one compressed.
fn compressing() -> Rig {
    let rig = Rig::new(Options {
        gzip: Some(Duration::ZERO),
        ..Options::default()
    });
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh_sandboxes() / 2);
    rig
}

#[tokio::test]
async fn lists_over_the_limit_are_whole_and_weigh_what_they_weigh_uncompressed() {
    let rig = compressing();
    let limit = Some(rig.weigh_sandboxes() as u64 / 2);
    for _ in 0..3 {
        rig.sim.clear_record();
        let containers = rig.client.list_containers().await.unwrap();
        let way = (containers.mode, containers.coverage, containers.limit_bytes);
        assert_eq!(way, (ListMode::Compressed, Coverage::Whole, limit));
        assert_eq!(containers.response_bytes, rig.weigh_all() as u64);
        let ids: Vec<_> = containers.rows.iter().map(|c| c.id.to_string()).collect();
        let there = rig.sim.containers().into_iter();
        assert_eq!(ids, there.map(|c| c.row.id).collect::<Vec<_>>());
        let sandboxes = rig.client.list_pod_sandboxes().await.unwrap();
        assert_eq!(sandboxes.mode, ListMode::Compressed);
        assert_eq!(sandboxes.response_bytes, rig.weigh_sandboxes() as u64);
        assert_eq!(sandboxes.rows.len(), rig.sim.sandboxes().len());
        // Each uncompressed first, which tells limit and weight.
        assert_eq!(rig.sim.call_count(Rpc::ListContainers), 2);
        assert_eq!(rig.sim.call_count(Rpc::ListPodSandbox), 2);
        assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 0);
    }
    rig.sim.conduct(|it| it.send_limit_bytes = 64 << 20);
    let listed = rig.client.list_containers().await.unwrap();
    let way = (listed.mode, listed.limit_bytes);
    assert_eq!(way, (ListMode::Unary, limit), "the limit stays known");
}

#[tokio::test]
async fn images_over_the_limit_are_listed_too() {
    let rig = compressing();
    let exact = lists::image_weight(&rig);
    rig.sim.conduct(|it| it.send_limit_bytes = exact - 1);
    let images = rig.client.list_images().await.unwrap();
    assert_eq!(images.mode, ListMode::Compressed);
    assert_eq!(images.rows.len(), rig.sim.images().len());
    assert_eq!(images.response_bytes, exact as u64);
    assert_eq!(images.limit_bytes, Some(exact as u64 - 1));
}

#[tokio::test]
async fn a_runtime_that_cannot_compress_is_asked_once_on_a_connection() {
    let rig = compressing();
    let in_parts = rig.weigh(&[ContainerState::Exited]);
    rig.sim.conduct(|it| it.send_limit_bytes = in_parts);
    rig.sim.conduct(|it| it.gzip = None);
    let containers = rig.client.list_containers().await.unwrap();
    assert_eq!(containers.mode, ListMode::PerState);
    rig.sim
        .conduct(|it| it.send_limit_bytes = lists::image_weight(&rig) - 1);
    rig.client.list_images().await.unwrap_err();
    rig.sim.conduct(|it| it.gzip = Some(Duration::ZERO));
    rig.client.list_images().await.unwrap_err();
    rig.sim.restart().await.unwrap();
    rig.reconnected().await;
    let images = rig.client.list_images().await.unwrap();
    assert_eq!(images.mode, ListMode::Compressed);
}

#[tokio::test]
async fn a_list_that_stays_over_the_limit_compressed_is_not_sent_so_for_some_lists() {
    let rig = compressing();
    rig.sim.conduct(|it| it.send_limit_bytes = 100);
    rig.client.list_images().await.unwrap_err();
    assert_eq!(rig.sim.call_count(Rpc::ListImages), 2);
    rig.sim
        .conduct(|it| it.send_limit_bytes = lists::image_weight(&rig) - 1);
    for _ in 0..LISTS_WITHOUT {
        rig.client.list_images().await.unwrap_err();
    }
    assert_eq!(
        rig.client.list_images().await.unwrap().mode,
        ListMode::Compressed
    );
}

#[tokio::test]
async fn a_list_over_our_own_limit_is_not_asked_for_compressed() {
    let rig = compressing();
    let exact = lists::image_weight(&rig);
    rig.sim.conduct(|it| it.send_limit_bytes = 64 << 20);
    let client = rig.client_with(|settings| settings.max_message_bytes = exact - 1);
    client.list_images().await.unwrap_err();
    assert_eq!(rig.sim.call_count(Rpc::ListImages), 1);
}

/// Refuses each list for its size, and ends the connection of a call that names an encoding. Returns the directory of the
/// socket, a client, and the number of such calls.
fn client_of_server_that_ends() -> (TempDir, Client, Arc<AtomicU32>) {
    let (dir, settings) = place(PATIENCE);
    let listener = tokio::net::UnixListener::bind(&settings.endpoint).unwrap();
    let ends = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ends);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut calls = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut answer))) = calls.accept().await {
                if request.headers().contains_key("grpc-encoding") {
                    count.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                let head = Response::builder().header("content-type", "application/grpc");
                let mut body = answer.send_response(head.body(()).unwrap(), false).unwrap();
                let (code, text) = if request.uri().path().ends_with("StreamImages") {
                    ("12", "unknown method")
                } else {
                    let text = "grpc: trying to send message larger than max (200 vs. 100)";
                    ("8", text)
                };
                let mut end = HeaderMap::new();
                end.insert("grpc-status", code.parse().unwrap());
                end.insert("grpc-message", text.parse().unwrap());
                body.send_trailers(end).unwrap();
            }
        }
    });
    (dir, Client::new(settings), ends)
}

#[tokio::test]
async fn a_runtime_that_ends_when_it_compresses_is_asked_so_seldom() {
    let (_dir, client, ends) = client_of_server_that_ends();
    let mut refused = 0;
    while refused < BREAKS_MAX + 2 * LISTS_WITHOUT {
        let error = client.list_images().await.unwrap_err();
        // A call on a connection that just ended may be lost too.
        assert!(error.label() == "too-large" || error.is_lost(), "{error}");
        refused += u32::from(!error.is_lost());
    }
    assert_eq!(ends.load(Ordering::Relaxed), BREAKS_MAX + 1);
}
