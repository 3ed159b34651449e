//! Lists: complete, exactly weighed, in the best way that the runtime has.

use super::*;
use crate::runtime::client::streams::{BREAKS_MAX, LISTS_WITHOUT};

/// Reads the three lists, checks that they are complete and exactly weighed, returns how they were read.
async fn read_lists(client: &Client, fake: &Fake) -> [ListMode; 3] {
    let containers = client.list_containers().await.unwrap();
    let sandboxes = client.list_pod_sandboxes().await.unwrap();
    let images = client.list_images().await.unwrap();
    let ids: Vec<_> = containers.rows.iter().map(|c| c.id.as_str()).collect();
    let expected: Vec<_> = fake.containers.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, expected);
    assert_eq!((sandboxes.rows.len(), images.rows.len()), (7, 5));
    let bytes = [
        containers.response_bytes,
        sandboxes.response_bytes,
        images.response_bytes,
    ];
    assert_eq!(bytes, weights(fake));
    [containers.mode, sandboxes.mode, images.mode]
}

#[tokio::test]
async fn streamed_and_unary_lists_weigh_the_same() {
    let (_dir, path, settings) = place();
    let unary = full_fake();
    let client = Client::new(settings);
    let server = unary.serve(&path);
    assert_eq!(read_lists(&client, &unary).await, [ListMode::Unary; 3]);
    drop(server);
    let streaming = Fake {
        rows_per_message: Some(4),
        ..full_fake()
    };
    let _server = streaming.serve(&path);
    // The connection is new, so the streaming RPCs are tried again.
    assert_eq!(
        read_after_restart(&client, &streaming).await,
        [ListMode::Streaming; 3]
    );
    assert_eq!(streaming.called("ListContainers"), 0);
}

/// Waits until the client has noticed that its old connection is gone, then reads the lists.
async fn read_after_restart(client: &Client, fake: &Fake) -> [ListMode; 3] {
    let reconnected = async {
        while let Err(error) = client.version().await {
            assert!(error.is_lost(), "{error}");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reconnected)
        .await
        .unwrap();
    read_lists(client, fake).await
}

#[tokio::test]
async fn a_missing_streaming_rpc_is_remembered_for_the_connection() {
    let (_dir, path, settings) = place();
    let fake = full_fake();
    let _server = fake.serve(&path);
    let client = Client::new(settings);
    client.version().await.unwrap();
    for _ in 0..3 {
        read_lists(&client, &fake).await;
    }
    assert_eq!(
        (
            fake.called("StreamContainers"),
            fake.called("ListContainers")
        ),
        (1, 3)
    );
    assert_eq!(
        (
            fake.called("StreamPodSandboxes"),
            fake.called("StreamImages")
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_broken_stream_is_an_error_and_not_half_a_list() {
    let (_dir, path, settings) = place();
    let fake = Fake {
        rows_per_message: Some(4),
        breaks_streams: Some(RpcStatus::unknown("the shelf fell over")),
        ..full_fake()
    };
    let _server = fake.serve(&path);
    let error = Client::new(settings).list_containers().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "StreamContainers: unknown: the shelf fell over"
    );
    assert_eq!(fake.called("ListContainers"), 0);
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    for rows_per_message in [None, Some(1)] {
        let (_dir, path, settings) = place();
        let _server = Fake {
            rows_per_message,
            ..Default::default()
        }
        .serve(&path);
        let listed = Client::new(settings).list_containers().await.unwrap();
        assert_eq!((listed.rows.len(), listed.response_bytes), (0, 0));
    }
}

#[tokio::test]
async fn an_answer_at_our_limit_is_read_and_one_byte_past_it_is_too_large() {
    let (_dir, path, settings) = place();
    let fake = full_fake();
    let _server = fake.serve(&path);
    let [weight, ..] = weights(&fake);
    let exact = usize::try_from(weight).unwrap();
    let client = |max_message_bytes| {
        Client::new(Settings {
            max_message_bytes,
            ..settings.clone()
        })
    };
    assert_eq!(
        client(exact)
            .list_containers()
            .await
            .unwrap()
            .response_bytes,
        weight
    );
    let error = client(exact - 1).list_containers().await.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { bytes, limit, .. } if bytes == weight && limit == weight - 1),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_list_over_the_servers_limit_tells_its_size() {
    let (_dir, path, settings) = place();
    let text = "grpc: trying to send message larger than max (19327280 vs. 16777216)";
    let refusal = Some(RpcStatus::resource_exhausted(text));
    let _server = Fake {
        refusal,
        ..full_fake()
    }
    .serve(&path);
    let error = Client::new(settings).list_containers().await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLarge {
                bytes: 19_327_280,
                limit: 16_777_216,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_answer_of_sixteen_mebibytes_arrives() {
    let (_dir, path, settings) = place();
    let containers = (0..24_000)
        .map(|n| container(&format!("c{n:05}"), "s0"))
        .collect();
    let fake = Fake {
        containers,
        ..Default::default()
    };
    let message = cri::ListContainersResponse {
        containers: fake.containers.clone(),
    };
    assert!(message.encoded_len() > 16 << 20);
    let _server = fake.serve(&path);
    let listed = Client::new(settings).list_containers().await.unwrap();
    assert_eq!(listed.response_bytes, message.encoded_len() as u64);
    assert_eq!(listed.rows.len(), 24_000);
}

/// Answers every call with these messages and ends without a status.
fn without_status(messages: &[&[u8]]) -> tonic::service::Routes {
    let mut body = Vec::new();
    for message in messages {
        body.push(0);
        body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend(*message);
    }
    let answer = move || async move { ([("content-type", "application/grpc")], body) };
    tonic::service::Routes::from(axum::Router::new().fallback(answer))
}

#[tokio::test]
async fn a_stream_that_ends_without_a_status_is_an_error_and_not_a_list() {
    let (_dir, path, settings) = place();
    let page = cri::ListContainersResponse {
        containers: vec![container("a", "s")],
    };
    for messages in [vec![], vec![page.encode_to_vec()]] {
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let _server = Server::start(&path, without_status(&messages));
        let list = Client::new(settings.clone()).list_containers().await;
        assert!(list.is_err(), "{list:?}");
    }
}

#[tokio::test]
async fn a_stream_that_always_breaks_is_skipped_for_some_lists() {
    let (_dir, path, settings) = place();
    let fake = Fake {
        rows_per_message: Some(4),
        breaks_streams: Some(RpcStatus::unavailable("a proxy gave up")),
        ..full_fake()
    };
    let _server = fake.serve(&path);
    let client = Client::new(settings);
    for _ in 1..BREAKS_MAX {
        client.list_containers().await.unwrap_err();
    }
    for streams in [BREAKS_MAX, BREAKS_MAX + 1] {
        // The list with the last try, and those without one.
        for _ in 0..=LISTS_WITHOUT {
            let listed = client.list_containers().await.unwrap();
            assert_eq!((listed.mode, listed.rows.len()), (ListMode::Unary, 25));
            assert_eq!(fake.called("StreamContainers"), streams as usize);
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
    for refusal in refusals {
        let (_dir, path, settings) = place();
        let code = refusal.code();
        let fake = Fake {
            rows_per_message: Some(4),
            breaks_streams: Some(refusal),
            ..full_fake()
        };
        let _server = fake.serve(&path);
        let client = Client::new(settings);
        for _ in 0..2 * BREAKS_MAX {
            let list = client.list_containers().await;
            let refused =
                matches!(&list, Err(Error::Status { status, .. }) if status.code() == code);
            assert!(refused, "{code:?}: {list:?}");
        }
        assert_eq!(fake.called("ListContainers"), 0, "{code:?}");
    }
}

#[tokio::test]
async fn a_stream_that_a_bug_ends_is_an_error_once_and_is_replaced_when_it_always_is() {
    for bug in [RpcStatus::internal("a bug"), RpcStatus::unknown("a bug")] {
        let (_dir, path, settings) = place();
        let fake = Fake {
            rows_per_message: Some(4),
            breaks_streams: Some(bug),
            ..full_fake()
        };
        let _server = fake.serve(&path);
        let client = Client::new(settings);
        for _ in 1..BREAKS_MAX {
            client.list_containers().await.unwrap_err();
        }
        let listed = client.list_containers().await.unwrap();
        assert_eq!((listed.mode, listed.rows.len()), (ListMode::Unary, 25));
    }
}
