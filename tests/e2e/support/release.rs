//! Programs of several Debian releases: the installed ones, and those that `newer.sh` unpacked.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::alertmanager::program;

/// From this version on a webhook's URL is a template.
const TEMPLATES_SINCE: (u32, u32) = (0, 31);

/// Returns the directory with a package's programs of a newer Debian release; `None`, with the reason in the test's output,
/// if Debian has no such package there.
pub(crate) fn unpacked(package: &str, suite: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools");
    let dir = tools.join(package).join(suite);
    if let Ok(why) = std::fs::read_to_string(dir.join("unavailable")) {
        eprintln!("{why}");
        return None;
    }
    let programs = dir.join("bin");
    assert!(programs.exists(), "run tests/e2e/newer.sh first");
    Some(programs)
}

/// An Alertmanager that can be run.
pub(crate) struct Release {
    pub(crate) program: PathBuf,
    /// Major and minor.
    pub(crate) version: (u32, u32),
}

impl Release {
    /// Returns the Alertmanager that is on the `PATH`.
    pub(crate) fn installed() -> Self {
        Self::of(PathBuf::from(program()))
    }

    /// Returns the one of a newer Debian release; `None`, with the reason in the test's output, if Debian has
    /// none there.
    pub(crate) fn unpacked(suite: &str) -> Option<Self> {
        let programs = unpacked("prometheus-alertmanager", suite)?;
        Some(Self::of(programs.join("prometheus-alertmanager")))
    }

    fn of(program: PathBuf) -> Self {
        let output = Command::new(&program).arg("--version").output().unwrap();
        // Older versions write it to standard error.
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let number = said.split_once("version ").map(|(_, rest)| rest);
        let mut parts = number.unwrap_or_default().split('.');
        let mut part = || parts.next()?.parse().ok();
        let version = part().zip(part());
        let version = version.unwrap_or_else(|| panic!("no version in {said:?}"));
        Self { program, version }
    }

    /// Says whether a webhook's URL may be a template.
    pub(crate) fn has_templates(&self) -> bool {
        self.version >= TEMPLATES_SINCE
    }
}
