//! Converts `OpenMetrics` text to the older format 0.0.4, which `promtool` and plain curl read.
//!
//! Handles only our own encoder's output: HELP before TYPE, no exemplars, no timestamps. Never changes a
//! sample: names, values and escapes are the same in both formats.

/// Maps an `OpenMetrics` type to 0.0.4: the suffix of the name in HELP and TYPE, and the type.
fn translate(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        kind => ("", kind),
    }
}

pub(super) fn from_openmetrics(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Delayed: its name depends on the type, which comes next.
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = translate(kind);
            let help = help.strip_suffix('.').unwrap_or(help);
            text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::from_openmetrics;

    #[test]
    fn counters_and_infos_carry_their_suffix_and_units_and_the_end_go() {
        let page = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total{x=\"# HELP\\n\\\"\"} 1.5\n\
                    # HELP b What it is.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Who knows.\n# TYPE c unknown\nc 1\n\
                    # HELP d How long.\n# TYPE d histogram\nd_sum 1.0\nd_count 1\n\
                    d_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let expected = "# HELP a_seconds_total Time\n# TYPE a_seconds_total counter\n\
                        a_seconds_total{x=\"# HELP\\n\\\"\"} 1.5\n\
                        # HELP b_info What it is\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n\
                        # HELP c Who knows\n# TYPE c untyped\nc 1\n\
                        # HELP d How long\n# TYPE d histogram\nd_sum 1.0\nd_count 1\n\
                        d_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(from_openmetrics(page), expected);
    }
}
