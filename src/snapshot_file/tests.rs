use super::*;

/// Packs a text as a file is packed.
fn packed(json: &[u8]) -> Vec<u8> {
    zstd::encode_all(json, LEVEL).unwrap()
}

fn text_of(file: &SnapshotFile) -> String {
    let bytes = encode(&file.about, &file.policy, &file.snapshot).unwrap();
    String::from_utf8(zstd::decode_all(&*bytes).unwrap()).unwrap()
}

fn empty() -> SnapshotFile {
    SnapshotFile {
        about: SnapshotOrigin::default(),
        policy: Policy::default(),
        snapshot: Snapshot::empty("2026-01-02T12:00:00Z".parse().unwrap()),
    }
}

/// Changes the text of an empty node, and returns why the file is refused.
fn refusal(from: &str, to: &str) -> String {
    let text = text_of(&empty());
    assert!(text.contains(from), "{from}: {text}");
    let changed = text.replacen(from, to, 1);
    decode(&*packed(changed.as_bytes()))
        .unwrap_err()
        .to_string()
}

#[test]
fn another_format_and_a_later_version_are_refused_by_name() {
    let why = refusal("crisweep snapshot", "else");
    assert!(
        why.starts_with("format: must be \"crisweep snapshot\""),
        "{why}"
    );
    // A later version may have other fields.
    let why = refusal("\"version\":1,", "\"version\":2,\"more\":[],");
    assert!(
        why.starts_with("version: is 2, and this crisweep (") && why.contains("reads version 1"),
        "{why}"
    );
}

#[test]
fn an_impossible_value_is_refused_with_its_fields_name() {
    for (from, to, why) in [
        (
            "\"quarantine\":{}",
            "\"quarantine\":{\"\":\"2026-01-02T12:00:00Z\"}",
            "snapshot.quarantine.: an id is empty",
        ),
        (
            "\"containers\":[]",
            "\"containers\":[{\"id\":\"\"}]",
            "snapshot.containers[0].id: an id is empty",
        ),
        (
            "\"seen\":{",
            "\"seen\":{\"more\":1,",
            "snapshot.seen.more: unknown field",
        ),
        (
            "\"low_threshold_percent\":80",
            "\"low_threshold_percent\":90",
            "policy.images.low_threshold_percent: is 90",
        ),
        (
            "\"settle\":\"10s\"",
            "\"settle\":\"x\"",
            "pods.settle: a duration",
        ),
        (
            "\"taken_at\":\"2026",
            "\"taken_at\":\"x",
            "snapshot.taken_at: ",
        ),
        (
            "\"pods\":{\"unknown\":\"no-source\"}",
            "\"pods\":{}",
            "snapshot.pods: ",
        ),
    ] {
        let said = refusal(from, to);
        assert!(said.starts_with(why), "{why}: {said}");
    }
}

#[test]
fn two_records_of_one_id_are_refused() {
    for list in ["containers", "sandboxes"] {
        let mut file: serde_json::Value =
            serde_json::from_str(include_str!("tests/version_1.json")).unwrap();
        let rows = file["snapshot"][list].as_array_mut().unwrap();
        rows.push(rows[0].clone());
        let wanted = format!(
            "snapshot.{list}[{}].id: is that of {list}[0] too",
            rows.len() - 1
        );
        let refused = decode(&*packed(file.to_string().as_bytes())).unwrap_err();
        assert_eq!(refused.to_string(), wanted);
    }
}

#[test]
fn bytes_that_are_no_file_are_refused() {
    let whole = encode(
        &SnapshotOrigin::default(),
        &Policy::default(),
        &empty().snapshot,
    )
    .unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    let two = [&whole[..], &whole[..]].concat();
    for bytes in [
        &[][..],
        b"{}",
        b"no zstd",
        &whole[..whole.len() - 1],
        &damaged,
        &two,
    ] {
        decode(bytes).unwrap_err();
    }
    let why = decode(&b"no zstd"[..]).unwrap_err().to_string();
    assert!(why.starts_with("is no whole snapshot file"), "{why}");
    assert!(decode(&*whole).is_ok());
}

#[test]
fn a_small_file_that_unpacks_to_a_large_one_is_refused() {
    let whole = text_of(&empty());
    let max = u64::try_from(whole.len()).unwrap() + 1_000_000;
    let with_spaces = |count| packed(format!("{}{whole}", " ".repeat(count)).as_bytes());
    let small = with_spaces(1_000_000);
    assert!(small.len() < 1 << 14);
    decode_from(&mut &*small, max).unwrap();
    let why = decode_from(&mut &*with_spaces(1_000_100), max).unwrap_err();
    let why = why.to_string();
    assert!(why.starts_with("is no whole snapshot file"), "{why}");
    let deep = format!("{{\"format\":{}", "[".repeat(100_000));
    decode(&*packed(deep.as_bytes())).unwrap_err();
    let deep = refusal(
        "\"logs\":{\"dirs\":[]",
        &format!("\"logs\":{{\"dirs\":{}", "[".repeat(100_000)),
    );
    assert!(!deep.is_empty());
}

#[test]
fn a_longer_file_and_a_wider_window_are_refused() {
    let endless = io::repeat(0x28);
    let why = decode(endless).unwrap_err().to_string();
    assert!(why.starts_with("is no whole snapshot file"), "{why}");
    let mut wide = zstd::Encoder::new(Vec::new(), LEVEL).unwrap();
    wide.window_log(27).unwrap();
    wide.write_all(text_of(&empty()).as_bytes()).unwrap();
    let why = decode(&*wide.finish().unwrap()).unwrap_err().to_string();
    assert!(why.starts_with("is no whole snapshot file"), "{why}");
}

/// A file of version 1 with every field. One that the program cannot read, or would write otherwise, needs a new
/// version.
#[test]
fn a_file_of_version_1_is_read_and_written_as_it_was() {
    let text = include_str!("tests/version_1.json");
    let file = decode(&*packed(text.as_bytes())).unwrap();
    assert_eq!(file.about.node, "node-1");
    assert_eq!(file.snapshot.containers.len(), 2);
    let wanted: serde_json::Value = serde_json::from_str(text).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text_of(&file)).unwrap();
    assert_eq!(written, wanted);
    let again = encode(&file.about, &file.policy, &file.snapshot).unwrap();
    assert_eq!(decode(&*again).unwrap(), file);
}
