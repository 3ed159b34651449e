//! Reads the configuration file into a tree.

use std::io::Read;
use std::path::Path;

use ::config::{ConfigError, File, FileFormat, Source};

use super::value::ConfigValue;
use super::{Error, yaml_bounds};

/// The largest file that is read.
pub(super) const FILE_MAX: u64 = 1 << 20;

/// Reads a file by its ending; an empty file is an empty table.
pub(super) fn read(path: &Path) -> Result<Vec<(String, ConfigValue)>, Error> {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .map(str::to_lowercase);
    let format = match ending.as_deref() {
        Some("yaml" | "yml") => FileFormat::Yaml,
        Some("toml") => FileFormat::Toml,
        _ => {
            // A missing file is a more useful error than a wrong ending.
            std::fs::metadata(path).map_err(|source| Error::Read {
                path: path.to_owned(),
                source,
            })?;
            let why = "unknown ending; a configuration file ends in .yaml, .yml or .toml";
            return Err(no_configuration(path, why));
        }
    };
    let text = read_text(path)?;
    // A byte order mark, as some editors write it, would be a part of the first key.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // A file with only comments, or only a document mark, is empty.
    let is_blank = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
    if text.lines().map(str::trim).all(is_blank) {
        return Ok(Vec::new());
    }
    if format == FileFormat::Yaml {
        yaml_bounds::check(text).map_err(|refused| Error::Syntax {
            path: path.to_owned(),
            source: Box::new(refused),
        })?;
    }
    let table = File::from_str(text, format).collect().map_err(|error| {
        // The parser's own error, without the wrapper's.
        let source = if let ConfigError::FileParse { cause, .. } = error {
            cause
        } else {
            Box::new(error)
        };
        Error::Syntax {
            path: path.to_owned(),
            source: without_excerpt(&source.to_string()).into(),
        }
    })?;
    let parts = table.into_iter();
    Ok(parts.map(|(key, value)| (key, value.into())).collect())
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

fn read_text(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    // Checked before opening: opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(no_configuration(path, "is not a file"));
    }
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bounded = file.take(FILE_MAX + 1);
    bounded.read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MAX {
        let why = format!("is larger than {FILE_MAX} bytes");
        return Err(no_configuration(path, why));
    }
    String::from_utf8(text).map_err(|_error| no_configuration(path, "is not text in UTF-8"))
}

fn no_configuration(path: &Path, why: impl Into<String>) -> Error {
    Error::NotConfiguration {
        path: path.to_owned(),
        why: why.into(),
    }
}
