//! Bounds for YAML texts, and where their errors are.

use serde_saphyr::{Error, Options};

/// Returns options that refuse more than these levels of lists and tables: the parser recurses.
pub fn options(depth_max: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: depth_max },
        with_snippet: false,
    }
}

/// Refuses a text with a NUL character: the parser takes it for the end of the text, and ignores what follows. A file that
/// was written shortly before a power failure may end in such characters, or have them in the middle.
///
/// # Errors
/// What is wrong.
pub fn without_nul(text: &str) -> Result<(), &'static str> {
    if text.contains('\0') {
        return Err("it has a NUL character: it was not written whole");
    }
    Ok(())
}

/// Returns the place of an error. Its own words may quote the text, secrets among them.
pub fn place(error: &Error) -> String {
    match error.location() {
        Some(at) => format!("line {}, column {}", at.line(), at.column()),
        None => "unknown line".to_owned(),
    }
}

/// Returns what is wrong. The parser's own words may quote a value, and that may be a secret: these name keys alone.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "an error that is not known to be without values is not quoted"
)]
pub fn why(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField {
            field, expected, ..
        } => format!(
            "unknown field `{field}`, expected one of {}",
            expected.join(", ")
        ),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key} stands twice"),
        Error::Unexpected { expected, .. } => {
            let kind = expected.trim_end_matches(" start");
            format!("must be a {}", kind.trim_end_matches(" scalar"))
        }
        Error::NullIntoString { .. } => "has no value".to_owned(),
        Error::MultipleDocuments { .. } => "a second document begins".to_owned(),
        Error::MergeKeyNotAllowed { .. } => "merge keys are not supported".to_owned(),
        Error::Budget { breach, .. } => format!("more than it may hold: {breach:?}"),
        _ => "not a YAML text of this format".to_owned(),
    }
}
