//! Reads durations as Go writes them, for example `1m30s` or `1.5s`.

use std::time::Duration;

/// Seconds of each unit.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Go's longest duration.
const MOST: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// Reads a duration of zero or more; `None` if it is malformed or longer than Go's.
pub fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() || text.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_of_number(c))?);
        let (unit, after) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = number.parse::<f64>().ok()? * seconds;
        sum = sum.checked_add(Duration::try_from_secs_f64(part).ok()?)?;
        rest = after;
    }
    (sum <= MOST).then_some(sum)
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
