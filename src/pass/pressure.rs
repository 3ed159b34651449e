//! Disk pressure: the share of time in which tasks wait for the disk, from the kernel.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::system::blocking::BlockingPool;

/// The shortest interval between two reads.
pub(super) const PRESSURE_EVERY: Duration = Duration::from_secs(1);
/// How long a pass waits for the file. procfs answers from memory, but something else may be mounted there.
const PRESSURE_TIMEOUT: Duration = Duration::from_millis(200);

/// Disk pressure, compared with the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Below the setting.
    Low,
    /// Above it since the last read, but not over the last ten seconds.
    Brief,
    /// Above it over the last ten seconds.
    Lasting,
}

/// Reads the share of time in which tasks wait for the disk (`/proc/pressure/io`, "some").
#[derive(Debug)]
pub(super) struct Gauge {
    path: PathBuf,
    threshold_percent: Option<f64>,
    pool: BlockingPool,
    /// When it was last read, and the total waiting time then.
    last: Option<(Instant, Option<Duration>)>,
}

impl Gauge {
    pub(super) fn new(path: PathBuf, threshold_percent: Option<f64>, pool: BlockingPool) -> Self {
        Self {
            path,
            threshold_percent,
            pool,
            last: None,
        }
    }

    /// Returns the disk pressure, at most once a second; `None` in between, when switched off, and on kernels
    /// without the file.
    pub(super) async fn read(&mut self) -> Option<Pressure> {
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
        self.judge(threshold, now, text)
    }

    /// Compares the file's text with the one read before.
    fn judge(&mut self, threshold: f64, now: Instant, text: Option<String>) -> Option<Pressure> {
        let waited = text.as_deref().and_then(some_total);
        let last = self.last.replace((now, waited));
        let lasting = some_avg10(&text?)? >= threshold;
        let since = last.and_then(|(at, before)| {
            let elapsed = now.duration_since(at).as_secs_f64();
            Some(100.0 * waited?.checked_sub(before?)?.as_secs_f64() / elapsed)
        });
        Some(if lasting {
            Pressure::Lasting
        } else if since.is_some_and(|percent| percent >= threshold) {
            Pressure::Brief
        } else {
            Pressure::Low
        })
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
    async fn tells_a_brief_pressure_from_a_lasting_one() {
        let mut gauge = Gauge::new(PathBuf::new(), Some(20.0), BlockingPool::new(1));
        let mut says = |avg10: f64, total_ms: u64| {
            let total = total_ms * 1000;
            let line = format!("some avg10={avg10:.2} avg60=0 avg300=0 total={total}\n");
            gauge.judge(20.0, Instant::now(), Some(line))
        };
        assert_eq!(
            says(3.0, 5_000),
            Some(Pressure::Low),
            "nothing to compare with"
        );
        for (avg10, total_ms, read) in [
            (12.0, 5_900, Some(Pressure::Brief)),
            (30.0, 6_000, Some(Pressure::Lasting)),
            (19.0, 6_100, Some(Pressure::Low)),
            (1.0, 0, Some(Pressure::Low)),
        ] {
            tokio::time::advance(PRESSURE_EVERY).await;
            assert_eq!(says(avg10, total_ms), read, "{avg10} {total_ms}");
        }
    }

    #[tokio::test]
    async fn is_read_once_a_second_and_not_at_all_when_it_is_off_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io");
        std::fs::write(&path, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        let mut gauge = Gauge::new(path.clone(), Some(20.0), BlockingPool::new(1));
        assert_eq!(gauge.read().await, Some(Pressure::Low));
        assert_eq!(gauge.read().await, None, "too soon");
        assert_eq!(
            Gauge::new(path, None, BlockingPool::new(1)).read().await,
            None,
            "off"
        );
        let missing = Gauge::new(dir.path().join("none"), Some(20.0), BlockingPool::new(1))
            .read()
            .await;
        assert_eq!(missing, None, "no file");
    }
}
