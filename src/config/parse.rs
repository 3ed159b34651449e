//! From what was written to what it means: one function for each type of value. A refusal says what
//! would be right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;

use super::given::Given;

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Where below the key, such as `[1].targets`; empty for the key's value itself.
    pub(super) at: String,
    /// The reason, to stand after the key and a colon.
    pub(super) text: String,
}

impl Refusal {
    /// Refuses for a reason that needs no value.
    pub(super) fn because(text: impl Into<String>) -> Vec<Self> {
        vec![Self {
            at: String::new(),
            text: text.into(),
        }]
    }

    /// Moves refusals below `at`.
    pub(super) fn below(at: &str, refusals: Vec<Self>) -> Vec<Self> {
        let moved = |refusal: Self| Self {
            at: format!("{at}{}", refusal.at),
            ..refusal
        };
        refusals.into_iter().map(moved).collect()
    }
}

/// A value, or all that is wrong with it.
pub(super) type Parsed<T> = Result<T, Vec<Refusal>>;

/// Refuses `given`, saying what it must be.
pub(super) fn must<T>(given: &Given, be: &str) -> Parsed<T> {
    Err(Refusal::because(format!("is {given}, but must be {be}")))
}

/// The longest duration that is taken: what adds to any clock reading without running over.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Reads a duration such as `90s`, `5m`, `1h 30m`, `7d` or `0`.
///
/// # Errors
/// Says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let zero = matches!(text, "0").then_some(Duration::ZERO);
    match zero.or_else(|| humantime::parse_duration(text).ok()) {
        Some(duration) if duration <= DURATION_MAX => Ok(duration),
        Some(_) => Err("a duration of at most 100 years".to_owned()),
        None => Err("a duration with its unit, such as 30s, 5m, 1h or 7d".to_owned()),
    }
}

/// A duration; 0 is fine.
pub(super) fn duration(given: &Given) -> Parsed<Duration> {
    let parsed = match given {
        Given::Text(text) => parse_duration(text),
        Given::Integer(0) => Ok(Duration::ZERO),
        Given::Null
        | Given::Bool(_)
        | Given::Integer(_)
        | Given::Float(_)
        | Given::Plain(_)
        | Given::List(_)
        | Given::Table(_) => parse_duration(""),
    };
    parsed.or_else(|be| must(given, &be))
}

/// A duration above 0.
pub(super) fn positive_duration(given: &Given) -> Parsed<Duration> {
    match duration(given)? {
        Duration::ZERO => must(given, "more than 0, such as 10s"),
        duration => Ok(duration),
    }
}

/// A duration where 0 means off.
pub(super) fn duration_or_off(given: &Given) -> Parsed<Option<Duration>> {
    Ok(Some(duration(given)?).filter(|duration| !duration.is_zero()))
}

/// A number of bytes, plain or with a unit.
pub(super) fn size(given: &Given, min: u64, max: u64) -> Parsed<u64> {
    let bytes = match given {
        Given::Integer(bytes) => u64::try_from(*bytes).ok(),
        Given::Text(text) => text
            .trim()
            .parse::<ByteSize>()
            .ok()
            .map(|size| size.as_u64()),
        Given::Null
        | Given::Bool(_)
        | Given::Float(_)
        | Given::Plain(_)
        | Given::List(_)
        | Given::Table(_) => None,
    };
    match bytes {
        Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes),
        Some(_) => must(given, &format!("from {min} to {max} bytes")),
        None => must(given, "a size such as 128MiB, or a number of bytes"),
    }
}

/// `true` or `false`.
pub(super) fn boolean(given: &Given) -> Parsed<bool> {
    if let Given::Bool(value) = given {
        Ok(*value)
    } else {
        must(given, "true or false")
    }
}

/// A whole number within bounds.
pub(super) fn whole<T: TryFrom<i128>>(given: &Given, min: i128, max: i128) -> Parsed<T> {
    if let Given::Integer(number) = given
        && (min..=max).contains(number)
        && let Ok(number) = T::try_from(*number)
    {
        return Ok(number);
    }
    must(given, &format!("a whole number from {min} to {max}"))
}

/// A whole number where 0 means off.
pub(super) fn whole_or_off<T: TryFrom<i128>>(given: &Given, max: i128) -> Parsed<Option<T>> {
    let number = whole::<T>(given, 0, max)?;
    Ok(Some(number).filter(|_| *given != Given::Integer(0)))
}

/// A number from 0 to `max`.
pub(super) fn number(given: &Given, max: u32) -> Parsed<f64> {
    let value = match given {
        Given::Integer(whole) => i32::try_from(*whole).ok().map(f64::from),
        Given::Float(value) => Some(*value),
        Given::Null
        | Given::Bool(_)
        | Given::Text(_)
        | Given::Plain(_)
        | Given::List(_)
        | Given::Table(_) => None,
    };
    // A NaN is in no range, so it is refused with the rest.
    match value.filter(|value| (0.0..=f64::from(max)).contains(value)) {
        Some(value) => Ok(value),
        None => must(given, &format!("a number from 0 to {max}")),
    }
}

/// A number from 0 to `max` where 0 means off.
pub(super) fn number_or_off(given: &Given, max: u32) -> Parsed<Option<f64>> {
    Ok(Some(number(given, max)?).filter(|value| *value > 0.0))
}

/// Text for which `right` holds.
pub(super) fn text(given: &Given, be: &str, right: impl Fn(&str) -> bool) -> Parsed<String> {
    if let Given::Text(text) = given
        && right(text)
    {
        return Ok(text.clone());
    }
    must(given, be)
}

/// `null`, or what `inner` reads.
pub(super) fn optional<T>(given: &Given, inner: impl Fn(&Given) -> Parsed<T>) -> Parsed<Option<T>> {
    if *given == Given::Null {
        Ok(None)
    } else {
        inner(given).map(Some)
    }
}

/// A list of what `inner` reads; everything wrong in it is reported.
pub(super) fn list<T>(given: &Given, inner: impl Fn(&Given) -> Parsed<T>) -> Parsed<Vec<T>> {
    let Given::List(items) = given else {
        return must(given, "a list");
    };
    let mut read = Vec::new();
    let mut refused = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match inner(item) {
            Ok(value) => read.push(value),
            Err(refusals) => refused.extend(Refusal::below(&format!("[{index}]"), refusals)),
        }
    }
    if refused.is_empty() {
        Ok(read)
    } else {
        Err(refused)
    }
}

/// An absolute path.
pub(super) fn path(given: &Given) -> Parsed<PathBuf> {
    text(given, "an absolute path", |text| {
        Path::new(text).is_absolute()
    })
    .map(PathBuf::from)
}

/// The longest path that a unix socket's address can hold.
const SOCKET_PATH_MAX: usize = 107;

/// A CRI endpoint on this node.
pub(super) fn endpoint(given: &Given) -> Parsed<String> {
    let be = "a unix socket such as unix:///run/containerd/containerd.sock (path up to 107 bytes)";
    text(given, be, |text| {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        Path::new(path).is_absolute() && (2..=SOCKET_PATH_MAX).contains(&path.len())
    })
}

/// An Alertmanager's URL, up to where its API begins.
pub(super) fn alertmanager_url(given: &Given) -> Parsed<String> {
    let be = "a URL such as http://alertmanager:9093, up to where /api begins";
    text(given, be, |text| {
        reqwest::Url::parse(text).is_ok_and(|url| {
            let is_http = ["http", "https"].contains(&url.scheme());
            let is_bare = url.query().is_none() && url.fragment().is_none();
            is_http && is_bare && !url.path().contains("/api/v")
        })
    })
}

/// The URL of a server that a token is shown to: `https`, or `http` to this machine alone. A path
/// may follow, nothing else.
pub(super) fn secure_url(given: &Given) -> Parsed<String> {
    let be = "an https:// URL, or http:// to this machine alone, without user, query and fragment";
    text(given, be, |text| {
        reqwest::Url::parse(text).is_ok_and(|url| {
            let is_local = match url.host_str() {
                Some("localhost") => true,
                Some(host) => host
                    .trim_matches(['[', ']'])
                    .parse()
                    .is_ok_and(|ip: IpAddr| ip.is_loopback()),
                None => false,
            };
            let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_local);
            let is_bare = url.username().is_empty() && url.password().is_none();
            // The scheme as it is written decides on TLS.
            let is_lower = text.starts_with(url.scheme());
            is_safe && is_bare && is_lower && url.query().is_none() && url.fragment().is_none()
        })
    })
}

/// The path of a unix socket.
pub(super) fn socket_path(given: &Given) -> Parsed<PathBuf> {
    let be = "an absolute path of up to 107 bytes";
    text(given, be, |text| {
        Path::new(text).is_absolute() && text.len() <= SOCKET_PATH_MAX
    })
    .map(PathBuf::from)
}

/// An address to listen on: `IP:port`, `localhost:port`, or `:port` for all interfaces.
pub(super) fn listen(given: &Given) -> Parsed<SocketAddr> {
    let read = |text: &str| {
        if let Some(port) = text.strip_prefix(':') {
            return port.parse().ok().map(all_interfaces);
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return port
                .parse()
                .ok()
                .map(|port| (Ipv4Addr::LOCALHOST, port).into());
        }
        text.parse().ok()
    };
    let address = if let Given::Text(text) = given {
        read(text.trim())
    } else {
        None
    };
    match address {
        Some(address) => Ok(address),
        None => must(
            given,
            "an address such as 127.0.0.1:20950, [::1]:20950 or :20950",
        ),
    }
}

/// Returns the address that stands for every interface: IPv6's, which takes IPv4 as well, unless
/// the kernel runs without IPv6.
fn all_interfaces(port: u16) -> SocketAddr {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    let ip = if has_ipv6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    SocketAddr::new(ip, port)
}

/// A namespace's name.
pub(super) fn namespace(given: &Given) -> Parsed<String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text(
        given,
        "a namespace's name: up to 63 of a-z, 0-9 and -",
        |text| (1..=63).contains(&text.len()) && text.bytes().all(allowed),
    )
}

/// A label to protect: `key`, or `key=value`.
pub(super) fn label(given: &Given) -> Parsed<(String, Option<String>)> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let written = text(given, "a label as \"key=value\" or \"key\"", |text| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        !key.is_empty()
            && key.bytes().all(|b| allowed(b) || b == b'/')
            && value.bytes().all(allowed)
    })?;
    Ok(match written.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (written, None),
    })
}

/// A host's name, without scheme and port.
pub(super) fn host(given: &Given) -> Parsed<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let host = text(given, "a host's name without scheme and port", |text| {
        (1..=253).contains(&text.len()) && text.bytes().all(allowed)
    })?;
    Ok(host.to_ascii_lowercase())
}
