//! Text from outside (names, error texts, labels, paths) made safe to write into a log, a terminal, a page or a line of
//! progress: it can neither begin a line of its own nor move the cursor, and it has an end.

use std::borrow::Cow;
use std::io::{self, Write};

/// Longer text is cut.
pub const TEXT_MAX_CHARS: usize = 4_096;

/// Says whether a character does something other than being seen: control characters of both sets, line and
/// paragraph separators, and what turns the direction of text.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text as a part of one line.
pub fn line(text: &str) -> Cow<'_, str> {
    let is_long = text.len() > TEXT_MAX_CHARS && text.chars().count() > TEXT_MAX_CHARS;
    if !is_long && !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len().min(TEXT_MAX_CHARS) + 16);
    for c in text.chars().take(TEXT_MAX_CHARS) {
        match c {
            c if acts(c) => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    if is_long {
        escaped.push_str("...");
    }
    Cow::Owned(escaped)
}

/// The same of a text that is given away.
pub fn owned_line(text: String) -> String {
    match line(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}

/// Returns a text of several lines that are ours.
pub fn lines(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c != '\n' && acts(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if acts(c) => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Returns the text as a part of a page.
pub fn html(text: &str) -> String {
    let text = line(text);
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns JSON that means the same, with nothing in it that a terminal would obey: JSON itself escapes the first
/// set of control characters alone.
pub fn json(text: &str) -> Cow<'_, str> {
    // What is below DEL is either JSON's own or escaped already.
    let acts = |c: char| c >= '\u{7f}' && acts(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if acts(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Writes JSON as [`json`] does. Takes whole pieces of text only, as serializers and logs write them.
#[derive(Debug)]
pub struct JsonWriter<W>(pub W);

impl<W: Write> Write for JsonWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(json(&text).as_bytes())?;
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
        assert!(!escaped.contains(acts), "{escaped}");
        let back: Vec<String> = serde_json::from_str(&escaped).unwrap();
        assert_eq!(back, [HOSTILE]);
        let mut written = JsonWriter(Vec::new());
        serde_json::to_writer(&mut written, &[HOSTILE]).unwrap();
        assert_eq!(written.0, escaped.as_bytes());
    }

    #[test]
    fn html_special_characters_are_escaped() {
        assert_eq!(html("<b>\"&'\n"), r"&lt;b&gt;&quot;&amp;&#39;\n");
    }
}
