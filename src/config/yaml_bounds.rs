//! Bounds a YAML text before it is parsed: the parser recurses, and copies the targets of aliases, so a small file
//! could use up the stack or the memory.

use std::collections::BTreeMap;

use yaml_rust2::Event;
use yaml_rust2::parser::Parser;

/// The most levels of lists and tables; a configuration has five.
const DEPTH_MAX: usize = 32;
/// The largest total weight of the values, with every alias expanded; a configuration has a few thousand.
const WEIGHT_MAX: usize = 2 << 20;
/// Weight of a value without its text.
const VALUE_WEIGHT: usize = 16;

/// Why it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooMuch {
    #[error("lists and tables are nested deeper than {DEPTH_MAX} levels, near line {0}")]
    Depth(usize),
    #[error("it holds more than any configuration once its aliases are followed, near line {0}")]
    Weight(usize),
}

/// Reads the text's events without building values. A malformed text passes here; the parser refuses it at the same
/// place.
pub(super) fn check(text: &str) -> Result<(), TooMuch> {
    let mut parser = Parser::new_from_str(text);
    // The weight below each anchor; and the open nodes: each one's anchor, and the weight before it.
    let mut anchored = BTreeMap::new();
    let mut open = Vec::new();
    let mut weight = 0_usize;
    while let Ok((event, marker)) = parser.next_token() {
        match event {
            Event::Scalar(text, _, anchor, _) => {
                weight += VALUE_WEIGHT + text.len();
                anchored.insert(anchor, VALUE_WEIGHT + text.len());
            }
            // An anchor has no value inside itself.
            Event::Alias(anchor) => {
                weight =
                    weight.saturating_add(anchored.get(&anchor).copied().unwrap_or(VALUE_WEIGHT));
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, weight));
                weight += VALUE_WEIGHT;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = open.pop() {
                    anchored.insert(anchor, weight - before);
                }
            }
            Event::StreamEnd => return Ok(()),
            Event::Nothing | Event::StreamStart | Event::DocumentStart | Event::DocumentEnd => {}
        }
        if open.len() > DEPTH_MAX {
            return Err(TooMuch::Depth(marker.line()));
        }
        if weight > WEIGHT_MAX {
            return Err(TooMuch::Weight(marker.line()));
        }
    }
    Ok(())
}
