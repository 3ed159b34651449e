//! The demo's node: its proportions, and the cap on its growth.

use std::collections::BTreeSet;

use super::*;
use crisweep_sim::demo::churn::{self, CONTAINERS_MAX, SANDBOXES_MAX};
use crisweep_sim::demo::{self, Demo, DemoOptions};

/// Serves the demo's node.
fn serve() -> (Sim, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("cri.sock");
    let sim = Sim::start(socket, demo::population(), Options::default()).unwrap();
    (sim, directory)
}

#[tokio::test]
async fn the_population_has_the_proportions_of_the_incident() {
    let node = demo::population();
    let (sim, _directory) = serve();
    assert_eq!(
        sim.count_containers(ContainerState::ContainerExited),
        demo::EXITED
    );
    assert_eq!(
        sim.count_sandboxes(PodSandboxState::SandboxNotready),
        demo::NOT_READY
    );
    assert_eq!(
        sim.count_sandboxes(PodSandboxState::SandboxReady),
        demo::RUNNING_PODS
    );
    assert!(sim.count_containers(ContainerState::ContainerRunning) >= demo::RUNNING_PODS);
    let images = sim.images();
    assert!((38..=44).contains(&images.len()), "{}", images.len());
    let in_use = images.iter().filter(|image| node.image_in_use(image));
    let in_use = in_use.count();
    assert!((20..35).contains(&in_use), "{in_use}");
    assert_eq!(node.cni.len(), 15, "slow and stuck sandboxes");
    let containers = sim.containers();
    let subjects: BTreeSet<_> = containers.iter().map(|c| &c.subject).collect();
    assert_eq!(
        subjects.len(),
        containers.len(),
        "every container has its own name"
    );
}

#[tokio::test]
async fn the_population_is_the_same_each_time() {
    let ids = || -> Vec<String> {
        let (sim, _directory) = serve();
        sim.containers().into_iter().map(|it| it.row.id).collect()
    };
    assert_eq!(ids(), ids());
}

#[tokio::test]
async fn the_demo_lives_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("cri.sock");
    let pods_file = directory.path().join("pods.json");
    let options = DemoOptions {
        pods_file: Some(pods_file.clone()),
        pace: Duration::from_micros(100),
        ..DemoOptions::new(&socket)
    };
    let demo = Demo::start(options).unwrap();
    let channel = connect(&demo).await;
    let request = cri::ListContainersRequest::default();
    let rows = RuntimeServiceClient::new(channel)
        .list_containers(request)
        .await
        .unwrap();
    assert!(rows.into_inner().containers.len() >= demo::EXITED);

    let exited = || demo.count_containers(ContainerState::ContainerExited);
    let jobs = |phase| {
        demo.pods()
            .iter()
            .filter(|pod| pod.name.starts_with("cron-") && pod.phase == phase)
            .count()
    };
    eventually("containers crash", || exited() > demo::EXITED + 5).await;
    eventually("jobs finish", || jobs(Phase::Succeeded) > 0).await;
    eventually("sandboxes die", || {
        demo.count_sandboxes(PodSandboxState::SandboxNotready) > demo::NOT_READY + 3
    })
    .await;
    assert!(demo.calls().is_empty(), "nothing is cleaned up by itself");
    assert!(
        std::fs::read_to_string(&pods_file)
            .unwrap()
            .contains("cron-")
    );
    demo.shutdown().await;
    assert!(!socket.exists());
}

/// Returns how many containers and sandboxes there are.
fn total(sim: &Handle) -> (usize, usize) {
    let containers = [
        ContainerState::ContainerCreated,
        ContainerState::ContainerRunning,
        ContainerState::ContainerExited,
        ContainerState::ContainerUnknown,
    ];
    let sandboxes = [
        PodSandboxState::SandboxReady,
        PodSandboxState::SandboxNotready,
    ];
    (
        containers.iter().map(|it| sim.count_containers(*it)).sum(),
        sandboxes.iter().map(|it| sim.count_sandboxes(*it)).sum(),
    )
}

#[tokio::test]
async fn the_demo_stops_growing_at_its_cap_and_goes_on_after_a_sweep() {
    let (sim, _directory) = serve();
    let mut dice = fastrand::Rng::with_seed(1);
    let total = || total(&sim);
    let is_full = || total().0 >= CONTAINERS_MAX || total().1 >= SANDBOXES_MAX;
    let steps = (0..20_000).take_while(|_| {
        churn::step(&sim, &mut dice);
        !is_full()
    });
    assert!(
        steps.count() < 20_000,
        "the cap is never reached: {:?}",
        total()
    );
    let at_cap = total();
    (0..1_000).for_each(|_| churn::step(&sim, &mut dice));
    assert_eq!(total(), at_cap);

    let exited = sim.containers().into_iter();
    let exited = exited.filter(|c| c.row.state() == ContainerState::ContainerExited);
    let dead = sim.sandboxes().into_iter();
    let dead = dead.filter(|s| s.row.state() == PodSandboxState::SandboxNotready);
    sim.change(|node| {
        exited.for_each(|c| assert!(node.vanish_container(&c.row.id)));
        dead.for_each(|s| assert!(node.vanish_sandbox(&s.row.id)));
    });
    let swept = total();
    (0..1_000).for_each(|_| churn::step(&sim, &mut dice));
    assert!(total().0 > swept.0, "it lives on");
}
