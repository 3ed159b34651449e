mod answers;
mod compressed;
mod lists;
mod objects;

use std::os::unix::net::UnixListener;

use prost::Message as _;
use tempfile::TempDir;
use tonic::{Code, Status as RpcStatus};

use super::*;
use crate::model::{ContainerState, FailureClass, PodSandboxState};
use crate::runtime::ListMode;
use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, Sim, hours};

/// How long to wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A simulated runtime and a client.
pub(super) struct Rig {
    pub(super) sim: Sim,
    pub(super) client: Client,
    pub(super) dir: TempDir,
}

/// Ten living pods, each with a dead attempt; thirty deleted pods with two dead containers each; and five pods
/// whose container was created and never started.
pub(super) fn node() -> NodeBuilder {
    let living = |n| {
        let pod = PodSpec::new(&format!("web-{n}"));
        pod.exited("app", 0, hours(3)).running("app", 1)
    };
    let dead = |n| {
        let pod = PodSpec::new(&format!("old-{n}"));
        pod.exited("a", 0, hours(3))
            .exited("b", 0, hours(3))
            .deleted()
    };
    let starting = |n| PodSpec::new(&format!("new-{n}")).created("app", 0, hours(2));
    NodeBuilder::new()
        .pods(10, living)
        .pods(30, dead)
        .pods(5, starting)
}

/// A directory, and settings for a socket in it.
fn place(timeout: Duration) -> (TempDir, Settings) {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        endpoint: dir.path().join("cri.sock"),
        image_endpoint: None,
        timeout,
        removal_timeout: timeout,
        max_message_bytes: 64 << 20,
        log_roots: LogRoots {
            pods: dir.path().join("pods"),
            containers: dir.path().join("containers"),
        },
    };
    (dir, settings)
}

impl Rig {
    pub(super) fn new(options: Options) -> Self {
        Self::of(node(), options, PATIENCE)
    }

    pub(super) fn of(node: NodeBuilder, options: Options, timeout: Duration) -> Self {
        let (dir, settings) = place(timeout);
        let sim = Sim::start(&settings.endpoint, node.build(), options).unwrap();
        let client = Client::new(settings);
        Self { sim, client, dir }
    }

    pub(super) fn weigh(&self, states: &[ContainerState]) -> usize {
        let rows = self.sim.containers().into_iter().map(|record| record.row);
        let containers = rows.filter(|row| {
            let state = cri::ContainerState::try_from(row.state).unwrap();
            states
                .iter()
                .any(|wanted| format!("{state:?}").ends_with(&format!("{wanted:?}")))
        });
        let containers = containers.collect();
        cri::ListContainersResponse { containers }.encoded_len()
    }

    pub(super) fn weigh_all(&self) -> usize {
        self.weigh(&ContainerState::ALL)
    }

    pub(super) fn weigh_sandboxes(&self) -> usize {
        let items = self.sim.sandboxes().into_iter().map(|record| record.row);
        let items = items.collect();
        cri::ListPodSandboxResponse { items }.encoded_len()
    }

    /// Makes another client, with other settings.
    fn client_with(&self, change: impl FnOnce(&mut Settings)) -> Client {
        let mut settings = self.client.shared.settings.clone();
        change(&mut settings);
        Client::new(settings)
    }

    fn fail(&self, rpcs: &[Rpc], status: &RpcStatus) {
        for rpc in rpcs {
            let fault = Fault::fail(status.code(), status.message());
            self.sim.set_fault(*rpc, fault);
        }
    }

    /// Waits until the client has noticed that its old connection is gone.
    pub(super) async fn reconnected(&self) {
        let back = async {
            while let Err(error) = self.client.version().await {
                assert!(error.is_lost(), "{error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, back).await.unwrap();
    }

    fn container(&self, subject: &str) -> ContainerId {
        container_id(&self.sim.container_id(subject).unwrap())
    }

    fn sandbox(&self, subject: &str) -> PodSandboxId {
        sandbox_id(&self.sim.sandbox_id(subject).unwrap())
    }
}

pub(super) fn container(id: &str, sandbox: &str) -> cri::Container {
    cri::Container {
        id: id.into(),
        pod_sandbox_id: sandbox.into(),
        annotations: [("heavy".into(), "x".repeat(700))].into(),
        ..Default::default()
    }
}

/// A list of these containers, as bytes.
pub(super) fn list_of(containers: Vec<cri::Container>) -> Vec<u8> {
    cri::ListContainersResponse { containers }.encode_to_vec()
}

fn container_id(id: &str) -> ContainerId {
    ContainerId::new(id).unwrap()
}

fn sandbox_id(id: &str) -> PodSandboxId {
    PodSandboxId::new(id).unwrap()
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_unreachable_until_it_is() {
    let (_dir, settings) = place(PATIENCE);
    let path = settings.endpoint.clone();
    let client = Client::new(settings);
    let error = client.version().await.unwrap_err();
    let expected = format!(
        "Version: no connection to {}: no such file or directory",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(error.is_lost());
    let _sim = Sim::start(path, node().build(), Options::default()).unwrap();
    let version = client.version().await.unwrap();
    assert_eq!(
        version,
        Version {
            runtime: "containerd".into(),
            version: "1.7.24".into()
        }
    );
}

#[tokio::test]
async fn a_socket_that_nothing_accepts_from_fails_every_call_within_its_timeout() {
    let (_dir, settings) = place(Duration::from_millis(200));
    let listener = UnixListener::bind(&settings.endpoint).unwrap();
    // A backlog of 0 has room for one connection; the next would block.
    rustix::net::listen(&listener, 0).unwrap();
    let client = Client::new(settings.clone());
    let calls = async {
        // Connected, and never answered.
        let error = client.version().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        // The kernel has no room for a second connection: an immediate error, no wait.
        let second = Client::new(settings);
        let error = second.version().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(
            error.to_string().contains("temporarily unavailable"),
            "{error}"
        );
        assert!(second.list_containers().await.is_err());
        assert!(second.remove_container(&container_id("c0")).await.is_err());
        assert!(client.remove_container(&container_id("c0")).await.is_err());
    };
    let calls = tokio::time::timeout(PATIENCE, calls);
    calls.await.expect("each call ends by itself");
}

#[tokio::test(start_paused = true)]
async fn the_connection_to_a_runtime_that_reads_nothing_ends_when_it_is_full() {
    let (_dir, settings) = place(Duration::from_secs(1));
    let _silent = UnixListener::bind(&settings.endpoint).unwrap();
    let client = Client::new(settings);
    for _ in 0..2_000 {
        let error = client.version().await.unwrap_err();
        if error.is_lost() {
            return;
        }
    }
    panic!("its connection takes calls without an end");
}

#[tokio::test]
async fn a_runtime_that_dies_in_mid_call_is_lost() {
    let rig = Rig::new(Options::default());
    rig.sim.set_fault(Rpc::Version, Fault::hang());
    let death = async {
        while rig.sim.call_count(Rpc::Version) == 0 {
            tokio::task::yield_now().await;
        }
        rig.sim.stop().await;
    };
    let death = tokio::time::timeout(PATIENCE, death);
    let (version, died) = tokio::join!(rig.client.version(), death);
    died.unwrap();
    let error = version.unwrap_err();
    assert_eq!(
        (error.label(), error.is_lost()),
        ("unreachable", true),
        "{error}"
    );
}

#[tokio::test]
async fn a_silent_runtime_times_out() {
    let (_dir, settings) = place(Duration::from_millis(100));
    let path = settings.endpoint.clone();
    let client = Client::new(settings);
    // It takes connections into its backlog and never reads.
    let silent = UnixListener::bind(&path).unwrap();
    let error = client.version().await.unwrap_err();
    assert_eq!(error.to_string(), "Version: no answer within 100ms");
    let error = client.list_containers().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "StreamContainers: no answer within 100ms"
    );
    drop(silent);

    let sim = Sim::start(path, node().build(), Options::default()).unwrap();
    sim.set_fault(Rpc::Version, Fault::hang());
    let answered = async {
        loop {
            let error = client.version().await.unwrap_err();
            if error.is_timeout() {
                break error;
            }
            assert!(error.is_lost(), "{error}");
        }
    };
    let error = tokio::time::timeout(PATIENCE, answered).await.unwrap();
    assert_eq!(
        (error.label(), error.class()),
        ("timeout", FailureClass::Timeout)
    );
}

#[tokio::test]
async fn a_call_after_a_timeout_goes_to_the_runtime_that_replaced_the_socket() {
    let rig = Rig::of(node(), Options::default(), Duration::from_millis(500));
    let path = rig.sim.socket();
    rig.client.version().await.unwrap();
    // The old server keeps the connection open and never answers again.
    rig.sim.set_fault(Rpc::Version, Fault::hang());
    std::fs::remove_file(path).unwrap();
    assert!(rig.client.version().await.unwrap_err().is_timeout());
    let _new = Sim::start(path, node().build(), Options::default()).unwrap();
    assert!(rig.client.version().await.unwrap_err().is_timeout());
    rig.client.version().await.unwrap();
    assert_eq!(rig.client.runtime().connection(), 2);
}

#[tokio::test]
async fn a_slow_runtime_keeps_its_connection() {
    let rig = Rig::of(node(), Options::default(), Duration::from_millis(200));
    rig.client.version().await.unwrap();
    rig.sim.set_fault(Rpc::Version, Fault::hang());
    for _ in 0..5 {
        assert!(rig.client.version().await.unwrap_err().is_timeout());
    }
    assert_eq!(rig.client.runtime().connection(), 1);
}

#[tokio::test]
async fn every_call_sends_the_runtime_its_deadline() {
    let rig = Rig::new(Options::default());
    let client = rig.client_with(|settings| {
        settings.timeout = Duration::from_secs(5);
        settings.removal_timeout = Duration::from_secs(60);
    });
    let id = rig.container("default/old-0/a#0");
    client.version().await.unwrap();
    client.list_containers().await.unwrap();
    client.remove_container(&id).await.unwrap();
    let grace = Duration::from_millis(2_500);
    client.stop_container(&id, grace).await.unwrap();
    let seconds = |rpc| {
        let text = rig.sim.last_deadline(rpc).unwrap();
        let (number, unit) = text.split_at(text.len() - 1);
        let scale = match unit {
            "n" => 1e-9,
            "u" => 1e-6,
            "m" => 1e-3,
            "S" => 1.0,
            other => panic!("unit {other}"),
        };
        number.parse::<f64>().unwrap() * scale
    };
    let near = |rpc, expected: f64| assert!((seconds(rpc) - expected).abs() < 0.01, "{rpc:?}");
    near(Rpc::Version, 5.0);
    near(Rpc::StreamContainers, 5.0);
    near(Rpc::ListContainers, 5.0);
    near(Rpc::RemoveContainer, 60.0);
    near(Rpc::StopContainer, 62.5);
    // Half a second more than two is three.
    assert_eq!(rig.sim.calls_of(Rpc::StopContainer)[0].grace_seconds, 3);
}

#[tokio::test]
async fn a_deadline_without_end_is_cut_and_not_a_panic() {
    let rig = Rig::of(node(), Options::default(), Duration::MAX);
    rig.client.version().await.unwrap();
}

#[tokio::test]
async fn a_starting_runtime_is_not_ready() {
    let rig = Rig::new(Options {
        initialization: hours(1),
        ..Options::default()
    });
    rig.sim.restart().await.unwrap();
    let error = rig.client.version().await.unwrap_err();
    assert_eq!((error.label(), error.is_lost()), ("not-ready", true));
}

#[tokio::test]
async fn the_image_service_may_have_a_socket_of_its_own() {
    let (runtime, images) = (Rig::new(Options::default()), Rig::new(Options::default()));
    let client = runtime.client_with(|settings| {
        settings.image_endpoint = Some(images.sim.socket().to_owned());
    });
    client.list_containers().await.unwrap();
    client.list_images().await.unwrap();
    client.image_fs_info().await.unwrap();
    client.remove_image("i0", "").await.unwrap();
    let called = |rpc| (runtime.sim.call_count(rpc), images.sim.call_count(rpc));
    assert_eq!(called(Rpc::ListContainers), (1, 0));
    for rpc in [Rpc::ListImages, Rpc::ImageFsInfo, Rpc::RemoveImage] {
        assert_eq!(called(rpc), (0, 1), "{rpc:?}");
    }
}

#[tokio::test]
async fn bytes_that_are_not_protobuf_are_malformed() {
    for options in [Options::default(), Options::containerd_2_4()] {
        let rig = Rig::new(options);
        for rpc in Rpc::ALL {
            rig.sim.set_fault(*rpc, Fault::garbage([0xff; 12]));
        }
        let client = &rig.client;
        let container = rig.container("default/old-0/a#0");
        let sandbox = rig.sandbox("default/old-0#0");
        for error in [
            client.version().await.unwrap_err(),
            client.list_containers().await.unwrap_err(),
            client.image_fs_info().await.unwrap_err(),
            client.containers_of_sandbox(&sandbox).await.unwrap_err(),
            client.container_status(&container).await.unwrap_err(),
        ] {
            assert_eq!(
                (error.label(), error.is_lost()),
                ("malformed", false),
                "{error}"
            );
        }
    }
}
