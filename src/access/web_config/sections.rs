//! The file's sections as they are written, and their check.

use std::collections::BTreeMap;
use std::path::Path;

use axum::http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::tls_keys::TlsKeys;
use super::{KeyRefusal, WebConfig};
use crate::access::passwords::{BasicAuthUsers, BcryptHash};
use crate::access::rate_limit::RateLimit;
use crate::access::yaml::YamlValue;
use crate::model::go_duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    tls_server_config: Option<TlsKeys>,
    http_server_config: Option<HttpKeys>,
    basic_auth_users: Option<BTreeMap<String, String>>,
    rate_limit: Option<RateLimitKeys>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpKeys {
    http2: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
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

/// Checks all sections; relative paths in them are below `dir`.
pub(super) fn read(tree: YamlValue, dir: &Path) -> Result<WebConfig, KeyRefusal> {
    let sections: Sections = serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        let key = if path == "." { String::new() } else { path };
        KeyRefusal::new(key, error.into_inner().to_string())
    })?;
    let tls = sections.tls_server_config.map(|keys| keys.check(dir));
    let http = sections.http_server_config.unwrap_or_default();
    let rate_limit = sections.rate_limit.unwrap_or_default();
    Ok(WebConfig {
        tls: tls.transpose()?.flatten(),
        http2: http.http2.unwrap_or(true),
        headers: headers(http.headers.unwrap_or_default())?,
        users: users(sections.basic_auth_users.unwrap_or_default())?,
        rate_limit: rate_limit.check()?,
    })
}

fn headers(
    written: BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, KeyRefusal> {
    let mut headers = Vec::new();
    for (name, value) in written {
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

fn users(written: BTreeMap<String, String>) -> Result<BasicAuthUsers, KeyRefusal> {
    let mut users = BTreeMap::new();
    for (name, hash) in written {
        let key = format!("basic_auth_users.{name}");
        if name.contains(':') {
            let why = "a user name with a colon cannot be sent with basic authentication";
            return Err(KeyRefusal::new(key, why));
        }
        let hash = BcryptHash::parse(&hash).map_err(|why| KeyRefusal::new(key, why))?;
        users.insert(name, hash);
    }
    Ok(BasicAuthUsers::new(users))
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
