//! Reads the configuration file into a tree.

use std::path::Path;

use ::config::{ConfigError, File, FileFormat, Map, Source, Value};
use serde_saphyr::options::MergeKeyPolicy;

use super::Error;
use super::value::ConfigValue;
use crate::system::{file, yaml};

/// The largest file that is read.
pub(super) const FILE_MAX: u64 = 1 << 20;
/// The most levels of lists and tables; a configuration has five.
const DEPTH_MAX: usize = 32;
/// The most bytes of all values, also where aliases are, and the most values there: a small file could use up the memory.
const TEXT_MAX: usize = 2 << 20;
const ALIASED_MAX: usize = 10_000;

/// Reads a file by its ending; an empty file is an empty table.
pub(super) fn read(path: &Path) -> Result<Vec<(String, ConfigValue)>, Error> {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .map(str::to_lowercase);
    let table: fn(&str) -> Result<Map<String, Value>, String> = match ending.as_deref() {
        Some("yaml" | "yml") => yaml_table,
        Some("toml") => toml_table,
        _ => {
            // A missing file is a more useful error than a wrong ending.
            std::fs::metadata(path).map_err(|source| unread(path, source))?;
            let why = "unknown ending; a configuration file ends in .yaml, .yml or .toml";
            return Err(no_configuration(path, why));
        }
    };
    let text = file::open(path).and_then(|mut file| file::text(&mut file, FILE_MAX));
    let text = text.map_err(|source| unread(path, source))?;
    yaml::without_nul(&text).map_err(|why| no_configuration(path, why))?;
    // A byte order mark, as some editors write it, would be a part of the first key.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // A file with only comments, or only a document mark, is empty.
    let is_blank = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
    if text.lines().map(str::trim).all(is_blank) {
        return Ok(Vec::new());
    }
    let table = table(text).map_err(|why| Error::Syntax {
        path: path.to_owned(),
        source: why.into(),
    })?;
    let parts = table.into_iter();
    Ok(parts.map(|(key, value)| (key, value.into())).collect())
}

fn yaml_table(text: &str) -> Result<Map<String, Value>, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, max_total_scalar_bytes: TEXT_MAX },
        merge_keys: MergeKeyPolicy::Error,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIASED_MAX },
        strict_booleans: true,
        with_snippet: false,
    };
    let documents = serde_saphyr::from_multiple_with_options(text, options);
    let mut documents: Vec<_> =
        documents.map_err(|error| format!("{}: {}", yaml::place(&error), yaml::why(&error)))?;
    match documents.len() {
        1 => Ok(documents.remove(0)),
        count => Err(format!("{count} YAML documents")),
    }
}

fn toml_table(text: &str) -> Result<Map<String, Value>, String> {
    let table = File::from_str(text, FileFormat::Toml).collect();
    table.map_err(|error| {
        // The parser's own error, without the wrapper's.
        let error = if let ConfigError::FileParse { cause, .. } = error {
            cause.to_string()
        } else {
            error.to_string()
        };
        without_excerpt(&error)
    })
}

/// Leaves out the line of the file that the TOML parser repeats: a password may stand there.
fn without_excerpt(error: &str) -> String {
    let is_excerpt = |line: &&str| {
        let line = line.trim_start_matches(|it: char| it == ' ' || it.is_ascii_digit());
        line.starts_with('|')
    };
    let told = error.lines().filter(|line| !is_excerpt(line));
    told.collect::<Vec<_>>().join(": ")
}

fn unread(path: &Path, source: std::io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}

fn no_configuration(path: &Path, why: impl Into<String>) -> Error {
    Error::NotConfiguration {
        path: path.to_owned(),
        why: why.into(),
    }
}
