//! Bars and sparklines as inline SVG, each with its words: no fact is in a drawing alone.

use maud::{Markup, html};

/// Width and height of a sparkline.
const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;
/// Points of a line; more cannot be seen.
const POINTS_MAX: usize = 120;

/// Draws a share of a limit, 0 to 1 and more, with marks; the words beside it say the same.
pub(super) fn bar(ratio: f64, marks: &[f64], bad_from: Option<f64>) -> Markup {
    let width = 100.0 * ratio.clamp(0.0, 1.0);
    let is_bad = bad_from.is_some_and(|from| ratio >= from);
    html! {
        svg.bar.bad[is_bad] viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.room x="0" y="0" width="100" height="8" {}
            rect.used x="0" y="0" width=(format!("{width:.1}")) height="8" {}
            @for mark in marks {
                rect.mark x=(format!("{:.1}", (100.0 * mark).clamp(0.0, 99.0))) y="0" width="1" height="8" {}
            }
        }
    }
}

/// Draws figures over time: seconds before now, and values. `words` describe them.
pub(super) fn sparkline(points: &[(f64, f64)], words: &str) -> Markup {
    let oldest = points.first().map_or(0.0, |(age, _)| *age);
    if points.len() < 2 || oldest <= 0.0 {
        return html! { span.muted { "no history yet" } };
    }
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let least = points.iter().map(|(_, value)| *value).fold(most, f64::min);
    let spread = (most - least).max(most / 50.0).max(f64::EPSILON);
    let end = points.len() - 1;
    let place = |(age, value): &(f64, f64)| {
        let x = WIDTH * (1.0 - age / oldest);
        let y = HEIGHT - 2.0 - (HEIGHT - 4.0) * (value - least) / spread;
        format!("{x:.1},{y:.1}")
    };
    let drawn = points.iter().enumerate();
    let drawn = drawn.filter(|(at, _)| at % step == 0 || *at == end);
    let line: Vec<String> = drawn.map(|(_, point)| place(point)).collect();
    html! {
        svg.spark viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(words) {
            title { (words) }
            polyline points=(line.join(" ")) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_few_points_and_its_words() {
        let points: Vec<(f64, f64)> = (0..360_u32)
            .map(|at| (f64::from(360 - at), f64::from(at)))
            .collect();
        let drawn = sparkline(&points, "it \"rose\"").into_string();
        assert!(drawn.contains("aria-label=\"it &quot;rose&quot;\""));
        assert!(drawn.matches(',').count() <= POINTS_MAX + 1, "{drawn}");
        assert!(!sparkline(&points[..1], "one").into_string().contains("svg"));
    }

    #[test]
    fn a_bar_is_bad_from_its_limit_and_never_leaves_its_frame() {
        let drawn = |ratio| bar(ratio, &[0.75], Some(0.75)).into_string();
        assert!(!drawn(0.749).contains("bar bad") && drawn(0.75).contains("bar bad"));
        assert!(drawn(3.0).contains("width=\"100.0\""));
    }
}
