//! A value as written, and how serde reads it. Errors name the place in the value.

use std::fmt;

use ::config::ValueKind;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_path_to_error::{Path, Segment};
use yaml_rust2::Yaml;

/// A value of a file, a variable, a flag or a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum ConfigValue {
    #[default]
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<ConfigValue>),
    Table(Vec<(String, ConfigValue)>),
    /// It was refused, and is read as if absent.
    Refused,
}

/// A step from a value into one of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Why a part of a value was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{self:?}")]
pub(super) enum ValueRefusal {
    /// What the part must be.
    MustBe(String),
    /// Its key is unknown; these are known.
    Unknown(&'static [&'static str]),
    /// A section lacks this key.
    Lacks(&'static str),
}

impl ConfigValue {
    /// Parses the text of a variable or flag as the type of `like`, the key's default. An unparsable text
    /// stays text, and the key's own check refuses it.
    pub(super) fn from_text(text: String, like: &Self) -> Self {
        match like {
            Self::Null if text.is_empty() => Self::Null,
            Self::Bool(_) => text.parse().map_or(Self::Text(text), Self::Bool),
            Self::Integer(_) | Self::Float(_) => match (text.parse(), text.parse()) {
                (Ok(whole), _) => Self::Integer(whole),
                (_, Ok(float)) => Self::Float(float),
                _ => Self::Text(text),
            },
            Self::List(_) => list(text),
            Self::Null | Self::Text(_) | Self::Table(_) | Self::Refused => Self::Text(text),
        }
    }

    /// Returns the value at a dotted key.
    pub(super) fn at(&self, key: &str) -> Option<&Self> {
        key.split('.')
            .try_fold(self, |value, name| value.part(name))
    }

    fn part(&self, name: &str) -> Option<&Self> {
        let Self::Table(parts) = self else {
            return None;
        };
        let found = parts.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// Returns the value at a dotted key, for a change.
    pub(super) fn at_mut(&mut self, key: &str) -> Option<&mut Self> {
        let mut names = key.split('.');
        names.try_fold(self, |value, name| value.step(&Step::Key(name.to_owned())))
    }

    /// Returns the way that serde went to a part. Serde does not see the items of a list that were refused.
    pub(super) fn steps(&self, way: &Path) -> Vec<Step> {
        let mut place = Some(self);
        let step = |segment: &Segment| match (segment, place) {
            (Segment::Map { key }, Some(table)) => {
                place = table.part(key);
                Some(Step::Key(key.clone()))
            }
            (Segment::Seq { index }, Some(Self::List(items))) => {
                let mut seen = items
                    .iter()
                    .enumerate()
                    .filter(|(_, it)| **it != Self::Refused);
                let (index, item) = seen.nth(*index)?;
                place = Some(item);
                Some(Step::Index(index))
            }
            _ => None,
        };
        way.iter().map_while(step).collect()
    }

    /// Returns the part at a step.
    pub(super) fn step(&mut self, step: &Step) -> Option<&mut Self> {
        match (self, step) {
            (Self::Table(parts), Step::Key(name)) => {
                let found = parts.iter_mut().find(|(known, _)| known == name);
                found.map(|(_, value)| value)
            }
            (Self::List(items), Step::Index(index)) => items.get_mut(*index),
            _ => None,
        }
    }

    /// Returns the value without the keys that `is_left_out` selects, and without sections that are then
    /// empty.
    pub(super) fn without(&self, is_left_out: &dyn Fn(&str) -> bool, above: &str) -> Option<Self> {
        let Self::Table(parts) = self else {
            return Some(self.clone());
        };
        let kept = parts.iter().filter_map(|(name, value)| {
            let key = format!("{above}{name}");
            if is_left_out(&key) {
                return None;
            }
            Some((
                name.clone(),
                value.without(is_left_out, &format!("{key}."))?,
            ))
        });
        let kept: Vec<_> = kept.collect();
        (kept.is_empty() == parts.is_empty()).then_some(Self::Table(kept))
    }

    /// Returns the value in the form that the YAML writer takes.
    pub(super) fn to_yaml(&self) -> Yaml {
        match self {
            Self::Null | Self::Refused => Yaml::Null,
            Self::Bool(value) => Yaml::Boolean(*value),
            Self::Integer(value) => {
                i64::try_from(*value).map_or_else(|_| Yaml::Real(value.to_string()), Yaml::Integer)
            }
            // Debug keeps the point in 1.0, so that the type survives.
            Self::Float(value) => Yaml::Real(format!("{value:?}")),
            Self::Text(text) => Yaml::String(text.clone()),
            Self::List(items) => Yaml::Array(items.iter().map(Self::to_yaml).collect()),
            Self::Table(parts) => Yaml::Hash(
                parts
                    .iter()
                    .map(|(key, value)| (Yaml::String(key.clone()), value.to_yaml()))
                    .collect(),
            ),
        }
    }
}

/// Reads a list: JSON where it looks like it, else separated by commas; empty text is no items.
fn list(text: String) -> ConfigValue {
    let trimmed = text.trim();
    if looks_like_json(trimmed) {
        let parsed = serde_json::from_str::<::config::Value>(trimmed);
        return parsed.map_or(ConfigValue::Text(text), ConfigValue::from);
    }
    if trimmed.is_empty() {
        return ConfigValue::List(Vec::new());
    }
    let items = trimmed
        .split(',')
        .map(|item| ConfigValue::Text(item.trim().to_owned()));
    ConfigValue::List(items.collect())
}

/// Tells a list in JSON, also one with a mistake, from an address such as `[::1]:20950` and an expression such as
/// `[0-9]+`.
fn looks_like_json(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('[') else {
        return false;
    };
    inner.ends_with(']') || inner.trim_start().starts_with(['"', '\'', '{'])
}

/// Leaves out what a message must not repeat: the user and password that may stand before an `@`.
pub(super) fn without_user(text: &str) -> String {
    let Some((before, rest)) = text.rsplit_once('@') else {
        return text.to_owned();
    };
    let scheme = before
        .split_once("://")
        .map(|(scheme, _)| format!("{scheme}://"));
    format!("{}...@{rest}", scheme.unwrap_or_default())
}

/// The most characters of a text that a message repeats.
const SHOWN_MAX: usize = 80;

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null | Self::Refused => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(text) => {
                let text = without_user(text);
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                let rest = if shown.len() < text.len() { "..." } else { "" };
                write!(f, "{shown:?}{rest}")
            }
            Self::List(items) if items.is_empty() => f.write_str("empty"),
            Self::Table(parts) if parts.is_empty() => f.write_str("empty"),
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a section"),
        }
    }
}

impl From<::config::Value> for ConfigValue {
    fn from(value: ::config::Value) -> Self {
        match value.kind {
            ValueKind::Nil => Self::Null,
            ValueKind::Boolean(value) => Self::Bool(value),
            ValueKind::I64(value) => Self::Integer(value.into()),
            ValueKind::I128(value) => Self::Integer(value),
            ValueKind::U64(value) => Self::Integer(value.into()),
            // Past every bound that a key has, so the nearest number is refused just the same.
            ValueKind::U128(value) => Self::Integer(i128::try_from(value).unwrap_or(i128::MAX)),
            ValueKind::Float(value) => Self::Float(value),
            // The YAML parser's texts for `nan` and `infinity`: as texts they would name something else.
            ValueKind::String(value) => match value.as_str() {
                ".inf" => Self::Float(f64::INFINITY),
                "-.inf" => Self::Float(f64::NEG_INFINITY),
                ".nan" => Self::Float(f64::NAN),
                _ => Self::Text(value),
            },
            ValueKind::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            ValueKind::Table(parts) => {
                let part = |(key, value)| (key, Self::from(value));
                Self::Table(parts.into_iter().map(part).collect())
            }
        }
    }
}

impl<'de> IntoDeserializer<'de, ValueRefusal> for &'de ConfigValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de ConfigValue {
    type Error = ValueRefusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueRefusal> {
        match self {
            ConfigValue::Null | ConfigValue::Refused => visitor.visit_unit(),
            ConfigValue::Bool(value) => visitor.visit_bool(*value),
            // Past every bound that a key has, so the nearest number is refused just the same.
            ConfigValue::Integer(value) => {
                visitor.visit_i64(i64::try_from(*value).unwrap_or(i64::MAX))
            }
            ConfigValue::Float(value) => visitor.visit_f64(*value),
            ConfigValue::Text(text) => visitor.visit_str(text),
            ConfigValue::List(items) => visitor.visit_seq(SeqDeserializer::new(
                items.iter().filter(|item| **item != ConfigValue::Refused),
            )),
            ConfigValue::Table(parts) => {
                let kept = parts
                    .iter()
                    .filter(|(_, part)| *part != ConfigValue::Refused);
                let kept = kept.map(|(name, part)| (name.as_str(), part));
                visitor.visit_map(MapDeserializer::new(kept))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueRefusal> {
        if *self == ConfigValue::Null {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    /// Refuses a list, which serde would read as the fields in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueRefusal> {
        if let ConfigValue::List(_) = self {
            return Err(ValueRefusal::custom(&visitor as &dyn Expected));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueRefusal> {
        let ConfigValue::Text(text) = self else {
            return Err(ValueRefusal::unknown_variant("", words));
        };
        visitor.visit_enum(text.as_str().into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl Error for ValueRefusal {
    /// `what` is what the value must be.
    fn custom<T: fmt::Display>(what: T) -> Self {
        let what = what.to_string();
        // What serde calls the types of Rust.
        let what = match what.as_str() {
            "a boolean" => "true or false",
            "a sequence" => "a list",
            "a map" => "a section",
            "a string" => "text",
            what => what,
        };
        Self::MustBe(what.to_owned())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(expected)
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(expected)
    }

    fn unknown_variant(_: &str, words: &'static [&'static str]) -> Self {
        Self::custom(format!("one of {}", words.join(", ")))
    }

    fn unknown_field(_: &str, known: &'static [&'static str]) -> Self {
        Self::Unknown(known)
    }

    fn missing_field(name: &'static str) -> Self {
        Self::Lacks(name)
    }
}
