//! A node: a real containerd in its own process, mount and network namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use tempfile::TempDir;

use super::cgroup::CgroupParent;
use super::cri::Cri;
use super::daemon::{Daemon, owner_is_dead};
use super::wait::{PATIENCE, wait_for};

/// The image of every pause process.
pub(crate) const PAUSE_IMAGE: &str = "crisweep.test/pause:1";
/// The image of every container.
pub(crate) const BUSYBOX_IMAGE: &str = "crisweep.test/busybox:1";

/// Short: a socket's path must not be longer than 107 bytes.
const PARENT: &str = "/tmp";
const PREFIX: &str = "ce2e-";
/// Where the kernel keeps the disks' limits.
const THROTTLE: &str = "/sys/fs/cgroup/blkio";

/// This directory in the sources.
pub(crate) fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e")
}

/// The programs that are built or loaded for the tests.
pub(crate) fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools")
}

/// A running containerd with both images and a bridge network. Dropping it ends every process and removes
/// every file, mount and control group.
///
/// The order of the fields matters: processes end before their files are removed.
pub(crate) struct Node {
    containerd: Daemon,
    /// containerd's own client, of the same release.
    ctr: PathBuf,
    cgroups: CgroupParent,
    dir: TempDir,
}

impl Node {
    /// Starts containerd and waits until it answers and has its images.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[], None).await
    }

    /// The same, with the containerd, shim and client in this directory.
    pub(crate) async fn start_programs(programs: &Path) -> Self {
        Self::start_with(&[], Some(programs)).await
    }

    /// The same, with containerd's storage on a file system of this size.
    pub(crate) async fn start_on_small_disk(mib: u32) -> Self {
        Self::start_with(&["tmpfs".to_owned(), mib.to_string()], None).await
    }

    /// The same, with containerd's storage on its own ext4 that can be throttled. Creates `medium` with this
    /// size, which uses only the space that is written; the caller removes it.
    pub(crate) async fn start_on_own_disk(medium: &Path, bytes: u64) -> Self {
        fs::File::create(medium).unwrap().set_len(bytes).unwrap();
        let medium = medium.to_string_lossy().into_owned();
        Self::start_with(&["ext4".to_owned(), medium], None).await
    }

    /// Limits its own disk to this many reads and writes per second.
    pub(crate) async fn throttle(&mut self, iops: u32) {
        self.containerd.send(&format!("throttle {iops}"));
        let text = format!("{THROTTLE}/blkio.throttle.write_iops_device");
        wait_for("the throttle", PATIENCE, || async {
            let set = fs::read_to_string(&text).map_err(|error| error.to_string())?;
            let granted = set.lines().find_map(|line| line.strip_prefix("7:"));
            let granted = granted.and_then(|line| line.split_once(' ')?.1.parse().ok());
            if granted.unwrap_or(0) == iops {
                Ok(())
            } else {
                Err(set)
            }
        })
        .await;
    }

    async fn start_with(disk: &[String], programs: Option<&Path>) -> Self {
        remove_stale();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(PARENT)
            .unwrap();
        write_config(dir.path());
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
            ])
            .arg(here().join("node-init.sh"))
            .arg(dir.path())
            .args(disk);
        if let Some(programs) = programs {
            let path = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{path}", programs.display()));
        }
        let containerd = Daemon::start_as_is("containerd", dir.path(), command);
        let mut node = Self {
            containerd,
            ctr: programs.map_or_else(|| "ctr".into(), |programs| programs.join("ctr")),
            cgroups: CgroupParent::new(),
            dir,
        };
        node.ready().await;
        node.import_images().await;
        node
    }

    /// Returns the directory of everything that belongs to this node.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the file system as the node's processes see it.
    pub(crate) fn host_root(&self) -> PathBuf {
        format!("/proc/{}/root", self.containerd.pid()).into()
    }

    /// Returns what makes `nsenter` run a program in the node's namespaces, but for the network's.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let pid = self.containerd.pid();
        let processes = format!("--pid=/proc/{pid}/ns/pid_for_children");
        vec![format!("--target={pid}"), "--mount".to_owned(), processes]
    }

    /// Returns the process whose namespaces are the node's.
    pub(crate) fn pid(&self) -> u32 {
        self.containerd.pid()
    }

    /// Returns containerd's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("c.sock")
    }

    /// Returns the root of the pods' log directories.
    pub(crate) fn log_root(&self) -> PathBuf {
        self.dir.path().join("log/pods")
    }

    /// Returns the root of the links to containers' logs.
    pub(crate) fn link_root(&self) -> PathBuf {
        self.dir.path().join("log/containers")
    }

    /// Returns the control groups of its pods.
    pub(crate) fn cgroups(&self) -> &CgroupParent {
        &self.cgroups
    }

    /// Connects to the runtime.
    pub(crate) async fn cri(&self) -> Cri {
        Cri::connect(&self.socket()).await
    }

    /// Starts recording containerd's create and delete events.
    pub(crate) async fn events(&self) -> Events {
        let args = [
            "-a",
            &self.socket().to_string_lossy(),
            "-n",
            "k8s.io",
            "events",
        ]
        .map(str::to_owned);
        let events = Events {
            ctr: Daemon::start("events", self.dir(), "ctr", &args),
        };
        // `ctr` does not report when it has subscribed: create objects until an event arrives.
        wait_for("containerd's events", PATIENCE, || async {
            self.ctr(&["images", "label", BUSYBOX_IMAGE, "e2e=seen"]);
            let log = events.ctr.log();
            if log.contains("/images/update") {
                Ok(())
            } else {
                Err(log)
            }
        })
        .await;
        events
    }

    /// Stops containerd, as an upgrade does; pods keep running. [`Node::resume`] starts it again.
    pub(crate) async fn pause(&mut self) {
        self.containerd.send("stop");
        wait_for("containerd to stop", PATIENCE, || async {
            match Cri::try_connect(&self.socket()).await {
                Ok(_) => Err("it still answers".to_owned()),
                Err(_) => Ok(()),
            }
        })
        .await;
    }

    /// Starts containerd again.
    pub(crate) async fn resume(&mut self) {
        self.containerd.send("start");
        self.ready().await;
    }

    async fn ready(&mut self) {
        self.containerd.assert_alive();
        wait_for("containerd to answer", PATIENCE, || async {
            let tail = |error| format!("{error}\n{}", self.containerd.log_tail());
            let cri = Cri::try_connect(&self.socket()).await.map_err(tail)?;
            cri.version()
                .await
                .map_err(|status| tail(status.to_string()))
        })
        .await;
    }

    async fn import_images(&self) {
        let archive = self.dir().join("images.tar");
        let made = Command::new(here().join("images.sh"))
            .arg(&archive)
            .args([PAUSE_IMAGE, BUSYBOX_IMAGE])
            .status()
            .unwrap();
        assert!(made.success(), "images.sh: {made}");
        self.import(&archive, 2).await;
    }

    /// Makes images of this size without common layers, and imports them.
    pub(crate) async fn import_big_images(&self, bytes: u64, tags: &[String]) {
        let archive = self.dir().join("big-images.tar");
        let made = Command::new(here().join("big-images.sh"))
            .arg(&archive)
            .arg(bytes.to_string())
            .args(tags)
            .status()
            .unwrap();
        assert!(made.success(), "big-images.sh: {made}");
        self.import(&archive, 2 + tags.len()).await;
        fs::remove_file(archive).unwrap();
    }

    /// Imports an archive, and waits until there are `count` images.
    pub(crate) async fn import(&self, archive: &Path, count: usize) {
        self.ctr(&["images", "import", &archive.to_string_lossy()]);
        let cri = self.cri().await;
        // CRI learns of an import by an event, a moment later.
        wait_for("the images", PATIENCE, || async {
            let images = cri.images().await;
            if images.len() == count {
                Ok(())
            } else {
                Err(format!("{images:?}"))
            }
        })
        .await;
    }

    /// Runs containerd's own client.
    pub(crate) fn ctr(&self, args: &[&str]) {
        let output = Command::new(&self.ctr)
            .arg("-a")
            .arg(self.socket())
            .args(["-n", "k8s.io"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "ctr {args:?}: {output:?}");
    }
}

/// containerd's own events, independent of its clients.
pub(crate) struct Events {
    ctr: Daemon,
}

impl Events {
    /// Returns the ids of the containers and sandboxes that were removed so far, in that order.
    pub(crate) fn removed(&self) -> Vec<String> {
        self.removals().into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the same with the time of each.
    pub(crate) fn removals(&self) -> Vec<(Timestamp, String)> {
        self.ctr.log().lines().filter_map(removal).collect()
    }
}

/// Reads a line like `2024-01-02 03:04:05.6 +0000 UTC k8s.io /containers/delete {"id":"..."}`.
fn removal(line: &str) -> Option<(Timestamp, String)> {
    let words: Vec<&str> = line.splitn(7, ' ').collect();
    let [date, time, _, _, _, "/containers/delete", event] = words[..] else {
        return None;
    };
    let event: serde_json::Value = serde_json::from_str(event).ok()?;
    let at = format!("{date}T{time}Z").parse().ok()?;
    Some((at, event.get("id")?.as_str()?.to_owned()))
}

/// Removes the directories of killed test processes. Nothing is mounted there any more, because the mounts
/// ended with their namespace.
fn remove_stale() {
    for entry in fs::read_dir(PARENT).unwrap().flatten() {
        if owner_is_dead(&entry.path(), PREFIX) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the directory of the machine's CNI plugins.
pub(crate) fn real_plugins() -> &'static Path {
    let plugins = ["/usr/lib/cni", "/opt/cni/bin"].map(Path::new);
    let found = plugins.into_iter().find(|dir| dir.join("bridge").exists());
    found.unwrap()
}

fn write_config(dir: &Path) {
    fs::create_dir_all(dir.join("cni")).unwrap();
    let network = serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "e2e",
        "plugins": [{
            "type": "bridge",
            "bridge": "cse2e0",
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "dataDir": dir.join("ipam"),
                "ranges": [[{ "subnet": "10.213.0.0/16" }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs::write(dir.join("cni/10-bridge.conflist"), network.to_string()).unwrap();
    // In its own directory, so that a test can replace a plugin.
    let plugins = dir.join("plugins");
    std::os::unix::fs::symlink(real_plugins(), &plugins).unwrap();
    let (dir, plugins) = (dir.display(), plugins.display());
    let config = format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
# It makes /opt/containerd on the real file system.
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{dir}/c.sock"

[ttrpc]
address = "{dir}/c.sock.ttrpc"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# Without CAP_SYS_RESOURCE runc cannot lower a score.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{dir}/cni"
"#
    );
    fs::write(format!("{dir}/containerd.toml"), config).unwrap();
}
