mod fuzz;

use super::*;
use crate::model::{Labels, PodUid};

const UID: &str = "0b5ad5c4-5b3c-4d9e-8f0a-3c5d9a6f1e22";

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn model<R: WireRow>(row: R) -> R::Model {
    row.into_model(&mut Interner::default()).unwrap()
}

fn is_malformed<R: WireRow>(row: R) -> bool {
    row.into_model(&mut Interner::default()).is_err()
}

fn entries_of(pairs: &[(&str, &str)]) -> Vec<cri::EntryRow> {
    let entry = |(key, value)| cri::EntryRow {
        key: Bytes::from(key),
        value: Bytes::from(value),
    };
    labels(pairs).into_iter().map(entry).collect()
}

fn kubelet_labels() -> Vec<cri::EntryRow> {
    entries_of(&[
        (POD_UID_LABEL, UID),
        (POD_NAMESPACE_LABEL, "shop"),
        (POD_NAME_LABEL, "web-0"),
        ("io.kubernetes.container.name", "app"),
        ("app", "web"),
    ])
}

fn container_row() -> cri::ContainerRow {
    cri::ContainerRow {
        id: "c1".into(),
        pod_sandbox_id: "s1".into(),
        metadata: Some(cri::ContainerMetadataRow {
            name: "app".into(),
            attempt: 3,
        }),
        image: Some(cri::ContainerImageRow {
            image: "docker.io/library/web:1".into(),
            user_specified_image: "web:1".into(),
            runtime_handler: "kata".into(),
        }),
        image_ref: "sha256:ref".into(),
        state: cri::ContainerState::ContainerExited.into(),
        created_at: 1_700_000_000_000_000_001,
        labels: kubelet_labels(),
        image_id: Bytes::new(),
    }
}

fn sandbox_row() -> cri::PodSandboxRow {
    cri::PodSandboxRow {
        id: "s1".into(),
        metadata: Some(cri::PodSandboxMetadataRow {
            name: "web-0".into(),
            uid: UID.into(),
            namespace: "shop".into(),
            attempt: 2,
        }),
        state: cri::PodSandboxState::SandboxNotready.into(),
        created_at: 1_700_000_000_000_000_000,
        labels: kubelet_labels(),
        annotations: Vec::new(),
    }
}

fn web_pod() -> PodRef {
    PodRef {
        uid: PodUid::new(UID).unwrap(),
        namespace: "shop".into(),
        name: "web-0".into(),
    }
}

#[test]
fn a_whole_container_row_is_read_whole() {
    let container = model(container_row());
    let expected = Container {
        id: ContainerId::new("c1").unwrap(),
        sandbox_id: PodSandboxId::new("s1").unwrap(),
        name: "app".into(),
        attempt: 3,
        state: ContainerState::Exited,
        created_at: "2023-11-14T22:13:20.000000001Z".parse().unwrap(),
        finished_at: None,
        exit_undated: false,
        pod: Some(Arc::new(web_pod())),
        image: Arc::new(ContainerImage {
            names: ["sha256:ref", "docker.io/library/web:1", "web:1"]
                .map(String::from)
                .into(),
            handler: "kata".into(),
        }),
        labels: labels(&[("app", "web")]).into_iter().collect(),
    };
    assert_eq!(container, expected);
}

#[test]
fn a_container_row_without_an_id_gets_a_stand_in_id() {
    let homeless = cri::ContainerRow {
        pod_sandbox_id: Bytes::new(),
        ..container_row()
    };
    assert!(model(homeless).sandbox_id.is_stand_in());
    let nameless = |state: cri::ContainerState| {
        let row = cri::ContainerRow {
            id: Bytes::new(),
            state: state.into(),
            ..container_row()
        };
        let container = model(row);
        assert!(container.id.is_stand_in() && !container.sandbox_id.is_stand_in());
        (container.state, container.pod.is_some())
    };
    // It holds its sandbox and its image, and is never removed.
    let exited = (ContainerState::Exited, false);
    assert_eq!(nameless(cri::ContainerState::ContainerExited), exited);
    let running = (ContainerState::Running, true);
    assert_eq!(nameless(cri::ContainerState::ContainerCreated), running);
    assert_eq!(nameless(cri::ContainerState::ContainerRunning), running);
}

#[test]
fn rows_without_ids_are_malformed() {
    let nameless = cri::ContainerRow {
        id: Bytes::new(),
        ..container_row()
    };
    let homeless = cri::ContainerRow {
        pod_sandbox_id: Bytes::new(),
        ..nameless
    };
    assert!(is_malformed(homeless));
    let sandbox = cri::PodSandboxRow {
        id: Bytes::new(),
        ..sandbox_row()
    };
    assert!(is_malformed(sandbox));
    assert!(is_malformed(cri::ImageRow::default()));
}

/// A label whose value is not UTF-8.
fn bad_label(key: &'static str) -> cri::EntryRow {
    cri::EntryRow {
        key: key.into(),
        value: Bytes::from_static(b"a\xff"),
    }
}

#[test]
fn a_row_whose_identity_is_not_utf_8_is_malformed() {
    let bad = || Bytes::from_static(b"\xff");
    let mut rows = vec![container_row(); 9];
    rows[0].id = bad();
    rows[1].pod_sandbox_id = bad();
    rows[2].metadata.as_mut().unwrap().name = bad();
    rows[3].image.as_mut().unwrap().image = bad();
    rows[4].image.as_mut().unwrap().user_specified_image = bad();
    rows[5].image.as_mut().unwrap().runtime_handler = bad();
    rows[6].image_ref = bad();
    rows[7].image_id = bad();
    rows[8].labels.push(bad_label(POD_UID_LABEL));
    for row in rows {
        assert!(is_malformed(row.clone()), "{row:?}");
    }
    let mut rows = vec![sandbox_row(); 5];
    rows[0].id = bad();
    rows[1].metadata.as_mut().unwrap().name = bad();
    rows[2].metadata.as_mut().unwrap().uid = bad();
    rows[3].metadata.as_mut().unwrap().namespace = bad();
    rows[4].labels.push(bad_label(POD_NAMESPACE_LABEL));
    for row in rows {
        assert!(is_malformed(row.clone()), "{row:?}");
    }
}

#[test]
fn other_labels_and_annotations_that_are_not_utf_8_are_read_as_far_as_they_are() {
    let expected = |labels: Labels| {
        let key = Some("a\u{fffd}");
        (labels.get("z") == key, labels.get("app") == Some("web"))
    };
    let mut row = container_row();
    row.labels.push(bad_label("z"));
    assert_eq!(expected(model(row).labels), (true, true));
    let mut row = sandbox_row();
    row.labels.push(bad_label("z"));
    row.annotations.push(bad_label("z"));
    assert_eq!(expected(model(row).labels), (true, true));
    let status = cri::ContainerStatus {
        id: "c1".into(),
        labels: vec![bad_label("z")],
        ..Default::default()
    };
    let status = cri::ContainerStatus::decode(&*status.encode_to_vec()).unwrap();
    assert!(container_status(&ContainerId::new("c1").unwrap(), status).is_ok());
}

#[test]
fn of_two_labels_with_the_same_key_the_later_one_counts() {
    let mut row = container_row();
    row.labels = [("b", "1"), ("a", "1"), ("b", "2"), ("b", "3")]
        .map(|(key, value)| cri::EntryRow {
            key: key.into(),
            value: value.into(),
        })
        .into();
    let expected = labels(&[("a", "1"), ("b", "3")]).into_iter().collect();
    assert_eq!(model(row).labels, expected);
}

#[test]
fn rows_with_the_same_pod_share_it_and_a_pod_with_the_same_uid_and_another_name_is_another() {
    let mut shared = Interner::default();
    let mut pod = |name: &'static str| {
        let mut row = sandbox_row();
        row.metadata.as_mut().unwrap().name = name.into();
        row.into_model(&mut shared).unwrap().pod.unwrap()
    };
    let (first, second, other, again) = (pod("a"), pod("a"), pod("b"), pod("a"));
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!((&*other.name, &*again.name), ("b", "a"));
    assert_eq!(first, again);
}

#[test]
fn a_container_without_metadata_still_holds_its_sandbox() {
    let row = cri::ContainerRow {
        metadata: None,
        ..container_row()
    };
    let container = model(row);
    assert_eq!(container.sandbox_id.as_str(), "s1");
    assert_eq!((container.name.as_str(), container.pod), ("", None));
}

#[test]
fn a_container_has_a_pod_only_with_a_uid_label() {
    let pod_of = |pairs: &[(&str, &str)]| {
        let row = cri::ContainerRow {
            labels: entries_of(pairs),
            ..container_row()
        };
        model(row).pod
    };
    assert_eq!(pod_of(&[]), None);
    assert_eq!(
        pod_of(&[(POD_UID_LABEL, ""), (POD_NAME_LABEL, "web-0")]),
        None
    );
    let bare = PodRef {
        namespace: "".into(),
        name: "".into(),
        ..web_pod()
    };
    assert_eq!(pod_of(&[(POD_UID_LABEL, UID)]), Some(Arc::new(bare)));
}

#[test]
fn a_sandbox_has_a_pod_only_if_label_and_metadata_agree() {
    let pod_of = |label: Option<&str>, metadata: Option<&str>| {
        let metadata = metadata.map(|uid| cri::PodSandboxMetadataRow {
            uid: uid.to_owned().into(),
            ..sandbox_row().metadata.unwrap()
        });
        let labels = label
            .map(|uid| entries_of(&[(POD_UID_LABEL, uid)]))
            .unwrap_or_default();
        let row = cri::PodSandboxRow {
            labels,
            metadata,
            ..sandbox_row()
        };
        model(row).pod
    };
    assert_eq!(pod_of(Some(UID), Some(UID)), Some(Arc::new(web_pod())));
    assert_eq!(pod_of(Some(UID), Some("other")), None);
    assert_eq!(pod_of(Some(UID), Some("")), None);
    assert_eq!(pod_of(Some(""), Some("")), None);
    assert_eq!(pod_of(None, Some(UID)), None);
    assert_eq!(pod_of(Some(UID), None), None);
}

#[test]
fn an_unknown_state_number_keeps_the_object() {
    let container = |state| {
        model(cri::ContainerRow {
            state,
            ..container_row()
        })
    };
    let states = [0, 1, 2, 3, 4, -1].map(|number| container(number).state);
    let expected = [
        ContainerState::Created,
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Unknown,
        ContainerState::Unknown,
        ContainerState::Unknown,
    ];
    assert_eq!(states, expected);

    let sandbox = |state| {
        model(cri::PodSandboxRow {
            state,
            ..sandbox_row()
        })
    };
    let states = [0, 1, 2, -1].map(|number| sandbox(number).state);
    let expected = [
        PodSandboxState::Ready,
        PodSandboxState::NotReady,
        PodSandboxState::Ready,
        PodSandboxState::Ready,
    ];
    assert_eq!(states, expected);
}

#[test]
fn an_unknown_creation_is_young_and_an_unknown_exit_is_none() {
    for unknown in [0, -1, i64::MIN] {
        let row = cri::ContainerRow {
            created_at: unknown,
            ..container_row()
        };
        assert_eq!(model(row).created_at, Timestamp::MAX);
        let row = cri::PodSandboxRow {
            created_at: unknown,
            ..sandbox_row()
        };
        assert_eq!(model(row).created_at, Timestamp::MAX);
        assert_eq!(moment(unknown), None);
    }
    assert_eq!(moment(1), Some(Timestamp::from_nanosecond(1).unwrap()));
    assert!(moment(i64::MAX).is_some());
}

#[test]
fn an_image_has_every_name_that_the_runtime_gives_once() {
    let row = cri::ContainerRow {
        image_id: "sha256:ref".into(),
        image: None,
        ..container_row()
    };
    let image = model(row).image;
    assert_eq!(image.names, ["sha256:ref"]);
    assert_eq!(image.handler, "");
}

#[test]
fn a_whole_image_row_is_read_whole() {
    let row = cri::ImageRow {
        id: "sha256:1".into(),
        repo_tags: vec!["a:1".into()],
        repo_digests: vec!["a@sha256:2".into()],
        size: 7,
        spec: None,
        pinned: true,
    };
    let expected = Image {
        id: ImageId::new("sha256:1").unwrap(),
        repo_tags: vec!["a:1".into()],
        repo_digests: vec!["a@sha256:2".into()],
        size_bytes: 7,
        pinned: true,
        handler: String::new(),
    };
    assert_eq!(model(row), expected);
}

#[test]
fn a_status_about_another_object_is_malformed() {
    let id = ContainerId::new("abc").unwrap();
    let raw = cri::ContainerStatus {
        id: "abcdef".into(),
        ..Default::default()
    };
    assert_eq!(container_status(&id, raw).unwrap_err(), Malformed);
    let id = PodSandboxId::new("abc").unwrap();
    assert_eq!(
        sandbox_status(&id, &cri::PodSandboxStatus::default()).unwrap_err(),
        Malformed
    );
}

#[test]
fn a_status_says_how_the_container_ended_and_of_which_image_it_was() {
    let id = ContainerId::new("abc").unwrap();
    let raw = cri::ContainerStatus {
        id: "abc".into(),
        started_at: 2_000_000_000,
        finished_at: 3_000_000_000,
        exit_code: 137,
        reason: "OOMKilled".into(),
        message: "é".repeat(MESSAGE_BYTES_MAX),
        image: Some(cri::ImageSpec {
            image: "sha256:1".into(),
            user_specified_image: "web:1".into(),
            ..Default::default()
        }),
        image_ref: "web@sha256:2".into(),
        ..Default::default()
    };
    let status = container_status(&id, raw.clone()).unwrap();
    assert_eq!(status.started_at, Some(Timestamp::from_second(2).unwrap()));
    assert_eq!(status.finished_at, Some(Timestamp::from_second(3).unwrap()));
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );
    assert_eq!(status.message.len(), MESSAGE_BYTES_MAX);
    assert_eq!(status.image, "web:1");
    assert_eq!(status.image_ref, "web@sha256:2");
    let raw = cri::ContainerStatus {
        image: Some(cri::ImageSpec {
            image: "web:0".into(),
            ..Default::default()
        }),
        started_at: 0,
        ..raw
    };
    let status = container_status(&id, raw).unwrap();
    assert_eq!((status.image.as_str(), status.started_at), ("web:0", None));
}

#[test]
fn the_sandbox_image_is_read_from_the_runtimes_configuration() {
    let image_of = |config: &str| {
        let info = labels(&[("config", config)]);
        configured_sandbox_images(&cri::StatusResponse { status: None, info })
    };
    let pinned = r#"{"pinnedImages":{"sandbox":"pause:3.10"}}"#;
    let nested = r#"{"imageConfig":{"pinnedImages":{"sandbox":"pause:3.10"}}}"#;
    let both = r#"{"sandboxImage":"pause:3.9","pinnedImages":{"sandbox":"pause:3.10"}}"#;
    let same = r#"{"sandboxImage":"pause:3.9","pinnedImages":{"sandbox":"pause:3.9"}}"#;
    for (config, images) in [
        (r#"{"sandboxImage":"pause:3.9"}"#, &["pause:3.9"][..]),
        (pinned, &["pause:3.10"]),
        (nested, &["pause:3.10"]),
        (both, &["pause:3.9", "pause:3.10"]),
        (same, &["pause:3.9"]),
    ] {
        assert_eq!(image_of(config), images, "{config}");
    }
    for none in [
        r#"{"sandboxImage":""}"#,
        r#"{"sandboxImage":1}"#,
        "{}",
        "[]",
        "not json",
        "",
    ] {
        assert!(image_of(none).is_empty(), "{none}");
    }
}

#[test]
fn a_sandboxes_image_is_read_from_its_verbose_status() {
    let made_from = |info: &[(&str, &str)]| {
        made_from(&cri::PodSandboxStatusResponse {
            status: None,
            info: labels(info),
        })
    };
    let image = made_from(&[("info", r#"{"pid":7,"image":"pause:3.9"}"#)]);
    assert_eq!(image.as_deref(), Some("pause:3.9"));
    for silent in ["{}", r#"{"image":""}"#, r#"{"image":3}"#, "no json"] {
        assert_eq!(made_from(&[("info", silent)]), None, "{silent}");
    }
    assert_eq!(made_from(&[]), None);
}

#[test]
fn images_that_are_mounted_are_named_in_full_and_other_mounts_are_not() {
    let id = ContainerId::new("abc").unwrap();
    let mount = |image: Option<cri::ImageSpec>| cri::Mount {
        host_path: "/var/lib/x".into(),
        image,
        ..Default::default()
    };
    let spec = cri::ImageSpec {
        image: "sha256:1".into(),
        user_specified_image: "data:1".into(),
        image_ref: "data@sha256:2".into(),
        ..Default::default()
    };
    let raw = cri::ContainerStatus {
        id: "abc".into(),
        mounts: vec![
            mount(None),
            mount(Some(spec)),
            mount(Some(cri::ImageSpec::default())),
        ],
        ..Default::default()
    };
    let status = container_status(&id, raw).unwrap();
    let names = ["sha256:1", "data:1", "data@sha256:2"];
    assert_eq!(status.volume_images, names);
}

#[test]
fn file_systems_without_a_mount_point_are_left_out() {
    let usage = |mountpoint: &str| cri::FilesystemUsage {
        timestamp: 0,
        fs_id: Some(cri::FilesystemIdentifier {
            mountpoint: mountpoint.into(),
        }),
        used_bytes: Some(cri::UInt64Value { value: 5 }),
        inodes_used: None,
    };
    let raw = cri::ImageFsInfoResponse {
        image_filesystems: vec![usage("/img"), usage(""), cri::FilesystemUsage::default()],
        container_filesystems: vec![usage("/rw")],
    };
    let expected = |mountpoint: &str| Filesystem {
        mountpoint: mountpoint.into(),
        runtime_used_bytes: 5,
        usage: None,
        is_btrfs: false,
    };
    let found = filesystems(raw);
    assert_eq!(found.image, [expected("/img")]);
    assert_eq!(found.container, [expected("/rw")]);
}

#[test]
fn the_runtimes_name_and_version_are_bounded() {
    let long = "é".repeat(TEXT_BYTES_MAX);
    let version = version(&cri::VersionResponse {
        runtime_name: long.clone(),
        runtime_version: long,
        ..cri::VersionResponse::default()
    });
    assert_eq!(version.runtime.len(), TEXT_BYTES_MAX);
    assert_eq!(version.version.len(), TEXT_BYTES_MAX);
}

#[test]
fn of_many_file_systems_the_first_are_read() {
    let usage = |number: usize| cri::FilesystemUsage {
        fs_id: Some(cri::FilesystemIdentifier {
            mountpoint: format!("/{number}"),
        }),
        ..cri::FilesystemUsage::default()
    };
    let found = |count: usize| {
        filesystems(cri::ImageFsInfoResponse {
            image_filesystems: (0..count).map(usage).collect(),
            ..cri::ImageFsInfoResponse::default()
        })
        .image
    };
    assert_eq!(found(FILESYSTEMS_MAX).len(), FILESYSTEMS_MAX);
    assert_eq!(found(FILESYSTEMS_MAX + 1), found(FILESYSTEMS_MAX));
}

#[test]
fn a_pods_source_is_read_from_the_sandbox_annotation() {
    let of = |annotations: &[(&'static str, &'static str)]| {
        let row = cri::PodSandboxRow {
            annotations: entries_of(annotations),
            ..sandbox_row()
        };
        model(row).config_source
    };
    let source = ConfigSource::ANNOTATION;
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[(source, "")]), None);
    assert_eq!(
        of(&[("a", "file"), (source, "api")]),
        Some(ConfigSource::Api)
    );
    assert_eq!(of(&[(source, "file")]), Some(ConfigSource::File));
    assert_eq!(of(&[(source, "http")]), Some(ConfigSource::Http));
    assert_eq!(of(&[(source, "moon")]), Some(ConfigSource::Other));
}
