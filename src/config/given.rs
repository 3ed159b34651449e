//! What was written for a key, before it is checked.

use std::collections::BTreeMap;
use std::fmt;

use ::config::{Value, ValueKind};
use serde::Deserialize;
use yaml_rust2::Yaml;

/// A value as a file, a variable or a flag gave it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// Text from a variable or a flag, which cannot say what type it means; [`Given::settle`] does.
    Plain(String),
    List(Vec<Given>),
    Table(BTreeMap<String, Given>),
}

impl Given {
    /// Reads untyped text as the type that `like`, the key's default, has. What does not parse
    /// stays text, for the key's own check to refuse.
    pub(super) fn settle(self, like: &Self) -> Self {
        let text = match self {
            Self::Plain(text) => text,
            Self::List(items) => {
                let as_text = Self::Text(String::new());
                return Self::List(
                    items
                        .into_iter()
                        .map(|item| item.settle(&as_text))
                        .collect(),
                );
            }
            settled @ (Self::Null
            | Self::Bool(_)
            | Self::Integer(_)
            | Self::Float(_)
            | Self::Text(_)
            | Self::Table(_)) => return settled,
        };
        match like {
            Self::Null if text.is_empty() => Self::Null,
            Self::Bool(_) => text.parse().map_or(Self::Text(text), Self::Bool),
            Self::Integer(_) | Self::Float(_) => match (text.parse(), text.parse()) {
                (Ok(whole), _) => Self::Integer(whole),
                (_, Ok(float)) => Self::Float(float),
                _ => Self::Text(text),
            },
            Self::List(_) | Self::Table(_) => list(text),
            Self::Null | Self::Text(_) | Self::Plain(_) => Self::Text(text),
        }
    }

    /// Takes text for a variable's.
    pub(super) fn untyped(self) -> Self {
        if let Self::Text(text) = self {
            Self::Plain(text)
        } else {
            self
        }
    }

    /// Returns the value in the form that the YAML writer takes.
    pub(super) fn to_yaml(&self) -> Yaml {
        match self {
            Self::Null => Yaml::Null,
            Self::Bool(value) => Yaml::Boolean(*value),
            Self::Integer(value) => {
                i64::try_from(*value).map_or_else(|_| Yaml::Real(value.to_string()), Yaml::Integer)
            }
            // Debug keeps the point in 1.0, so that the type survives.
            Self::Float(value) => Yaml::Real(format!("{value:?}")),
            Self::Text(text) | Self::Plain(text) => Yaml::String(text.clone()),
            Self::List(items) => Yaml::Array(items.iter().map(Self::to_yaml).collect()),
            Self::Table(table) => Yaml::Hash(
                table
                    .iter()
                    .map(|(key, value)| (Yaml::String(key.clone()), value.to_yaml()))
                    .collect(),
            ),
        }
    }
}

/// Reads a list: JSON where it looks like it, else separated by commas; empty text is no items.
fn list(text: String) -> Given {
    let trimmed = text.trim();
    if trimmed.starts_with('[') {
        let parsed = serde_json::from_str::<serde_json::Value>(trimmed).ok();
        return match parsed.and_then(|json| Value::deserialize(json).ok()) {
            Some(value) => value.into(),
            None => Given::Text(text),
        };
    }
    if trimmed.is_empty() {
        return Given::List(Vec::new());
    }
    Given::List(
        trimmed
            .split(',')
            .map(|item| Given::Text(item.trim().to_owned()))
            .collect(),
    )
}

impl From<Value> for Given {
    fn from(value: Value) -> Self {
        match value.kind {
            ValueKind::Nil => Self::Null,
            ValueKind::Boolean(value) => Self::Bool(value),
            ValueKind::I64(value) => Self::Integer(value.into()),
            ValueKind::I128(value) => Self::Integer(value),
            ValueKind::U64(value) => Self::Integer(value.into()),
            // Past every bound that a key has, so the nearest number is refused just the same.
            ValueKind::U128(value) => Self::Integer(i128::try_from(value).unwrap_or(i128::MAX)),
            ValueKind::Float(value) => Self::Float(value),
            ValueKind::String(value) => Self::Text(value),
            ValueKind::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            ValueKind::Table(table) => Self::Table(
                table
                    .into_iter()
                    .map(|(key, value)| (key, Self::from(value)))
                    .collect(),
            ),
        }
    }
}

impl From<bool> for Given {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for Given {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<f64> for Given {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Given {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl<const N: usize> From<[&str; N]> for Given {
    fn from(items: [&str; N]) -> Self {
        Self::List(items.into_iter().map(Self::from).collect())
    }
}

/// The most characters of a text that a message repeats.
const SHOWN_MAX: usize = 80;

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(text) | Self::Plain(text) if text.chars().count() > SHOWN_MAX => {
                write!(
                    f,
                    "{:?}...",
                    text.chars().take(SHOWN_MAX).collect::<String>()
                )
            }
            Self::Text(text) | Self::Plain(text) => write!(f, "{text:?}"),
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a section"),
        }
    }
}
