//! How much of the time somebody waits for the disk, as the kernel tells.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

/// How often it is read, at most.
pub(super) const PRESSURE_EVERY: Duration = Duration::from_secs(1);

/// How much of the time somebody waited for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Less than is allowed.
    Low,
    /// More, since it was last read; not over the last ten seconds.
    Brief,
    /// More, over the last ten seconds.
    Lasting,
}

/// Reads the share of time in which somebody waited for the disk (`/proc/pressure/io`, "some").
#[derive(Debug)]
pub(super) struct Gauge {
    path: PathBuf,
    threshold_percent: Option<f64>,
    /// When it was last read, and the time waited until then.
    last: Option<(Instant, Option<Duration>)>,
}

impl Gauge {
    pub(super) fn new(path: PathBuf, threshold_percent: Option<f64>) -> Self {
        Self {
            path,
            threshold_percent,
            last: None,
        }
    }

    /// Returns how much the disk is under pressure, at most once a second; `None` in between, when it
    /// is switched off, and on kernels without the file.
    pub(super) fn read(&mut self) -> Option<Pressure> {
        let threshold = self.threshold_percent?;
        let now = Instant::now();
        if self
            .last
            .is_some_and(|(at, _)| now.duration_since(at) < PRESSURE_EVERY)
        {
            return None;
        }
        // procfs answers from memory: this does not wait for the disk that it tells about.
        let text = std::fs::read_to_string(&self.path).ok();
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

/// The share of the last ten seconds, percent.
fn some_avg10(text: &str) -> Option<f64> {
    some(text, "avg10=")?.parse().ok()
}

/// The time since the machine started.
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
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io");
        let says = |avg10: f64, total_ms: u64| {
            let line = format!(
                "some avg10={avg10:.2} avg60=0 avg300=0 total={}\n",
                total_ms * 1000
            );
            std::fs::write(&path, line).unwrap();
        };
        let mut gauge = Gauge::new(path.clone(), Some(20.0));
        says(3.0, 5_000);
        assert_eq!(gauge.read(), Some(Pressure::Low), "nothing to compare with");
        assert_eq!(gauge.read(), None, "too soon");
        for (avg10, total_ms, read) in [
            (12.0, 5_900, Some(Pressure::Brief)),
            (30.0, 6_000, Some(Pressure::Lasting)),
            (19.0, 6_100, Some(Pressure::Low)),
            (1.0, 0, Some(Pressure::Low)),
        ] {
            says(avg10, total_ms);
            tokio::time::advance(PRESSURE_EVERY).await;
            assert_eq!(gauge.read(), read, "{avg10} {total_ms}");
        }
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(PRESSURE_EVERY).await;
        assert_eq!(gauge.read(), None, "no file");
        assert_eq!(Gauge::new(path, None).read(), None, "off");
    }
}
