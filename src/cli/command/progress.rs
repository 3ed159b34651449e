//! The progress of a pass on standard error: one line that is rewritten in place on a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use crate::cli::output::note;
use crate::cli::screen::{shortened, terminal_columns};
use crate::model::{Pass, Target, TargetReport, escape, short_duration};
use crate::telemetry;

/// How long the rate looks back: long enough to be calm, short enough to notice a stall.
const WINDOW: Duration = Duration::from_secs(10);
/// The shortest time between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// The line of a waiting pass begins with this, or has it right after the target.
const WAITS: &str = "waiting ";

/// Shows a pass while it runs.
pub(super) struct Progress {
    style: ProgressStyle,
    /// `--max-removals`: the pass removes no more than this.
    at_most: Option<u64>,
    samples: VecDeque<(Instant, Target, u64)>,
    /// What the pass waits for, as it said last.
    waits: Option<String>,
    drawn_at: Option<Instant>,
}

/// How progress is shown.
enum ProgressStyle {
    /// One line of so many columns.
    Line(usize),
    /// Each line that the pass says.
    Lines,
}

impl Progress {
    pub(super) fn new(at_most: Option<u64>) -> Self {
        let stderr = io::stderr();
        let columns = telemetry::has_control(&stderr).then(|| terminal_columns(&stderr));
        let style = columns
            .flatten()
            .map_or(ProgressStyle::Lines, ProgressStyle::Line);
        Self {
            style,
            at_most,
            samples: VecDeque::new(),
            waits: None,
            drawn_at: None,
        }
    }

    /// Says whether the pass is shown as one line, which needs to be told how it stands.
    pub(super) fn is_a_line(&self) -> bool {
        matches!(self.style, ProgressStyle::Line(_))
    }

    /// Takes what the pass said.
    pub(super) fn said<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        for line in lines {
            let waits = line.contains(WAITS);
            self.waits = waits.then(|| line.to_owned());
            if !self.is_a_line() {
                note(line);
            }
        }
    }

    /// Takes the pass as it stands, and draws it.
    pub(super) fn shows(&mut self, pass: &Pass, now: Instant) {
        let ProgressStyle::Line(columns) = self.style else {
            return;
        };
        let is_early = |at: Instant| now.duration_since(at) < DRAW_EVERY;
        if self.drawn_at.is_some_and(is_early) {
            return;
        }
        if let Some((target, report)) = current(pass) {
            self.sample(target, done(report), now);
        }
        self.drawn_at = Some(now);
        let line = self.line(pass);
        draw(&shortened(&escape::line(&line), columns.saturating_sub(1)));
    }

    /// Says something between two drawings.
    pub(super) fn interrupts(&mut self, text: &str) {
        self.clear();
        note(text);
    }

    /// Takes the line away, for the answer.
    pub(super) fn clear(&mut self) {
        if matches!(self.style, ProgressStyle::Line(_)) {
            draw("");
            self.drawn_at = None;
        }
    }

    fn sample(&mut self, target: Target, done: u64, now: Instant) {
        self.samples
            .retain(|(at, of, _)| *of == target && now.duration_since(*at) <= WINDOW);
        self.samples.push_back((now, target, done));
    }

    /// Returns removals per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> Option<f64> {
        let ((from, _, first), (to, _, last)) = (self.samples.front()?, self.samples.back()?);
        let span = to.duration_since(*from).as_secs_f64();
        let rate = last.checked_sub(*first)? as f64 / span;
        (span >= 0.5 && rate > 0.0).then_some(rate)
    }

    fn line(&self, pass: &Pass) -> String {
        if pass.started_at.is_none() {
            return "waiting for its turn".to_owned();
        }
        if let Some(waits) = &self.waits {
            return waits.clone();
        }
        let Some((target, report)) = current(pass) else {
            return "looking at the node".to_owned();
        };
        let (done, total) = (done(report), self.total(pass, report));
        let mut line = format!("{target}: {done} of {total}");
        if let Some(rate) = self.rate() {
            line.push_str(&format!(", {}", rate_words(rate)));
            line.push_str(&left_words(total.saturating_sub(done), rate));
        }
        report.add_troubles(&mut line);
        line
    }

    /// Returns how many of the target the pass takes on: what is planned, within `--max-removals`.
    fn total(&self, pass: &Pass, report: &TargetReport) -> u64 {
        let Some(at_most) = self.at_most else {
            return report.planned;
        };
        let begun: u64 = pass.targets.values().map(done).sum();
        let here = done(report);
        report
            .planned
            .min(here + at_most.saturating_sub(begun))
            .max(here)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the target that the pass works on: the last one that it has begun.
fn current(pass: &Pass) -> Option<(Target, &TargetReport)> {
    let mut begun = pass.targets.iter().filter(|(_, report)| report.begun);
    begun.next_back().map(|(target, report)| (*target, report))
}

fn done(report: &TargetReport) -> u64 {
    report.removed + report.already_gone + report.failed + report.skipped
}

fn rate_words(rate: f64) -> String {
    if rate >= 10.0 {
        format!("{rate:.0}/s")
    } else if rate >= 1.0 {
        format!("{rate:.1}/s")
    } else {
        format!("{:.0}/min", 60.0 * rate)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "an estimate for people"
)]
fn left_words(left: u64, rate: f64) -> String {
    if left == 0 {
        return String::new();
    }
    let seconds = (left as f64 / rate).ceil() as i64;
    format!(
        ", {} left",
        short_duration(SignedDuration::from_secs(seconds))
    )
}

/// Rewrites the line that the cursor is on.
fn draw(line: &str) {
    let mut stderr = io::stderr().lock();
    // Goes to the first column, and erases the rest of an earlier line.
    let written = write!(stderr, "\r{line}\u{1b}[K").and_then(|()| stderr.flush());
    let _is_seen = written.is_ok();
}

#[cfg(test)]
mod tests {
    use crate::model::{Cause, PassState};
    use jiff::Timestamp;

    use super::*;

    fn pass(targets: &[(Target, TargetReport)]) -> Pass {
        let begun = Timestamp::UNIX_EPOCH;
        Pass {
            state: PassState::Running,
            started_at: Some(begun),
            targets: targets.iter().cloned().collect(),
            ..Pass::queued("1".to_owned(), Cause::Command.into(), [], begun)
        }
    }

    fn report(planned: u64, removed: u64, failed: u64) -> TargetReport {
        TargetReport {
            begun: true,
            planned,
            removed,
            failed,
            ..TargetReport::default()
        }
    }

    fn progress(at_most: Option<u64>) -> Progress {
        Progress {
            style: ProgressStyle::Lines,
            at_most,
            samples: VecDeque::new(),
            waits: None,
            drawn_at: None,
        }
    }

    #[test]
    fn the_line_has_the_true_total_the_rate_and_the_time_left() {
        let mut progress = progress(None);
        let running = pass(&[(Target::Containers, report(1000, 240, 10))]);
        assert_eq!(
            progress.line(&running),
            "containers: 250 of 1000, 10 failed"
        );
        let began = Instant::now();
        for second in 0..=20 {
            let now = began + Duration::from_secs(second);
            progress.sample(Target::Containers, 50 + 10 * second, now);
        }
        assert_eq!(
            progress.line(&running),
            "containers: 250 of 1000, 10/s, 1m15s left, 10 failed"
        );
        // The next target has a rate of its own.
        progress.sample(Target::Sandboxes, 0, began + Duration::from_secs(21));
        let next = pass(&[
            (Target::Containers, report(1000, 1000, 0)),
            (Target::Sandboxes, report(400, 0, 0)),
        ]);
        assert_eq!(progress.line(&next), "sandboxes: 0 of 400");
    }

    #[test]
    fn the_total_respects_the_bound_of_the_whole_pass() {
        let progress = progress(Some(300));
        let running = pass(&[
            (Target::Containers, report(200, 200, 0)),
            (Target::Sandboxes, report(400, 40, 0)),
        ]);
        assert_eq!(progress.line(&running), "sandboxes: 40 of 100");
    }

    #[test]
    fn a_wait_is_said_until_the_pass_says_something_else() {
        let mut progress = progress(None);
        let running = pass(&[(Target::Containers, report(10, 0, 0))]);
        progress.said(["containers: waiting 3 s for finished pods"]);
        assert_eq!(
            progress.line(&running),
            "containers: waiting 3 s for finished pods"
        );
        progress.said(["containers: batch 1: 3 of 10 gone"]);
        assert_eq!(progress.line(&running), "containers: 0 of 10");
        let mut looks = pass(&[]);
        assert_eq!(progress.line(&looks), "looking at the node");
        looks.started_at = None;
        assert_eq!(progress.line(&looks), "waiting for its turn");
    }

    #[test]
    fn a_slow_rate_is_per_minute() {
        assert_eq!(rate_words(0.25), "15/min");
        assert_eq!(rate_words(2.34), "2.3/s");
    }
}
