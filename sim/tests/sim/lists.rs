//! Lists: filters, weight, limit, streams.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use prost::Message;

use super::*;

fn shop() -> NodeBuilder {
    NodeBuilder::new()
        .pod(
            PodSpec::new("web")
                .namespace("shop")
                .failed("app", 0, hours(2))
                .running("app", 1),
        )
        .pod(PodSpec::new("db").namespace("shop").running("db", 0))
        .pod(PodSpec::new("job").deleted().exited("main", 0, hours(1)))
}

async fn subjects(rig: &Rig, filter: cri::ContainerFilter) -> Vec<String> {
    let rows = rig.list(Some(filter)).await.unwrap();
    let subject = |row: &cri::Container| rig.sim.container(&row.id).unwrap().subject;
    let mut subjects: Vec<String> = rows.iter().map(subject).collect();
    subjects.sort();
    subjects
}

#[tokio::test]
async fn filters_must_all_match() {
    let rig = Rig::new(shop(), Options::default()).await;
    let state = |state: ContainerState| {
        Some(cri::ContainerStateValue {
            state: state.into(),
        })
    };
    let exited = state(ContainerState::ContainerExited);
    let of_shop = BTreeMap::from([("io.kubernetes.pod.namespace".to_owned(), "shop".to_owned())]);
    let empty = cri::ContainerFilter::default;

    assert_eq!(rig.list(None).await.unwrap().len(), 4);
    assert_eq!(subjects(&rig, empty()).await.len(), 4);
    let filter = cri::ContainerFilter {
        state: exited,
        ..empty()
    };
    assert_eq!(
        subjects(&rig, filter).await,
        ["default/job/main#0", "shop/web/app#0"]
    );
    let filter = cri::ContainerFilter {
        state: exited,
        label_selector: of_shop.clone(),
        ..empty()
    };
    assert_eq!(subjects(&rig, filter).await, ["shop/web/app#0"]);
    let web = rig.sandbox("shop/web#0");
    let filter = cri::ContainerFilter {
        pod_sandbox_id: web.clone(),
        ..empty()
    };
    assert_eq!(
        subjects(&rig, filter).await,
        ["shop/web/app#0", "shop/web/app#1"]
    );
    let id = rig.container("shop/web/app#1");
    let filter = cri::ContainerFilter {
        id: id.clone(),
        ..empty()
    };
    assert_eq!(subjects(&rig, filter).await, ["shop/web/app#1"]);
    let filter = cri::ContainerFilter {
        id: id.clone(),
        pod_sandbox_id: web,
        ..empty()
    };
    assert_eq!(subjects(&rig, filter).await, ["shop/web/app#1"]);
    let filter = cri::ContainerFilter {
        id,
        state: exited,
        ..empty()
    };
    assert!(subjects(&rig, filter).await.is_empty());
    let filter = cri::ContainerFilter {
        id: "ffff0000".into(),
        ..empty()
    };
    assert!(subjects(&rig, filter).await.is_empty());
}

#[tokio::test]
async fn sandboxes_filter_by_state_label_and_id() {
    let rig = Rig::new(shop(), Options::default()).await;
    let state = PodSandboxState::SandboxNotready.into();
    let filter = cri::PodSandboxFilter {
        state: Some(cri::PodSandboxStateValue { state }),
        ..Default::default()
    };
    let rows = rig.list_sandboxes(Some(filter)).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>(),
        [rig.sandbox("default/job#0")]
    );
    let uid = rig.sim.pod_uid("shop/db").unwrap();
    let filter = cri::PodSandboxFilter {
        label_selector: BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), uid)]),
        ..Default::default()
    };
    let rows = rig.list_sandboxes(Some(filter)).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>(),
        [rig.sandbox("shop/db#0")]
    );
    let id = rig.sandbox("shop/web#0");
    let filter = cri::PodSandboxFilter {
        id,
        ..Default::default()
    };
    assert_eq!(rig.list_sandboxes(Some(filter)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_limit_is_the_exact_size_and_says_so() {
    let rig = Rig::new(shop(), Options::default()).await;
    let containers = rig.list(None).await.unwrap();
    let size = cri::ListContainersResponse { containers }.encoded_len();
    rig.sim.conduct(|it| it.send_limit_bytes = size);
    assert_eq!(rig.list(None).await.unwrap().len(), 4);
    rig.sim.conduct(|it| it.send_limit_bytes = size - 1);
    let refused = rig.list(None).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let limit = size - 1;
    let text = format!("grpc: trying to send message larger than max ({size} vs. {limit})");
    assert_eq!(refused.message(), text);
    let filter = cri::ContainerFilter {
        id: rig.container("shop/web/app#1"),
        ..Default::default()
    };
    assert_eq!(
        rig.list(Some(filter)).await.unwrap().len(),
        1,
        "a subset that fits is sent"
    );
}

#[tokio::test]
async fn an_answer_over_four_mebibytes_is_sent_and_rows_weigh_what_real_ones_do() {
    let node = NodeBuilder::new().pods(4_500, |n| {
        let name = format!("payments-{n:04}-5d8f9c7b6-x2k4q");
        PodSpec::new(&name)
            .namespace("shop-prod")
            .deleted()
            .failed("payments-api", 3, hours(1))
    });
    let rig = Rig::new(node, Options::default()).await;
    let containers = rig.list(None).await.unwrap();
    let weight = cri::ListContainersResponse { containers }.encoded_len();
    assert!(weight > 4 << 20, "{weight}");
    assert!(
        (950..1_100).contains(&(weight / 4_500)),
        "{}",
        weight / 4_500
    );
    let items = rig.list_sandboxes(None).await.unwrap();
    let weight = cri::ListPodSandboxResponse { items }.encoded_len();
    assert!(
        (1_200..1_350).contains(&(weight / 4_500)),
        "{}",
        weight / 4_500
    );
}

async fn stream(rig: &Rig) -> Result<Vec<usize>, Status> {
    let request = cri::StreamContainersRequest { filter: None };
    let messages = rig
        .runtime
        .clone()
        .stream_containers(request)
        .await?
        .into_inner();
    messages
        .map_ok(|message| message.containers.len())
        .try_collect()
        .await
}

#[tokio::test]
async fn streams_carry_5000_rows_a_message_where_the_runtime_has_them() {
    let node = NodeBuilder::new().pods(1, |_| {
        (0..7_000).fold(PodSpec::new("many").deleted(), |pod, n| {
            pod.exited("app", n, hours(1))
        })
    });
    let rig = Rig::new(node, Options::default()).await;
    assert_eq!(stream(&rig).await.unwrap_err().code(), Code::Unimplemented);
    rig.sim.conduct(|it| it.streaming = true);
    assert_eq!(stream(&rig).await.unwrap(), [5_000, 2_000]);
    rig.sim
        .conduct(|it| it.stream_break = Some((1, Status::unavailable("EOF"))));
    assert_eq!(stream(&rig).await.unwrap_err().code(), Code::Unavailable);
    rig.sim.conduct(|it| it.stream_break = None);
    rig.sim.conduct(|it| it.send_limit_bytes = 3_000_000);
    assert_eq!(
        stream(&rig).await.unwrap_err().code(),
        Code::ResourceExhausted
    );
}

#[tokio::test]
async fn sandboxes_and_images_stream_too() {
    let rig = Rig::new(shop(), Options::containerd_2_4()).await;
    let request = cri::StreamPodSandboxesRequest { filter: None };
    let mut messages = rig
        .runtime
        .clone()
        .stream_pod_sandboxes(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        messages
            .message()
            .await
            .unwrap()
            .unwrap()
            .pod_sandboxes
            .len(),
        3
    );
    let request = cri::StreamImagesRequest { filter: None };
    let mut messages = rig
        .images
        .clone()
        .stream_images(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(messages.message().await.unwrap().unwrap().images.len(), 2);
}

#[tokio::test]
async fn status_carries_what_lists_do_not() {
    let killed = ContainerSpec::exited("app", 0, hours(2))
        .exit_code(137)
        .reason("OOMKilled");
    let rig = Rig::with(PodSpec::new("web").container(killed)).await;
    let status = rig
        .status(&rig.container("default/web/app#0"))
        .await
        .unwrap();
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );
    let run = status.finished_at - status.started_at;
    assert_eq!(
        (status.started_at, run),
        (status.created_at, 10_000_000_000)
    );
    let uid = rig.sim.pod_uid("default/web").unwrap();
    assert_eq!(
        status.log_path,
        format!("/var/log/pods/default_web_{uid}/app/0.log")
    );
}

#[tokio::test]
async fn the_runtime_names_its_sandbox_image_and_file_system() {
    let rig = Rig::new(shop(), Options::default()).await;
    let request = cri::StatusRequest { verbose: true };
    let status = rig
        .runtime
        .clone()
        .status(request)
        .await
        .unwrap()
        .into_inner();
    let config: serde_json::Value = serde_json::from_str(&status.info["config"]).unwrap();
    assert_eq!(config["sandboxImage"], SANDBOX_IMAGE);
    let request = cri::ImageFsInfoRequest {};
    let info = rig
        .images
        .clone()
        .image_fs_info(request)
        .await
        .unwrap()
        .into_inner();
    let usage = &info.image_filesystems[0];
    let mountpoint = &usage.fs_id.as_ref().unwrap().mountpoint;
    assert_eq!(mountpoint, &rig.directory.path().display().to_string());
    assert!(usage.used_bytes.unwrap().value > 0);
    assert!(info.container_filesystems.is_empty());
}
