//! Webhook bodies sent to the real program: every answer has the right status.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::{asked, edited, edits};
use crate::alerts::hook::{PATH, asks, call};
use crate::support::{Answer, Rig, nodes};

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\\",
    "null",
    "1e999",
    "-0",
    "true",
    "\"version\":\"4\",",
    "\"alerts\":[],",
    "\"labels\":{},",
    "\"status\":\"firing\",",
    "\u{feff}",
    "99999999999999999999999999",
    "\u{202e}",
    "\u{1f9f9}",
];

fn sound() -> Vec<u8> {
    call(vec![asks("all"), asks("images")])
        .to_string()
        .into_bytes()
}

/// Nesting that would overflow a recursive parser, in known and unknown fields.
fn deep() -> impl Strategy<Value = Vec<u8>> {
    let place = select(vec![
        ("", ""),
        (r#"{"version":"4","alerts":"#, "}"),
        (r#"{"version":"4","alerts":[],"new":"#, "}"),
        (
            r#"{"version":"4","alerts":[{"status":"firing","labels":"#,
            "}]}",
        ),
        (
            r#"{"version":"4","alerts":[{"status":"firing","labels":{},"new":"#,
            "}]}",
        ),
    ]);
    let bracket = select(vec![("[", "]"), ("{\"a\":", "}")]);
    let body = (place, bracket, 1..100_000_usize, any::<bool>());
    body.prop_map(|((before, after), (open, close), depth, closed)| {
        let close = if closed {
            close.repeat(depth)
        } else {
            String::new()
        };
        format!("{before}{}1{close}{after}", open.repeat(depth)).into_bytes()
    })
}

fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!({ "node": "node-1", "crisweep": "containers" })),
        Just(json!({ "crisweep": 1 })),
        Just(json!("x".repeat(200))),
        any::<f64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number)),
        select(vec!["4", "3", "firing", "resolved", "Firing", ""]).prop_map(|text| json!(text)),
        any::<String>().prop_map(Value::String),
    ]
}

/// A call with changed or missing values.
fn misled() -> impl Strategy<Value = Value> {
    let place = select(vec![
        "/version",
        "/alerts",
        "/alerts/0",
        "/alerts/1",
        "/alerts/0/status",
        "/alerts/0/labels",
        "/alerts/0/labels/node",
        "/alerts/0/labels/crisweep",
        "/alerts/0/labels/alertname",
        "/alerts/1/startsAt",
        "/alerts/1/fingerprint",
        "/alerts/0/annotations",
        "/receiver",
    ]);
    let changes = prop::collection::vec((place, prop::option::of(odd())), 0..4);
    changes.prop_map(|changes| {
        let mut body = call(vec![asks("all"), asks("images")]);
        for (place, value) in changes {
            let (parent, key) = place.rsplit_once('/').unwrap();
            match (body.pointer_mut(place), value) {
                (Some(found), Some(value)) => *found = value,
                (Some(_), None) => {
                    if let Some(Value::Object(parent)) = body.pointer_mut(parent) {
                        parent.remove(key);
                    }
                }
                (None, _) => {}
            }
        }
        body
    })
}

/// The format of Alertmanager's version "4", written a second time.
fn is_understood(body: &Value) -> bool {
    let texts = |map: &Map<String, Value>| map.values().all(Value::is_string);
    let is_text = |value: Option<&Value>| value.is_none_or(Value::is_string);
    let is_alert = |alert: &Value| {
        alert.is_object()
            && matches!(alert["status"].as_str(), Some("firing" | "resolved"))
            && alert["labels"].as_object().is_some_and(texts)
            && is_text(alert.get("startsAt"))
            && is_text(alert.get("fingerprint"))
    };
    body["version"] == "4"
        && body["alerts"]
            .as_array()
            .is_some_and(|alerts| alerts.iter().all(is_alert))
}

/// Says whether an alert asks for an unknown target or cannot be remembered, so that the call is refused if no other
/// alert asks for anything.
fn names_no_target(body: &Value) -> bool {
    let alerts = body["alerts"].as_array().into_iter().flatten();
    let is_long = |it: &Value| it.as_str().is_some_and(|text| text.len() > 128);
    let mut keys = alerts
        .clone()
        .flat_map(|it| [&it["startsAt"], &it["fingerprint"]]);
    if keys.any(is_long) {
        return true;
    }
    let mut words = alerts.filter_map(|alert| alert["labels"]["crisweep"].as_str());
    words.any(|word| word.parse::<crisweep::model::Targets>().is_err())
}

struct Hook {
    runtime: tokio::runtime::Runtime,
    rig: Option<Rig>,
}

impl Hook {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let rig = runtime.block_on(Rig::start(nodes::healthy(), json!({})));
        Self {
            runtime,
            rig: Some(rig),
        }
    }

    fn send(&self, body: Vec<u8>) -> Answer {
        let rig = self.rig.as_ref().unwrap();
        let request = rig.request("POST", PATH).body(body);
        self.runtime.block_on(Answer::of(request))
    }

    /// The service and the node are as healthy as before.
    fn end(mut self) {
        let _inside = self.runtime.enter();
        let rig = self.rig.take().unwrap();
        let health = self.runtime.block_on(rig.get("/-/healthy"));
        assert_eq!(health.status, 200);
        let valid = self
            .runtime
            .block_on(rig.post_json(PATH, &call(vec![asks("all")])));
        assert!([200, 202].contains(&valid.status), "{}", valid.text);
        let panics = rig
            .log()
            .into_iter()
            .filter(|line| line.to_string().contains("panicked"));
        assert_eq!(panics.count(), 0);
        rig.nothing_was_touched();
    }
}

fn is_told(answer: &Answer, statuses: &[u16]) -> Result<(), TestCaseError> {
    prop_assert!(
        statuses.contains(&answer.status),
        "{}: {}",
        answer.status,
        answer.text
    );
    let body = answer.json();
    let word = if answer.status >= 400 {
        "error"
    } else {
        "result"
    };
    prop_assert!(
        body[word].as_str().is_some_and(|text| !text.is_empty()),
        "{}",
        body
    );
    Ok(())
}

#[test]
fn any_bytes_are_answered() {
    let hook = Hook::new();
    let noise = prop::collection::vec(any::<u8>(), 0..400);
    let bodies = prop_oneof![
        1 => noise,
        3 => edits(WORDS).prop_map(|edits| edited(sound(), &edits)),
        1 => deep(),
    ];
    asked(&bodies, |body| {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        let answer = hook.send(body);
        is_told(&answer, if is_json { &[200, 202, 400] } else { &[400] })
    });
    hook.end();
}

#[test]
fn a_body_is_obeyed_if_it_is_one_of_version_4_and_else_refused() {
    let hook = Hook::new();
    asked(&misled(), |body| {
        let answer = hook.send(body.to_string().into_bytes());
        let statuses: &[u16] = match (is_understood(&body), names_no_target(&body)) {
            (false, _) => &[400],
            (true, false) => &[200, 202],
            (true, true) => &[200, 202, 400],
        };
        is_told(&answer, statuses)
    });
    hook.end();
}

#[test]
fn a_body_is_refused_by_its_size_alone_above_the_limit() {
    let hook = Hook::new();
    let limit = crisweep::http::BODY_MAX_BYTES;
    let sizes = prop_oneof![Just(limit), Just(limit + 1), limit - 64..limit + 64];
    let few = proptest::test_runner::Config {
        cases: 24,
        ..super::cases()
    };
    let test = |size: usize| {
        let mut body = sound();
        body.resize(size, b' ');
        is_told(
            &hook.send(body),
            if size > limit { &[413] } else { &[200, 202] },
        )
    };
    proptest::test_runner::TestRunner::new(few)
        .run(&sizes, test)
        .unwrap();
    hook.end();
}
