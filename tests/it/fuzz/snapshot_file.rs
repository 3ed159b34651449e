//! Snapshot files: any content is read, or refused with a reason; what is read can be planned on, and written again.

use crisweep::gc::check::check;
use crisweep::gc::plan;
use crisweep::model::Target;
use crisweep::snapshot_file::{decode, encode};
use proptest::prelude::*;

use super::{cases, edited, edits};

/// A file of version 1 with every field.
const SAMPLE: &str = include_str!("../../../src/snapshot_file/tests/version_1.json");

const WORDS: &[&str] = &[
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "1e999",
    "-1",
    "18446744073709551615",
    "\"\"",
    "\"0s\"",
    "\"100y\"",
    "\"-009999-01-02T01:59:59Z\"",
    "\"9999-12-30T22:00:00Z\"",
    "\"running\"",
    "\"created\"",
    "\"partial\"",
    "\"unknown\"",
    "\"version\": 1,",
];

fn packed(json: &[u8]) -> Vec<u8> {
    zstd::encode_all(json, 1).unwrap()
}

/// Reads it; plans on it if it can be read.
fn used(file: &[u8]) -> bool {
    let file = match decode(file) {
        Ok(file) => file,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 64 << 10, "{text}");
            return false;
        }
    };
    let targets = Target::ALL.into();
    let mut plan = plan(&file.snapshot, &file.policy, &targets);
    let _broken = check(&plan.removals, &file.snapshot, &file.policy);
    plan.add_details(&file.snapshot, &file.policy);
    let again = encode(&file.about, &file.policy, &file.snapshot).unwrap();
    assert_eq!(decode(&*again).unwrap(), file);
    true
}

#[test]
fn any_change_to_a_files_json_is_read_or_refused() {
    assert!(used(&packed(SAMPLE.as_bytes())));
    proptest!(cases(), |(edits in edits(WORDS))| {
        used(&packed(&edited(SAMPLE.as_bytes().to_vec(), &edits)));
    });
}

/// Values that the types allow, wherever they stand: times at both ends, the largest numbers.
#[test]
fn any_value_in_place_of_another_is_read_or_refused() {
    let values: Vec<String> = {
        let parts = SAMPLE.split('"').skip(1).step_by(2);
        parts.map(|text| format!("\"{text}\"")).collect()
    };
    let new = prop::sample::select(WORDS.to_vec());
    proptest!(cases(), |(old in prop::sample::select(values), new in new)| {
        used(&packed(SAMPLE.replace(&old, new).as_bytes()));
    });
}

#[test]
fn any_change_to_a_files_bytes_is_refused_or_read() {
    let file = packed(SAMPLE.as_bytes());
    proptest!(cases(), |(edits in edits(&["(\u{b5}/\u{fd}"]))| {
        used(&edited(file.clone(), &edits));
    });
    proptest!(cases(), |(bytes in prop::collection::vec(any::<u8>(), 0..300))| {
        used(&bytes);
    });
}
