//! This process, under the names that every exporter uses.

use std::fs;

use parking_lot::Mutex;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::page::{MetricsPage, bytes, plain, seconds};

/// A clock that moved by so many seconds was set: at a boot it may stand at 1970.
const CLOCK_SET_BY: f64 = 3600.0;

/// Adds the kernel's figures of this process; unknown ones are absent.
pub(super) fn encode(page: &mut MetricsPage) {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    if let Some(stat) = stat.as_deref().and_then(ProcessStat::parse) {
        let resident = stat.resident_pages.saturating_mul(page_size() as u64);
        let started = boot_time() + ticks_to_seconds(stat.started_ticks);
        let cpu = ticks_to_seconds(stat.cpu_ticks);
        page.counter(seconds("process_cpu"), "User and system time spent", cpu);
        page.figure(bytes("process_resident_memory"), "Memory in use", resident);
        let name = bytes("process_virtual_memory");
        page.figure(name, "Address space in use", stat.virtual_bytes);
        page.figure(plain("process_threads"), "Threads", stat.threads);
        let name = seconds("process_start_time");
        page.figure(name, "When the process started", started);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Without the descriptor that reads the directory.
        let open = open.count().saturating_sub(1);
        page.figure(plain("process_open_fds"), "Open file descriptors", open);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "Most file descriptors that may be open";
        page.figure(plain("process_max_fds"), help, most);
    }
}

/// Fields of `/proc/self/stat` (`man 5 proc_pid_stat`).
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    cpu_ticks: u64,
    threads: u64,
    /// Since the machine's boot.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The second field, the program's name, may contain anything, even parentheses.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // In the manual the first field after the name has number 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a float's 53 bits hold centuries of ticks"
)]
fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// Returns when the machine booted, in seconds since 1970.
fn boot_time() -> f64 {
    static BOOT: Mutex<Option<f64>> = Mutex::new(None);
    let seconds = |clock| {
        let time = clock_gettime(clock);
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970")]
        let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        seconds
    };
    let now = seconds(ClockId::Realtime) - seconds(ClockId::Boottime);
    let mut shown = BOOT.lock();
    let boot = steady(*shown, now);
    *shown = Some(boot);
    boot
}

/// Returns the boot time that was shown, unless the clock was set since: it moves with the clock, and each change looks
/// like a restart.
fn steady(known: Option<f64>, now: f64) -> f64 {
    known
        .filter(|known| (now - known).abs() < CLOCK_SET_BY)
        .unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_moves_only_with_a_clock_that_was_set() {
        for (known, now, wanted) in [
            (None, 5.0, 5.0),
            (Some(5.0), 6.0, 5.0),
            (Some(5.0), 1.7e9, 1.7e9),
            (Some(1.7e9), 1.6e9, 1.6e9),
        ] {
            assert!(steady(known, now).total_cmp(&wanted).is_eq(), "{now}");
        }
    }

    #[test]
    fn the_program_name_may_hold_any_characters() {
        let numbers = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>();
        let stat = ProcessStat {
            cpu_ticks: 14 + 15,
            threads: 20,
            started_ticks: 22,
            virtual_bytes: 23,
            resident_pages: 24,
        };
        let text = format!("7 (a) 1 (b) S {}", numbers.join(" "));
        assert_eq!(ProcessStat::parse(&text), Some(stat));
        assert_eq!(ProcessStat::parse("7 (crisweep) S 1 2 3"), None);
    }
}
