//! List answers as bytes: the runtime's, and pod lists.

use std::sync::Arc;

use crisweep::pods::parse;
use crisweep::runtime::ReadError;
use crisweep::runtime::codec::{ListChunk, RowReader};
use crisweep::runtime::convert::WireRow;
use crisweep_proto::cri::{self, ContainerRow, ImageRow, PodSandboxRow};
use crisweep_sim::{NodeBuilder, Options, PodSpec, Sim, hours};
use proptest::prelude::*;
use prost::Message;

use super::{asked, cases, edited, edits};

const WORDS: &[&str] = &[
    "\n",
    "\n\0",
    "\x12\0",
    "\x0a\x7f",
    "\x08\x01",
    "\x0b",
    "\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f",
];
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    "null",
    "\"items\":[],",
    "\"uid\":\"\",",
    "\"status\":{},",
    "1e999",
    "\\ud800",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z0-9]{1,64}", 1 => Just(String::new()), 1 => any::<String>()]
}

fn container() -> impl Strategy<Value = cri::Container> {
    let labels = prop::collection::btree_map(
        prop_oneof![Just("io.kubernetes.pod.uid".to_owned()), text()],
        text(),
        0..4,
    );
    let row = (
        text(),
        text(),
        prop::option::of((text(), any::<u32>())),
        any::<i32>(),
        any::<i64>(),
        labels,
    );
    row.prop_map(
        |(id, pod_sandbox_id, metadata, state, created_at, labels)| cri::Container {
            id,
            pod_sandbox_id,
            metadata: metadata.map(|(name, attempt)| cri::ContainerMetadata { name, attempt }),
            state,
            created_at,
            labels,
            ..Default::default()
        },
    )
}

fn sandbox() -> impl Strategy<Value = cri::PodSandbox> {
    let row = (
        text(),
        prop::option::of((text(), text(), text(), any::<u32>())),
        any::<i32>(),
        any::<i64>(),
    );
    row.prop_map(|(id, metadata, state, created_at)| cri::PodSandbox {
        id,
        metadata: metadata.map(|(name, uid, namespace, attempt)| cri::PodSandboxMetadata {
            name,
            uid,
            namespace,
            attempt,
        }),
        state,
        created_at,
        ..Default::default()
    })
}

fn image() -> impl Strategy<Value = cri::Image> {
    let row = (
        text(),
        prop::collection::vec(text(), 0..3),
        any::<u64>(),
        any::<bool>(),
    );
    row.prop_map(|(id, repo_tags, size, pinned)| cri::Image {
        id,
        repo_tags,
        size,
        pinned,
        ..Default::default()
    })
}

/// Reads one message that comes in one piece.
fn read<R: WireRow>(bytes: Vec<u8>) -> Result<ListChunk<R::Model>, ReadError> {
    let mut reader = RowReader::<R>::new(Arc::default());
    reader.read(bytes.into())?;
    reader.end()?;
    Ok(reader.take().unwrap())
}

/// The decoded size is bounded by the message, whatever its content.
fn is_bounded<R: WireRow>(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let length = bytes.len() as u64;
    let Ok(page) = read::<R>(bytes) else {
        return Ok(());
    };
    prop_assert_eq!(page.bytes, length);
    prop_assert!(2 * (page.rows.len() + page.malformed) as u64 <= length);
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_bytes_are_a_list_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        is_bounded::<ContainerRow>(bytes.clone())?;
        is_bounded::<PodSandboxRow>(bytes.clone())?;
        is_bounded::<ImageRow>(bytes)?;
    }

    #[test]
    fn a_list_of_containers_counts_rows_without_both_ids(containers in prop::collection::vec(container(), 0..8), edits in edits(WORDS)) {
        let sound = containers.iter().filter(|row| !row.id.is_empty() || !row.pod_sandbox_id.is_empty());
        let (sound, all) = (sound.count(), containers.len());
        let bytes = cri::ListContainersResponse { containers }.encode_to_vec();
        let page = read::<ContainerRow>(bytes.clone()).unwrap();
        prop_assert_eq!((page.rows.len(), page.malformed), (sound, all - sound));
        is_bounded::<ContainerRow>(edited(bytes, &edits))?;
    }

    #[test]
    fn a_list_of_sandboxes_counts_rows_without_an_id(items in prop::collection::vec(sandbox(), 0..8), edits in edits(WORDS)) {
        let sound = items.iter().filter(|row| !row.id.is_empty()).count();
        let all = items.len();
        let bytes = cri::ListPodSandboxResponse { items }.encode_to_vec();
        let page = read::<PodSandboxRow>(bytes.clone()).unwrap();
        prop_assert_eq!((page.rows.len(), page.malformed), (sound, all - sound));
        is_bounded::<PodSandboxRow>(edited(bytes, &edits))?;
    }

    #[test]
    fn a_list_of_images_counts_rows_without_an_id(images in prop::collection::vec(image(), 0..8), edits in edits(WORDS)) {
        let sound = images.iter().filter(|row| !row.id.is_empty()).count();
        let all = images.len();
        let bytes = cri::ListImagesResponse { images }.encode_to_vec();
        let page = read::<ImageRow>(bytes.clone()).unwrap();
        prop_assert_eq!((page.rows.len(), page.malformed), (sound, all - sound));
        is_bounded::<ImageRow>(edited(bytes, &edits))?;
    }
}

#[test]
fn any_text_is_a_list_of_pods_or_none() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let dir = tempfile::tempdir().unwrap();
    let node = NodeBuilder::new()
        .pod(PodSpec::new("web").running("app", 0))
        .pod(PodSpec::new("job").exited("app", 0, hours(1)).succeeded())
        .pod(PodSpec::new("proxy").static_pod().running("app", 0));
    let sim = Sim::start(dir.path().join("s"), node.build(), Options::default()).unwrap();
    let sound = sim.pods_json();
    let whole = parse(sound.as_bytes(), "n1").unwrap();
    asked(&edits(JSON), |edits| {
        let bytes = edited(sound.clone().into_bytes(), &edits);
        match parse(&bytes, "n1") {
            Ok(_) => prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok()),
            Err(error) => prop_assert!(!error.is_empty()),
        }
        Ok(())
    });
    assert_eq!(parse(sound.as_bytes(), "n1").unwrap(), whole);
}
