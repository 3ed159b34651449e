//! A process that never outlives its guard, nor the test process, however that ends.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs its arguments until its standard input ends. That is a pipe which only the test process holds:
/// dropping the guard, a panic, an abort or a `kill -9` of the test closes it. A program that ends by itself
/// ends the shell too, and `assert_alive` notices. In the subshell `$$` is still the outer shell.
const UNTIL_STDIN_ENDS: &str = r#"
{
  trap 'kill -KILL $!; wait; exit' TERM
  "$@" </dev/null &
  wait $!
  echo "exited: $?"
  kill -TERM $$
} &
read -r _
kill -TERM $!
wait
"#;

/// Writes its process id, as its namespaces see it, to a file, and becomes the command that follows.
const WITH_PID_FILE: &str = r#"echo $$ >"$1"; shift; exec "$@""#;

/// A running process with its own group, and its output in a file.
pub(crate) struct Daemon {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    log: PathBuf,
    inside: Option<Inside>,
}

/// Where a process is that runs in namespaces which `nsenter` takes as these arguments.
struct Inside {
    namespaces: Vec<String>,
    pid_file: PathBuf,
}

impl Daemon {
    /// Starts a program whose output goes to `dir/NAME.log`.
    pub(crate) fn start(name: &str, dir: &Path, program: &str, args: &[String]) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", UNTIL_STDIN_ENDS, name, program])
            .args(args);
        Self::start_as_is(name, dir, command)
    }

    /// Starts a program in the namespaces that `nsenter` takes as these arguments. They must outlive it.
    pub(crate) fn start_inside(
        namespaces: &[String],
        name: &str,
        dir: &Path,
        command: &[String],
    ) -> Self {
        let pid_file = dir.join(format!("{name}.pid"));
        let mut args = namespaces.to_vec();
        args.extend(["sh", "-c", WITH_PID_FILE, name].map(str::to_owned));
        args.push(pid_file.display().to_string());
        args.extend_from_slice(command);
        let mut daemon = Self::start(name, dir, "nsenter", &args);
        let namespaces = namespaces.to_vec();
        daemon.inside = Some(Inside {
            namespaces,
            pid_file,
        });
        daemon
    }

    /// Starts a command that ends, with all its children, when its standard input ends.
    pub(crate) fn start_as_is(name: &str, dir: &Path, mut command: Command) -> Self {
        let log = dir.join(format!("{name}.log"));
        let output = File::create(&log).unwrap();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot start: {error}"));
        let stdin = child.stdin.take();
        Self {
            name: name.to_owned(),
            child,
            stdin,
            log,
            inside: None,
        }
    }

    /// Writes a line to the process's standard input.
    pub(crate) fn send(&mut self, line: &str) {
        use std::io::Write;
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap_or_else(|error| panic!("{} is gone: {error}", self.name));
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all that it wrote so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Returns the end of what it wrote, for messages.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Sends a signal to a process that [`Daemon::start_inside`] has started.
    pub(crate) fn signal(&self, signal: &str) {
        let inside = self.inside.as_ref().unwrap();
        let sent = inside.signal(signal);
        assert!(sent, "{}: kill {signal}", self.name);
    }

    /// Fails the test if the process has ended by itself.
    pub(crate) fn assert_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{} ended ({status}):\n{}", self.name, self.log_tail());
        }
    }
}

impl Inside {
    /// Says whether the signal was sent.
    fn signal(&self, signal: &str) -> bool {
        let Ok(pid) = fs::read_to_string(&self.pid_file) else {
            return false;
        };
        let mut kill = Command::new("nsenter");
        kill.args(&self.namespaces)
            .args(["kill", signal, pid.trim()]);
        kill.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // To kill `nsenter` is not to kill what it has forked.
        if let Some(inside) = &self.inside {
            inside.signal("-KILL");
        }
        drop(self.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a free loopback port.
///
/// It is below the kernel's range for outgoing connections, so none of those can take it before the daemon
/// binds it.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(20_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Says whether a directory is named `PREFIX` plus a process id whose process is gone: it was killed before
/// it could remove the directory.
pub(crate) fn owner_is_dead(directory: &Path, prefix: &str) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let owner = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split('-').next());
    owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}
