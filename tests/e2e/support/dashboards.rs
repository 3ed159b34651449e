//! The queries of the dashboards that this repository ships.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Returns each query with its variables set to match everything.
pub(crate) fn queries() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let mut queries = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|ending| ending == "json")
        {
            let dashboard = serde_json::from_slice(&fs::read(entry.path()).unwrap()).unwrap();
            collect(&dashboard, &mut queries);
        }
    }
    queries.sort();
    queries.dedup();
    queries
}

fn collect(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(query)) = members.get("expr") {
                queries.push(with_variables(query));
            }
            members.values().for_each(|member| collect(member, queries));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, queries)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn with_variables(query: &str) -> String {
    let query = query
        .replace("$__rate_interval", "5m")
        .replace("$__range", "5m");
    ["$cluster", "$job", "$instance", "$node"]
        .iter()
        .fold(query, |query, name| query.replace(name, ".*"))
}
