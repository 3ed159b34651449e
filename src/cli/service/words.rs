//! What commands say of a service's answer that they cannot use: its own words, and the causes of a broken one.

use std::error::Error;

use rustls::AlertDescription as Alert;
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

/// What the TLS library says of an answer that is none of TLS.
pub(super) const NO_TLS: rustls::Error =
    rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);

/// The last cause says most, and the URL is named already.
pub(super) fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    if of_tls(&error) == Some(&NO_TLS) {
        return "what listens there speaks no TLS; ask it by http://".to_owned();
    }
    let mut last: &(dyn Error + 'static) = &error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// How servers refuse a client certificate.
const REFUSED: [Alert; 6] = [
    Alert::AccessDenied,
    Alert::BadCertificate,
    Alert::CertificateExpired,
    Alert::CertificateRevoked,
    Alert::CertificateUnknown,
    Alert::UnknownCA,
];

/// Says what to do where the service ends the handshake because of the client's certificate, or for want of one.
pub(super) fn wants_certificate(error: &reqwest::Error, is_named: bool) -> Option<String> {
    let Some(rustls::Error::AlertReceived(alert)) = of_tls(error) else {
        return None;
    };
    if REFUSED.contains(alert) {
        return Some(format!(
            "it does not take the certificate of --service.cert-file ({alert:?})"
        ));
    }
    if *alert != Alert::CertificateRequired {
        return None;
    }
    let name = "name one with --service.cert-file and --service.key-file";
    let socket = "add a unix socket to web.listen, or name the service with --service.url and ";
    let socket = if is_named { "" } else { socket };
    Some(format!("it wants a client certificate; {socket}{name}"))
}

/// Returns the error of the TLS library among the causes.
pub(super) fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // `source` of an IO error skips what it holds, which may be another one.
        let held = error.downcast_ref().and_then(std::io::Error::get_ref);
        at = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}
