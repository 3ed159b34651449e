//! Reads the kubelet's texts. Errors name lines, never values: a file that is not the kubelet's may hold a secret.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::system::yaml;

/// The longest value that is kept.
pub(super) const TEXT_MAX: usize = 64;
/// The most levels of a configuration file.
const DEPTH_MAX: usize = 16;

/// Returns the flags of a command line that have a value; of one that stands twice the last. Names have dashes where
/// they may have underscores.
pub(super) fn flags(args: &[String]) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::new();
    let mut args = args.iter().skip(1).peekable();
    while let Some(arg) = args.next() {
        if arg == "--" {
            break;
        }
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            continue;
        };
        let (name, value) = if let Some((name, value)) = flag.split_once('=') {
            (name, Some(value.to_owned()))
        } else {
            // If a flag takes a value, the next word is that value, even `-1`. A switch takes none.
            let is_value = |next: &&String| !next.starts_with('-') || next.parse::<i64>().is_ok();
            (flag, args.next_if(is_value).cloned())
        };
        if let Some(value) = value {
            flags.insert(name.replace('_', "-"), unquoted(&value).to_owned());
        }
    }
    flags
}

/// Takes the quotes off that a service file without a shell leaves around a value.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        let inner = value
            .strip_prefix(quote)
            .and_then(|it| it.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner;
        }
    }
    value
}

/// Returns the value of a flag that is a path: `config`, the configuration file, or `config-dir`, its drop-ins.
pub(super) fn path<'a>(flags: &'a BTreeMap<String, String>, flag: &str) -> Option<&'a str> {
    let path = flags.get(flag).map(String::as_str);
    path.filter(|path| !path.is_empty())
}

/// Reads a configuration file: YAML, which JSON is too.
pub(super) fn document(text: &str) -> Result<Map<String, Value>, String> {
    let document = serde_saphyr::from_str_with_options(text, yaml::options(DEPTH_MAX));
    let document: Value =
        document.map_err(|error| format!("it is no YAML and no JSON: {}", yaml::place(&error)))?;
    if let Value::Object(keys) = document
        && keys.get("kind") == Some(&"KubeletConfiguration".into())
    {
        return Ok(keys);
    }
    Err("it is no KubeletConfiguration".to_owned())
}

pub(super) fn configz(bytes: &[u8]) -> Result<Value, String> {
    let answer: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("the answer is no JSON: line {}", error.line()))?;
    let config = answer.get("kubeletconfig").filter(|it| it.is_object());
    config
        .cloned()
        .ok_or_else(|| "the answer has no kubeletconfig".to_owned())
}

/// Returns a value as a short text; empty if it is a table, a list or long.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() <= TEXT_MAX => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(switch) => switch.to_string(),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => String::new(),
    }
}
