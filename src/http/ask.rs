//! The parameters of a pass and of a saved plan, from the query and a JSON body.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::{HttpError, QueryPairs};
use crate::gc::{Limit, PassOptions};
use crate::model::setting::parse_duration;
use crate::model::{Target, Targets, pairs};

/// The longest time that a request may wait for its pass.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The parameters of a pass.
pub(super) const PASS_PARAMETERS: [&str; 9] = [
    "target",
    "dry_run",
    "max_removals",
    "assume_finished_after",
    "max_dead",
    "plan",
    "wait",
    "follow",
    "force",
];

/// The parameters of a saved plan.
pub(super) const PLAN_PARAMETERS: [&str; 3] = ["target", "assume_finished_after", "max_dead"];

/// What a request asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PassRequest {
    /// What to clean.
    pub(super) targets: BTreeSet<Target>,
    /// Says whether the targets were named; otherwise they are all.
    pub(super) names_targets: bool,
    /// The id of the saved plan to carry out.
    pub(super) plan: Option<String>,
    pub(super) options: PassOptions,
    /// Answer when the pass is done, or after this time.
    pub(super) wait: Option<Duration>,
    /// Answer with its progress.
    pub(super) follow: bool,
}

/// Reads the parameters from the query and the JSON body together; those that are not `known` are refused.
pub(super) fn read(
    query: QueryPairs,
    body: &[u8],
    known: &[&str],
) -> Result<PassRequest, HttpError> {
    let mut parameters = query;
    parameters.extend(read_json(body)?);
    let mut ask = PassRequest::default();
    let mut words = Vec::new();
    let mut seen = BTreeSet::new();
    for (key, value) in &parameters {
        if key != "target" && !seen.insert(key.as_str()) {
            let error = format!("parameter \"{key}\" is given more than once");
            return Err(HttpError::bad(error));
        }
        if !known.contains(&key.as_str()) {
            let known = known.join(", ");
            let error = format!("unknown parameter \"{key}\"; parameters are {known}");
            return Err(HttpError::bad(error));
        }
        match key.as_str() {
            "target" => words.push(value.as_str()),
            "dry_run" => ask.options.dry_run = flag(key, value)?,
            "force" => ask.options.force = flag(key, value)?,
            "follow" => ask.follow = flag(key, value)?,
            "max_removals" => ask.options.max_removals = Some(count(key, value)?),
            "assume_finished_after" => {
                ask.options.assume_finished_after = Some(duration(key, value)?);
            }
            "max_dead" => ask.options.max_dead = Some(max_dead(key, value)?),
            "plan" => ask.plan = Some(value.clone()),
            "wait" => ask.wait = Some(wait(key, value)?),
            _ => {}
        }
    }
    for word in words {
        let named: Result<Targets, _> = word.parse();
        let named = named.map_err(|error| HttpError::bad(error.to_string()))?;
        ask.targets.extend(named.0);
    }
    ask.names_targets = !ask.targets.is_empty();
    if !ask.names_targets {
        ask.targets = Target::ALL.into();
    }
    Ok(ask)
}

/// Flattens the body's JSON object into query pairs.
fn read_json(body: &[u8]) -> Result<QueryPairs, HttpError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    // In their order, duplicates included: a map would keep only the last of two equal keys, and could lose `dry_run`.
    let mut reader = serde_json::Deserializer::from_slice(body);
    let fields = pairs(&mut reader, "an object");
    let fields = fields.and_then(|fields: Vec<(String, Value)>| reader.end().map(|()| fields));
    let fields = fields.map_err(|error| {
        let what = if error.is_data() {
            "must be a JSON object"
        } else {
            "is not JSON"
        };
        HttpError::bad(format!("the body {what}: {error}"))
    })?;
    let mut pairs = Vec::new();
    for (key, value) in fields {
        let values = match value.as_array() {
            // An empty list would mean all targets.
            Some(values) if key == "target" && !values.is_empty() => values.clone(),
            Some(_) | None => vec![value],
        };
        for value in values {
            let text = match value {
                Value::String(text) => text,
                Value::Bool(flag) => flag.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Null => return Err(wrong_type(&key, "null")),
                Value::Array(items) if items.is_empty() => {
                    return Err(wrong_type(&key, "an empty list"));
                }
                Value::Array(_) => return Err(wrong_type(&key, "a list")),
                Value::Object(_) => return Err(wrong_type(&key, "an object")),
            };
            pairs.push((key.clone(), text));
        }
    }
    Ok(pairs)
}

fn wrong_type(key: &str, is: &str) -> HttpError {
    must_be(key, "a text, a number, true or false", is)
}

fn must_be(key: &str, wanted: &str, is: &str) -> HttpError {
    HttpError::bad(format!("parameter \"{key}\" must be {wanted}, not {is}"))
}

fn flag(key: &str, value: &str) -> Result<bool, HttpError> {
    match value {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(must_be(key, "true or false", &format!("\"{value}\""))),
    }
}

/// Refuses zero: in the configuration it means "no limit", and a person who types `max_removals=0` hardly means
/// that.
fn count(key: &str, value: &str) -> Result<u64, HttpError> {
    let count = value.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| {
        let is = format!("\"{value}\"; dry_run=true removes nothing");
        must_be(key, "a whole number from 1", &is)
    })
}

fn max_dead(key: &str, value: &str) -> Result<Limit, HttpError> {
    let number = value.parse().map(Limit::from_config).ok();
    number.ok_or_else(|| {
        let is = format!("\"{value}\"; below 0 means no limit");
        must_be(key, "a whole number", &is)
    })
}

fn duration(key: &str, value: &str) -> Result<Duration, HttpError> {
    parse_duration(value).map_err(|wanted| must_be(key, &wanted, &format!("\"{value}\"")))
}

fn wait(key: &str, value: &str) -> Result<Duration, HttpError> {
    let wait = duration(key, value)?;
    if wait > WAIT_MAX {
        let error = format!("parameter \"{key}\" must be at most 1h");
        return Err(HttpError::bad(error));
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query: &[(&str, &str)], body: &str) -> Result<PassRequest, String> {
        let query = query
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        read(query, body.as_bytes(), &PASS_PARAMETERS).map_err(|problem| problem.error)
    }

    #[test]
    fn nothing_asked_for_is_a_pass_over_all() {
        let asked = ask(&[], "").unwrap();
        assert_eq!(asked.targets, Target::ALL.into());
        assert_eq!(asked.options, PassOptions::default());
    }

    #[test]
    fn query_and_body_add_up() {
        let asked = ask(
            &[("target", "containers"), ("wait", "60s"), ("follow", "")],
            r#"{"dry_run": true, "max_removals": 7, "assume_finished_after": "1h", "force": false, "max_dead": 0}"#,
        )
        .unwrap();
        assert_eq!(asked.targets, [Target::Containers].into());
        assert!(asked.options.dry_run && asked.follow && !asked.options.force);
        assert_eq!(asked.options.max_removals, Some(7));
        assert_eq!(
            asked.options.assume_finished_after,
            Some(Duration::from_secs(3600))
        );
        assert_eq!(asked.options.max_dead, Some(Limit::AtMost(0)));
        assert_eq!(asked.wait, Some(Duration::from_secs(60)));
        let both = ask(&[], r#"{"target": ["containers", "sandboxes"]}"#).unwrap();
        assert_eq!(both.targets.len(), 2);
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        for (query, body, wanted) in [
            (vec![("target", "pods")], "", "unknown target \"pods\""),
            (vec![("dryrun", "true")], "", "unknown parameter \"dryrun\""),
            (
                vec![("dry_run", "yes")],
                "",
                "\"dry_run\" must be true or false",
            ),
            (
                vec![("dry_run", "true"), ("dry_run", "false")],
                "",
                "more than once",
            ),
            (
                vec![("dry_run", "true")],
                r#"{"dry_run": false}"#,
                "more than once",
            ),
            (
                vec![("max_removals", "0")],
                "",
                "from 1, not \"0\"; dry_run=true removes nothing",
            ),
            (vec![("max_removals", "-1")], "", "from 1"),
            (
                vec![("max_dead", "few")],
                "",
                "whole number, not \"few\"; below 0 means no limit",
            ),
            (vec![("max_dead", "1.5")], "", "whole number"),
            (vec![("wait", "soon")], "", "\"wait\" must be a duration"),
            (vec![("wait", "2h")], "", "at most 1h"),
            (vec![], "dry_run=true", "not JSON"),
            (vec![], "[1]", "JSON object"),
            (
                vec![],
                r#"{"dry_run": null}"#,
                "\"dry_run\" must be a text, a number, true or false, not null",
            ),
            (vec![], r#"{"target": {"a": 1}}"#, "not an object"),
            (vec![], r#"{"target": []}"#, "not an empty list"),
            (vec![], r#"{"wait": [1]}"#, "not a list"),
            (
                vec![],
                r#"{"dry_run": true, "dry_run": false}"#,
                "more than once",
            ),
        ] {
            let error = ask(&query, body).unwrap_err();
            assert!(error.contains(wanted), "{query:?} {body}: {error}");
        }
    }
}
