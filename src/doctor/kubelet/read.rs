//! Reads the kubelet's command line from `/proc`, and its configuration files. Everything is bounded, and no path leads
//! out of the host's root. All functions block.

use std::fmt::Display;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};

use super::parse;
use super::{ConfigFile, Process};
use crate::system::file;

/// How long the process table is searched.
const SEARCH: Duration = Duration::from_millis(1500);
/// Entries of the process table that are looked at.
const ENTRIES_MAX: usize = 1 << 16;
/// The longest command line.
const ARGS_MAX_BYTES: u64 = 64 << 10;
/// The largest configuration file.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// The most drop-ins, and the most entries of a directory of them.
const DROP_INS_MAX: usize = 32;
const DIR_ENTRIES_MAX: usize = 256;
/// The most levels of directories of drop-ins.
const DIR_DEPTH_MAX: usize = 4;
const RELATIVE: &str = "its path is relative to a directory that is not known";

/// Finds the kubelet and reads its files. `host_root` is where the host's file system is.
pub(in crate::doctor) fn process(host_root: &Path) -> Process {
    let below = host_root.join("proc");
    // With hostPID the own /proc shows the host's processes too.
    let own = Path::new("/proc");
    let mut tables = vec![below.as_path()];
    if host_root != Path::new("/") {
        tables.push(own);
    }
    let mut unread = None;
    let until = Instant::now() + SEARCH;
    for table in tables {
        match search(table, host_root, until) {
            Ok(Process::Hidden) => {}
            Ok(found) => return found,
            Err(why) => unread = unread.or(Some(format!("{}: {why}", table.display()))),
        }
    }
    unread.map_or(Process::Hidden, Process::Unread)
}

/// Looks for a process that is the kubelet, or has it within itself, and is not in a pod.
fn search(table: &Path, host_root: &Path, until: Instant) -> Result<Process, String> {
    let entries = fs::read_dir(table).map_err(|error| error.kind().to_string())?;
    let mut found = Process::Hidden;
    for (looked_at, entry) in entries.enumerate() {
        if looked_at >= ENTRIES_MAX || Instant::now() >= until {
            return Err(format!("no kubelet among the first {looked_at} entries"));
        }
        let pid = |it: fs::DirEntry| it.file_name().to_str()?.parse::<u32>().ok();
        let Some(pid) = entry.ok().and_then(pid) else {
            continue;
        };
        let process = table.join(pid.to_string());
        let Some(args) = arguments(&process) else {
            continue;
        };
        match program(&args).filter(|_| !is_in_pod(&process)) {
            Some("kubelet") => {
                let files = files(host_root, &args);
                return Ok(Process::Seen { pid, args, files });
            }
            Some(other) if found == Process::Hidden => found = Process::Within(other),
            Some(_) | None => {}
        }
    }
    Ok(found)
}

/// Returns `kubelet`, or the program that has the kubelet within itself; `None`: neither.
fn program(args: &[String]) -> Option<&'static str> {
    let name = args.first()?.split(' ').next()?.rsplit('/').next()?;
    let second = args.get(1).map(String::as_str);
    match (name, second) {
        ("kubelet", _) | ("hyperkube", Some("kubelet")) => Some("kubelet"),
        ("k3s" | "k3s-server" | "k3s-agent", _) => Some("k3s"),
        ("kubelite", _) => Some("kubelite"),
        _ => None,
    }
}

/// A pod can hold a process of any name. Its control group is below one of the kubelet's, or of a pod's UID (on Talos
/// the kubelet itself is in `/podruntime`); as seen from a pod, the other containers of that very pod are beside it.
fn is_in_pod(process: &Path) -> bool {
    let cgroups = bounded(&process.join("cgroup"), ARGS_MAX_BYTES).unwrap_or_default();
    let cgroups = String::from_utf8_lossy(&cgroups);
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    cgroups.lines().filter_map(path).any(|path| {
        let is_beside = path.starts_with("/../") && !path.starts_with("/../..");
        let is_uid = |rest: &str| rest.starts_with(|it: char| it.is_ascii_hexdigit());
        is_beside || path.contains("kubepods") || path.split("/pod").skip(1).any(is_uid)
    })
}

fn arguments(process: &Path) -> Option<Vec<String>> {
    let bytes = bounded(&process.join("cmdline"), ARGS_MAX_BYTES).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches('\0');
    (!text.is_empty()).then(|| text.split('\0').map(str::to_owned).collect())
}

/// Reads the beginning of a file of the process table. Never waits for the writer of a pipe.
fn bounded(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(openat(CWD, path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the configuration file that the flags name, and the drop-ins. What was left out is in the list too, and why.
fn files(host_root: &Path, args: &[String]) -> Vec<ConfigFile> {
    let flags = parse::flags(args);
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match openat(CWD, host_root, directory, Mode::empty()) {
        Ok(root) => root,
        Err(errno) => return vec![ConfigFile::unread(host_root, errno)],
    };
    let is_host = host_root == Path::new("/");
    let root = Root { root, is_host };
    let mut files: Vec<ConfigFile> = Vec::new();
    files.extend(parse::path(&flags, "config").map(|path| root.file(Path::new(path))));
    let Some(dir) = parse::path(&flags, "config-dir").map(Path::new) else {
        return files;
    };
    let mut names = Vec::new();
    let unread = root.drop_ins(dir, DIR_DEPTH_MAX, &mut names).err();
    // The kubelet walks the directory in this order.
    names.sort();
    files.extend(names.iter().take(DROP_INS_MAX).map(|path| root.file(path)));
    let all = names.len();
    let many = || format!("only the first {DROP_INS_MAX} of {all} drop-ins were read");
    let surplus = (all > DROP_INS_MAX).then(|| ConfigFile::unread(dir, many()));
    files.extend(unread.or(surplus));
    files
}

impl ConfigFile {
    fn unread(path: &Path, why: impl Display) -> Self {
        Self {
            path: path.display().to_string(),
            content: Err(why.to_string()),
        }
    }
}

/// The host's file system.
struct Root {
    root: OwnedFd,
    is_host: bool,
}

impl Root {
    /// Opens a path of the host. Links are followed as on the host, never out of it.
    fn open(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if self.is_host {
            return openat(CWD, path, flags, Mode::empty());
        }
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn file(&self, path: &Path) -> ConfigFile {
        let content = if path.is_absolute() {
            self.read(path)
        } else {
            Err(RELATIVE.to_owned())
        };
        let path = path.display().to_string();
        ConfigFile { path, content }
    }

    fn read(&self, path: &Path) -> Result<String, String> {
        let file = self.open(path, OFlags::empty());
        let file = file.map_err(|errno| errno.to_string())?;
        let text =
            file::regular(file.into()).and_then(|mut file| file::text(&mut file, FILE_MAX_BYTES));
        text.map_err(|error| error.to_string())
    }

    /// Collects the drop-ins below a directory: every file whose name ends in `.conf`.
    fn drop_ins(
        &self,
        dir: &Path,
        depth: usize,
        names: &mut Vec<PathBuf>,
    ) -> Result<(), ConfigFile> {
        let failed = |why: &dyn Display| ConfigFile::unread(dir, why);
        if !dir.is_absolute() {
            return Err(failed(&RELATIVE));
        }
        let opened = self.open(dir, OFlags::DIRECTORY).and_then(Dir::new);
        let mut entries = opened.map_err(|errno| failed(&errno))?;
        let mut looked_at = 0;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(|errno| failed(&errno))?;
            let Ok(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            looked_at += 1;
            if looked_at > DIR_ENTRIES_MAX || names.len() > DIR_ENTRIES_MAX {
                let many = format!("it has more than {DIR_ENTRIES_MAX} entries");
                return Err(failed(&many));
            }
            if name == "." || name == ".." {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                let depth = depth.checked_sub(1);
                let depth = depth.ok_or_else(|| failed(&"it is nested too deep"))?;
                self.drop_ins(&dir.join(name), depth, names)?;
            } else if Path::new(&name).extension().is_some_and(|it| it == "conf") {
                names.push(dir.join(name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
