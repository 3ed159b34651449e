//! Valid frames with any content: another version's, or random bytes.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

const PASSES_MAX: usize = 100;

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(256_u32);
    ProptestConfig {
        failure_persistence: None,
        // Each writes some hundred records, in four files.
        ..ProptestConfig::with_cases(cases.div_ceil(16))
    }
}

/// Entries in an order that no process would write.
fn entry() -> impl Strategy<Value = Entry> {
    let failed = |at: Option<i64>, failures| RemovalOutcome::Failed {
        class: FailureClass::NetworkTeardown,
        why: "no".to_owned(),
        at: at.and_then(|at| Timestamp::from_second(at).ok()),
        failures,
    };
    prop_oneof![
        any::<u32>().prop_map(|pid| Entry::Opened {
            pid,
            version: String::new()
        }),
        (0..300_i64).prop_map(|number| begun(pass(number))),
        (0..300_i64).prop_map(|number| end(ended(number))),
        (0..300_i64).prop_map(|number| end(pass(number))),
        (0..9_u64).prop_map(intended),
        (0..9_u64).prop_map(|number| tried(number, RemovalOutcome::REMOVED)),
        (0..9_u64, any::<Option<i64>>(), any::<Option<u32>>())
            .prop_map(move |(number, at, failures)| tried(number, failed(at, failures))),
    ]
}

/// The payload of a record: an entry, an entry with changed words, or random bytes.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let words = vec![
        "null",
        "{",
        "[",
        "\"",
        ",",
        "-1",
        "1e999",
        "18446744073709551616",
        "\"entry\":\"begun\",",
        "\"target\":\"sandboxes\",",
        "\"-009999-01-02T01:59:59Z\"",
        "\\ud800",
    ];
    let changed = (entry(), any::<Index>(), select(words), 0..9_usize);
    prop_oneof![
        4 => entry().prop_map(|entry| entry.encode().unwrap()),
        2 => changed.prop_map(|(entry, at, word, over)| {
            let mut bytes = entry.encode().unwrap();
            let at = at.index(bytes.len());
            let end = (at + over).min(bytes.len());
            bytes.splice(at..end, word.bytes());
            bytes
        }),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_whole_records_give_a_bounded_history_that_a_process_can_go_on_from(
        payloads in prop::collection::vec(payload(), 0..400),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::create(&journal(dir.path()), BYTES_MIN).unwrap();
        for payload in &payloads {
            ring.append(payload).unwrap();
        }
        ring.sync().unwrap();
        drop(ring);
        super::super::past_failures(dir.path()).unwrap();
        let found = live(dir.path(), BYTES_MIN, &[end(ended(1000))]).history;
        prop_assert!(found.ended.len() + found.interrupted.len() <= 2 * PASSES_MAX);
        prop_assert!(found.failures.len() <= 4096);
        let after = history(dir.path());
        prop_assert!(after.ended.contains(&ended(1000)));
        prop_assert!(fs::metadata(journal(dir.path())).unwrap().len() <= 2 * BYTES_MIN);
        // Another size rewrites everything.
        let moved = live(dir.path(), 2 * BYTES_MIN, &[]).history;
        prop_assert!(moved.ended.contains(&ended(1000)));
    }
}
