//! Reading lists: over the socket, and the codec alone beside a full decode of the same bytes.

use crisweep_proto::cri;
use std::sync::Arc;
use std::time::Duration;

use crisweep::runtime::{Client, LogRoots, Settings};
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use prost::Message;

use crate::fixture::{fixture, runtime};
use crate::rows::rows;
use crate::{SIZES, node};

/// The simulated runtime runs in this process too, so its copying and encoding is included.
#[divan::bench(args = SIZES, sample_size = 1, max_time = 8)]
fn containers_unary(bencher: Bencher<'_, '_>, size: usize) {
    over_socket(bencher, size, false);
}

#[divan::bench(args = SIZES, sample_size = 1, max_time = 8)]
fn containers_streaming(bencher: Bencher<'_, '_>, size: usize) {
    over_socket(bencher, size, true);
}

fn over_socket(bencher: Bencher<'_, '_>, size: usize, streaming: bool) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let served = node::serve(node::node(size, node::now()), streaming);
    let client = Client::new(Settings {
        endpoint: served.sim.socket().to_owned(),
        image_endpoint: None,
        timeout: Duration::from_secs(60),
        removal_timeout: Duration::from_secs(60),
        max_message_bytes: node::MESSAGE_BYTES_MAX,
        log_roots: LogRoots::default(),
    });
    let list = || {
        let listed = runtime.block_on(client.list_containers());
        listed.expect("a list").rows.len()
    };
    assert_eq!(list(), size);
    bencher.bench_local(list);
}

#[divan::bench(args = SIZES, max_time = 5)]
fn codec_containers(bencher: Bencher<'_, '_>, size: usize) {
    let bytes = fixture(size).containers.clone();
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| rows::<cri::ContainerRow>(black_box(bytes.clone()), &Arc::default()));
}

#[divan::bench(args = SIZES, max_time = 5)]
fn codec_sandboxes(bencher: Bencher<'_, '_>, size: usize) {
    let bytes = fixture(size).sandboxes.clone();
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| rows::<cri::PodSandboxRow>(black_box(bytes.clone()), &Arc::default()));
}

/// For comparison: a client that decodes every field of the whole answer at once.
#[divan::bench(args = SIZES, max_time = 5)]
fn full_decode_containers(bencher: Bencher<'_, '_>, size: usize) {
    let bytes = fixture(size).containers.clone();
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| {
            cri::ListContainersResponse::decode(black_box(bytes.clone())).expect("a message")
        });
}
