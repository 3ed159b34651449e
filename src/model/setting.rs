//! Forms of settings: durations, sizes, numbers within a range, texts of a kind. Each form reads a value with serde;
//! its error and the documentation use the same words for what the value must be.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest count: more than any node has, and too small to overflow.
pub(crate) const COUNT_MAX: i64 = 1_000_000_000;

/// The longest path of a unix socket, in bytes (`sun_path` without its final NUL).
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The longest duration: it can be added to any clock reading without overflow.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Declares a section of the configuration, each key with its default.
macro_rules! settings {
    ($(#[$of_section:meta])* pub struct $name:ident {
        $($(#[$of_key:meta])* pub $key:ident: $kind:ty = $default:expr,)*
    }) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(default, deny_unknown_fields)]
        $(#[$of_section])*
        pub struct $name {
            $($(#[$of_key])* pub $key: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    };
}
pub(crate) use settings;

/// Declares kinds of text: what each is read as, what it must be, and how it is read.
macro_rules! text_kinds {
    ($(
        $(#[$of_kind:meta])*
        $vis:vis $kind:ident -> $value:ty, $must_be:expr, |$text:ident| $read:expr;
    )+) => {$(
        $(#[$of_kind])*
        $vis struct $kind;

        impl $crate::model::setting::TextKind for $kind {
            type Value = $value;
            const MUST_BE: &str = $must_be;

            fn read($text: &str) -> Option<$value> {
                $read
            }
        }
    )+};
}
pub(crate) use text_kinds;

/// Reads a duration such as `90s`, `5m`, `1h 30m`, `7d` or `0`.
///
/// # Errors
/// Says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    // The parser reads M as months, and 10M would be ten of them.
    if text.contains('M') {
        return Err("a duration with m for minutes, or month for months".to_owned());
    }
    let zero = matches!(text, "0").then_some(Duration::ZERO);
    match zero.or_else(|| humantime::parse_duration(text).ok()) {
        Some(duration) if duration <= DURATION_MAX => Ok(duration),
        Some(_) => Err("a duration of at most 100 years".to_owned()),
        None => Err("a duration with its unit, such as 30s, 5m, 1h or 7d".to_owned()),
    }
}

/// A value as the file has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawValue {
    Integer(i64),
    Float(f64),
    Text(String),
    Other(IgnoredAny),
}

impl RawValue {
    /// Returns a whole number, however it is written: `1e3` is one.
    fn whole(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            // `Display` writes all digits of a float, and a point only before a fraction.
            Self::Float(number) => number.to_string().parse().ok(),
            Self::Text(_) | Self::Other(_) => None,
        }
    }
}

/// How values of a type are read and written.
pub(crate) trait SettingForm {
    /// The value's type.
    type Value: Serialize;

    /// Returns what the value must be.
    fn must_be() -> String;

    /// Reads it.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self::Value, D::Error>;

    /// Writes it.
    fn show<S: Serializer>(value: &Self::Value, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }
}

/// A field that is written in the form `F`: `#[serde(with = "As::<F>")]`.
pub(crate) struct As<F>(PhantomData<F>);

impl<F: SettingForm> As<F> {
    /// Reads it.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<F::Value, D::Error> {
        F::read(from)
    }

    /// Writes it.
    pub(crate) fn serialize<S: Serializer>(value: &F::Value, to: S) -> Result<S::Ok, S::Error> {
        F::show(value, to)
    }
}

#[cfg(test)]
impl<F: SettingForm> schemars::JsonSchema for As<F> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        F::must_be().into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "title": F::must_be() })
    }
}

/// A duration of at least so many milliseconds.
pub(crate) struct Time<const MIN_MS: u64 = 0>;

/// A duration that is not 0.
pub(crate) type Positive = Time<1>;

/// The time between two questions: without a pause those of a fleet are a flood.
pub(crate) type Interval = Time<10>;

impl<const MIN_MS: u64> SettingForm for Time<MIN_MS> {
    type Value = Duration;

    fn must_be() -> String {
        match MIN_MS {
            0 => "a duration".to_owned(),
            _ => format!("a duration of at least {MIN_MS}ms"),
        }
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let parsed = match RawValue::deserialize(from)? {
            RawValue::Text(text) => parse_duration(&text),
            RawValue::Integer(0) => Ok(Duration::ZERO),
            // Parsing an empty text gives the error that names the missing unit.
            RawValue::Integer(_) | RawValue::Float(_) | RawValue::Other(_) => parse_duration(""),
        };
        let duration = parsed.map_err(D::Error::custom)?;
        if duration < Duration::from_millis(MIN_MS) {
            return Err(D::Error::custom(Self::must_be()));
        }
        Ok(duration)
    }

    fn show<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let text = humantime::format_duration(*duration).to_string();
        let days = text.strip_suffix("days").map(|days| format!("{days}d"));
        to.serialize_str(&days.unwrap_or(text))
    }
}

/// A form in which 0 means off.
pub(crate) struct Off<F>(PhantomData<F>);

impl<F: SettingForm<Value: Copy + Default + PartialEq>> SettingForm for Off<F> {
    type Value = Option<F::Value>;

    fn must_be() -> String {
        format!("{}; 0: off", F::must_be())
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self::Value, D::Error> {
        Ok(Some(F::read(from)?).filter(|value| *value != F::Value::default()))
    }

    fn show<S: Serializer>(value: &Self::Value, to: S) -> Result<S::Ok, S::Error> {
        F::show(&value.unwrap_or_default(), to)
    }
}

/// A number of bytes, plain or with a unit.
pub(crate) struct Size<T, const MIN: u64, const MAX: u64>(PhantomData<T>);

impl<T, const MIN: u64, const MAX: u64> SettingForm for Size<T, MIN, MAX>
where
    T: Copy + Serialize + TryFrom<u64> + TryInto<u64>,
{
    type Value = T;

    fn must_be() -> String {
        format!("a size such as 128MiB, or a number, from {MIN} to {MAX} bytes")
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let bytes = match RawValue::deserialize(from)? {
            RawValue::Text(text) => text.trim().parse().ok().map(|size: ByteSize| size.as_u64()),
            number @ (RawValue::Integer(_) | RawValue::Float(_) | RawValue::Other(_)) => {
                number.whole().and_then(|bytes| u64::try_from(bytes).ok())
            }
        };
        let in_range = bytes.filter(|bytes| (MIN..=MAX).contains(bytes));
        let bytes = in_range.and_then(|bytes| T::try_from(bytes).ok());
        bytes.ok_or_else(|| D::Error::custom(Self::must_be()))
    }

    fn show<S: Serializer>(size: &T, to: S) -> Result<S::Ok, S::Error> {
        let bytes = (*size).try_into().unwrap_or(MAX);
        let mut units = [("MiB", 1 << 20), ("KiB", 1 << 10)].into_iter();
        match units.find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
            Some((name, unit)) => to.serialize_str(&format!("{}{name}", bytes / unit)),
            None => to.serialize_u64(bytes),
        }
    }
}

/// A whole number.
pub(crate) struct Whole<T, const MIN: i64, const MAX: i64>(PhantomData<T>);

impl<T, const MIN: i64, const MAX: i64> SettingForm for Whole<T, MIN, MAX>
where
    T: Serialize + TryFrom<i64>,
{
    type Value = T;

    fn must_be() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        if let Some(number) = RawValue::deserialize(from)?.whole()
            && (MIN..=MAX).contains(&number)
            && let Ok(number) = T::try_from(number)
        {
            return Ok(number);
        }
        Err(D::Error::custom(Self::must_be()))
    }
}

/// A number from 0.
pub(crate) struct Number<const MAX: u32>;

impl<const MAX: u32> SettingForm for Number<MAX> {
    type Value = f64;

    fn must_be() -> String {
        format!("a number from 0 to {MAX}")
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        let number = match RawValue::deserialize(from)? {
            RawValue::Integer(number) => i32::try_from(number).ok().map(f64::from),
            RawValue::Float(number) => Some(number),
            RawValue::Text(_) | RawValue::Other(_) => None,
        };
        // NaN is in no range, so it is refused too.
        let in_range = number.filter(|number| (0.0..=f64::from(MAX)).contains(number));
        in_range.ok_or_else(|| D::Error::custom(Self::must_be()))
    }

    /// Writes a whole number without a point.
    fn show<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        match number.to_string().parse::<i64>() {
            Ok(whole) => to.serialize_i64(whole),
            Err(_fraction) => to.serialize_f64(*number),
        }
    }
}

/// A kind of text, with its parser.
pub(crate) trait TextKind {
    /// What the text stands for.
    type Value: Serialize;
    /// What the text must be.
    const MUST_BE: &str;
    /// Reads it; `None` if it is not of this kind.
    fn read(text: &str) -> Option<Self::Value>;
}

/// One text of a kind.
pub(crate) struct One<K>(PhantomData<K>);

impl<K: TextKind> SettingForm for One<K> {
    type Value = K::Value;

    fn must_be() -> String {
        K::MUST_BE.to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<K::Value, D::Error> {
        let text = match RawValue::deserialize(from)? {
            RawValue::Text(text) => text,
            // What was written may have another form, such as 0x7b or 1e3.
            RawValue::Integer(_) | RawValue::Float(_) => {
                let what = format!("text in quotes: {}", K::MUST_BE);
                return Err(D::Error::custom(what));
            }
            RawValue::Other(_) => return Err(D::Error::custom(K::MUST_BE)),
        };
        K::read(&text).ok_or_else(|| D::Error::custom(K::MUST_BE))
    }
}

struct Item<K: TextKind>(K::Value);

impl<'de, K: TextKind> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        One::<K>::read(from).map(Self)
    }
}

/// One text of a kind, or `null`.
pub(crate) struct Optional<K>(PhantomData<K>);

impl<K: TextKind> SettingForm for Optional<K> {
    type Value = Option<K::Value>;

    fn must_be() -> String {
        format!("{}; `null`", K::MUST_BE)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self::Value, D::Error> {
        Ok(Option::<Item<K>>::deserialize(from)?.map(|item| item.0))
    }
}

/// A list of texts of a kind.
pub(crate) struct ListOf<K: TextKind, C = Vec<<K as TextKind>::Value>>(PhantomData<(K, C)>);

impl<K: TextKind, C: FromIterator<K::Value> + Serialize> SettingForm for ListOf<K, C> {
    type Value = C;

    fn must_be() -> String {
        format!("a list; each entry {}", K::MUST_BE)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<C, D::Error> {
        let items = Vec::<Item<K>>::deserialize(from)?;
        Ok(items.into_iter().map(|item| item.0).collect())
    }
}

text_kinds! {
    /// An absolute path.
    pub(crate) AbsolutePath -> PathBuf, "an absolute path", |text| {
        let path = Path::new(text);
        path.is_absolute().then(|| path.to_owned())
    };

    /// The path of a unix socket.
    pub(crate) SocketPath -> PathBuf, "an absolute path of up to 107 bytes",
        |text| AbsolutePath::read(text).filter(|_| text.len() <= SOCKET_PATH_BYTES_MAX);
}

/// A name of up to 253 letters, digits, `-`, `_` and `.`.
pub(crate) fn is_host_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}
