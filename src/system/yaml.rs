//! Bounds for YAML texts, and where their errors are.

use serde_saphyr::{Error, Options};

/// Returns options that refuse more than these levels of lists and tables: the parser recurses.
pub fn options(depth_max: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: depth_max },
        with_snippet: false,
    }
}

/// Returns the place of an error. Its own words may quote the text, secrets among them.
pub fn place(error: &Error) -> String {
    match error.location() {
        Some(at) => format!("line {}, column {}", at.line(), at.column()),
        None => "unknown line".to_owned(),
    }
}
