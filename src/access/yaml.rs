//! Reads a small YAML text into serde types. Scalars stay as they are written, so that no user name turns into a
//! number or a boolean. Its errors name keys and lines, never values: a value may be a secret.

use std::collections::BTreeMap;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use yaml_rust2::Event;
use yaml_rust2::parser::Parser;
use yaml_rust2::scanner::{Marker, ScanError, TScalarStyle};

/// The most levels of lists and tables; a web configuration has three.
const DEPTH_MAX: usize = 8;

/// A YAML value.
pub(super) enum YamlValue {
    /// A scalar, and whether it is written without quotes.
    Text(String, bool),
    List(Vec<YamlValue>),
    Table(BTreeMap<String, YamlValue>),
}

/// Reads a text with one document; an empty text is an empty table.
pub(super) fn parse(text: &str) -> Result<YamlValue, String> {
    let mut reader = YamlReader(Parser::new_from_str(text));
    let mut root = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            Event::DocumentStart if root.is_some() => {
                return Err(format!("line {}: a second document begins", at.line()));
            }
            Event::DocumentStart => {
                let next = reader.next()?;
                root = Some(reader.value(next, 0)?);
            }
            // The parser puts each value between a document's start and its end.
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => return Err(unsupported("this structure is", at)),
        }
    }
    let root = root.filter(|root| !root.is_null());
    Ok(root.unwrap_or_else(|| YamlValue::Table(BTreeMap::new())))
}

struct YamlReader<'a>(Parser<std::str::Chars<'a>>);

impl YamlReader<'_> {
    fn next(&mut self) -> Result<(Event, Marker), String> {
        let malformed = |error: ScanError| {
            let (line, info) = (error.marker().line(), error.info());
            format!("line {line}: {info}")
        };
        self.0.next_token().map_err(malformed)
    }

    fn value(&mut self, (event, at): (Event, Marker), depth: usize) -> Result<YamlValue, String> {
        if depth > DEPTH_MAX {
            let line = at.line();
            return Err(format!(
                "line {line}: lists and tables are nested deeper than {DEPTH_MAX} levels"
            ));
        }
        match event {
            Event::Alias(_)
            | Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(1.., _)
            | Event::MappingStart(1.., _) => Err(unsupported("anchors and aliases are", at)),
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => Err(unsupported("tags are", at)),
            Event::Scalar(text, style, 0, None) => {
                Ok(YamlValue::Text(text, style == TScalarStyle::Plain))
            }
            Event::SequenceStart(0, None) => self.list(depth),
            Event::MappingStart(0, None) => self.table(depth),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => Err(unsupported("this structure is", at)),
        }
    }

    fn list(&mut self, depth: usize) -> Result<YamlValue, String> {
        let mut list = Vec::new();
        loop {
            let next = self.next()?;
            if next.0 == Event::SequenceEnd {
                return Ok(YamlValue::List(list));
            }
            list.push(self.value(next, depth + 1)?);
        }
    }

    fn table(&mut self, depth: usize) -> Result<YamlValue, String> {
        let mut table = BTreeMap::new();
        loop {
            let (event, at) = self.next()?;
            let line = at.line();
            if event == Event::MappingEnd {
                return Ok(YamlValue::Table(table));
            }
            let YamlValue::Text(key, is_plain) = self.value((event, at), depth + 1)? else {
                return Err(format!("line {line}: a key is a list or a table"));
            };
            if is_plain && key == "<<" {
                return Err(format!("line {line}: merge keys are not supported"));
            }
            if table.contains_key(&key) {
                return Err(format!("line {line}: the key {key} stands twice"));
            }
            let next = self.next()?;
            table.insert(key, self.value(next, depth + 1)?);
        }
    }
}

fn unsupported(what: &str, at: Marker) -> String {
    format!("line {}: {what} not supported", at.line())
}

impl YamlValue {
    fn is_null(&self) -> bool {
        let null = ["", "~", "null", "Null", "NULL"];
        matches!(self, Self::Text(text, true) if null.contains(&text.as_str()))
    }

    fn instead_of(&self, visitor: &dyn serde::de::Expected) -> Error {
        let is = match self {
            Self::Text(..) if self.is_null() => "no value",
            Self::Text(..) => "a single value",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        };
        Error::invalid_type(Unexpected::Other(is), visitor)
    }
}

impl IntoDeserializer<'_> for YamlValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for YamlValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(..) if self.is_null() => visitor.visit_str(""),
            Self::Text(text, _) => visitor.visit_string(text),
            Self::List(list) => visitor.visit_seq(SeqDeserializer::new(list.into_iter())),
            Self::Table(table) => visitor.visit_map(MapDeserializer::new(table.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    /// Takes the words of YAML 1.1, as the exporters do.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        const TRUE: &[&str] = &[
            "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y",
        ];
        const FALSE: &[&str] = &[
            "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N",
        ];
        match &self {
            Self::Text(text, true) if TRUE.contains(&text.as_str()) => visitor.visit_bool(true),
            Self::Text(text, true) if FALSE.contains(&text.as_str()) => visitor.visit_bool(false),
            Self::Text(..) | Self::List(_) | Self::Table(_) => Err(self.instead_of(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(..) => self.deserialize_any(visitor),
            Self::List(_) | Self::Table(_) => Err(self.instead_of(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::List(_) => self.deserialize_any(visitor),
            Self::Text(..) | Self::Table(_) => Err(self.instead_of(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Table(_) => self.deserialize_any(visitor),
            // The visitor's own words may name a Rust type.
            Self::Text(..) | Self::List(_) => Err(self.instead_of(&"a table")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct enum identifier ignored_any
    }
}
