//! Answers of Alertmanagers: a list of alerts or none, and of those only the active ones.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::super::read;

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(256);
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

fn alert() -> impl Strategy<Value = Value> {
    let state = select(vec!["active", "suppressed", "unprocessed", "Active", ""]);
    let labels = prop::collection::btree_map(any::<String>(), any::<String>(), 0..4);
    (state, labels, any::<String>()).prop_map(|(state, labels, text)| {
        json!({
            "status": { "state": state, "silencedBy": [text], "inhibitedBy": [] },
            "labels": labels,
            "startsAt": text,
            "fingerprint": text,
        })
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn only_active_alerts_are_read(alerts in prop::collection::vec(alert(), 0..6)) {
        let active = alerts.iter().filter(|alert| alert["status"]["state"] == "active").count();
        let read = read(Value::Array(alerts).to_string().as_bytes()).unwrap();
        prop_assert_eq!(read.len(), active);
    }

    #[test]
    fn any_bytes_are_alerts_or_refused(
        alerts in prop::collection::vec(alert(), 0..3),
        at: prop::sample::Index,
        word in select(vec!["[", "]", "{", "}", "null", "\"", "\\ud800", "1e999", ",", "\u{0}", "\"labels\":{},"]),
        times in prop_oneof![4 => 1..3_usize, 1 => 1..50_000_usize],
        over in 0..12_usize,
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = Value::Array(alerts).to_string().into_bytes();
        let at = at.index(bytes.len());
        let end = (at + over).min(bytes.len());
        bytes.splice(at..end, word.repeat(times).into_bytes());
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
        prop_assert!(is_json || read(&bytes).is_err());
        prop_assert!(read(&noise).is_err() || noise.starts_with(b"["));
    }
}
