//! Lists: complete, exactly weighed, in the best way that the runtime has.

use super::*;
use crate::runtime::client::list_ways::{BREAKS_MAX, LISTS_WITHOUT};

/// A runtime that streams its lists in several messages.
fn streaming() -> Rig {
    Rig::new(Options {
        stream_rows: 4,
        ..Options::containerd_2_4()
    })
}

pub(super) fn image_weight(rig: &Rig) -> usize {
    let images = rig.sim.images();
    cri::ListImagesResponse { images }.encoded_len()
}

/// Reads the three lists, checks that they are complete and exactly weighed, returns how they were read.
async fn read_lists(rig: &Rig) -> [ListMode; 3] {
    let containers = rig.client.list_containers().await.unwrap();
    let sandboxes = rig.client.list_pod_sandboxes().await.unwrap();
    let images = rig.client.list_images().await.unwrap();
    let ids: Vec<_> = containers.rows.iter().map(|c| c.id.to_string()).collect();
    let there = rig.sim.containers().into_iter();
    assert_eq!(ids, there.map(|c| c.row.id).collect::<Vec<_>>());
    let lengths = (sandboxes.rows.len(), images.rows.len());
    let there = (rig.sim.sandboxes().len(), rig.sim.images().len());
    assert_eq!(lengths, there);
    let bytes = [
        containers.response_bytes,
        sandboxes.response_bytes,
        images.response_bytes,
    ];
    let weights = [rig.weigh_all(), rig.weigh_sandboxes(), image_weight(rig)];
    assert_eq!(bytes, weights.map(|n| n as u64));
    [containers.mode, sandboxes.mode, images.mode]
}

#[tokio::test]
async fn streamed_and_unary_lists_weigh_the_same() {
    let rig = streaming();
    rig.sim.conduct(|it| it.streaming = false);
    assert_eq!(read_lists(&rig).await, [ListMode::Unary; 3]);
    rig.sim.conduct(|it| it.streaming = true);
    rig.sim.restart().await.unwrap();
    rig.sim.clear_record();
    // The connection is new, so the streaming RPCs are tried again.
    rig.reconnected().await;
    assert_eq!(read_lists(&rig).await, [ListMode::Streaming; 3]);
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 0);
}

#[tokio::test]
async fn a_missing_streaming_rpc_is_remembered_for_the_connection() {
    let rig = Rig::new(Options::default());
    rig.client.version().await.unwrap();
    for _ in 0..3 {
        read_lists(&rig).await;
    }
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 3);
    for rpc in [
        Rpc::StreamContainers,
        Rpc::StreamPodSandboxes,
        Rpc::StreamImages,
    ] {
        assert_eq!(rig.sim.call_count(rpc), 1, "{rpc:?}");
    }
}

#[tokio::test]
async fn a_broken_stream_is_an_error_and_not_half_a_list() {
    let rig = streaming();
    let status = RpcStatus::unknown("the shelf fell over");
    rig.sim.conduct(|it| it.stream_break = Some((7, status)));
    let error = rig.client.list_containers().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "StreamContainers: Unknown: the shelf fell over"
    );
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 0);
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    for options in [Options::default(), Options::containerd_2_4()] {
        let rig = Rig::of(NodeBuilder::new(), options, PATIENCE);
        let listed = rig.client.list_containers().await.unwrap();
        assert_eq!((listed.rows.len(), listed.response_bytes), (0, 0));
    }
}

#[tokio::test]
async fn an_answer_at_our_limit_is_read_and_one_byte_past_it_is_too_large() {
    let rig = Rig::new(Options::default());
    let exact = image_weight(&rig);
    let client = |limit| rig.client_with(|settings| settings.max_message_bytes = limit);
    let listed = client(exact).list_images().await.unwrap();
    assert_eq!(listed.response_bytes, exact as u64);
    let whole = rig.weigh_all();
    for (limit, mode) in [(whole, ListMode::Unary), (whole - 1, ListMode::PerState)] {
        let listed = client(limit).list_containers().await.unwrap();
        assert_eq!((listed.mode, listed.response_bytes), (mode, whole as u64));
    }
    let error = client(exact - 1).list_images().await.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { bytes, limit, .. } if bytes == exact as u64 && limit == bytes - 1),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_list_over_the_servers_limit_names_its_size() {
    let rig = Rig::new(Options::default());
    let exact = image_weight(&rig);
    rig.sim.conduct(|it| it.send_limit_bytes = exact - 1);
    let error = rig.client.list_images().await.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { bytes, limit, .. } if bytes == exact as u64 && limit == bytes - 1),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_answer_of_sixteen_mebibytes_arrives() {
    let rig = Rig::new(Options::default());
    let rows = (0..24_000).map(|n| container(&format!("c{n:05}"), "s0"));
    let message = list_of(rows.collect());
    let weight = message.len();
    assert!(weight > 16 << 20);
    rig.sim
        .set_fault(Rpc::ListContainers, Fault::garbage(message));
    let listed = rig.client.list_containers().await.unwrap();
    assert_eq!(listed.response_bytes, weight as u64);
    assert_eq!(listed.rows.len(), 24_000);
}

/// Reads the list of containers, which must be whole and in one answer.
async fn read_unary(rig: &Rig) {
    let listed = rig.client.list_containers().await.unwrap();
    let length = rig.sim.containers().len();
    assert_eq!((listed.mode, listed.rows.len()), (ListMode::Unary, length));
}

#[tokio::test]
async fn a_stream_that_always_breaks_is_skipped_for_some_lists() {
    let rig = streaming();
    let status = RpcStatus::unavailable("a proxy gave up");
    rig.sim.conduct(|it| it.stream_break = Some((7, status)));
    for _ in 1..BREAKS_MAX {
        rig.client.list_containers().await.unwrap_err();
    }
    for streams in [BREAKS_MAX, BREAKS_MAX + 1] {
        // The list with the last try, and those without one.
        for _ in 0..=LISTS_WITHOUT {
            read_unary(&rig).await;
            let tried = rig.sim.call_count(Rpc::StreamContainers);
            assert_eq!(tried, u64::from(streams));
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_is_an_error_each_time_and_no_other_way_is_tried() {
    let refusals = [
        RpcStatus::permission_denied("not you"),
        RpcStatus::unauthenticated("who are you?"),
        RpcStatus::invalid_argument("what?"),
        RpcStatus::failed_precondition("not now"),
        RpcStatus::resource_exhausted("too many requests"),
    ];
    let rig = streaming();
    for refusal in refusals {
        let code = refusal.code();
        rig.sim.conduct(|it| it.stream_break = Some((7, refusal)));
        for _ in 0..2 * BREAKS_MAX {
            let list = rig.client.list_containers().await;
            let refused =
                matches!(&list, Err(Error::Status { status, .. }) if status.code() == code);
            assert!(refused, "{code:?}: {list:?}");
        }
        assert_eq!(rig.sim.call_count(Rpc::ListContainers), 0, "{code:?}");
    }
}

#[tokio::test]
async fn a_stream_that_always_hangs_is_replaced_where_the_unary_list_does_not() {
    let options = Options::containerd_2_4();
    let rig = Rig::of(node(), options, Duration::from_millis(500));
    rig.sim.set_fault(Rpc::StreamContainers, Fault::hang());
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    // A runtime that hangs altogether is asked twice each third time.
    for unary in [0, 0, 1, 1, 1, 2] {
        let error = rig.client.list_containers().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!(rig.sim.call_count(Rpc::ListContainers), unary);
    }
    rig.sim.clear_fault(Rpc::ListContainers);
    for _ in 1..BREAKS_MAX {
        rig.client.list_containers().await.unwrap_err();
    }
    rig.sim.clear_record();
    for _ in 0..=LISTS_WITHOUT {
        read_unary(&rig).await;
        assert_eq!(rig.sim.call_count(Rpc::StreamContainers), 1);
    }
}

#[tokio::test]
async fn a_stream_that_a_bug_ends_is_an_error_once_and_is_replaced_when_it_always_is() {
    for bug in [RpcStatus::internal("a bug"), RpcStatus::unknown("a bug")] {
        let rig = streaming();
        rig.sim.conduct(|it| it.stream_break = Some((7, bug)));
        for _ in 1..BREAKS_MAX {
            rig.client.list_containers().await.unwrap_err();
        }
        read_unary(&rig).await;
    }
}
