//! Durations as people read them. Never rounds up.

use jiff::SignedDuration;

const UNITS: [(&str, i64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Writes a duration in its largest unit and the next smaller one, as in `3d4h`, `13h`, `1m30s`; a negative one as
/// `0s`.
pub fn short_duration(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let first = UNITS.iter().position(|(_, unit)| seconds >= *unit);
    let Some(first) = first else {
        return "0s".to_owned();
    };
    let mut left = seconds;
    let mut text = String::new();
    for (name, unit) in UNITS.iter().skip(first).take(2) {
        let count = left / unit;
        left %= unit;
        if count > 0 {
            text.push_str(&format!("{count}{name}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_largest_unit_and_the_next() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (90, "1m30s"),
            (3_600, "1h"),
            (13 * 3_600 + 53, "13h"),
            (13 * 3_600 + 5 * 60 + 53, "13h5m"),
            (86_400 + 59 * 60, "1d"),
            (3 * 86_400 + 4 * 3_600 + 59, "3d4h"),
            (400 * 86_400, "400d"),
        ] {
            assert_eq!(short_duration(SignedDuration::from_secs(seconds)), text);
        }
    }
}
