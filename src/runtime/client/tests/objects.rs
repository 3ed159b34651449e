//! Questions about one object, and removals.

use super::*;

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
    assert_eq!((listed.rows.len(), listed.malformed), (1, 0));
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
        client.remove_image("i0", "").await,
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
    let error = Client::new(settings)
        .remove_image("", "")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Status { status, .. } if status.code() == Code::InvalidArgument)
    );
    assert_eq!(fake.called("RemoveImage"), 0);
}

#[tokio::test]
async fn status_and_file_systems_are_read() {
    let (_dir, path, settings) = place();
    let _server = full_fake().serve(&path);
    let client = Client::new(settings);
    let status = client.status().await.unwrap();
    assert_eq!(status.sandbox_images, ["pause:3.9"]);
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
