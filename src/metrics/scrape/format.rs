//! The format and deadline that a scraper requests in its headers. Never fails: an invalid header counts as
//! missing.

use std::time::Duration;

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

/// How well a media range fits: its quality, then how exactly it names the type.
type Rank = (f32, u8);

impl Format {
    /// Chooses by an `Accept` header: `OpenMetrics` only if the client prefers it to text.
    pub fn from_accept(accept: Option<&str>) -> Self {
        let accept = accept.unwrap_or_default().to_ascii_lowercase();
        let best = |media_type| {
            let ranks = accept.split(',').map(|range| rank(range, media_type));
            ranks.fold(None, |best, new| if new > best { new } else { best })
        };
        let openmetrics = best(["application", "openmetrics-text", "1.0.0"]);
        let text = best(["text", "plain", "0.0.4"]);
        if openmetrics > text && openmetrics > Some((0.0, u8::MAX)) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Returns the `Content-Type` of the page.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Returns how well an element of an `Accept` header fits a type with this version; `None` if it does not cover it.
fn rank(range: &str, [kind, subtype, version]: [&str; 3]) -> Option<Rank> {
    let mut parts = range.split(';').map(str::trim);
    let exactness = match parts.next()?.split_once('/')? {
        ("*", "*") => 0,
        (it, "*") if it == kind => 1,
        names if names == (kind, subtype) => 2,
        _ => return None,
    };
    let mut quality = 1.0;
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        let value = value.trim().trim_matches('"');
        match name.trim() {
            "q" => quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?,
            "version" if value != version => return None,
            _ => {}
        }
    }
    Some((quality, exactness))
}

/// Default without a header: Prometheus gives up after 10 s by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(9_500);
const SHORTEST_SECONDS: f64 = 0.1;
const LONGEST_SECONDS: f64 = 60.0;
/// Time reserved for sending the answer: this share, but no more than this time.
const MARGIN_RATIO: f64 = 0.1;
const MARGIN_MAX_SECONDS: f64 = 0.5;

/// Reads `X-Prometheus-Scrape-Timeout-Seconds`; returns how long the scrape may take here, less the time for
/// sending.
pub fn timeout_from_header(header: Option<&str>) -> Duration {
    let seconds = header.and_then(|header| header.trim().parse::<f64>().ok());
    let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0) else {
        return DEFAULT_TIMEOUT;
    };
    let margin = (seconds * MARGIN_RATIO).min(MARGIN_MAX_SECONDS);
    Duration::from_secs_f64((seconds - margin).clamp(SHORTEST_SECONDS, LONGEST_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_openmetrics() {
        let v2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                  version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let v3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                  application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;\
                  escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,/;q=0.1";
        for accept in [
            v2,
            v3,
            "application/openmetrics-text",
            "Application/OpenMetrics-Text, */*",
        ] {
            assert_eq!(
                Format::from_accept(Some(accept)),
                Format::OpenMetrics,
                "{accept}"
            );
        }
    }

    #[test]
    fn everyone_else_gets_text() {
        let prefers_text = "text/plain;version=0.0.4, application/openmetrics-text;q=0.5";
        for accept in [
            "*/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            prefers_text,
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;version=2.0.0, */*;q=0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0, */*",
            "application/openmetrics-text;q=lots",
            "application/openmetrics-text;q=7",
            "application/openmetrics-text, text/plain",
            "",
            ";;,=/",
        ] {
            assert_eq!(Format::from_accept(Some(accept)), Format::Text, "{accept}");
        }
        assert_eq!(Format::from_accept(None), Format::Text);
    }

    #[test]
    fn the_timeout_leaves_time_for_the_way_back() {
        let of = |header| timeout_from_header(Some(header)).as_secs_f64();
        assert!((of("10") - 9.5).abs() < 1e-9);
        assert!((of(" 1.0 ") - 0.9).abs() < 1e-9);
        assert!((of("0.001") - 0.1).abs() < 1e-9);
        assert!((of("60.5") - 60.0).abs() < 1e-9);
        assert!((of("1e300") - 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_timeout_that_makes_no_sense_is_ignored() {
        for header in ["", "soon", "-1", "0", "NaN", "inf", "-inf", "1e999"] {
            assert_eq!(
                timeout_from_header(Some(header)),
                DEFAULT_TIMEOUT,
                "{header}"
            );
        }
        assert_eq!(timeout_from_header(None), DEFAULT_TIMEOUT);
    }
}
