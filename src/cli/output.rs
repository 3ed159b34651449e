//! What commands write: answers on standard output, everything else on standard error. Escaped, so that no text from
//! outside moves a cursor. A reader that went away (`| head`) is no error, a full disk is one.

use std::io::{self, BufWriter, Write};

use anyhow::Context;
use serde::Serialize;

use super::screen::{Ink, Screen};
use crate::model::escape::{self, JsonWriter};

/// Prints an answer.
///
/// # Errors
/// If it cannot be written, unless the reader went away.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let text = escape::lines(text.trim_end());
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints an answer whose lines may have colours.
///
/// # Errors
/// As [`print`].
pub(super) fn print_on(
    screen: &Screen,
    text: &str,
    ink: impl Fn(&str) -> Option<Ink>,
) -> anyhow::Result<()> {
    let text = escape::lines(text.trim_end());
    let mut out = BufWriter::new(io::stdout().lock());
    let mut lines = text.lines().map(|line| match ink(line) {
        Some(ink) => screen.painted(line, ink),
        None => line.to_owned(),
    });
    let done = lines.try_for_each(|line| writeln!(out, "{line}"));
    written(done.and_then(|()| out.flush()))
}

/// Prints a value as JSON, without a second copy as text.
///
/// # Errors
/// As [`print`].
pub(super) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(JsonWriter(io::stdout().lock()));
    let done = serde_json::to_writer_pretty(&mut out, value)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    written(done)
}

/// Prints bytes as they are.
///
/// # Errors
/// As [`print`].
pub(super) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Judges a write to standard output: a reader that went away is no error.
///
/// # Errors
/// If it failed otherwise.
pub(super) fn written(done: io::Result<()>) -> anyhow::Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write standard output")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Says something beside the answer. It is lost if standard error is not read.
pub(super) fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    let _is_read = writeln!(stderr, "{}", escape::lines(text)).is_ok();
}
