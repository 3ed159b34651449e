use std::os::unix::net::UnixListener;

use prost::Message as _;
use tonic::{Code, Status as RpcStatus};

use super::*;
use crate::cri::ListMode;
use crate::cri::testing::{Fake, Server, place, raw_answer};
use crate::model::{ContainerState, PodSandboxState};
use crate::report::FailureClass;

fn container(id: &str, sandbox: &str) -> proto::Container {
    proto::Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        state: proto::ContainerState::ContainerExited.into(),
        annotations: [("heavy".into(), "x".repeat(700))].into(),
        ..Default::default()
    }
}

fn full_fake() -> Fake {
    Fake {
        name: "fake".into(),
        containers: (0..25)
            .map(|n| container(&format!("c{n:02}"), "s0"))
            .collect(),
        sandboxes: (0..7)
            .map(|n| proto::PodSandbox {
                id: format!("s{n}"),
                state: 1,
                ..Default::default()
            })
            .collect(),
        images: (0..5)
            .map(|n| proto::Image {
                id: format!("i{n}"),
                size: n,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn weights(fake: &Fake) -> [u64; 3] {
    let containers = proto::ListContainersResponse {
        containers: fake.containers.clone(),
    };
    let sandboxes = proto::ListPodSandboxResponse {
        items: fake.sandboxes.clone(),
    };
    let images = proto::ListImagesResponse {
        images: fake.images.clone(),
    };
    [
        containers.encoded_len(),
        sandboxes.encoded_len(),
        images.encoded_len(),
    ]
    .map(|n| n as u64)
}

fn container_id(id: &str) -> ContainerId {
    ContainerId::new(id).unwrap()
}

fn sandbox_id(id: &str) -> PodSandboxId {
    PodSandboxId::new(id).unwrap()
}

/// Reads the three lists, checks that they are whole and exactly weighed, returns how they were read.
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
        breaks_streams: true,
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
    let containers = (0..20_000)
        .map(|n| container(&format!("c{n:05}"), "s0"))
        .collect();
    let fake = Fake {
        containers,
        ..Default::default()
    };
    let message = proto::ListContainersResponse {
        containers: fake.containers.clone(),
    };
    assert!(message.encoded_len() > 14 << 20);
    let _server = fake.serve(&path);
    let listed = Client::new(settings).list_containers().await.unwrap();
    assert_eq!(listed.response_bytes, message.encoded_len() as u64);
    assert_eq!(listed.rows.len(), 20_000);
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_unreachable_until_it_is() {
    let (_dir, path, settings) = place();
    let client = Client::new(settings);
    let error = client.version().await.unwrap_err();
    let expected = format!(
        "Version: no connection to {}: no such file or directory",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(error.is_lost());
    let _server = full_fake().serve(&path);
    let version = client.version().await.unwrap();
    assert_eq!(
        version,
        Version {
            runtime: "fake".into(),
            version: "1.2.3".into()
        }
    );
}

#[tokio::test]
async fn a_runtime_that_dies_in_mid_call_is_lost() {
    let (_dir, path, settings) = place();
    let fake = Fake {
        hangs: true,
        ..Default::default()
    };
    let server = fake.serve(&path);
    let client = Client::new(settings);
    let call = tokio::spawn(async move { client.version().await });
    let asked = async {
        while fake.called("Version") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), asked)
        .await
        .unwrap();
    drop(server);
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(
        (error.label(), error.is_lost()),
        ("unreachable", true),
        "{error}"
    );
}

#[tokio::test]
async fn a_silent_runtime_times_out() {
    let (_dir, path, settings) = place();
    let settings = Settings {
        timeout: Duration::from_millis(100),
        ..settings
    };
    let client = Client::new(settings);
    // It takes connections into its backlog and never reads.
    let silent = UnixListener::bind(&path).unwrap();
    let error = client.version().await.unwrap_err();
    assert_eq!(error.to_string(), "Version: no answer within 100ms");
    let error = client.list_containers().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "StreamContainers: no answer within 100ms"
    );
    drop(silent);

    let fake = Fake {
        hangs: true,
        ..Default::default()
    };
    let _server = fake.serve(&path);
    let answered = async {
        loop {
            let error = client.version().await.unwrap_err();
            if error.is_timeout() {
                break error;
            }
            assert!(error.is_lost(), "{error}");
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(10), answered)
        .await
        .unwrap();
    assert_eq!(
        (error.label(), error.class()),
        ("timeout", FailureClass::Timeout)
    );
}

#[tokio::test]
async fn every_call_tells_the_runtime_its_deadline() {
    let (_dir, path, settings) = place();
    let fake = full_fake();
    let _server = fake.serve(&path);
    let settings = Settings {
        timeout: Duration::from_secs(5),
        removal_timeout: Duration::from_secs(60),
        ..settings
    };
    let client = Client::new(settings);
    client.version().await.unwrap();
    client.list_containers().await.unwrap();
    client.remove_container(&container_id("c0")).await.unwrap();
    client
        .stop_container(&container_id("c0"), Duration::from_millis(2_500))
        .await
        .unwrap();
    let seconds = |method| {
        let text = fake.deadline_of(method);
        let (number, unit) = text.split_at(text.len() - 1);
        let scale = match unit {
            "n" => 1e-9,
            "u" => 1e-6,
            "m" => 1e-3,
            "S" => 1.0,
            other => panic!("unit {other}"),
        };
        number.parse::<f64>().unwrap() * scale
    };
    let near =
        |method, expected: f64| assert!((seconds(method) - expected).abs() < 0.01, "{method}");
    near("Version", 5.0);
    near("StreamContainers", 5.0);
    near("ListContainers", 5.0);
    near("RemoveContainer", 60.0);
    near("StopContainer", 62.5);
}

#[tokio::test]
async fn a_deadline_without_end_is_cut_and_not_a_panic() {
    let (_dir, path, settings) = place();
    let _server = full_fake().serve(&path);
    let client = Client::new(Settings {
        timeout: Duration::MAX,
        ..settings
    });
    client.version().await.unwrap();
}

#[tokio::test]
async fn a_starting_runtime_is_not_ready() {
    let (_dir, path, settings) = place();
    let refusal = Some(RpcStatus::unknown("server is not initialized yet"));
    let _server = Fake {
        refusal,
        ..Default::default()
    }
    .serve(&path);
    let error = Client::new(settings).version().await.unwrap_err();
    assert_eq!((error.label(), error.is_lost()), ("not-ready", true));
}

#[tokio::test]
async fn statuses_of_what_is_there_gone_or_another() {
    let (_dir, path, settings) = place();
    let _server = full_fake().serve(&path);
    let client = Client::new(settings);

    let status = client
        .container_status(&container_id("c07"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (status.id.as_str(), status.state),
        ("c07", ContainerState::Exited)
    );
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );
    assert_eq!(status.finished_at.unwrap().as_second(), 5);
    let status = client
        .sandbox_status(&sandbox_id("s3"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.state, PodSandboxState::NotReady);

    assert_eq!(
        client.container_status(&container_id("x")).await.unwrap(),
        None
    );
    assert_eq!(client.sandbox_status(&sandbox_id("x")).await.unwrap(), None);

    let error = client
        .container_status(&container_id("c"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ContainerStatus: answer not understood: it is not about c"
    );
    let error = client.sandbox_status(&sandbox_id("s")).await.unwrap_err();
    assert_eq!(error.label(), "malformed");
}

#[tokio::test]
async fn a_sandboxes_containers_are_its_own_whatever_the_server_filters() {
    for ignores_filters in [false, true] {
        let (_dir, path, settings) = place();
        let containers = vec![
            container("a", "s1"),
            container("b", "s2"),
            container("c", "s1"),
        ];
        let _server = Fake {
            containers,
            ignores_filters,
            ..Default::default()
        }
        .serve(&path);
        let held = Client::new(settings)
            .containers_of_sandbox(&sandbox_id("s1"))
            .await
            .unwrap();
        let ids: Vec<_> = held.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["a", "c"]);
    }
}

#[tokio::test]
async fn a_row_that_could_be_the_sandboxes_is_an_error() {
    let (_dir, path, settings) = place();
    let containers = vec![container("a", "")];
    let _server = Fake {
        containers,
        ignores_filters: true,
        ..Default::default()
    }
    .serve(&path);
    let client = Client::new(settings);
    let error = client
        .containers_of_sandbox(&sandbox_id("s1"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ListContainers: answer not understood: 1 rows lack an id"
    );
    let listed = client.list_containers().await.unwrap();
    assert_eq!((listed.rows.len(), listed.malformed), (0, 1));
}

/// Makes every removal and stop, in the order of their names here.
async fn remove_all(client: &Client) -> Vec<Result<(), Error>> {
    let (container, sandbox) = (container_id("c00"), sandbox_id("s0"));
    vec![
        client
            .stop_container(&container, Duration::from_millis(2_500))
            .await,
        client.remove_container(&container).await,
        client.stop_pod_sandbox(&sandbox).await,
        client.remove_pod_sandbox(&sandbox).await,
        client.remove_image("i0").await,
    ]
}

#[tokio::test]
async fn removing_what_is_gone_is_success_and_other_refusals_are_not() {
    for (refusal, expected) in [
        (None, true),
        (Some(RpcStatus::not_found("no such thing")), true),
        (
            Some(RpcStatus::unknown("container is already in removing state")),
            false,
        ),
    ] {
        let (_dir, path, settings) = place();
        let _server = Fake {
            refusal,
            ..full_fake()
        }
        .serve(&path);
        for answer in remove_all(&Client::new(settings)).await {
            assert_eq!(answer.is_ok(), expected, "{answer:?}");
            if let Err(error) = answer {
                assert_eq!(error.class(), FailureClass::Busy);
            }
        }
    }
}

#[tokio::test]
async fn an_image_without_a_name_is_never_asked_to_go() {
    let (_dir, path, settings) = place();
    let fake = full_fake();
    let _server = fake.serve(&path);
    let error = Client::new(settings).remove_image("").await.unwrap_err();
    assert!(
        matches!(&error, Error::Status { status, .. } if status.code() == Code::InvalidArgument)
    );
    assert_eq!(fake.called("RemoveImage"), 0);
}

#[tokio::test]
async fn the_image_service_may_have_a_socket_of_its_own() {
    let (dir, path, settings) = place();
    let image_path = dir.path().join("images.sock");
    let (runtime, images) = (full_fake(), full_fake());
    let _servers = (runtime.serve(&path), images.serve(&image_path));
    let client = Client::new(Settings {
        image_endpoint: Some(image_path),
        ..settings
    });
    read_lists(&client, &runtime).await;
    client.image_fs_info().await.unwrap();
    client.remove_image("i0").await.unwrap();
    assert_eq!(
        (
            runtime.called("ListContainers"),
            images.called("ListContainers")
        ),
        (1, 0)
    );
    for method in ["ListImages", "ImageFsInfo", "RemoveImage"] {
        assert_eq!(
            (runtime.called(method), images.called(method)),
            (0, 1),
            "{method}"
        );
    }
}

#[tokio::test]
async fn status_and_file_systems_are_read() {
    let (_dir, path, settings) = place();
    let _server = full_fake().serve(&path);
    let client = Client::new(settings);
    let status = client.status().await.unwrap();
    assert_eq!(status.sandbox_image.as_deref(), Some("pause:3.9"));
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|c| (&*c.name, c.holds))
        .collect();
    assert_eq!(conditions, [("NetworkReady", false)]);
    assert_eq!(
        client.image_fs_info().await.unwrap().image[0].mountpoint,
        "/img"
    );
}

#[tokio::test]
async fn bytes_that_are_not_protobuf_are_malformed() {
    let (_dir, path, settings) = place();
    let _server = Server::start(&path, raw_answer(&[0xff; 12]));
    let client = Client::new(settings);
    for error in [
        client.version().await.unwrap_err(),
        client.list_containers().await.unwrap_err(),
        client.image_fs_info().await.unwrap_err(),
        client
            .containers_of_sandbox(&sandbox_id("s1"))
            .await
            .unwrap_err(),
        client
            .container_status(&container_id("c1"))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(
            (error.label(), error.is_lost()),
            ("malformed", false),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_peer_that_does_not_speak_grpc_is_an_error() {
    let (_dir, path, settings) = place();
    let router = axum::Router::new().fallback(|| async { "hello" });
    let _server = Server::start(&path, router.into());
    let client = Client::new(settings);
    assert!(client.version().await.is_err());
    assert!(client.list_containers().await.is_err());
}
