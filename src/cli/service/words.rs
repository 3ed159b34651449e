//! What commands say of a service's answer that they cannot use: its own words, and the causes of a broken one.

use serde_json::Value;

/// What is said of an answer in another form than this command reads.
pub(in crate::cli) const NOT_UNDERSTOOD: &str =
    "the service's answer is not understood (another version than this command?)";

/// Returns the service's own words of a refusal.
pub(super) fn said(body: &[u8]) -> String {
    if let Some(words) = own_words(body) {
        return words;
    }
    // A proxy's page says nothing in its later lines.
    let text = String::from_utf8_lossy(body);
    match text.trim().lines().next() {
        Some(line) => line.chars().take(FOREIGN_MAX_CHARS).collect(),
        None => "without a reason".to_owned(),
    }
}

/// Returns the words of an answer in crisweep's form.
pub(super) fn own_words(body: &[u8]) -> Option<String> {
    let error: Value = serde_json::from_slice(body).ok()?;
    let words = error.get("error")?.as_str()?.trim();
    (!words.is_empty()).then(|| words.chars().take(SAID_MAX_CHARS).collect())
}

/// The longest text that a service may put into an error.
const SAID_MAX_CHARS: usize = 1_000;
/// The same for one that is no crisweep.
const FOREIGN_MAX_CHARS: usize = 120;

/// The last cause says most, and the URL is named already.
pub(super) fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut last: &(dyn std::error::Error + 'static) = &error;
    loop {
        if is_plain_http(last) {
            return "what listens there speaks no TLS; ask it by http://".to_owned();
        }
        match last.source() {
            Some(source) => last = source,
            None => return last.to_string(),
        }
    }
}

/// Says whether the answer to a TLS greeting was no TLS.
fn is_plain_http(mut error: &(dyn std::error::Error + 'static)) -> bool {
    // `source` of an IO error skips what it holds, which may be another one.
    while let Some(inner) = error.downcast_ref().and_then(std::io::Error::get_ref) {
        error = inner;
    }
    let wrong = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    error.downcast_ref() == Some(&wrong)
}
