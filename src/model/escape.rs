//! Escapes text from outside (names, error texts, labels, paths) for logs, terminals, pages and progress lines: it
//! cannot start a new line or move the cursor, and its length is bounded.

use std::borrow::Cow;
use std::io::{self, Write};

/// Longer text is truncated.
pub const TEXT_MAX_CHARS: usize = 4_096;

/// Says whether a character controls the output: control characters of both sets, line and paragraph
/// separators, and marks that change the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes the characters that need it in another way.
fn escaped(
    text: &str,
    needs_it: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&needs_it) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if needs_it(c) {
            write(c, &mut escaped);
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

fn write_escape(c: char, to: &mut String) {
    to.extend(c.escape_default());
}

/// Escapes a text for use within one line.
pub fn line(text: &str) -> Cow<'_, str> {
    // A text has no more characters than bytes.
    if text.len() > TEXT_MAX_CHARS
        && let Some((end, _)) = text.char_indices().nth(TEXT_MAX_CHARS)
    {
        let (begin, _) = text.split_at(end);
        return Cow::Owned(format!("{}...", escaped(begin, is_control, write_escape)));
    }
    escaped(text, is_control, write_escape)
}

/// [`line`] for an owned text.
pub fn owned_line(text: String) -> String {
    match line(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}

/// Escapes a text whose line breaks are crisweep's own.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_control(c), write_escape)
}

/// Writes a text as one part of a path, or as a value of a query.
pub fn url(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Escapes JSON for a terminal without changing its meaning: JSON itself escapes only the first set of control
/// characters.
pub fn json(text: &str) -> Cow<'_, str> {
    // Below DEL there is only JSON's syntax and what it escapes itself.
    let needs_it = |c: char| c >= '\u{7f}' && is_control(c);
    escaped(text, needs_it, |c, to| {
        to.push_str(&format!("\\u{:04x}", u32::from(c)));
    })
}

/// Writes JSON through [`json`]. Each write must be valid UTF-8 by itself, as serializers and logs do. A `BufWriter`
/// belongs around it, which joins whole writes: a serializer writes each quotation mark by itself.
#[derive(Debug)]
pub struct JsonWriter<W>(pub W);

impl<W: Write> Write for JsonWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nearly always; both look at many bytes at once.
        if bytes.is_ascii() && !bytes.contains(&0x7f) {
            self.0.write_all(bytes)?;
        } else {
            let text = String::from_utf8_lossy(bytes);
            self.0.write_all(json(&text).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of its own, a colour, the second set of control characters, turned text, a separator.
    const HOSTILE: &str = "a\nb\r\u{1b}[31m\u{9b}1m\u{202e}c\u{2028}\u{7f}\u{feff}";

    #[test]
    fn control_characters_are_shown_escaped() {
        let shown = r"a\nb\r\u{1b}[31m\u{9b}1m\u{202e}c\u{2028}\u{7f}\u{feff}";
        assert_eq!(line(HOSTILE), shown);
        assert_eq!(lines(HOSTILE), shown.replacen(r"\n", "\n", 1));
    }

    #[test]
    fn printable_text_is_unchanged() {
        for text in ["", "web-0/app", "größe 語 \\ \"x\" é", "a\u{301}"] {
            assert!(matches!(line(text), Cow::Borrowed(_)), "{text}");
            assert!(matches!(json(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn escaped_text_is_bounded() {
        let just = "é".repeat(TEXT_MAX_CHARS);
        assert_eq!(line(&just), just);
        let over = "é".repeat(TEXT_MAX_CHARS + 1);
        assert_eq!(line(&over), just + "...");
    }

    #[test]
    fn json_means_the_same() {
        let plain = serde_json::to_string(&[HOSTILE]).unwrap();
        let escaped = json(&plain);
        assert!(!escaped.contains(is_control), "{escaped}");
        let back: Vec<String> = serde_json::from_str(&escaped).unwrap();
        assert_eq!(back, [HOSTILE]);
        let mut written = JsonWriter(Vec::new());
        serde_json::to_writer(&mut written, &[HOSTILE]).unwrap();
        assert_eq!(written.0, escaped.as_bytes());
    }

    #[test]
    fn names_are_encoded_in_a_path() {
        assert_eq!(url("shop/web#2?ü"), "shop%2Fweb%232%3F%C3%BC");
        assert_eq!(url("0aZ-._~"), "0aZ-._~");
    }
}
