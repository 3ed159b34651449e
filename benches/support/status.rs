//! The kernel's memory figures of a process.

/// Resident memory in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) most: u64,
}

impl Memory {
    /// Reads those of a process, by id or `self`.
    pub(crate) fn of(process: &str) -> Self {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(path).expect("a process");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            number.and_then(|number| number.parse().ok()).expect(name)
        };
        Self {
            now: field("VmRSS:"),
            most: field("VmHWM:"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
