//! Durations and sizes as people read them. Never rounds up.

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

/// Formats a size as `docker images` does, in binary units.
pub fn short_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = "B";
    // In tenths, so that rounding never gives 1024.0.
    let mut tenths = bytes.saturating_mul(10);
    for next in UNITS {
        if tenths < 10 * 1024 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" {
        return format!("{bytes} B");
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
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

    #[test]
    fn sizes_are_rounded_down_to_a_tenth() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1023.9 KiB"),
            (83_886_080, "80.0 MiB"),
            (1_610_612_736, "1.5 GiB"),
        ] {
            assert_eq!(short_size(bytes), text);
        }
        assert!(short_size(u64::MAX).ends_with(" TiB"));
    }
}
