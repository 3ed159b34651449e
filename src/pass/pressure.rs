//! Disk pressure: the share of time in which tasks wait for the disk, from the kernel.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::system::blocking::BlockingPool;

/// The shortest interval between two reads.
pub(super) const PRESSURE_EVERY: Duration = Duration::from_secs(1);
/// How long a pass waits for the file. procfs answers from memory, but something else may be mounted there.
const PRESSURE_TIMEOUT: Duration = Duration::from_millis(200);

/// Reads the share of time in which any task waited for the disk (`/proc/pressure/io`, "some").
#[derive(Debug)]
pub(super) struct PressureGauge {
    path: PathBuf,
    threshold_percent: Option<f64>,
    pool: BlockingPool,
    /// When it was last read, and the total waiting time then.
    last: Option<(Instant, Option<Duration>)>,
}

impl PressureGauge {
    pub(super) fn new(path: PathBuf, threshold_percent: Option<f64>, pool: BlockingPool) -> Self {
        Self {
            path,
            threshold_percent,
            pool,
            last: None,
        }
    }

    /// Says whether the disk is under pressure, at most once a second; `None` in between, when it is switched
    /// off, and on kernels without the file.
    pub(super) async fn read(&mut self) -> Option<bool> {
        let threshold = self.threshold_percent?;
        let now = Instant::now();
        if self
            .last
            .is_some_and(|(at, _)| now.duration_since(at) < PRESSURE_EVERY)
        {
            return None;
        }
        let path = self.path.clone();
        let read = move || std::fs::read_to_string(path).ok();
        let text = self.pool.run(PRESSURE_TIMEOUT, read).await.ok().flatten();
        Some(self.share(now, text)? >= threshold)
    }

    /// Returns the share of the time since the last reading, percent; at the first, of the last ten seconds.
    fn share(&mut self, now: Instant, text: Option<String>) -> Option<f64> {
        let waited = text.as_deref().and_then(some_total);
        let last = self.last.replace((now, waited));
        let since = last.and_then(|(at, before)| {
            let elapsed = now.duration_since(at).as_secs_f64();
            Some(100.0 * waited?.checked_sub(before?)?.as_secs_f64() / elapsed)
        });
        since.or(some_avg10(&text?))
    }
}

/// Percentage over the last ten seconds.
fn some_avg10(text: &str) -> Option<f64> {
    some(text, "avg10=")?.parse().ok()
}

/// Total waiting time since boot.
fn some_total(text: &str) -> Option<Duration> {
    let micros = some(text, "total=")?.parse().ok()?;
    Some(Duration::from_micros(micros))
}

fn some<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_pressure_line() {
        let text =
            "some avg10=12.34 avg60=0.06 avg300=0.05 total=480554\nfull avg10=0.18 avg60=0\n";
        assert_eq!(some_avg10(text), Some(12.34));
        assert_eq!(some_total(text), Some(Duration::from_micros(480_554)));
        assert_eq!(some_avg10("full avg10=0.18"), None);
        assert_eq!(some_avg10("some avg10=x"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn measures_since_the_last_reading_and_at_first_over_ten_seconds() {
        let mut gauge = PressureGauge::new(PathBuf::new(), Some(20.0), BlockingPool::new(1));
        let mut share = |avg10: f64, total_ms: u64| {
            let total = total_ms * 1000;
            let line = format!("some avg10={avg10:.2} avg60=0 avg300=0 total={total}\n");
            let share = gauge.share(Instant::now(), Some(line));
            format!("{:.0}", share.unwrap())
        };
        assert_eq!(share(3.0, 5_000), "3");
        // In the last row the total fell, so `avg10` counts.
        for (avg10, total_ms, expected) in [(12.0, 5_900, "90"), (30.0, 6_000, "10"), (1.0, 0, "1")]
        {
            tokio::time::advance(PRESSURE_EVERY).await;
            assert_eq!(share(avg10, total_ms), expected, "{avg10} {total_ms}");
        }
    }

    #[tokio::test]
    async fn is_read_once_a_second_and_not_at_all_when_it_is_off_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io");
        std::fs::write(&path, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        let mut gauge = PressureGauge::new(path.clone(), Some(20.0), BlockingPool::new(1));
        assert_eq!(gauge.read().await, Some(false));
        assert_eq!(gauge.read().await, None, "too soon");
        assert_eq!(
            PressureGauge::new(path, None, BlockingPool::new(1))
                .read()
                .await,
            None,
            "off"
        );
        let missing = PressureGauge::new(dir.path().join("none"), Some(20.0), BlockingPool::new(1))
            .read()
            .await;
        assert_eq!(missing, None, "no file");
    }
}
