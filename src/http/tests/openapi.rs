//! `docs/openapi.yaml`: its paths are written by hand, its schemas are those of the types that the service serialises.
//! Where `CRISWEEP_GENERATE` is set, the test writes the schemas anew.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};
use yaml_rust2::{YamlEmitter, YamlLoader};

use crate::doctor::Report;
use crate::gc::explain::ExplainAnswer;
use crate::gc::{Limit, Plan};
use crate::http::alerts::{Webhook, WebhookAnswer};
use crate::http::ask::{PASS_PARAMETERS, PLAN_PARAMETERS};
use crate::http::saved_plans::{KeptPlan, SavedPlanHead};
use crate::http::status::StatusAnswer;
use crate::model::{Evidence, Pass, Target};
use crate::state::{EvidenceFilter, PassFilter, RemovalFilter, RemovalRecord};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.yaml");
/// The generated part is what follows.
const MARK: &str = "  # Generated from the types (CRISWEEP_GENERATE=1): change nothing below.\n";

/// A saved plan, as it is sent: in pieces, the head first.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SavedPlan {
    #[serde(flatten)]
    head: SavedPlanHead,
    #[serde(flatten)]
    plan: Plan,
}

/// An error.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Error {
    /// What is wrong, and with which key, path or object.
    error: String,
}

/// As the configuration has it.
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

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    })
}

fn schemas() -> Map<String, Value> {
    let mut written = settings().for_serialize().into_generator();
    written.subschema_for::<Error>();
    written.subschema_for::<StatusAnswer>();
    written.subschema_for::<Plan>();
    written.subschema_for::<SavedPlan>();
    written.subschema_for::<SavedPlanHead>();
    written.subschema_for::<KeptPlan>();
    written.subschema_for::<ExplainAnswer>();
    written.subschema_for::<Report>();
    written.subschema_for::<Pass>();
    written.subschema_for::<RemovalRecord>();
    written.subschema_for::<Evidence>();
    written.subschema_for::<WebhookAnswer>();
    let mut read: SchemaGenerator = settings().into_generator();
    read.subschema_for::<Webhook>();
    let mut all = written.take_definitions(true);
    all.extend(read.take_definitions(true));
    all.extend(requests());
    all.sort_keys();
    for schema in all.values_mut() {
        plain(schema);
    }
    all
}

/// The parameters of requests that act, as JSON. The query has the same, as text.
fn requests() -> Map<String, Value> {
    let of = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let flag = json!({ "enum": [true, false, "true", "false"] });
    let words = Target::ALL.map(Target::label);
    let mut properties = Map::from_iter([
        (
            "target".to_owned(),
            json!({ "anyOf": [
                of("TargetWord"), { "type": "array", "minItems": 1, "items": of("TargetWord") },
            ] }),
        ),
        ("assume_finished_after".to_owned(), of("Duration")),
        ("max_dead".to_owned(), json!({ "type": "integer" })),
    ]);
    let request = |properties: &Map<String, Value>| json!({ "type": "object", "additionalProperties": false, "properties": properties });
    let plan = request(&properties);
    for (name, schema) in [
        ("dry_run", flag.clone()),
        ("max_removals", json!({ "type": "integer", "minimum": 1 })),
        ("plan", json!({ "type": "string" })),
        ("wait", of("Duration")),
        ("follow", flag.clone()),
        ("force", flag),
    ] {
        properties.insert(name.to_owned(), schema);
    }
    Map::from_iter([
        ("PlanRequest".to_owned(), plan),
        ("PassRequest".to_owned(), request(&properties)),
        (
            "TargetWord".to_owned(),
            json!({ "enum": words.iter().chain(&["all"]).collect::<Vec<_>>() }),
        ),
        (
            "Duration".to_owned(),
            json!({
                "description": "A number with its unit, such as 30s, 5m, 1h 30m or 7d; at most 100 years.",
                "type": "string",
                "pattern": "^(0|([0-9]+ ?[a-zµ]+ ?)+)$",
            }),
        ),
    ])
}

/// Leaves out what other tools do not know, and joins the lines of descriptions.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_number =
                |format: &Value| format.as_str().is_some_and(|it| it.starts_with("uint"));
            if fields.get("format").is_some_and(is_number) {
                fields.remove("format");
            }
            if fields.get("properties").is_none_or(Value::is_object) {
                fields.remove("default");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text
                    .replace('\n', " ")
                    .replace("[`", "`")
                    .replace("`]", "`");
            }
            for (_, field) in fields {
                plain(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn generated() -> String {
    let mut text = String::new();
    let all = Value::Object(Map::from_iter([(
        "schemas".to_owned(),
        Value::Object(schemas()),
    )]));
    // JSON is YAML.
    let all = YamlLoader::load_from_str(&all.to_string()).unwrap();
    YamlEmitter::new(&mut text).dump(&all[0]).unwrap();
    let lines = text.lines().skip(1);
    lines.fold(String::new(), |text, line| text + "  " + line + "\n")
}

#[test]
fn the_schemas_of_the_openapi_document_are_those_of_the_types() {
    let written = std::fs::read_to_string(FILE).unwrap();
    let (by_hand, _) = written.split_once(MARK).expect("the mark is missing");
    let wanted = format!("{by_hand}{MARK}{}", generated());
    if std::env::var_os("CRISWEEP_GENERATE").is_some() {
        std::fs::write(FILE, wanted).unwrap();
        return;
    }
    for (line, wanted) in written.lines().zip(wanted.lines()) {
        assert_eq!(
            line, wanted,
            "CRISWEEP_GENERATE=1 writes docs/openapi.yaml anew"
        );
    }
    assert_eq!(written.len(), wanted.len());
}

#[test]
fn the_openapi_document_names_the_parameters_that_are_known() {
    let text = std::fs::read_to_string(FILE).unwrap();
    for (name, known) in [
        ("PassRequest", &PASS_PARAMETERS[..]),
        ("PlanRequest", &PLAN_PARAMETERS),
    ] {
        let schema = requests().remove(name).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let named: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(named, known.iter().copied().collect(), "{name}");
    }
    let document: Value = serde_saphyr::from_str(&text).unwrap();
    for (path, method, known) in [
        ("/gc", "post", &PASS_PARAMETERS[..]),
        ("/api/v1/plan", "get", &PLAN_PARAMETERS),
        ("/api/v1/plans", "post", &PLAN_PARAMETERS),
        ("/api/v1/passes", "get", PassFilter::PARAMETERS),
        ("/api/v1/removals", "get", RemovalFilter::PARAMETERS),
        ("/api/v1/evidence", "get", EvidenceFilter::PARAMETERS),
    ] {
        let operation = &document["paths"][path][method];
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let named = parameters.map(|it| {
            let place = it["$ref"].as_str().and_then(|it| it.strip_prefix('#'));
            let it = place.map_or(it, |place| document.pointer(place).unwrap());
            it["name"].as_str().unwrap()
        });
        let (named, known): (BTreeSet<&str>, BTreeSet<&str>) =
            (named.collect(), known.iter().copied().collect());
        assert_eq!(named, known, "{method} {path} in docs/openapi.yaml");
    }
}
