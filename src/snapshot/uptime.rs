//! How long the machine has been up.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::system::blocking::BlockingPool;

/// Timeout for the file. procfs answers from memory, but something else may be mounted there.
const UPTIME_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the host's `/proc/uptime`; asks the kernel if it is missing below `host_root`. If the disk does not
/// answer, the machine counts as just started: doubt keeps.
pub(super) async fn uptime(disk: &BlockingPool, host_root: &Path) -> Duration {
    let host_root = host_root.to_owned();
    let read = disk.run(UPTIME_TIMEOUT, move || read(&host_root)).await;
    read.unwrap_or(Duration::ZERO)
}

fn read(host_root: &Path) -> Duration {
    let text = fs::read_to_string(host_root.join("proc/uptime"));
    let seconds = text
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    let uptime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    uptime.unwrap_or_else(|| {
        // An unknown uptime counts as just started: doubt keeps.
        let seconds = u64::try_from(rustix::system::sysinfo().uptime);
        seconds.map_or(Duration::ZERO, Duration::from_secs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn on_a_disk_that_hangs_the_machine_counts_as_just_started() {
        let disk = BlockingPool::new(0);
        assert_eq!(uptime(&disk, Path::new("/")).await, Duration::ZERO);
    }

    #[test]
    fn the_hosts_proc_uptime_is_preferred_to_the_kernels() {
        let root = tempfile::tempdir().unwrap();
        let of_kernel = read(root.path());
        assert!(of_kernel > Duration::ZERO);
        fs::create_dir(root.path().join("proc")).unwrap();
        let path = root.path().join("proc/uptime");
        fs::write(&path, "71.25 140.11\n").unwrap();
        assert_eq!(read(root.path()), Duration::from_millis(71_250));
        fs::write(&path, "soon\n").unwrap();
        assert!(read(root.path()) >= of_kernel);
    }
}
