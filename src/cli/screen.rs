//! What a command may draw on: the width of standard output, whether ids are whole there, and colours.

use std::io::{self, IsTerminal};

use crate::telemetry;

/// The width where standard output is no terminal.
const COLUMNS: usize = 80;
/// No text is drawn narrower than for this width.
const COLUMNS_MIN: usize = 60;
/// Characters of a short id; `explain` takes 6 of them.
const SHORT_ID: usize = 12;

/// How answers are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Columns of a line.
    pub(super) columns: usize,
    /// Whether names and ids are whole, however long (`--wide`).
    pub(super) is_wide: bool,
    /// Whether ids are whole: for a program that reads the table too.
    has_whole_ids: bool,
    has_colours: bool,
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// The header of a table.
    Head,
    /// Nothing is wrong.
    Good,
    /// It is not known, or not all was reached.
    Doubt,
    /// Something is wrong.
    Bad,
}

impl Screen {
    /// Returns the screen of standard output; `is_wide` is the flag `--wide`.
    pub(super) fn of_stdout(wide: Wide) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self {
            columns: terminal_columns(io::stdout()).unwrap_or(COLUMNS),
            is_wide: wide.wide,
            has_whole_ids: wide.wide || !is_terminal,
            has_colours: telemetry::has_colours(&io::stdout()),
        }
    }

    /// Returns a name that fits so many columns; its middle goes, because its ends tell most.
    pub(super) fn name(&self, name: &str, columns: usize) -> String {
        if self.is_wide {
            name.to_owned()
        } else {
            shortened(name, columns)
        }
    }

    /// Returns an id as it is shown.
    pub(super) fn id<'a>(&self, id: &'a str) -> &'a str {
        let id = id.strip_prefix("sha256:").unwrap_or(id);
        if self.has_whole_ids {
            return id;
        }
        let end = id
            .char_indices()
            .nth(SHORT_ID)
            .map_or(id.len(), |(at, _)| at);
        id.get(..end).unwrap_or(id)
    }

    /// Returns how many columns names may take that have `at_80` of 80, where the longest has `longest`.
    pub(super) fn name_columns(&self, at_80: usize, longest: usize) -> usize {
        let room = (at_80 + self.columns).saturating_sub(COLUMNS);
        if self.is_wide {
            longest.max(at_80)
        } else {
            longest.clamp(at_80.min(room), room.max(8))
        }
    }

    /// Returns an escaped line in its colour.
    pub(super) fn painted(&self, line: &str, ink: Ink) -> String {
        if !self.has_colours || line.is_empty() {
            return line.to_owned();
        }
        let code = match ink {
            Ink::Head => "1",
            Ink::Good => "32",
            Ink::Doubt => "33",
            Ink::Bad => "31",
        };
        format!("\u{1b}[{code}m{line}\u{1b}[0m")
    }
}

/// The flag `--wide`.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wide {
    /// Show names and ids in full, however long the lines get
    #[arg(long)]
    pub wide: bool,
}

/// Returns the width of a terminal; `None` for anything else.
pub(super) fn terminal_columns(of: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(of).ok()?;
    let columns = usize::from(size.ws_col);
    (columns > 0).then(|| columns.max(COLUMNS_MIN))
}

/// Shortens a text in its middle.
pub(super) fn shortened(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let (first, last) = (room - room / 2, room / 2);
    let start: String = text.chars().take(first).collect();
    let end: String = text.chars().skip(length - last).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(
            shortened("registry.example/shop/web:1.2", 29),
            "registry.example/shop/web:1.2"
        );
        assert_eq!(
            shortened("registry.example/shop/web:1.2", 15),
            "registr…web:1.2"
        );
        assert_eq!(shortened("äöüäöü", 4), "äö…ü");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "…");
    }

    fn screen(columns: usize) -> Screen {
        Screen {
            columns,
            is_wide: false,
            has_whole_ids: false,
            has_colours: false,
        }
    }

    #[test]
    fn names_take_the_room_that_the_terminal_has_and_no_more_than_they_need() {
        assert_eq!(screen(80).name_columns(28, 90), 28);
        assert_eq!(screen(80).name_columns(28, 5), 28);
        assert_eq!(screen(200).name_columns(28, 90), 90);
        assert_eq!(screen(100).name_columns(28, 90), 48);
        assert_eq!(screen(60).name_columns(28, 90), 8);
        assert_eq!(screen(60).name_columns(17, 90), 8);
        let wide = Screen {
            is_wide: true,
            ..screen(80)
        };
        assert_eq!(wide.name_columns(28, 90), 90);
    }

    #[test]
    fn ids_are_short_on_a_terminal() {
        let id = format!("sha256:{}", "0123456789abcdef".repeat(4));
        assert_eq!(screen(80).id(&id), "0123456789ab");
        let program = Screen {
            has_whole_ids: true,
            ..screen(80)
        };
        assert_eq!(program.id(&id).len(), 64);
        assert_eq!(screen(80).id("abc"), "abc");
    }

    #[test]
    fn nothing_is_painted_without_colours() {
        assert_eq!(screen(80).painted("OK", Ink::Good), "OK");
        let colourful = Screen {
            has_colours: true,
            ..screen(80)
        };
        assert_eq!(colourful.painted("OK", Ink::Good), "\u{1b}[32mOK\u{1b}[0m");
        assert_eq!(colourful.painted("", Ink::Good), "");
    }
}
