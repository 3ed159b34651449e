use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::model::{ConfigSource, ContainerState};
use crate::runtime::wire::testing::{cases, field};
use crisweep_proto::cri;

/// A list answer as prost alone decodes it.
#[derive(Clone, PartialEq, Message)]
struct RowsAlone {
    #[prost(message, repeated, tag = "1")]
    rows: Vec<cri::ContainerRow>,
}

/// Reads one message. A row that cannot be decoded fails the message: its references are unknown, so the other
/// rows prove nothing.
pub(in crate::runtime) fn read<R: WireRow>(
    message: Bytes,
) -> Result<ListChunk<R::Model>, ReadError> {
    read_with::<R>(message, &mut Interner::default())
}

/// Reads one message; its rows share equal values with all that `shared` knows, and those known are not read anew.
fn read_with<R: WireRow>(
    mut message: Bytes,
    shared: &mut Interner,
) -> Result<ListChunk<R::Model>, ReadError> {
    let mut page = ListChunk {
        bytes: message.len() as u64,
        ..ListChunk::default()
    };
    take_fields::<R>(&mut message, &mut page, shared)?;
    if message.has_remaining() {
        return Err(wire::Error::CutOff.into());
    }
    Ok(page)
}

fn read_containers(bytes: impl Into<Bytes>) -> Result<ListChunk<crate::model::Container>, String> {
    read::<cri::ContainerRow>(bytes.into()).map_err(|error| error.to_string())
}

fn container(id: &str, sandbox: &str) -> cri::Container {
    cri::Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        annotations: [("heavy".into(), "x".repeat(300))].into(),
        ..Default::default()
    }
}

#[test]
fn weighs_the_whole_message_and_counts_rows_without_ids() {
    let message = cri::ListContainersResponse {
        containers: vec![container("a", "s"), container("", ""), container("b", "")],
    };
    let page = read_containers(message.encode_to_vec()).unwrap();
    assert_eq!(page.bytes, message.encoded_len() as u64);
    assert_eq!(page.rows.len(), 2);
    assert_eq!(page.rows[0].id.as_str(), "a");
    assert_eq!(page.malformed, 1);
}

#[test]
fn rows_made_from_the_same_image_share_it() {
    let of = |id: &str, image: &str| cri::Container {
        image_ref: image.into(),
        ..container(id, "s")
    };
    let message = cri::ListContainersResponse {
        containers: vec![of("a", "i1"), of("b", "i2"), of("c", "i1")],
    };
    let mut shared = Interner::default();
    let mut read = || {
        let bytes = message.encode_to_vec().into();
        read_with::<cri::ContainerRow>(bytes, &mut shared).unwrap()
    };
    let (page, next) = (read(), read());
    let same = |a: usize, b: usize| Arc::ptr_eq(&page.rows[a].image, &next.rows[b].image);
    assert!(
        same(0, 2) && same(0, 0) && same(1, 1),
        "across messages too"
    );
    assert!(!same(0, 1));
}

#[test]
fn both_lists_and_later_ones_share_ids_and_pods_while_they_are_used() {
    let kubelet = |uid: &str| {
        let labels = [("uid", uid), ("namespace", "default"), ("name", "web")];
        let labels = labels.map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.into()));
        labels.into_iter().chain([("app".into(), "web".into())])
    };
    let containers = cri::ListContainersResponse {
        containers: vec![cri::Container {
            metadata: Some(cri::ContainerMetadata::default()),
            labels: kubelet("u1").collect(),
            ..container("c", "s")
        }],
    };
    let sandbox = |id: &str, uid: &str| cri::PodSandbox {
        id: id.into(),
        metadata: Some(cri::PodSandboxMetadata {
            uid: uid.into(),
            namespace: "default".into(),
            name: "web".into(),
            attempt: 0,
        }),
        labels: kubelet(uid).collect(),
        ..Default::default()
    };
    let sandboxes = cri::ListPodSandboxResponse {
        items: vec![sandbox("s", "u1"), sandbox("t", "u2")],
    };
    let mut shared = Interner::default();
    let mut read = || {
        let containers = containers.encode_to_vec().into();
        let sandboxes = sandboxes.encode_to_vec().into();
        let containers = read_with::<cri::ContainerRow>(containers, &mut shared);
        let sandboxes = read_with::<cri::PodSandboxRow>(sandboxes, &mut shared);
        (containers.unwrap().rows, sandboxes.unwrap().rows)
    };
    let ((containers, sandboxes), later) = (read(), read());
    let pods = [
        &containers[0].pod,
        &sandboxes[0].pod,
        &later.1[0].pod,
        &sandboxes[1].pod,
    ];
    let [pod, of_sandbox, of_later, other] = pods.map(|pod| pod.as_ref().unwrap());
    assert!(Arc::ptr_eq(pod, of_sandbox) && Arc::ptr_eq(pod, of_later));
    let same = |a: &str, b: &str| a.as_ptr() == b.as_ptr();
    assert!(same(&pod.namespace, &other.namespace));
    assert!(same(
        containers[0].sandbox_id.as_str(),
        later.1[0].id.as_str()
    ));
    assert_eq!(sandboxes[0].labels, later.0[0].labels);
    let (labels, of_later) = (sandboxes[0].labels.get("app"), later.0[0].labels.get("app"));
    assert!(same(labels.unwrap(), of_later.unwrap()));
    drop((containers, later));
    let mut two_lists_later = || {
        for _ in 0..2 {
            shared.begin::<cri::ContainerRow>(1);
            shared.begin::<cri::PodSandboxRow>(1);
        }
        shared.count()
    };
    let known = two_lists_later();
    assert_eq!(sandboxes[0].id.text().holders(), 2);
    drop(sandboxes);
    assert!(known > 0 && two_lists_later() == 0, "{known}");
}

#[test]
fn a_row_whose_labels_come_in_another_order_is_known() {
    let mut shared = Interner::default();
    let label = |name: &str| cri::Container {
        labels: [(name.to_owned(), "x".to_owned())].into(),
        ..Default::default()
    };
    let (bare, a, b) = (container("web", "s"), label("a"), label("b"));
    let mut read = |parts: [&cri::Container; 3]| {
        let row = parts.map(Message::encode_to_vec).concat();
        let mut message = vec![0x0a];
        prost::encode_length_delimiter(row.len(), &mut message).unwrap();
        message.extend(row);
        shared.begin::<cri::ContainerRow>(1);
        let page = read_with::<cri::ContainerRow>(message.into(), &mut shared).unwrap();
        page.rows.into_iter().next().unwrap()
    };
    let (one, other) = (read([&bare, &a, &b]), read([&bare, &b, &a]));
    assert_eq!(other.labels.get("b"), Some("x"));
    assert!(Arc::ptr_eq(&one.image, &other.image));
}

#[test]
fn an_annotation_that_names_the_pods_source_is_read_although_the_row_was_known_without() {
    let mut shared = Interner::default();
    let mut read = |entries: &[(&str, &str)]| {
        let entries = entries
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        let sandbox = cri::PodSandbox {
            annotations: entries.collect(),
            id: "s".into(),
            ..Default::default()
        };
        let items = cri::ListPodSandboxResponse {
            items: vec![sandbox],
        };
        shared.begin::<cri::PodSandboxRow>(1);
        let page = read_with::<cri::PodSandboxRow>(items.encode_to_vec().into(), &mut shared);
        page.unwrap().rows[0].config_source
    };
    let source = "kubernetes.io/config.source";
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[("note", source)]), None, "a value like the key");
    assert_eq!(read(&[(source, "api")]), Some(ConfigSource::Api));
    let (file, both) = ((source, "file"), [("a", "b"), (source, "file")]);
    assert_eq!(read(&[file]), Some(ConfigSource::File));
    assert_eq!(read(&both), Some(ConfigSource::File));
}

#[test]
fn broken_annotations_fail_a_row_although_the_last_list_had_it_without() {
    let mut shared = Interner::default();
    let sandbox = cri::PodSandbox {
        id: "s".into(),
        ..Default::default()
    };
    let mut read = |annotation: &[u8]| {
        let row = [&sandbox.encode_to_vec(), annotation].concat();
        let mut message = vec![0x0a];
        prost::encode_length_delimiter(row.len(), &mut message).unwrap();
        message.extend(row);
        read_with::<cri::PodSandboxRow>(message.into(), &mut shared).is_ok()
    };
    assert!(read(b""));
    assert!(read(b"\x32\x03\x0a\x01a"), "an entry of one letter");
    // A number instead of an entry; an entry that is cut off; one whose key is a number.
    for broken in [&b"\x30\x01"[..], b"\x32\x02\x0a\x05", b"\x32\x02\x08\x01"] {
        assert!(!read(broken), "{broken:?}");
    }
}

#[test]
fn a_row_that_changed_is_read_anew_and_an_equal_one_is_not() {
    let mut shared = Interner::default();
    let mut read = |containers: &[cri::Container]| {
        let containers = containers.to_vec();
        let message = cri::ListContainersResponse { containers };
        shared.begin::<cri::ContainerRow>(1);
        let page = read_with::<cri::ContainerRow>(message.encode_to_vec().into(), &mut shared);
        page.unwrap().rows
    };
    let (mut web, app) = (container("web", "s"), container("app", "s"));
    let first = read(&[web.clone(), app.clone()]);
    let again = read(&[app.clone(), web.clone()]);
    assert_eq!(again, [first[1].clone(), first[0].clone()]);
    // Equal images are shared by value; an equal row brings the very one it had.
    assert!(Arc::ptr_eq(&first[0].image, &again[1].image));
    web.state = cri::ContainerState::ContainerExited as i32;
    let changed = read(&[web]);
    assert_eq!(first[0].state, ContainerState::Created);
    assert_eq!(changed[0].state, ContainerState::Exited);
    assert_eq!(changed[0].id, first[0].id);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn two_lists_are_read_with_known_rows_as_each_alone(ids in prop::collection::vec(("[a-z]{0,2}", "[a-z]{0,2}"), 0..12), cut in 0..12_usize) {
        let rows = ids.iter().map(|(id, sandbox)| container(id, sandbox));
        let rows: Vec<_> = rows.collect();
        let mut shared = Interner::default();
        for containers in [rows.clone(), rows.into_iter().skip(cut).collect()] {
            let message = cri::ListContainersResponse { containers }.encode_to_vec();
            shared.begin::<cri::ContainerRow>(1);
            let known = read_with::<cri::ContainerRow>(message.clone().into(), &mut shared);
            prop_assert_eq!(known.unwrap(), read_containers(message).unwrap());
        }
    }

    #[test]
    fn a_list_is_read_as_prost_reads_it(ids in prop::collection::vec(("[a-z]{0,3}", "[a-z]{0,3}"), 0..4), others in prop::collection::vec((any::<prop::sample::Index>(), field()), 0..4)) {
        let row = |(id, sandbox): &(String, String)| {
            let containers = vec![container(id, sandbox)];
            cri::ListContainersResponse { containers }.encode_to_vec()
        };
        let mut fields: Vec<Vec<u8>> = ids.iter().map(row).collect();
        for (at, other) in others {
            fields.insert(at.index(fields.len() + 1), other);
        }
        let whole = fields.concat();
        // Also cut at every byte.
        for end in 0..=whole.len() {
            is_read_as_prost_reads_it(&whole[..end])?;
        }
    }

    #[test]
    fn garbage_is_read_as_prost_reads_it(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        is_read_as_prost_reads_it(&bytes)?;
        is_read_as_prost_reads_it(&[&[0x0a][..], &bytes].concat())?;
    }
}

fn is_read_as_prost_reads_it(bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = RowsAlone::decode(bytes).map(|theirs| {
        let rows = theirs.rows.into_iter();
        let models = rows.map(|row| row.into_model(&mut Interner::default()));
        models.collect::<Vec<_>>()
    });
    let page = match read::<cri::ContainerRow>(Bytes::copy_from_slice(bytes)) {
        Ok(page) => page,
        // prost skips a group; no server sends one.
        Err(ReadError::Wire(wire::Error::Group)) => return Ok(()),
        Err(error) => {
            prop_assert!(theirs.is_err(), "{} {:?}", error, theirs);
            return Ok(());
        }
    };
    prop_assert!(theirs.is_ok(), "{:?} {:?}", page, theirs);
    let rows = theirs.unwrap();
    let malformed = rows.iter().filter(|row| row.is_err()).count();
    prop_assert_eq!(page.malformed, malformed);
    prop_assert_eq!(page.rows, rows.into_iter().flatten().collect::<Vec<_>>());
    Ok(())
}

#[test]
fn an_empty_message_is_an_empty_page() {
    let page = read_containers(Bytes::new()).unwrap();
    assert_eq!(page, ListChunk::default());
}

#[test]
fn later_versions_fields_are_skipped_and_weighed() {
    let mut bytes = cri::ListContainersResponse {
        containers: vec![container("a", "s")],
    }
    .encode_to_vec();
    // Field 9, varint 1; field 10, two bytes.
    bytes.extend([0x48, 0x01, 0x52, 0x02, 0xff, 0xff]);
    let length = bytes.len() as u64;
    let page = read_containers(bytes).unwrap();
    assert_eq!((page.rows.len(), page.bytes), (1, length));
}

#[test]
fn a_row_whose_id_is_not_utf_8_is_counted_and_the_others_are_read() {
    let containers = vec![container("a", "s")];
    let other = cri::ListContainersResponse { containers }.encode_to_vec();
    let bytes = [&[0x0a, 0x03, 0x0a, 0x01, 0xff], &*other].concat();
    let page = read_containers(bytes).unwrap();
    assert_eq!((page.rows.len(), page.malformed), (1, 1));
}

#[test]
fn a_broken_row_or_frame_fails_the_message() {
    // A row that says it has 80 bytes and has 1.
    let error = read_containers(vec![0x0a, 0x50, 0x00]).unwrap_err();
    assert_eq!(error, "a field ends past the end of its message");
    // A row that is a number.
    let error = read_containers(vec![0x08, 0x01]).unwrap_err();
    assert_eq!(error, "a row is not a message");
    // No field has number 0.
    assert!(read_containers(vec![0x00, 0x00]).is_err());
    // A field that is skipped must be whole, too.
    assert!(read_containers(vec![0x52, 0x05, 0x00]).is_err());
}
