//! What commands say of a service's answer that they cannot use: its own words, and the causes of a broken one.

use std::error::Error;
use std::io;

use serde_json::Value;

/// What is said of an answer in another form than this command reads.
pub(in crate::cli) const NOT_UNDERSTOOD: &str =
    "the service's answer is not understood (another version than this command?)";

/// Returns the service's own words of a refusal.
pub(super) fn said(body: &[u8]) -> String {
    let error: Option<Value> = serde_json::from_slice(body).ok();
    let own = error.as_ref().and_then(|it| it.get("error")?.as_str());
    if let Some(words) = own.map(str::trim).filter(|words| !words.is_empty()) {
        return words.chars().take(SAID_MAX_CHARS).collect();
    }
    // A proxy's page says nothing in its later lines.
    let text = String::from_utf8_lossy(body);
    match text.trim().lines().next() {
        Some(line) => line.chars().take(FOREIGN_MAX_CHARS).collect(),
        None => "without a reason".to_owned(),
    }
}

/// The longest text that a service may put into an error.
const SAID_MAX_CHARS: usize = 1_000;
/// The same for one that is no crisweep.
const FOREIGN_MAX_CHARS: usize = 120;

/// The last cause says most, and the URL is named already.
pub(super) fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut last: &(dyn Error + 'static) = &error;
    // `source` of an `io::Error` leaves out the error that it wraps.
    while let Some(source) = wrapped(last).or_else(|| last.source()) {
        last = source;
    }
    match last.downcast_ref() {
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS: use http://".to_owned(),
        _ => last.to_string(),
    }
}

fn wrapped<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    Some(error.downcast_ref::<io::Error>()?.get_ref()?)
}
