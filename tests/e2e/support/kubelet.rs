//! A real kubelet beside a node's containerd, without an API server: its pods are static.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::ca::Ca;
use super::crisweep::NODE_NAME;
use super::daemon::{Daemon, free_port};
use super::node::{BUSYBOX_IMAGE, Node, PAUSE_IMAGE};
use super::prometheus::http;
use super::wait::{PATIENCE, wait_for};

/// `kubelet.sh` makes it.
const PROGRAM: &str = "target/tools/kubelet/kubelet";

/// In the node's namespaces, but for the network's. It writes its process id as they see it, and keeps the pods' logs and
/// its own files away from the machine's.
const INIT: &str = r#"
set -eu
dir=$1
shift
for fixed in /var/log/pods /var/log/containers "$dir/kubelet"; do
  mkdir -p "$fixed"
  mount -t tmpfs tmpfs "$fixed"
done
mount --make-rshared "$dir/kubelet"
echo $$ >"$dir/kubelet.pid"
exec "$@"
"#;

/// A running kubelet. Its node must outlive it.
pub(crate) struct Kubelet {
    daemon: Daemon,
    dir: PathBuf,
    /// Its port with TLS.
    port: u16,
    /// Its port that anyone may read.
    read_only_port: u16,
    namespaces: Vec<String>,
}

impl Kubelet {
    /// Starts it and waits until it lists its pods.
    pub(crate) async fn start(node: &Node) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
        assert!(program.exists(), "run tests/e2e/kubelet.sh first");
        let dir = node.dir().to_owned();
        let (port, read_only_port) = (free_port(), free_port());
        write_files(&dir, &node.cgroups().path(), port, read_only_port);
        let namespaces = node.namespaces();
        let mut args = namespaces.clone();
        args.extend(["sh", "-c", INIT, "kubelet-init"].map(str::to_owned));
        args.push(dir.display().to_string());
        args.push(program.display().to_string());
        let shown = dir.display();
        args.extend([
            format!("--config={shown}/kubelet.yaml"),
            "--container-runtime=remote".to_owned(),
            format!(
                "--container-runtime-endpoint=unix://{}",
                node.socket().display()
            ),
            format!("--hostname-override={NODE_NAME}"),
            "--network-plugin=cni".to_owned(),
            format!("--cni-conf-dir={shown}/cni"),
            format!("--pod-infra-container-image={PAUSE_IMAGE}"),
            format!("--root-dir={shown}/kubelet"),
            format!("--cert-dir={shown}/pki"),
        ]);
        let mut kubelet = Self {
            daemon: Daemon::start("kubelet", &dir, "nsenter", &args),
            dir,
            port,
            read_only_port,
            namespaces,
        };
        wait_for("the kubelet to answer", PATIENCE, || {
            kubelet.daemon.assert_alive();
            let (url, tail) = (kubelet.url(), kubelet.daemon.log_tail());
            async move {
                let pods = http::json(&url, &[]).await;
                pods.map_err(|error| format!("{error}\n{tail}"))
            }
        })
        .await;
        kubelet
    }

    /// Returns the section `pods` of crisweep's configuration.
    pub(crate) fn pods_section(&self, quiet: &str) -> Value {
        json!({
            "source": "kubelet",
            "kubelet_url": format!("https://127.0.0.1:{}", self.port),
            "kubelet_token_file": self.dir.join("token"),
            "kubelet_ca_file": self.dir.join("pki/ca.crt"),
            "settle": "1s",
            "quiet": quiet,
        })
    }

    /// Adds a static pod. Each start of a container adds a line to a file; [`Kubelet::starts`] counts them.
    pub(crate) fn add(&self, pod: &StaticPod) {
        let hidden = self.dir.join("manifests").join(format!(".{}", pod.name));
        fs::write(&hidden, pod.manifest(&self.starts_dir()).to_string()).unwrap();
        fs::rename(hidden, self.manifest(&pod.name)).unwrap();
    }

    /// Removes a static pod.
    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.manifest(name)).unwrap();
    }

    /// Returns how often a container has started.
    pub(crate) fn starts(&self, pod: &str, container: &str) -> usize {
        let path = self.starts_dir().join(format!("{pod}-{container}"));
        fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    /// Waits until a pod has one of these phases, and returns its status.
    pub(crate) async fn status(&self, name: &str, phases: &[&str]) -> Value {
        let full = format!("{name}-{NODE_NAME}");
        wait_for(&format!("{name} to be {phases:?}"), PATIENCE, || async {
            let pods = http::json(&self.url(), &[]).await?;
            let items = pods["items"].as_array().cloned().unwrap_or_default();
            let pod = items
                .into_iter()
                .find(|pod| pod["metadata"]["name"] == *full);
            let status = pod.map(|mut pod| pod["status"].take()).unwrap_or_default();
            let phase = status["phase"].as_str().unwrap_or("absent");
            if phases.contains(&phase) {
                Ok(status)
            } else {
                Err(format!("{status}\n{}", self.daemon.log_tail()))
            }
        })
        .await
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = fs::read_to_string(self.dir.join("kubelet.pid")).unwrap();
        let mut kill = Command::new("nsenter");
        kill.args(&self.namespaces)
            .args(["kill", signal, pid.trim()]);
        assert!(kill.status().unwrap().success());
    }

    /// Returns all that it wrote so far.
    pub(crate) fn log(&self) -> String {
        self.daemon.log()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/pods", self.read_only_port)
    }

    fn starts_dir(&self) -> PathBuf {
        self.dir.join("starts")
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.dir.join("manifests").join(format!("{name}.json"))
    }
}

/// A pod of one container, `app`, which runs a shell's script, and perhaps an init container, `init`.
pub(crate) struct StaticPod {
    pub(crate) name: String,
    pub(crate) restart_policy: &'static str,
    pub(crate) script: &'static str,
    pub(crate) init: bool,
    /// The kubelet kills it every few seconds.
    pub(crate) fails_probe: bool,
}

impl StaticPod {
    /// It has no init container and passes.
    pub(crate) fn new(name: String, restart_policy: &'static str, script: &'static str) -> Self {
        Self {
            name,
            restart_policy,
            script,
            init: false,
            fails_probe: false,
        }
    }

    fn manifest(&self, starts: &Path) -> Value {
        let container = |name: &str, script: &str| {
            json!({
                "name": name,
                "image": BUSYBOX_IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", format!("echo >>/starts/{}-{name}; {script}", self.name)],
                "volumeMounts": [{ "name": "starts", "mountPath": "/starts" }],
            })
        };
        let mut app = container("app", self.script);
        if self.fails_probe {
            app["livenessProbe"] = json!({
                "exec": { "command": ["sh", "-c", "exit 1"] },
                "initialDelaySeconds": 2,
                "periodSeconds": 2,
                "failureThreshold": 1,
            });
        }
        let init = self.init.then(|| container("init", "true"));
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.name, "namespace": "default" },
            "spec": {
                "restartPolicy": self.restart_policy,
                "terminationGracePeriodSeconds": 1,
                "initContainers": Vec::from_iter(init),
                "containers": [app],
                "volumes": [{ "name": "starts", "hostPath": { "path": starts } }],
            },
        })
    }
}

fn write_files(dir: &Path, cgroup: &str, port: u16, read_only_port: u16) {
    for name in ["manifests", "pki", "starts"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    let ca = Ca::new();
    ca.write(&dir.join("pki/ca.crt"));
    let signed = ca.sign("127.0.0.1");
    signed.write(&dir.join("pki/kubelet.crt"), &dir.join("pki/kubelet.key"));
    // Anonymous requests are allowed, so any text will do.
    fs::write(dir.join("token"), "any").unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": dir.join("manifests"),
        "fileCheckFrequency": "1s",
        "syncFrequency": "5s",
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": read_only_port,
        "healthzPort": 0,
        "tlsCertFile": dir.join("pki/kubelet.crt"),
        "tlsPrivateKeyFile": dir.join("pki/kubelet.key"),
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "hairpinMode": "none",
        "resolvConf": "",
        "volumePluginDir": dir.join("volume-plugins"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "1Mi" },
    });
    // JSON is YAML.
    fs::write(dir.join("kubelet.yaml"), config.to_string()).unwrap();
}
