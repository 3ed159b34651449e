mod answers;
mod lists;
mod objects;

use std::os::unix::net::UnixListener;

use prost::Message as _;
use tonic::{Code, Status as RpcStatus};

use super::*;
use crate::model::{ContainerState, FailureClass, PodSandboxState};
use crate::runtime::ListMode;
use crate::runtime::testing::{Fake, Server, place, raw_answer};

fn container(id: &str, sandbox: &str) -> cri::Container {
    cri::Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        state: cri::ContainerState::ContainerExited.into(),
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
            .map(|n| cri::PodSandbox {
                id: format!("s{n}"),
                state: 1,
                ..Default::default()
            })
            .collect(),
        images: (0..5)
            .map(|n| cri::Image {
                id: format!("i{n}"),
                size: n,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn weights(fake: &Fake) -> [u64; 3] {
    let containers = cri::ListContainersResponse {
        containers: fake.containers.clone(),
    };
    let sandboxes = cri::ListPodSandboxResponse {
        items: fake.sandboxes.clone(),
    };
    let images = cri::ListImagesResponse {
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
async fn a_socket_that_nothing_accepts_from_fails_every_call_within_its_timeout() {
    let (_dir, path, settings) = place();
    let listener = UnixListener::bind(&path).unwrap();
    // A backlog of 0 has room for one connection; the next would block.
    rustix::net::listen(&listener, 0).unwrap();
    let settings = Settings {
        timeout: Duration::from_millis(200),
        removal_timeout: Duration::from_millis(300),
        ..settings
    };
    let client = Client::new(settings.clone());
    let calls = async {
        // Connected, and never answered.
        let error = client.version().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        // The kernel has no room for a second connection: an immediate error, no wait.
        let second = Client::new(settings);
        let error = second.version().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(
            error.to_string().contains("temporarily unavailable"),
            "{error}"
        );
        assert!(second.list_containers().await.is_err());
        assert!(second.remove_container(&container_id("c0")).await.is_err());
        assert!(client.remove_container(&container_id("c0")).await.is_err());
    };
    let calls = tokio::time::timeout(Duration::from_secs(30), calls);
    calls.await.expect("each call ends by itself");
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
async fn the_image_service_may_have_a_socket_of_its_own() {
    let (dir, path, settings) = place();
    let image_path = dir.path().join("images.sock");
    let (runtime, images) = (full_fake(), full_fake());
    let _servers = (runtime.serve(&path), images.serve(&image_path));
    let client = Client::new(Settings {
        image_endpoint: Some(image_path),
        ..settings
    });
    client.list_containers().await.unwrap();
    client.list_images().await.unwrap();
    client.image_fs_info().await.unwrap();
    client.remove_image("i0", "").await.unwrap();
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
