//! The server: restarts, faults of whole RPCs, the kubelet's side, the end.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;

fn inode(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).unwrap().ino()
}

fn one_pod() -> NodeBuilder {
    NodeBuilder::new().pod(PodSpec::new("web").running("app", 0))
}

#[tokio::test]
async fn a_restart_makes_a_new_socket_and_initializes_before_it_serves() {
    let options = Options {
        initialization: seconds(3600),
        ..Options::default()
    };
    let rig = Rig::new(one_pod(), options).await;
    rig.version()
        .await
        .expect("the first start is ready at once");
    let before = inode(rig.sim.socket());
    rig.sim.restart().await.unwrap();
    assert_ne!(inode(rig.sim.socket()), before);

    let channel = connect(&rig.sim).await;
    let request = cri::VersionRequest::default();
    let refused = RuntimeServiceClient::new(channel)
        .version(request)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    assert_eq!(refused.message(), "server is not initialized yet");
    assert_eq!(rig.sim.containers().len(), 1);
}

#[tokio::test]
async fn after_its_initialization_it_serves_what_it_had() {
    let options = Options {
        initialization: Duration::from_millis(50),
        ..Options::default()
    };
    let rig = Rig::new(one_pod(), options).await;
    rig.sim.restart().await.unwrap();
    let served = async {
        while rig.list(None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        rig.list(None).await.unwrap()
    };
    assert_eq!(
        tokio::time::timeout(PATIENCE, served).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn stopping_takes_socket_and_calls_in_flight_with_it() {
    let rig = Rig::new(one_pod(), Options::default()).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.container("default/web/app#0");
    let (removal, ()) = tokio::join!(rig.remove_container(&id), async {
        eventually("a removal in flight", || rig.sim.removals_in_flight() == 1).await;
        rig.sim.stop().await;
    });
    assert!(removal.is_err());
    assert!(!rig.sim.socket().exists());
    assert!(rig.version().await.is_err());
    eventually("the call is dropped", || rig.sim.removals_in_flight() == 0).await;
    assert_eq!(codes(&rig.sim.calls()), [Code::Cancelled]);
    assert!(rig.sim.container(&id).is_some());
    rig.sim.start().unwrap();
    assert!(rig.sim.socket().exists());
}

#[tokio::test]
async fn faults_of_an_rpc_come_and_go() {
    let rig = Rig::new(one_pod(), Options::default()).await;
    rig.sim.set_fault(
        Rpc::ListContainers,
        Fault::fail(Code::Unavailable, "no").times(1),
    );
    assert_eq!(rig.list(None).await.unwrap_err().code(), Code::Unavailable);
    assert!(rig.list(None).await.is_ok());
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    let (rows, ()) = tokio::join!(rig.list(None), async {
        eventually("a third list", || {
            rig.sim.call_count(Rpc::ListContainers) == 3
        })
        .await;
        rig.version().await.expect("other RPCs go on");
        rig.sim.clear_faults();
    });
    assert_eq!(rows.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn latency_is_as_long_as_it_was_set() {
    let rig = Rig::new(one_pod(), Options::default()).await;
    rig.sim.set_fault(Rpc::Version, Fault::slow(seconds(30)));
    let begun = tokio::time::Instant::now();
    rig.version().await.unwrap();
    assert!(begun.elapsed() >= seconds(30));
}

#[tokio::test]
async fn the_kubelet_knows_what_exists_and_deleted_pods_leave_litter() {
    let node = NodeBuilder::new()
        .pod(PodSpec::new("web").namespace("shop").running("app", 0))
        .pod(
            PodSpec::new("etcd")
                .namespace("kube-system")
                .static_pod()
                .running("etcd", 0),
        )
        .pod(PodSpec::new("gone").deleted().leaked_sandbox(1, hours(1)))
        .pod(PodSpec::new("tool").unmanaged().running("x", 0));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pods.json");
    let options = Options {
        pods_file: Some(file.clone()),
        ..Options::default()
    };
    let rig = Rig::new(node, options).await;

    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, rig.sim.pods_json());
    let pods: serde_json::Value = serde_json::from_str(&text).unwrap();
    let find = |name: &str| {
        let items = pods["items"].as_array().unwrap();
        items
            .iter()
            .find(|pod| pod["metadata"]["name"] == name)
            .cloned()
    };
    let source = "kubernetes.io/config.source";
    let web = find("web").unwrap();
    assert_eq!(web["metadata"]["annotations"][source], "api");
    assert_eq!(web["status"]["phase"], "Running");
    assert_eq!(web["metadata"]["uid"].as_str().unwrap().len(), 36);
    let etcd = find("etcd").unwrap();
    assert_eq!(etcd["metadata"]["annotations"][source], "file");
    assert_eq!(etcd["metadata"]["uid"].as_str().unwrap().len(), 32);
    assert!(find("gone").is_none() && find("tool").is_none());
    assert_eq!(rig.sim.sandboxes().len(), 5);

    assert!(rig.sim.change(|node| node.delete_pod("shop/web")));
    assert!(!std::fs::read_to_string(&file).unwrap().contains("shop"));
    let litter = rig.sim.container(&rig.container("shop/web/app#0")).unwrap();
    assert_eq!(
        (litter.row.state(), litter.exit_code),
        (ContainerState::ContainerExited, 137)
    );
    let sandbox = rig.sim.sandbox(&rig.sandbox("shop/web#0")).unwrap();
    assert_eq!(sandbox.row.state(), PodSandboxState::SandboxNotready);
}

#[tokio::test]
async fn containers_exit_and_come_back_with_the_next_attempt() {
    let rig = Rig::new(one_pod(), Options::default()).await;
    let first = rig.container("default/web/app#0");
    assert!(
        rig.sim.change(|node| node.next_attempt(&first)).is_none(),
        "it runs"
    );
    assert!(rig.sim.change(|node| node.exit_container(&first, 3)));
    let next = rig.sim.change(|node| node.next_attempt(&first)).unwrap();
    assert_eq!(rig.container("default/web/app#1"), next);
    let old = rig.status(&first).await.unwrap();
    assert_eq!(
        (old.state(), old.exit_code),
        (ContainerState::ContainerExited, 3)
    );
    let new = rig.status(&next).await.unwrap();
    assert_eq!(
        (new.state(), new.metadata.unwrap().attempt),
        (ContainerState::ContainerRunning, 1)
    );
    assert!(new.log_path.ends_with("/app/1.log"));
}

#[tokio::test]
async fn the_same_seed_makes_the_same_ids() {
    let id = async |seed| {
        let pod = PodSpec::new("web").running("app", 0);
        let rig = Rig::new(NodeBuilder::seeded(seed).pod(pod), Options::default()).await;
        rig.container("default/web/app#0")
    };
    assert_eq!(id(7).await, id(7).await);
    assert_ne!(id(7).await, id(8).await);
    assert_eq!(id(7).await.len(), 64);
}

#[tokio::test]
async fn shutting_down_or_dropping_takes_the_socket_away() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("cri.sock");
    let sim = Sim::start(&socket, one_pod().build(), Options::default()).unwrap();
    let handle = sim.handle();
    sim.shutdown().await;
    assert!(!socket.exists());
    assert!(handle.start().is_err());
    let sim = Sim::start(&socket, one_pod().build(), Options::default()).unwrap();
    assert!(socket.exists());
    drop(sim);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, "x").unwrap();
    assert!(Sim::start(&path, one_pod().build(), Options::default()).is_err());
    assert!(path.exists());
}
