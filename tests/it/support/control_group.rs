//! A control group of a test's own.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::service::program;

/// A control group that lives as long as this value.
pub(crate) struct ControlGroup {
    dir: PathBuf,
    pub(crate) is_v2: bool,
}

impl ControlGroup {
    /// Makes one with this controller; `None` without the permission.
    pub(crate) fn new(controller: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let is_v2 = root.join("cgroup.controllers").exists();
        let root = if is_v2 {
            root.to_owned()
        } else {
            root.join(controller)
        };
        let dir = root.join(format!("crisweep-test-{}", std::process::id()));
        let made = fs::create_dir(&dir).is_ok();
        if !made {
            println!("skipped: a control group needs root");
        }
        made.then_some(Self { dir, is_v2 })
    }

    /// Sets a limit; says whether that was possible.
    pub(crate) fn write(&self, file: &str, text: &str) -> bool {
        fs::write(self.dir.join(file), text).is_ok()
    }

    /// Returns what a file of the group says.
    pub(crate) fn read(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Returns the program, which begins within the group.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
            .arg(&self.dir)
            .arg(program().as_std().get_program())
            .env_clear()
            .kill_on_drop(true);
        command
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Fails while the process is in it; then the next boot removes it.
        drop(fs::remove_dir(&self.dir));
    }
}
