//! External input may be anything: nothing panics or hangs, and refusals have reasons.
//!
//! `PROPTEST_CASES=20000 cargo nextest run fuzz::`, or `make fuzz`, is the long form; by default each target
//! runs one or two hundred cases. Targets that need private functions are beside them, in modules of the same
//! name. Findings are printed, never written to files: they become tests.

mod config;
mod http;
mod kubeconfig;
mod lists;
mod names;
mod snapshot_file;
mod web_config;
mod webhook;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// Default number of cases of a target.
const CASES: u32 = 128;

fn cases() -> Config {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    Config {
        cases: cases.unwrap_or(CASES),
        failure_persistence: None,
        ..Config::default()
    }
}

/// A change to bytes.
#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index, usize),
    Repeat(Index, usize, usize),
    End(Index),
}

/// Some changes; `words` are the format's keywords.
fn edits(words: &'static [&'static str]) -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<Index>;
    let word = proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec());
    let edit = prop_oneof![
        1 => (at(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        4 => (at(), word).prop_map(|(at, word)| Edit::Insert(at, word)),
        1 => (at(), 1..40_usize).prop_map(|(at, length)| Edit::Cut(at, length)),
        1 => (at(), 1..40_usize, 1..50_usize).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        1 => at().prop_map(Edit::End),
    ];
    prop::collection::vec(edit, 0..6)
}

fn edited(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let end = |from: usize, length: usize| (from + length).min(bytes.len());
        match edit {
            Edit::Flip(at, bit) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Edit::Flip(..) => {}
            Edit::Insert(at, new) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Edit::Cut(at, length) => {
                let at = at.index(bytes.len() + 1);
                bytes.drain(at..end(at, *length));
            }
            Edit::Repeat(at, length, times) => {
                let at = at.index(bytes.len() + 1);
                let piece = bytes[at..end(at, *length)].repeat(*times);
                bytes.splice(at..at, piece);
            }
            Edit::End(at) => bytes.truncate(at.index(bytes.len() + 1)),
        }
    }
    bytes
}

/// Runs a property against a running service.
fn asked<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    TestRunner::new(cases()).run(strategy, test).unwrap();
}
