//! Numbers, times and names as the page writes them. All text from outside goes through [`text`].

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use crate::model::{Target, escape};

/// The longest name in a table; the title has more of it.
const NAME_CHARS: usize = 120;

/// Escapes a text from outside: for HTML, and so that no control character reaches a terminal that shows the source.
pub(super) fn text(text: &str) -> Markup {
    html! { (escape::line(text)) }
}

/// The same for a name in a table, cut where it is very long.
pub(super) fn name(name: &str) -> Markup {
    cut(name, NAME_CHARS)
}

/// The same, cut to this number of characters.
pub(super) fn cut(long: &str, chars: usize) -> Markup {
    match long.char_indices().nth(chars) {
        Some((end, _)) => html! { (text(long.get(..end).unwrap_or_default())) "…" },
        None => text(long),
    }
}

/// Writes the head of a table.
pub(super) fn columns(titles: &[&str]) -> Markup {
    html! { thead { tr { @for title in titles { th scope="col" { (title) } } } } }
}

/// Returns the beginning of an id, as long as runtimes' own tools show.
pub(super) fn short_id(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

/// Writes a number with its thousands apart.
pub(super) fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && place % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number of objects of a target: `1 container`, `1,200 containers`.
pub(super) fn objects(target: Target, number: u64) -> String {
    let word = if number == 1 {
        target.noun()
    } else {
        target.label()
    };
    format!("{} {word}", count(number))
}

/// Writes a duration in one unit, rounded down: `12 s`, `4 min`, `3 h`, `2 days`.
pub(super) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Writes how long ago a time is, with the time itself behind it.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> Markup {
    let seconds = now.duration_since(then).as_secs();
    moment(then, &format!("{} ago", span(seconds)))
}

/// Writes how far a time is ahead, with the time itself behind it.
pub(super) fn ahead(then: Timestamp, now: Timestamp) -> Markup {
    let left = then.duration_since(now);
    let words = if left <= SignedDuration::ZERO {
        "now".to_owned()
    } else {
        format!("in {}", span(left.as_secs().saturating_add(1)))
    };
    moment(then, &words)
}

fn moment(time: Timestamp, words: &str) -> Markup {
    let exact = time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(time) title=(exact) { (words) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_no_html() {
        assert_eq!(text("<b>\"&\n").0, r"&lt;b&gt;&quot;&amp;\n");
    }

    #[test]
    fn numbers_have_their_thousands_apart() {
        for (number, text) in [
            (0_u64, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!(objects(Target::Sandboxes, 1), "1 sandbox");
        assert_eq!(objects(Target::Containers, 1_200), "1,200 containers");
    }

    #[test]
    fn spans_have_one_unit() {
        for (seconds, text) in [
            (-1, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (7_200, "2 h"),
            (172_799, "47 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn a_name_from_outside_cannot_become_markup_and_is_cut() {
        assert_eq!(text("<b>\u{202e}\n").into_string(), "&lt;b&gt;\\u{202e}\\n");
        let long = "é".repeat(500);
        let cut = name(&long).into_string();
        assert_eq!(cut, format!("{}…", "é".repeat(NAME_CHARS)));
    }
}
