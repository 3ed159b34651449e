//! The JSON schemas of what is written by hand.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{ImageUse, Limit, PodKnowledge, Subject};
use crate::model::{PodRef, Target, Text};

/// The fields that [`Subject`] writes.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SubjectSchema {
    target: Target,
    /// Its full id; a log's path.
    id: Text,
    /// A container's name; a sandbox's pod name; an image's first tag; a log's file name.
    name: Text,
    /// Its pod; `null` if another tool made it.
    pod: Option<PodRef>,
    pod_state: PodKnowledge,
    attempt: u32,
    /// When it was created; an image: when crisweep first saw it; a log: when it last changed.
    created_at: Timestamp,
    /// When crisweep first saw it; images alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Timestamp")]
    first_seen_at: Option<Timestamp>,
    /// Seconds since the time that `min_age` counts from.
    age_seconds: i64,
    /// When an image was last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Timestamp")]
    last_used_at: Option<Timestamp>,
    /// An image's size as the runtime lists it, shared layers counted in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    size_bytes: Option<u64>,
}

impl JsonSchema for Subject {
    fn schema_name() -> Cow<'static, str> {
        "Subject".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SubjectSchema::json_schema(generator)
    }
}

impl JsonSchema for Limit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": -1 })
    }
}

#[test]
fn the_schema_of_a_subject_has_the_fields_that_are_written() {
    let subject = Subject {
        target: Target::Images,
        id: "sha256:1".into(),
        name: "busybox".into(),
        pod: None,
        pod_state: PodKnowledge::Unknown,
        attempt: 0,
        created_at: Timestamp::UNIX_EPOCH,
        age_seconds: 0,
        image: Some(Box::new(ImageUse {
            last_used_at: Some(Timestamp::UNIX_EPOCH),
            size_bytes: 1,
        })),
    };
    let written = serde_json::to_value(subject).unwrap();
    let schema = schemars::schema_for!(SubjectSchema).to_value();
    let keys = |of: &serde_json::Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&written), keys(&schema["properties"]));
}
