//! Whether a YAML text can be read at all: its reader follows it by recursion and copies what an
//! alias names, so that a small file can take the whole stack or the whole memory.

use std::collections::BTreeMap;

use yaml_rust2::Event;
use yaml_rust2::parser::Parser;

/// Levels of lists and tables; a configuration has five.
const DEPTH_MAX: usize = 32;
/// Weight of all values, counted anew where an alias repeats them; a configuration has some thousand.
const WEIGHT_MAX: usize = 2 << 20;
/// What a value weighs beside its text.
const VALUE_WEIGHT: usize = 16;

/// Why it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooMuch {
    #[error("lists and tables are nested deeper than {DEPTH_MAX} levels, near line {0}")]
    Depth(usize),
    #[error("it holds more than any configuration once its aliases are followed, near line {0}")]
    Weight(usize),
}

/// Follows a text without building anything. What is not well-formed is left to its reader to refuse,
/// which stops at the same place.
pub(super) fn check(text: &str) -> Result<(), TooMuch> {
    let mut parser = Parser::new_from_str(text);
    // What stands under each anchor weighs; and what is open: its anchor, the weight before it.
    let mut anchored = BTreeMap::new();
    let mut open = Vec::new();
    let mut weight = 0_usize;
    while let Ok((event, marker)) = parser.next_token() {
        match event {
            Event::Scalar(text, _, anchor, _) => {
                weight += VALUE_WEIGHT + text.len();
                anchored.insert(anchor, VALUE_WEIGHT + text.len());
            }
            // Within itself an anchor means nothing yet.
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
