//! Questions about one object, and removals.

use super::*;
use crisweep_sim::{ContainerSpec, SANDBOX_IMAGE};

#[tokio::test]
async fn statuses_of_existing_missing_and_other_objects() {
    let killed = ContainerSpec::exited("app", 0, hours(2))
        .exit_code(137)
        .reason("OOMKilled");
    let pod = PodSpec::new("killed").container(killed).not_ready();
    let rig = Rig::of(NodeBuilder::new().pod(pod), Options::default(), PATIENCE);
    let client = &rig.client;
    let container = rig.container("default/killed/app#0");
    let sandbox = rig.sandbox("default/killed#0");

    let status = client.container_status(&container).await.unwrap().unwrap();
    assert_eq!(
        (status.id, status.state),
        (container.clone(), ContainerState::Exited)
    );
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );
    let finished_at = rig.sim.container(container.as_str()).unwrap().finished_at;
    assert_eq!(
        status.finished_at.unwrap().as_nanosecond(),
        i128::from(finished_at)
    );
    let status = client.sandbox_status(&sandbox).await.unwrap().unwrap();
    assert_eq!(status.state, PodSandboxState::NotReady);

    let gone = client.container_status(&container_id("x")).await;
    assert_eq!(gone.unwrap(), None);
    let gone = client.sandbox_status(&sandbox_id("x")).await;
    assert_eq!(gone.unwrap(), None);

    // A runtime takes the beginning of an id for the id: the answer is about another object.
    let status = cri::ContainerStatus {
        id: format!("{container}0"),
        ..cri::ContainerStatus::default()
    };
    let answer = cri::ContainerStatusResponse {
        status: Some(status),
        ..cri::ContainerStatusResponse::default()
    };
    let answer = Fault::garbage(answer.encode_to_vec());
    rig.sim.set_fault(Rpc::ContainerStatus, answer);
    let error = client.container_status(&container).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("ContainerStatus: answer not understood: it is not about {container}")
    );
    let status = cri::PodSandboxStatus {
        id: format!("{sandbox}0"),
        ..cri::PodSandboxStatus::default()
    };
    let answer = cri::PodSandboxStatusResponse {
        status: Some(status),
        ..cri::PodSandboxStatusResponse::default()
    };
    let answer = Fault::garbage(answer.encode_to_vec());
    rig.sim.set_fault(Rpc::PodSandboxStatus, answer);
    let error = client.sandbox_status(&sandbox).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("PodSandboxStatus: answer not understood: it is not about {sandbox}")
    );
}

#[tokio::test]
async fn a_sandboxes_containers_are_its_own_whatever_the_server_filters() {
    let rig = Rig::new(Options::default());
    let sandbox = rig.sandbox("default/old-3#0");
    let mut expected = ["a#0", "b#0"].map(|name| rig.container(&format!("default/old-3/{name}")));
    expected.sort();
    for ignores_filters in [false, true] {
        rig.sim.conduct(|it| it.ignores_filters = ignores_filters);
        let held = rig.client.containers_of_sandbox(&sandbox).await.unwrap();
        let ids: Vec<_> = held.into_iter().map(|c| c.id).collect();
        assert_eq!(ids, expected);
    }
}

#[tokio::test]
async fn a_row_that_could_be_the_sandboxes_is_an_error() {
    let rig = Rig::new(Options::default());
    let message = list_of(vec![container("a", "")]);
    rig.sim
        .set_fault(Rpc::ListContainers, Fault::garbage(message));
    let held = rig.client.containers_of_sandbox(&sandbox_id("s1")).await;
    assert_eq!(
        held.unwrap_err().to_string(),
        "ListContainers: answer not understood: 1 rows lack a readable id"
    );
    let listed = rig.client.list_containers().await.unwrap();
    assert_eq!((listed.rows.len(), listed.malformed), (1, 0));
}

/// Makes every removal and stop.
async fn remove_all(rig: &Rig) -> Vec<Result<RemovalAnswer, Error>> {
    let (client, container) = (&rig.client, rig.container("default/old-0/a#0"));
    let sandbox = rig.sandbox("default/old-1#0");
    let stopped = client.stop_container(&container, Duration::ZERO).await;
    let removed = client.remove_container(&container).await;
    let stopped_sandbox = client.stop_pod_sandbox(&sandbox).await;
    let removals = vec![
        removed,
        client.remove_pod_sandbox(&sandbox).await,
        client.remove_image(SANDBOX_IMAGE, "").await,
    ];
    for (stopped, removed) in [stopped, stopped_sandbox].iter().zip(&removals) {
        assert_eq!(stopped.is_ok(), removed.is_ok(), "{stopped:?}");
    }
    removals
}

#[tokio::test]
async fn removing_a_missing_object_succeeds_and_other_refusals_fail() {
    for (refusal, expected) in [
        (None, Some(RemovalAnswer::Removed)),
        (
            Some(RpcStatus::not_found("no such thing")),
            Some(RemovalAnswer::NotFound),
        ),
        (
            Some(RpcStatus::unknown("container is already in removing state")),
            None,
        ),
    ] {
        let rig = Rig::new(Options::default());
        if let Some(refusal) = refusal {
            rig.fail(Rpc::ALL, &refusal);
        }
        for answer in remove_all(&rig).await {
            assert_eq!(answer.as_ref().ok(), expected.as_ref(), "{answer:?}");
            if let Err(error) = answer {
                assert_eq!(error.class(), FailureClass::Busy);
            }
        }
    }
}

#[tokio::test]
async fn no_removal_is_requested_for_an_image_without_a_name() {
    let rig = Rig::new(Options::default());
    let error = rig.client.remove_image("", "").await.unwrap_err();
    assert!(
        matches!(&error, Error::Status { status, .. } if status.code() == Code::InvalidArgument)
    );
    assert_eq!(rig.sim.calls(), []);
}

#[tokio::test]
async fn sandbox_images_and_file_systems_are_read() {
    let rig = Rig::new(Options::default());
    let images = rig.client.sandbox_images().await.unwrap();
    assert_eq!(images, [SANDBOX_IMAGE]);
    let info = rig.client.image_fs_info().await.unwrap();
    assert_eq!(info.image[0].mountpoint, rig.dir.path().to_str().unwrap());
}
