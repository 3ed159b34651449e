//! Reads durations as Go writes them, for example `1m30s` or `1.5s`.

use std::time::Duration;

/// Nanoseconds of each unit; longer names first where one begins like another.
const UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The most digits of one number, so that nothing overflows.
const DIGITS_MAX: usize = 15;

/// Reads a duration of zero or more; `None` if it is malformed or longer than Go's.
pub fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos = 0;
    while !rest.is_empty() || text.is_empty() {
        let (part, after) = part(rest)?;
        nanos += part;
        rest = after;
    }
    let nanos = u64::try_from(nanos).ok()?;
    i64::try_from(nanos).ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Takes one number with its unit from the front.
fn part(text: &str) -> Option<(u128, &str)> {
    let (whole, rest) = digits(text)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c.is_ascii_digit() || c == '.');
    let (unit, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let places = u32::try_from(fraction.len()).ok()?;
    let number = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<u128>().ok(),
    };
    let parts = number(fraction)? * unit / 10_u128.pow(places);
    Some((number(whole)? * unit + parts, rest))
}

fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    (digits.len() <= DIGITS_MAX).then_some((digits, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("1ns", 1),
            ("2us", 2_000),
            ("2µs", 2_000),
            ("100ms", 100_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h0m0.5s", 3_600_500_000_000),
        ];
        for (text, nanos) in cases {
            assert_eq!(
                go_duration(text),
                Some(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_go_does_not_take_for_a_duration_is_refused() {
        let bad = [
            "",
            "1",
            "-1s",
            "+1s",
            "s",
            ".s",
            "1d",
            "1 s",
            "1s ",
            "1.2.3s",
            "1e3s",
            "1sm",
            "٣s",
            "99999999999999999s",
            "2562048h",
            "1m30",
        ];
        for text in bad {
            assert_eq!(go_duration(text), None, "{text}");
        }
        assert!(go_duration("2562047h").is_some());
    }
}
