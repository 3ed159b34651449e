//! The image of `deploy/image` as a pod, with the settings of a `DaemonSet`, on the containerd that it sweeps.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crisweep_proto::cri::{
    Capability, ContainerConfig, ContainerMetadata, ContainerState, ImageSpec, Int64Value,
    LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, Mount, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata, PodSandboxState, SecurityProfile,
};
use serde_json::{Value, json};

use crate::support::cri::Cri;
use crate::support::node::Node;
use crate::support::plan;
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};
use crate::sweep::{must_stay, sandbox_must_stay};

pub(crate) const IMAGE: &str = "crisweep.test/crisweep:1";
/// The image's user.
const USER: u32 = 65532;
const UID: &str = "0b6f3c1e-6d7a-4a43-9b7e-7c3d1f3a9c10";

/// The pod, and what of the node it sees.
struct Pod {
    sandbox: String,
    container: String,
    socket: PathBuf,
}

impl Pod {
    /// Starts it, with a pods file that knows it and the population.
    async fn start(node: &Node, population: &Population) -> Self {
        let own = node.dir().join("own");
        let (state, etc) = (own.join("state"), own.join("etc"));
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&etc).unwrap();
        chown(&state, Some(USER), Some(0)).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        // As /run/containerd: what group 0 may enter, with a socket that it may connect to.
        fs::set_permissions(node.dir(), fs::Permissions::from_mode(0o710)).unwrap();
        write_pods(&etc.join("pods.json"), population);
        fs::write(etc.join("crisweep.yaml"), settings().to_string()).unwrap();

        let cri = node.cri().await;
        let sandbox_config = sandbox_config(node);
        let sandbox = cri.run_sandbox(&sandbox_config).await;
        let mounts = [
            mount(node.dir(), "/run/containerd", true),
            mount(&etc, "/etc/crisweep", true),
            mount(&state, "/var/lib/crisweep", false),
        ];
        let config = container_config(mounts.into());
        fs::create_dir_all(PathBuf::from(&sandbox_config.log_directory).join("crisweep")).unwrap();
        let container = cri
            .create_container(&sandbox, &sandbox_config, config)
            .await;
        cri.start_container(&container).await;
        Self {
            sandbox,
            container,
            socket: state.join("http.sock"),
        }
    }

    /// Asks it over its unix socket, as root.
    fn ask(&self, method: &str, path: &str) -> Result<String, String> {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--fail-with-body",
                "--max-time",
                "60",
            ])
            .args(["--request", method, "--unix-socket"])
            .arg(&self.socket)
            .arg(format!("http://localhost{path}"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    fn pass(&self, query: &str) -> Value {
        let pass = self.ask(
            "POST",
            &format!("/gc?wait=50s&target=containers&target=sandboxes{query}"),
        );
        serde_json::from_str(&pass.unwrap()).unwrap()
    }
}

fn settings() -> Value {
    json!({
        "runtime": { "endpoint": "unix:///run/containerd/c.sock" },
        "collect": { "max_age": "500ms" },
        "policy": {
            "containers": { "min_age": "1s", "max_dead": 0 },
            "sandboxes": { "min_age": "1s", "max_dead": 0 },
            // The directories are root's.
            "logs": { "enabled": false },
        },
        "pods": { "source": "file", "file": "/etc/crisweep/pods.json", "settle": "1s", "quiet": "0s" },
        "web": { "listen": ["127.0.0.1:20950", "unix:/var/lib/crisweep/http.sock"] },
    })
}

/// Adds our own pod, which lives, to the population's.
fn write_pods(file: &Path, population: &Population) {
    population.write_pods_file(file);
    let mut list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    list["items"].as_array_mut().unwrap().push(json!({
        "metadata": {
            "uid": UID,
            "name": "crisweep",
            "namespace": "crisweep",
            "annotations": { "kubernetes.io/config.source": "api" },
        },
        "status": { "phase": "Running" },
    }));
    fs::write(file, list.to_string()).unwrap();
}

fn labels() -> std::collections::BTreeMap<String, String> {
    [
        ("io.kubernetes.pod.name", "crisweep"),
        ("io.kubernetes.pod.namespace", "crisweep"),
        ("io.kubernetes.pod.uid", UID),
        ("io.kubernetes.container.name", "crisweep"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

fn namespaces() -> NamespaceOption {
    NamespaceOption {
        network: NamespaceMode::Node.into(),
        pid: NamespaceMode::Container.into(),
        ipc: NamespaceMode::Pod.into(),
    }
}

fn sandbox_config(node: &Node) -> PodSandboxConfig {
    let directory = node.log_root().join(format!("crisweep_crisweep_{UID}"));
    let mut labels = labels();
    labels.remove("io.kubernetes.container.name");
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: "crisweep".to_owned(),
            uid: UID.to_owned(),
            namespace: "crisweep".to_owned(),
            attempt: 0,
        }),
        log_directory: directory.to_string_lossy().into_owned(),
        labels,
        annotations: [("kubernetes.io/config.source".to_owned(), "api".to_owned())].into(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: node.cgroups().path(),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces()),
            }),
        }),
        ..PodSandboxConfig::default()
    }
}

fn mount(host: &Path, container: &str, readonly: bool) -> Mount {
    Mount {
        container_path: container.to_owned(),
        host_path: host.to_string_lossy().into_owned(),
        readonly,
        ..Mount::default()
    }
}

fn container_config(mounts: Vec<Mount>) -> ContainerConfig {
    let number = |value: u32| {
        Some(Int64Value {
            value: value.into(),
        })
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "crisweep".to_owned(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: IMAGE.to_owned(),
            ..ImageSpec::default()
        }),
        // The image's own entry point.
        args: vec!["--config.file=/etc/crisweep/crisweep.yaml".to_owned()],
        mounts,
        labels: labels(),
        log_path: "crisweep/0.log".to_owned(),
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext {
                capabilities: Some(Capability {
                    drop_capabilities: vec!["ALL".to_owned()],
                    ..Capability::default()
                }),
                namespace_options: Some(namespaces()),
                run_as_user: number(USER),
                run_as_group: number(0),
                readonly_rootfs: true,
                no_new_privs: true,
                // The runtime's default profile.
                seccomp: Some(SecurityProfile::default()),
            }),
        }),
        ..ContainerConfig::default()
    }
}

/// Makes the image of this program as an archive `docker-archive:FILE` or `oci-archive:FILE`, and returns its id.
fn build(archive: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/image/build.sh");
    let built = Command::new(script)
        .args([env!("CARGO_BIN_EXE_crisweep"), archive, IMAGE])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let output = String::from_utf8(built.stdout).unwrap();
    output.trim_end().to_owned()
}

/// Makes the image, imports it, and returns its health check.
pub(crate) async fn import(node: &Node) -> Vec<String> {
    let archive = node.dir().join("crisweep.tar");
    build(&format!("docker-archive:{}", archive.display()));
    node.import(&archive, 3).await;
    assert_settings(&archive)
}

fn member(archive: &Path, name: &str) -> Value {
    let output = Command::new("tar")
        .arg("-xOf")
        .args([archive, Path::new(name)])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Reads what buildah has made of the Dockerfile.
fn assert_settings(archive: &Path) -> Vec<String> {
    let manifest = member(archive, "manifest.json");
    assert_eq!(manifest[0]["RepoTags"], json!([IMAGE]));
    let image = member(archive, manifest[0]["Config"].as_str().unwrap());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        _ => "arm64",
    };
    assert_eq!(image["architecture"], architecture);
    let config = &image["config"];
    assert_eq!(config["User"], format!("{USER}:0"));
    assert_eq!(config["Entrypoint"], json!(["/usr/local/bin/crisweep"]));
    assert_eq!(config["ExposedPorts"], json!({ "20950/tcp": {} }));
    assert_eq!(config["Volumes"], json!({ "/var/lib/crisweep": {} }));
    let environment = json!(["PATH=/usr/local/bin", "MALLOC_ARENA_MAX=1"]);
    assert_eq!(config["Env"], environment);
    let labels = config["Labels"].as_object().unwrap();
    let label = |name: &str| &labels[&format!("org.opencontainers.image.{name}")];
    assert_eq!(label("title"), "crisweep");
    assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(labels.len(), 6, "{labels:?}");
    let check: Vec<String> = serde_json::from_value(config["Healthcheck"]["Test"].clone()).unwrap();
    let (kind, check) = check.split_first().unwrap();
    assert_eq!(kind, "CMD", "there is no shell");
    check.to_vec()
}

/// Runs the image's health check in the pod, as Docker would. Fails where it exits with anything but 0.
fn assert_healthy(node: &Node, pod: &Pod, check: &[String]) {
    let fifos = node.dir().join("fifos");
    let fifos = fifos.to_string_lossy();
    let mut arguments = vec!["tasks", "exec", "--exec-id", "check", "--fifo-dir", &fifos];
    arguments.push(&pod.container);
    arguments.extend(check.iter().map(String::as_str));
    node.ctr(&arguments);
}

/// Reads what the kernel says of the process.
fn assert_confined(node: &Node, pod: &Pod) {
    let pids = node.cgroups().processes(&pod.container);
    let [pid] = pids[..] else {
        panic!("one process, not {pids:?}");
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        words.join(" ")
    };
    assert_eq!(of("Uid:"), vec![USER.to_string(); 4].join(" "));
    assert_eq!(of("Gid:"), ["0"; 4].join(" "));
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(of(set), "0000000000000000", "{set}");
    }
    assert_eq!((&*of("NoNewPrivs:"), &*of("Seccomp:")), ("1", "2"));
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(4) == Some("/"));
    let options = root.unwrap().split(' ').nth(5).unwrap();
    assert!(options.starts_with("ro"), "{options}");
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    for shell in ["bin/sh", "bin/bash", "usr/bin/dpkg"] {
        assert!(!root.join(shell).exists(), "{shell} is in the image");
    }
}

#[tokio::test]
async fn the_image_sweeps_the_containerd_that_runs_it_and_never_itself() {
    let node = Node::start().await;
    let population = Population::make(&node, plan::handful()).await;
    let check = import(&node).await;
    let pod = Pod::start(&node, &population).await;
    let log = node
        .log_root()
        .join(format!("crisweep_crisweep_{UID}/crisweep/0.log"));
    wait_for("the pod to be ready", PATIENCE, || async {
        let log = fs::read_to_string(&log).unwrap_or_default();
        pod.ask("GET", "/-/ready")
            .map_err(|error| format!("{error}\n{log}"))
    })
    .await;
    assert_confined(&node, &pod);
    assert_healthy(&node, &pod, &check);

    let page = pod.ask("GET", "/metrics").unwrap();
    let dead = population.count(ContainerState::ContainerExited);
    assert!(page.contains("\ncri_up 1\n"), "{page}");
    assert!(
        page.contains(&format!("cri_containers{{state=\"exited\"}} {dead}\n")),
        "{page}"
    );

    let events = node.events().await;
    assert_eq!(pod.pass("&dry_run=true")["outcome"], "planned");
    assert_eq!(events.removed(), Vec::<String>::new());
    let pass = pod.pass("");
    assert_eq!(pass["outcome"], "completed", "{pass:#}");

    let containers = population
        .containers()
        .filter(|(pod, it)| !must_stay(pod, it));
    let sandboxes = population
        .sandboxes()
        .filter(|(pod, it)| !sandbox_must_stay(pod, it));
    let mut due: BTreeSet<String> = containers.map(|(_, it)| it.id.clone()).collect();
    due.extend(sandboxes.map(|(_, it)| it.id.clone()));
    wait_for("containerd's word for each removal", PATIENCE, || async {
        let gone: BTreeSet<String> = events.removed().into_iter().collect();
        if gone == due {
            Ok(())
        } else {
            Err(format!("{gone:?} instead of {due:?}"))
        }
    })
    .await;
    lives(&node.cri().await, &pod).await;
}

async fn lives(cri: &Cri, pod: &Pod) {
    let containers = cri.containers().await;
    let own = containers
        .iter()
        .find(|row| row.id == pod.container)
        .unwrap();
    assert_eq!(own.state(), ContainerState::ContainerRunning);
    let sandboxes = cri.sandboxes().await;
    let own = sandboxes.iter().find(|row| row.id == pod.sandbox).unwrap();
    assert_eq!(own.state(), PodSandboxState::SandboxReady);
}

#[test]
fn two_runs_make_the_same_image() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| {
        let file = dir.path().join(name);
        build(&format!("oci-archive:{}", file.display()))
    });
    assert_eq!(one.len(), 64, "{one}");
    assert_eq!(one, two);
}
