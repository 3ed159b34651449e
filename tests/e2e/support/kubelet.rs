//! A real kubelet beside a node's containerd, without an API server: its pods are static.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::ca::Ca;
use super::crisweep::NODE_NAME;
use super::daemon::{Daemon, free_port};
use super::node::{BUSYBOX_IMAGE, Node, PAUSE_IMAGE, tools};
use super::prometheus::http;
use super::wait::{PATIENCE, wait_for};

/// `kubelet.sh` makes it.
const PROGRAM: &str = "kubelet/kubelet";

/// Keeps the pods' logs and its own files away from the machine's.
const INIT: &str = r#"
set -eu
dir=$1
shift
for fixed in /var/log/pods /var/log/containers "$dir/kubelet"; do
  mkdir -p "$fixed"
  mountpoint -q "$fixed" || mount -t tmpfs tmpfs "$fixed"
done
mount --make-rshared "$dir/kubelet"
exec "$@"
"#;

/// What makes a kubelet a member of a cluster.
pub(crate) struct Membership {
    /// Where it listens, and its node's address.
    pub(crate) address: String,
    /// The API server and its account there.
    pub(crate) kubeconfig: PathBuf,
    /// Whether it lets everyone do everything, as it can without the API server.
    pub(crate) is_open: bool,
}

/// A running kubelet. Its node must outlive it.
pub(crate) struct Kubelet {
    daemon: Daemon,
    dir: PathBuf,
    address: String,
    /// Its port with TLS.
    port: u16,
    /// Its port that anyone may read.
    read_only_port: u16,
}

impl Kubelet {
    /// Starts one that is in no cluster, and waits until it lists its pods.
    pub(crate) async fn start(node: &Node) -> Self {
        let address = "127.0.0.1".to_owned();
        write_files(node.dir(), &address);
        // Anonymous requests are allowed, so any text will do.
        fs::write(node.dir().join("token"), "any").unwrap();
        let ports = (free_port(), free_port());
        let mut kubelet = Self::run(node, &node.namespaces(), address, ports, None);
        kubelet.answers().await;
        kubelet
    }

    /// Starts one that is a member of a cluster, in the node's network, with the files of [`write_files`].
    pub(crate) fn join(node: &Node, membership: &Membership) -> Self {
        let mut namespaces = node.namespaces();
        namespaces.push("--net".to_owned());
        let address = membership.address.clone();
        Self::run(node, &namespaces, address, (10250, 10255), Some(membership))
    }

    fn run(
        node: &Node,
        namespaces: &[String],
        address: String,
        (port, read_only_port): (u16, u16),
        membership: Option<&Membership>,
    ) -> Self {
        let program = tools().join(PROGRAM);
        assert!(program.exists(), "run tests/e2e/kubelet.sh first");
        let dir = node.dir().to_owned();
        let mut config = config(&dir, &node.cgroups().path());
        config["address"] = json!(address);
        config["port"] = json!(port);
        config["readOnlyPort"] = json!(read_only_port);
        let shown = dir.display();
        let mut command = ["sh", "-c", INIT, "kubelet-init"]
            .map(str::to_owned)
            .to_vec();
        command.extend([
            shown.to_string(),
            program.display().to_string(),
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
        if let Some(member) = membership {
            command.push(format!("--kubeconfig={}", member.kubeconfig.display()));
            command.push(format!("--node-ip={}", member.address));
            // Else it leaves nothing superseded to crisweep.
            command.push("--maximum-dead-containers-per-container=20".to_owned());
            config["nodeStatusUpdateFrequency"] = json!("2s");
        }
        if membership.is_some_and(|member| !member.is_open) {
            config["authentication"] = json!({
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true, "cacheTTL": "2m" },
                "x509": { "clientCAFile": dir.join("pki/ca.crt") },
            });
            config["authorization"] = json!({ "mode": "Webhook" });
        }
        // JSON is YAML.
        fs::write(dir.join("kubelet.yaml"), config.to_string()).unwrap();
        Self {
            daemon: Daemon::start_inside(namespaces, "kubelet", &dir, &command),
            dir,
            address,
            port,
            read_only_port,
        }
    }

    /// Waits until it lists its pods.
    pub(crate) async fn answers(&mut self) {
        wait_for("the kubelet to answer", PATIENCE, || {
            self.daemon.assert_alive();
            let (url, tail) = (self.url(), self.daemon.log_tail());
            async move {
                let pods = http::json(&url, &[]).await;
                pods.map_err(|error| format!("{error}\n{tail}"))
            }
        })
        .await;
    }

    /// Returns the section `pods` of crisweep's configuration.
    pub(crate) fn pods_section(&self, quiet: &str) -> Value {
        json!({
            "source": "kubelet",
            "kubelet_url": format!("https://{}:{}", self.address, self.port),
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
        self.daemon.signal(signal);
    }

    /// Returns all that it wrote so far.
    pub(crate) fn log(&self) -> String {
        self.daemon.log()
    }

    fn url(&self) -> String {
        format!("http://{}:{}/pods", self.address, self.read_only_port)
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

/// Makes a kubelet's directories, a CA, and its certificate for this address; returns the CA.
pub(super) fn write_files(dir: &Path, address: &str) -> Ca {
    for name in ["manifests", "pki", "starts"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    let ca = Ca::new();
    ca.write(&dir.join("pki/ca.crt"));
    let signed = ca.sign(address);
    signed.write(&dir.join("pki/kubelet.crt"), &dir.join("pki/kubelet.key"));
    ca
}

/// Returns the settings that all have; anyone may do anything.
fn config(dir: &Path, cgroup: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": dir.join("manifests"),
        "fileCheckFrequency": "1s",
        "syncFrequency": "5s",
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
    })
}
