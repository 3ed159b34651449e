//! Sizes as people read them. Never rounds up.

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
