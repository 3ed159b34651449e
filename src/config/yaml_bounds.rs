//! Checks a YAML text before it is parsed. The parser recurses, and copies the targets of aliases, so a small file could
//! use up the stack or the memory; and its errors name no key.

use std::collections::{BTreeMap, BTreeSet};

use yaml_rust2::Event;
use yaml_rust2::parser::Parser;
use yaml_rust2::scanner::TScalarStyle;

/// The most levels of lists and tables; a configuration has five.
const DEPTH_MAX: usize = 32;
/// The largest total weight of the values, with every alias expanded; a configuration has a few thousand.
const WEIGHT_MAX: usize = 2 << 20;
/// Weight of a value without its text.
const VALUE_WEIGHT: usize = 16;

/// Why it is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("lists and tables are nested deeper than {DEPTH_MAX} levels, near line {0}")]
    Depth(usize),
    #[error("it holds more than any configuration once its aliases are followed, near line {0}")]
    Weight(usize),
    #[error("{key} is there twice, the second time near line {line}")]
    Twice { key: String, line: usize },
    #[error("{key}: is {text}, but no key takes such a number, near line {line}")]
    NoNumber {
        key: String,
        text: String,
        line: usize,
    },
}

/// A list or table that is not read to its end.
struct OpenCollection {
    anchor: usize,
    weight_before: usize,
    part: YamlPosition,
}

/// Which part of a list or table comes next.
enum YamlPosition {
    /// The item with this index.
    Item(usize),
    /// A key; these are there.
    Key(BTreeSet<String>),
    /// The value of a key.
    Value(BTreeSet<String>, String),
}

impl YamlPosition {
    /// Takes a whole key, value or item; the text is that of a scalar. Returns whether it was a key that is already there.
    fn take(&mut self, text: &str) -> bool {
        let (next, is_twice) = match std::mem::replace(self, Self::Item(0)) {
            Self::Item(index) => (Self::Item(index + 1), false),
            Self::Key(mut keys) => {
                let is_twice = !keys.insert(text.to_owned());
                (Self::Value(keys, text.to_owned()), is_twice)
            }
            Self::Value(keys, _) => (Self::Key(keys), false),
        };
        *self = next;
        is_twice
    }
}

/// Writes the path to the part that comes next: `alerts[1].match`.
fn path(open: &[OpenCollection]) -> String {
    let mut path = String::new();
    for it in open {
        match &it.part {
            YamlPosition::Item(index) => path.push_str(&format!("[{index}]")),
            YamlPosition::Key(_) => {}
            YamlPosition::Value(_, key) if path.is_empty() => path.push_str(key),
            YamlPosition::Value(_, key) => path.push_str(&format!(".{key}")),
        }
    }
    path
}

impl OpenCollection {
    fn new(anchor: usize, weight_before: usize, part: YamlPosition) -> Self {
        Self {
            anchor,
            weight_before,
            part,
        }
    }
}

/// Takes a list, table or alias. As a key the parser refuses it; here it only ends the key.
fn take_unnamed(open: &mut [OpenCollection]) {
    if let Some(it) = open.last_mut() {
        let _is_twice = it.part.take("");
    }
}

/// Says whether the parser takes a plain scalar for a number that it then cannot read.
fn is_no_number(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-']);
    text.eq_ignore_ascii_case(".nan") || text.eq_ignore_ascii_case(".inf")
}

/// Reads the text's events without building values. A malformed text passes here; the parser refuses it at the same
/// place.
pub(super) fn check(text: &str) -> Result<(), Refused> {
    let mut parser = Parser::new_from_str(text);
    // The weight below each anchor.
    let mut anchored = BTreeMap::new();
    let mut open: Vec<OpenCollection> = Vec::new();
    let mut weight = 0_usize;
    while let Ok((event, marker)) = parser.next_token() {
        let line = marker.line();
        match event {
            Event::Scalar(text, style, anchor, _) => {
                weight += VALUE_WEIGHT + text.len();
                anchored.insert(anchor, VALUE_WEIGHT + text.len());
                if style == TScalarStyle::Plain && is_no_number(&text) {
                    let key = path(&open);
                    return Err(Refused::NoNumber { key, text, line });
                }
                if open.last_mut().is_some_and(|it| it.part.take(&text)) {
                    let key = path(&open);
                    return Err(Refused::Twice { key, line });
                }
            }
            // An anchor has no value inside itself.
            Event::Alias(anchor) => {
                weight =
                    weight.saturating_add(anchored.get(&anchor).copied().unwrap_or(VALUE_WEIGHT));
                take_unnamed(&mut open);
            }
            Event::SequenceStart(anchor, _) => {
                open.push(OpenCollection::new(anchor, weight, YamlPosition::Item(0)));
                weight += VALUE_WEIGHT;
            }
            Event::MappingStart(anchor, _) => {
                open.push(OpenCollection::new(
                    anchor,
                    weight,
                    YamlPosition::Key(BTreeSet::new()),
                ));
                weight += VALUE_WEIGHT;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(it) = open.pop() {
                    anchored.insert(it.anchor, weight - it.weight_before);
                }
                take_unnamed(&mut open);
            }
            Event::StreamEnd => return Ok(()),
            Event::Nothing | Event::StreamStart | Event::DocumentStart | Event::DocumentEnd => {}
        }
        if open.len() > DEPTH_MAX {
            return Err(Refused::Depth(line));
        }
        if weight > WEIGHT_MAX {
            return Err(Refused::Weight(line));
        }
    }
    Ok(())
}
