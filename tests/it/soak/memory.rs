//! The service's memory, season by season.

use std::time::{Duration, Instant};

/// The most lines of the report.
const LINES: usize = 12;

/// Memory that the kernel cannot drop, over time.
pub(super) struct Memory {
    began: Instant,
    samples: Vec<(Duration, u64)>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            samples: Vec::new(),
        }
    }

    /// Reads a process's memory.
    pub(super) fn sample(&mut self, pid: u32) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        self.samples
            .push((self.began.elapsed(), kib.parse().unwrap()));
    }

    /// Prints some samples, and the growth from the second quarter's mean to the last quarter's.
    pub(super) fn report(&self) {
        for (at, kib) in self.samples.iter().step_by(self.samples.len() / LINES + 1) {
            println!("after {:>4} s: {kib} KiB anonymous", at.as_secs());
        }
        let quarter = self.samples.len() / 4;
        if quarter == 0 {
            println!("too short to say how memory grows");
            return;
        }
        let second = mean(&self.samples[quarter..2 * quarter]);
        let last = mean(&self.samples[3 * quarter..]);
        println!("anonymous, mean: {second} KiB in the second quarter, {last} KiB in the last");
    }
}

fn mean(samples: &[(Duration, u64)]) -> u64 {
    samples.iter().map(|(_, kib)| kib).sum::<u64>() / samples.len() as u64
}
