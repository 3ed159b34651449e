//! `docs/openapi.yaml` and the router have the same paths and methods.

use std::collections::BTreeSet;

use crisweep::http::routes;
use serde_json::Value;

fn document() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn operations(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let each = paths.flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(|method| (path.clone(), method.to_uppercase()))
    });
    each.collect()
}

#[test]
fn the_openapi_document_has_the_routers_paths_and_methods() {
    let written = operations(&document());
    let served = routes().into_iter().map(|route| {
        let path = route.path.replace("{*", "{");
        (path, route.method.to_string())
    });
    let served: BTreeSet<_> = served.collect();
    let missing: Vec<_> = served.difference(&written).collect();
    assert!(
        missing.is_empty(),
        "docs/openapi.yaml lacks {missing:?}: write the operation under `paths`, by hand, like its neighbours (parameters, \
         every status, content types). If its answer is a new type, derive its schema with `#[cfg_attr(test, \
         derive(schemars::JsonSchema))]`, name the type in `schemas()` of src/http/tests/openapi.rs, refer to it as \
         `#/components/schemas/TYPE`, and run CRISWEEP_GENERATE=1 cargo nextest run --lib -E 'test(openapi)'. \
         `make api` then tries the operation on the demo"
    );
    let gone: Vec<_> = written.difference(&served).collect();
    assert!(
        gone.is_empty(),
        "docs/openapi.yaml has {gone:?}, which src/http.rs does not serve: delete the operation"
    );
}

#[test]
fn every_operation_says_what_it_answers_and_every_error_is_json() {
    let document = document();
    let problem = "#/components/schemas/Error";
    let mut ids = BTreeSet::new();
    for (path, method) in operations(&document) {
        let operation = &document["paths"][&path][method.to_lowercase()];
        let what = format!("{method} {path}");
        let id = operation["operationId"].as_str().expect(&what);
        assert!(ids.insert(id.to_owned()), "{what}: {id} is there twice");
        assert!(operation["summary"].is_string(), "{what}: no summary");
        let parameters = operation["parameters"].as_array();
        let in_path = path.matches('{').count();
        let named = parameters.map_or(0, |them| {
            let is_in_path = |it: &&Value| resolved(&document, it)["in"] == "path";
            them.iter().filter(is_in_path).count()
        });
        assert_eq!(named, in_path, "{what}: parameters in its path");
        for (status, answer) in operation["responses"].as_object().expect(&what) {
            let answer = resolved(&document, answer);
            let content = answer["content"].as_object();
            let content = content.unwrap_or_else(|| panic!("{what} {status}: no content"));
            if status.starts_with('2') {
                continue;
            }
            let schema = content["application/json"]["schema"].to_string();
            assert!(schema.contains(problem), "{what} {status}: {schema}");
        }
    }
}

fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(place) => document
            .pointer(place.trim_start_matches('#'))
            .expect(place),
        None => part,
    }
}

#[test]
fn every_reference_of_the_openapi_document_leads_somewhere() {
    fn follow(document: &Value, part: &Value) -> usize {
        match part {
            Value::Object(fields) => {
                if let Some(place) = part["$ref"].as_str() {
                    resolved(document, part);
                    assert!(place.starts_with("#/components/"), "{place}");
                    return 1;
                }
                fields.values().map(|it| follow(document, it)).sum()
            }
            Value::Array(items) => items.iter().map(|it| follow(document, it)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }
    let document = document();
    assert!(follow(&document, &document) > 100);
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}
