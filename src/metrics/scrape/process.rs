//! This process, under the names that every exporter uses.

use std::sync::OnceLock;

use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, boot_time_secs, page_size, ticks_per_second};

use super::page::{Page, Sample, Value, bytes, plain, sample, seconds};

/// Adds what the kernel says of this process; what it does not say is absent.
pub(super) fn encode(page: &mut Page) {
    let Ok(process) = Process::myself() else {
        return;
    };
    if let Ok(stat) = process.stat() {
        let cpu = ticks_to_seconds(stat.utime.saturating_add(stat.stime));
        page.counter(
            seconds("process_cpu"),
            "User and system time spent",
            one(cpu),
        );
        let resident = stat.rss.saturating_mul(page_size());
        page.gauge(
            bytes("process_resident_memory"),
            "Memory in use",
            one(resident),
        );
        page.gauge(
            bytes("process_virtual_memory"),
            "Address space in use",
            one(stat.vsize),
        );
        let threads = u64::try_from(stat.num_threads).unwrap_or(0);
        page.gauge(plain("process_threads"), "Threads", one(threads));
        let started = start_time(stat.starttime).map(one).unwrap_or_default();
        page.gauge(
            seconds("process_start_time"),
            "When the process started",
            started,
        );
    }
    if let Ok(open) = process.fd_count() {
        page.gauge(
            plain("process_open_fds"),
            "Open file descriptors",
            one(open),
        );
    }
    if let Some(most) = max_fds(&process) {
        page.gauge(
            plain("process_max_fds"),
            "Most file descriptors that may be open",
            one(most),
        );
    }
}

fn one(value: impl Into<Value>) -> Vec<Sample> {
    vec![sample([], value)]
}

fn max_fds(process: &Process) -> Option<u64> {
    match process.limits().ok()?.max_open_files.soft_limit {
        LimitValue::Value(most) => Some(most),
        LimitValue::Unlimited => None,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a float's 53 bits hold centuries of ticks"
)]
fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / ticks_per_second() as f64
}

/// Returns when the process started, the same at every scrape: read once, for the kernel's boot
/// time moves with the clock and a restart would be seen where there was none.
fn start_time(ticks_after_boot: u64) -> Option<f64> {
    static BOOT: OnceLock<ProcResult<u64>> = OnceLock::new();
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
    let boot = *BOOT.get_or_init(boot_time_secs).as_ref().ok()? as f64;
    Some(boot + ticks_to_seconds(ticks_after_boot))
}
