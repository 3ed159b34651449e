//! How settings are written: durations, sizes, numbers within a range, texts of a kind. Each function reads
//! one with serde; the error says what the value must be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More than any node holds, and far from overflowing anything.
pub const COUNT_MAX: i64 = 1_000_000_000;

/// The longest path that a unix socket's address can hold.
const SOCKET_PATH_MAX: usize = 107;

/// The longest duration that is taken: what adds to any clock reading without running over.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

const DURATION: &str = "a duration with its unit, such as 30s, 5m, 1h or 7d";

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
        None => Err(DURATION.to_owned()),
    }
}

/// A value as it is written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Integer(i64),
    Float(f64),
    Text(String),
    Other(IgnoredAny),
}

/// A duration; 0 is fine.
pub mod duration {
    use serde::Deserialize;

    use super::{DURATION, Deserializer, Duration, Error, Serializer, Written, parse_duration};

    /// Writes it with its unit.
    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let text = humantime::format_duration(*duration).to_string();
        let days = text.strip_suffix("days").map(|days| format!("{days}d"));
        to.serialize_str(&days.unwrap_or(text))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let parsed = match Written::deserialize(from)? {
            Written::Text(text) => parse_duration(&text),
            Written::Integer(0) => Ok(Duration::ZERO),
            Written::Integer(_) | Written::Float(_) | Written::Other(_) => Err(DURATION.to_owned()),
        };
        parsed.map_err(D::Error::custom)
    }
}

/// A duration above 0.
pub mod positive {
    pub use super::duration::serialize;
    use super::{Deserializer, Duration, Error, duration};

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        match duration::deserialize(from)? {
            Duration::ZERO => Err(D::Error::custom("more than 0, such as 10s")),
            duration => Ok(duration),
        }
    }
}

/// A duration where 0 means off.
pub mod duration_or_off {
    use super::{Deserializer, Duration, Serializer, duration};

    /// Writes it with its unit.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        duration::serialize(&value.unwrap_or_default(), to)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Some(duration::deserialize(from)?).filter(|duration| !duration.is_zero()))
    }
}

/// Reads a number of bytes, plain or with a unit, from `MIN` to `MAX`.
pub fn size<'de, const MIN: u64, const MAX: u64, T, D>(from: D) -> Result<T, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let bytes = match Written::deserialize(from)? {
        Written::Integer(bytes) => u64::try_from(bytes).ok(),
        Written::Text(text) => text
            .trim()
            .parse::<ByteSize>()
            .ok()
            .map(|size| size.as_u64()),
        Written::Float(_) | Written::Other(_) => None,
    };
    let bytes =
        bytes.ok_or_else(|| D::Error::custom("a size such as 128MiB, or a number of bytes"))?;
    let in_range = Some(bytes).filter(|bytes| (MIN..=MAX).contains(bytes));
    in_range
        .and_then(|bytes| T::try_from(bytes).ok())
        .ok_or_else(|| D::Error::custom(format!("from {MIN} to {MAX} bytes")))
}

/// Writes a number of bytes, with its unit where that says the same.
pub fn show_size<T: Copy + TryInto<u64>, S: Serializer>(
    size: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    let bytes = (*size).try_into().unwrap_or(u64::MAX);
    match [("MiB", 1 << 20), ("KiB", 1 << 10)]
        .into_iter()
        .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) => to.serialize_str(&format!("{}{name}", bytes / unit)),
        None => to.serialize_u64(bytes),
    }
}

/// Reads a whole number from `MIN` to `MAX`.
pub fn whole<'de, const MIN: i64, const MAX: i64, T, D>(from: D) -> Result<T, D::Error>
where
    T: TryFrom<i64>,
    D: Deserializer<'de>,
{
    if let Written::Integer(number) = Written::deserialize(from)?
        && (MIN..=MAX).contains(&number)
        && let Ok(number) = T::try_from(number)
    {
        return Ok(number);
    }
    let text = format!("a whole number from {MIN} to {MAX}");
    Err(D::Error::custom(text))
}

/// Reads a whole number up to `MAX` where 0 means off.
pub fn whole_or_off<'de, const MAX: i64, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<i64>,
    D: Deserializer<'de>,
{
    match whole::<0, MAX, i64, D>(from)? {
        0 => Ok(None),
        number => Ok(T::try_from(number).ok()),
    }
}

/// Writes a number, and 0 where it is off.
pub fn show_or_off<T: Default + Serialize, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => T::default().serialize(to),
    }
}

/// Writes a number as people do, and 0 where it is off.
pub fn show_number<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    let number = value.unwrap_or_default();
    match number.to_string().parse::<i64>() {
        Ok(whole) => to.serialize_i64(whole),
        Err(_fraction) => to.serialize_f64(number),
    }
}

/// A number from 0 to `MAX` where 0 means off.
pub fn number_or_off<'de, const MAX: u32, D>(from: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'de>,
{
    let number = match Written::deserialize(from)? {
        Written::Integer(number) => i32::try_from(number).ok().map(f64::from),
        Written::Float(number) => Some(number),
        Written::Text(_) | Written::Other(_) => None,
    };
    // A NaN is in no range, so it is refused with the rest.
    match number.filter(|number| (0.0..=f64::from(MAX)).contains(number)) {
        Some(number) => Ok(Some(number).filter(|number| *number > 0.0)),
        None => Err(D::Error::custom(format!("a number from 0 to {MAX}"))),
    }
}

/// A kind of text: what it means, or what is wrong with it.
pub trait Kind {
    /// What the text stands for.
    type Value;
    /// What the text must be.
    const MUST_BE: &str;
    /// Reads it; `None` if it is not of this kind.
    fn read(text: &str) -> Option<Self::Value>;
}

/// Reads one text of a kind.
pub fn one<'de, K: Kind, D: Deserializer<'de>>(from: D) -> Result<K::Value, D::Error> {
    let read = match Written::deserialize(from)? {
        Written::Text(text) => K::read(&text),
        Written::Integer(_) | Written::Float(_) | Written::Other(_) => None,
    };
    read.ok_or_else(|| D::Error::custom(K::MUST_BE))
}

/// Reads one text of a kind, or none.
pub fn optional<'de, K: Kind, D: Deserializer<'de>>(from: D) -> Result<Option<K::Value>, D::Error> {
    Ok(Option::<Item<K>>::deserialize(from)?.map(|item| item.0))
}

/// Reads a list of texts of a kind.
pub fn list<'de, K, C, D>(from: D) -> Result<C, D::Error>
where
    K: Kind,
    C: FromIterator<K::Value>,
    D: Deserializer<'de>,
{
    let items = Vec::<Item<K>>::deserialize(from)?;
    Ok(items.into_iter().map(|item| item.0).collect())
}

struct Item<K: Kind>(K::Value);

impl<'de, K: Kind> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        one::<K, D>(from).map(Self)
    }
}

/// An absolute path.
#[derive(Debug)]
pub struct AbsolutePath;

impl Kind for AbsolutePath {
    type Value = PathBuf;
    const MUST_BE: &str = "an absolute path";

    fn read(text: &str) -> Option<PathBuf> {
        let path = Path::new(text);
        path.is_absolute().then(|| path.to_owned())
    }
}

/// The path of a unix socket.
#[derive(Debug)]
pub struct SocketPath;

impl Kind for SocketPath {
    type Value = PathBuf;
    const MUST_BE: &str = "an absolute path of up to 107 bytes";

    fn read(text: &str) -> Option<PathBuf> {
        AbsolutePath::read(text).filter(|_| text.len() <= SOCKET_PATH_MAX)
    }
}

/// A name of up to 253 letters, digits, `-`, `_` and `.`.
pub fn is_host_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}
