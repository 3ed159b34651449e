//! The file's sections as they are written, and their check.

use std::collections::BTreeMap;
use std::path::Path;

use axum::http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_path_to_error::{Deserializer, Track};
use serde_saphyr::Options;
use serde_saphyr::options::MergeKeyPolicy;

use super::tls_keys::{TlsKeys, flag};
use super::{KeyRefusal, WebConfig};
use crate::access::passwords::{BasicAuthUsers, BcryptHash};
use crate::access::rate_limit::RateLimit;
use crate::model::go_duration;
use crate::system::yaml;

/// The most levels of lists and tables; a web configuration has three.
const DEPTH_MAX: usize = 8;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    tls_server_config: Option<TlsKeys>,
    http_server_config: Option<HttpKeys>,
    basic_auth_users: Option<BTreeMap<String, Option<String>>>,
    rate_limit: Option<RateLimitKeys>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpKeys {
    http2: Option<Value>,
    headers: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateLimitKeys {
    interval: Option<String>,
    burst: Option<String>,
}

/// The headers that may be set, and their allowed values if not each one is.
const HEADERS: &[(&str, &[&str])] = &[
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// Reads and checks all sections; relative paths in them are below `dir`.
pub(super) fn read(text: &str, dir: &Path) -> Result<WebConfig, KeyRefusal> {
    yaml::without_nul(text).map_err(|why| KeyRefusal::new("", why))?;
    let mut track = Track::new();
    let sections = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |from| {
        Option::<Sections>::deserialize(Deserializer::new(from, &mut track))
    });
    // The first parse ignores a malformed text after the document, and would lose users; the second refuses it.
    let whole = || serde_saphyr::from_multiple_with_options::<IgnoredAny>(text, options());
    let sections = sections.and_then(|sections| whole().map(|_is_well_formed| sections));
    let sections = sections.map_err(|error| {
        let path = track.path().to_string();
        // The last part is unknown while a key is read.
        let key = path.strip_suffix(".?").unwrap_or(&path);
        let key = if [".", "?"].contains(&key) { "" } else { key };
        let (at, why) = (yaml::place(&error), yaml::why(&error));
        KeyRefusal::new(key, format!("{at}: {why}"))
    })?;
    let sections = sections.unwrap_or_default();
    let tls = sections.tls_server_config.map(|keys| keys.check(dir));
    let http = sections.http_server_config.unwrap_or_default();
    let rate_limit = sections.rate_limit.unwrap_or_default();
    Ok(WebConfig {
        tls: tls.transpose()?.flatten(),
        http2: flag("http_server_config.http2", http.http2)?,
        headers: headers(http.headers.unwrap_or_default())?,
        users: users(sections.basic_auth_users.unwrap_or_default())?,
        rate_limit: rate_limit.check()?,
    })
}

/// Fewer ways to write a file: no anchors, aliases and merge keys.
fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_depth: DEPTH_MAX,
        max_anchors: 0,
        max_aliases: 0,
    };
    serde_saphyr::options! {
        budget: budget,
        merge_keys: MergeKeyPolicy::Error,
        with_snippet: false,
    }
}

fn headers(
    written: BTreeMap<String, Option<String>>,
) -> Result<Vec<(HeaderName, HeaderValue)>, KeyRefusal> {
    let mut headers = Vec::new();
    for (name, value) in written {
        let value = value.unwrap_or_default();
        let key = format!("http_server_config.headers.{name}");
        let refuse = |why: String| Err(KeyRefusal::new(key, why));
        let Some((_, allowed)) = HEADERS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = HEADERS.iter().map(|(known, _)| *known).collect();
            return refuse(format!("only {} may be set", known.join(", ")));
        };
        if !allowed.is_empty() && !allowed.contains(&value.as_str()) {
            return refuse(format!("must be {}", allowed.join(" or ")));
        }
        if value.is_empty() {
            continue;
        }
        match (name.parse(), HeaderValue::from_str(&value)) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            (Err(_), _) | (_, Err(_)) => {
                return refuse("not a valid header: only visible ASCII characters".to_owned());
            }
        }
    }
    Ok(headers)
}

fn users(written: BTreeMap<String, Option<String>>) -> Result<BasicAuthUsers, KeyRefusal> {
    let mut users = BTreeMap::new();
    for (name, hash) in written {
        let key = format!("basic_auth_users.{name}");
        if name.contains(':') {
            let why = "a user name with a colon cannot be sent with basic authentication";
            return Err(KeyRefusal::new(key, why));
        }
        let hash = BcryptHash::parse(&hash.unwrap_or_default())
            .map_err(|why| KeyRefusal::new(key, why))?;
        users.insert(name, hash);
    }
    Ok(users)
}

impl RateLimitKeys {
    fn check(self) -> Result<Option<RateLimit>, KeyRefusal> {
        let refuse = |key: &str, why: &str| Err(KeyRefusal::new(format!("rate_limit.{key}"), why));
        let burst = self.burst.as_deref().unwrap_or("0").parse();
        let Ok(burst) = burst else {
            return refuse("burst", "must be a whole number of zero or more");
        };
        let interval = self.interval.as_deref().unwrap_or("0");
        let Some(interval) = go_duration(interval) else {
            return refuse(
                "interval",
                "must be 0 or a duration with its unit, for example 100ms or 1m30s",
            );
        };
        if interval.is_zero() {
            return Ok(None);
        }
        if burst == 0 {
            return refuse(
                "burst",
                "must be at least 1, or every request would be refused",
            );
        }
        Ok(Some(RateLimit { interval, burst }))
    }
}
