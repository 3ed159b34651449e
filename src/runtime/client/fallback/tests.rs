//! Each fallback against the simulated runtime, which refuses answers over its limit as containerd does.

mod empty;
mod whole_pods;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use crisweep_proto::cri;
use tonic::Code;

use super::*;
use crate::model::{ContainerId, ContainerState, HasId, PodSandboxId};
use crate::runtime::client::Settings;
use crate::runtime::client::tests::{Rig, container, list_of, node};
use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, hours};

impl Rig {
    /// Sets the limit just below the weight of the exited containers.
    fn forbid_exited(&self) -> usize {
        let limit = self.weigh(&[ContainerState::Exited]) - 1;
        self.sim.conduct(|it| it.send_limit_bytes = limit);
        limit
    }

    /// Sets a limit that both lists exceed, and the dead objects of each by themselves; one pod fits.
    fn forbid_the_dead(&self) {
        self.sim.conduct(|it| it.send_limit_bytes = 20_000);
        assert!(self.weigh_sandboxes() > 40_000 && self.weigh_all() > 60_000);
    }

    async fn containers(&self) -> Listing<Container> {
        self.client.version().await.unwrap();
        self.client.list_containers().await.unwrap()
    }

    async fn sandboxes(&self) -> Listing<PodSandbox> {
        self.client.version().await.unwrap();
        self.client.list_pod_sandboxes().await.unwrap()
    }

    /// Asserts that the list has every existing row, as an unfiltered list would have it.
    async fn assert_all(&self, listed: &Listing<Container>) {
        self.sim.conduct(|it| it.send_limit_bytes = 64 << 20);
        self.sim.conduct(|it| it.ignores_filters = false);
        let plain = Client::new(self.client.shared.settings.clone());
        let mut rows = plain.list_containers().await.unwrap().rows.to_vec();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(listed.rows.len(), rows.len());
        // Details that a list lacks.
        let mut listed = listed.clone();
        listed
            .rows
            .iter_mut()
            .for_each(|row| row.finished_at = None);
        assert!(*listed.rows == rows, "rows differ from a plain list's");
    }

    /// Makes the log files that the kubelet would have named.
    fn write_names(&self) {
        let roots = &self.client.shared.settings.log_roots;
        std::fs::create_dir_all(&roots.containers).unwrap();
        for record in self.sim.sandboxes() {
            let pod = record.row.metadata.unwrap();
            let name = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
            std::fs::create_dir_all(roots.pods.join(name)).unwrap();
        }
    }

    fn write_links(&self) {
        let roots = &self.client.shared.settings.log_roots;
        std::fs::create_dir_all(&roots.containers).unwrap();
        for record in self.sim.containers() {
            let link = format!("pod_ns_app-{}.log", record.row.id);
            // The link's target does not matter and need not exist.
            std::os::unix::fs::symlink("/nowhere", roots.containers.join(link)).unwrap();
        }
    }
}

fn count(listed: &Listing<Container>, state: ContainerState) -> usize {
    listed.rows.iter().filter(|row| row.state == state).count()
}

#[tokio::test]
async fn over_the_limit_in_total_it_is_read_state_by_state_and_weighed_exactly() {
    for options in [Options::default(), Options::containerd_2_4()] {
        let rig = Rig::new(options);
        let (bytes, limit) = (rig.weigh_all(), rig.weigh_all() - 1);
        rig.sim.conduct(|it| it.send_limit_bytes = limit);
        let listed = rig.containers().await;
        assert_eq!(
            (listed.mode, listed.coverage),
            (ListMode::PerState, Coverage::Whole)
        );
        assert_eq!(listed.response_bytes, bytes as u64);
        assert_eq!(listed.limit_bytes, Some(limit as u64));
        assert_eq!(rig.sim.call_count(Rpc::ContainersListStream), 0);
        rig.assert_all(&listed).await;
    }
}

#[tokio::test]
async fn the_whole_list_is_tried_again_once_the_number_of_rows_has_changed() {
    let rig = Rig::new(Options::default());
    let limit = rig.weigh_all() - 1;
    rig.sim.conduct(|it| it.send_limit_bytes = limit);
    rig.containers().await;
    rig.sim.clear_record();
    for _ in 0..3 {
        assert_eq!(rig.containers().await.mode, ListMode::PerState);
    }
    // Four states each time, and no unfiltered try.
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 12);
    rig.sim
        .add_pod(&PodSpec::new("new").exited("app", 0, hours(1)));
    let listed = rig.containers().await;
    assert_eq!(listed.mode, ListMode::PerState);
    assert_eq!(listed.response_bytes, rig.weigh_all() as u64);
    for pod in ["new", "old-0"] {
        let name = if pod == "new" { "app" } else { "a" };
        let id = rig.sim.container_id(&format!("default/{pod}/{name}#0"));
        let id = ContainerId::new(id.unwrap()).unwrap();
        rig.client.remove_container(&id).await.unwrap();
    }
    let listed = rig.containers().await;
    assert_eq!(listed.mode, ListMode::Unary);
    assert_eq!(listed.limit_bytes, Some(limit as u64), "once learned");
}

#[tokio::test]
async fn a_whole_list_that_could_not_be_tried_is_tried_at_the_next_look() {
    let rig = Rig::new(Options::default());
    rig.forbid_exited();
    assert_eq!(rig.containers().await.mode, ListMode::Status);
    rig.sim.conduct(|it| it.send_limit_bytes = 64 << 20);
    let fresh = PodSpec::new("fresh").exited("app", 0, hours(1));
    rig.sim.add_pod(&fresh);
    rig.sim.clear_record();
    let slow = Fault::slow(Duration::from_millis(500));
    rig.sim.set_fault(Rpc::ContainerStatus, slow);
    let fail = async {
        // The parts are read by then; the whole list is not tried yet.
        for _ in 0..2000 {
            if rig.sim.call_count(Rpc::ContainerStatus) > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let failure = Fault::fail(Code::Internal, "busy");
        rig.sim.set_fault(Rpc::ListContainers, failure);
    };
    let (listed, ()) = tokio::join!(rig.containers(), fail);
    assert_eq!(listed.mode, ListMode::Status);
    rig.sim.clear_faults();
    assert_eq!(rig.containers().await.mode, ListMode::Unary);
}

#[tokio::test]
async fn the_remembered_fallback_ends_with_its_connection() {
    let rig = Rig::new(Options::default());
    rig.forbid_exited();
    assert_eq!(rig.containers().await.mode, ListMode::Status);
    rig.sim.conduct(|it| it.send_limit_bytes = 64 << 20);
    assert_eq!(rig.containers().await.mode, ListMode::Status);
    rig.sim.restart().await.unwrap();
    rig.reconnected().await;
    let listed = rig.containers().await;
    assert_eq!((listed.mode, listed.limit_bytes), (ListMode::Unary, None));
}

#[tokio::test]
async fn exited_ones_over_the_limit_are_read_pod_by_pod_and_one_by_one_and_only_once() {
    let rig = Rig::new(Options::default());
    let bytes = rig.weigh_all();
    rig.forbid_exited();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Status, Coverage::Whole)
    );
    assert_eq!(listed.response_bytes, bytes as u64);
    // One unfiltered, four states, and the thirty pods with two containers each; the ten pods have only one.
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 1 + 4 + 30);
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 10);
    rig.sim.clear_record();
    let again = rig.containers().await;
    assert_eq!((again.mode, again.coverage), (listed.mode, listed.coverage));
    assert_eq!(again.response_bytes, bytes as u64);
    // Three states; exited containers do not change, and their ids exist.
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 3);
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 0);
    assert_eq!(rig.sim.call_count(Rpc::ContainersListStream), 1);
    rig.assert_all(&again).await;
}

/// This way is for lists that are over every limit, and holds one record at a time.
#[tokio::test]
async fn the_records_of_containerds_service_may_be_over_our_limit_together() {
    let rig = Rig::new(Options::default());
    let client = Client::new(Settings {
        max_message_bytes: 1_000,
        ..rig.client.shared.settings.clone()
    });
    let (missing, timeout) = (AtomicU64::default(), client.timeout());
    let ids = containerd::ids(client.runtime(), &missing, "container", timeout);
    let ids = ids.await.unwrap().unwrap();
    let all = rig.sim.containers();
    assert!(all.len() > 50 && all.iter().all(|it| ids.contains_key(&*it.row.id)));
}

#[tokio::test]
async fn cached_rows_are_dropped_with_their_id_and_new_ones_are_read() {
    let rig = Rig::new(Options::default());
    rig.forbid_exited();
    rig.containers().await;
    let gone = rig.sim.container_id("default/old-3/a#0").unwrap();
    let gone = ContainerId::new(gone).unwrap();
    rig.client.remove_container(&gone).await.unwrap();
    let left = rig.weigh_all() as u64;
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh(&[ContainerState::Exited]) - 1);
    let listed = rig.containers().await;
    assert!(!listed.rows.iter().any(|row| row.id == gone));
    assert_eq!(listed.coverage, Coverage::Whole);
    assert_eq!(listed.response_bytes, left);
    let fresh = PodSpec::new("fresh").exited("app", 0, hours(1));
    rig.sim.add_pod(&fresh);
    rig.sim.clear_record();
    let listed = rig.containers().await;
    assert_eq!(listed.coverage, Coverage::Whole);
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 1);
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn a_container_that_may_change_is_asked_about_at_each_look() {
    let living = |n| PodSpec::new(&format!("up-{n}")).running("app", 0);
    let rig = Rig::of(
        node().pods(100, living),
        Options::default(),
        Duration::from_secs(30),
    );
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh(&[ContainerState::Running]) - 1);
    let listed = rig.containers().await;
    assert_eq!(count(&listed, ContainerState::Running), 110);
    let id = rig.sim.container_id("default/up-7/app#0").unwrap();
    assert!(rig.sim.change(|node| node.exit_container(&id, 3)));
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh(&[ContainerState::Running]) - 1);
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, count(&listed, ContainerState::Running)),
        (ListMode::Status, 109)
    );
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn a_look_that_ran_out_of_time_is_gone_on_with_by_the_next() {
    let job = |n| {
        let pod = PodSpec::new(&format!("job-{n}"));
        pod.exited("a", 0, hours(3)).deleted()
    };
    let node = NodeBuilder::new().pods(160, job);
    let rig = Rig::of(node, Options::default(), Duration::from_secs(1));
    rig.forbid_exited();
    let mut seen = BTreeSet::new();
    rig.sim.set_fault(
        Rpc::ContainerStatus,
        Fault::slow(Duration::from_millis(500)),
    );
    rig.client.version().await.unwrap();
    let mut looks = 0;
    while seen.len() < 160 {
        looks += 1;
        assert!(looks < 50, "{} of 160 after {looks} looks", seen.len());
        // The first calls have no row to return; each later one has all rows read before.
        if let Ok(listed) = rig.client.list_containers().await {
            let rows: BTreeSet<_> = listed.rows.iter().map(|row| row.id.clone()).collect();
            assert!(rows.is_superset(&seen));
            seen = rows;
        }
    }
    assert!(looks > 1, "one look was enough");
}

#[tokio::test]
async fn sandboxes_are_asked_for_by_id_once_their_containers_are_read() {
    let job = |n| {
        let pod = PodSpec::new(&format!("job-{n}"));
        pod.exited("a", 0, hours(3)).deleted()
    };
    let node = NodeBuilder::new().pods(100, job);
    let rig = Rig::of(node, Options::not_containerd(), Duration::from_secs(1));
    rig.forbid_the_dead();
    rig.write_names();
    let slow = Fault::slow(Duration::from_millis(200));
    rig.sim.set_fault(Rpc::ListContainers, slow);
    let cut_short = rig.containers().await;
    assert!(cut_short.cut_short && cut_short.rows.len() < 100);
    let sandboxes = rig.sandboxes().await;
    assert_eq!(sandboxes.rows.len(), cut_short.rows.len());
    // Another look that gets no further has the same.
    let sandboxes = rig.sandboxes().await;
    assert_eq!(sandboxes.rows.len(), cut_short.rows.len());
    assert!(sandboxes.cut_short);
    rig.sim.clear_faults();
    rig.containers().await;
    let sandboxes = rig.sandboxes().await;
    assert_eq!((sandboxes.rows.len(), sandboxes.cut_short), (100, false));
}

/// No container names their sandboxes.
#[tokio::test]
async fn pods_without_containers_do_not_wait_until_all_containers_are_read() {
    let job = |n| {
        let pod = PodSpec::new(&format!("job-{n}"));
        pod.exited("a", 0, hours(3)).deleted()
    };
    let bare = |n| PodSpec::new(&format!("bare-{n}")).deleted();
    let node = NodeBuilder::new().pods(100, job).pods(50, bare);
    let rig = Rig::of(node, Options::not_containerd(), Duration::from_secs(1));
    rig.forbid_the_dead();
    rig.write_names();
    let slow = Fault::slow(Duration::from_millis(200));
    rig.sim.set_fault(Rpc::ListContainers, slow);
    let cut_short = rig.containers().await;
    assert!(cut_short.cut_short && cut_short.rows.len() < 100);
    let sandboxes = rig.sandboxes().await;
    let (shown, named) = (sandboxes.rows.len(), cut_short.rows.len());
    assert!(
        shown > named && shown < 150 && sandboxes.cut_short,
        "{shown} of {named}"
    );
}

#[tokio::test]
async fn without_proof_a_list_read_by_name_is_not_whole() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_exited();
    let listed = rig.containers().await;
    // All rows are there, but nothing proves it.
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::PerPod, Coverage::Living)
    );
    rig.containers().await;
    assert_eq!(
        rig.sim.call_count(Rpc::ContainersListStream),
        1,
        "remembered as missing"
    );
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn without_proof_the_look_after_a_removal_says_what_the_list_weighs_then() {
    for mode in [ListMode::PerPod, ListMode::Status] {
        let rig = Rig::new(Options::not_containerd());
        if mode == ListMode::Status {
            // A row that was asked for by id has no weight.
            rig.forbid_the_dead();
            rig.write_links();
        } else {
            rig.forbid_exited();
        }
        let before = rig.containers().await;
        assert_eq!(before.mode, mode);
        assert!(Some(before.response_bytes) > before.limit_bytes);
        // All that exited but three: the list fits.
        let exited = before
            .rows
            .iter()
            .filter(|row| row.state == ContainerState::Exited);
        for row in exited.skip(3) {
            rig.client.remove_container(&row.id).await.unwrap();
        }
        let after = rig.containers().await;
        assert_eq!(
            (after.mode, after.coverage),
            (ListMode::Unary, Coverage::Whole)
        );
        assert_eq!(
            after.response_bytes,
            u64::try_from(rig.weigh_all()).unwrap()
        );
    }
}

#[tokio::test]
async fn without_proof_exited_containers_are_read_once_and_forgotten_when_they_are_gone() {
    let job = |n| {
        let pod = PodSpec::new(&format!("job-{n}"));
        pod.exited("a", 0, hours(3)).deleted()
    };
    let node = NodeBuilder::new().pods(600, job);
    let rig = Rig::of(node, Options::not_containerd(), Duration::from_secs(30));
    rig.forbid_exited();
    rig.write_links();
    assert_eq!(rig.containers().await.rows.len(), 600);
    rig.sim.clear_record();
    // Asking again has a time limit, which is enough for a part only.
    let slow = Fault::slow(Duration::from_millis(100));
    rig.sim.set_fault(Rpc::ContainerStatus, slow.clone());
    rig.sim.set_fault(Rpc::ListContainers, slow);
    let listed = rig.containers().await;
    assert_eq!((listed.rows.len(), listed.cut_short), (600, false));
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    assert!((16..200).contains(&asked), "{asked}");
    rig.sim.clear_faults();
    // Containers that crisweep removed or found gone are not in the next list; others are found out in turn.
    let ids: Vec<ContainerId> = listed.rows.iter().map(|row| row.id.clone()).collect();
    rig.client.remove_container(&ids[0]).await.unwrap();
    let kubelet = Client::new(rig.client.shared.settings.clone());
    for id in &ids[1..3] {
        kubelet.remove_container(id).await.unwrap();
    }
    assert!(
        rig.client
            .container_status(&ids[1])
            .await
            .unwrap()
            .is_none()
    );
    let listed = rig.containers().await;
    assert!(!listed.rows.iter().any(|row| ids[..2].contains(&row.id)));
    for _ in 0..100 {
        if !rig
            .containers()
            .await
            .rows
            .iter()
            .any(|row| row.id == ids[2])
        {
            return;
        }
    }
    panic!("what somebody else removed is shown for ever");
}

#[tokio::test]
async fn created_ones_over_the_limit_are_read_and_the_running_are_all_there() {
    for (options, mode, coverage) in [
        (Options::default(), ListMode::Status, Coverage::Whole),
        (
            Options::not_containerd(),
            ListMode::PerPod,
            Coverage::Living,
        ),
    ] {
        let starting = |n| PodSpec::new(&format!("new-{n}")).created("app", 0, hours(2));
        let node = node().pods(100, starting);
        let rig = Rig::of(node, options, Duration::from_secs(30));
        rig.write_names();
        rig.sim
            .conduct(|it| it.send_limit_bytes = rig.weigh(&[ContainerState::Created]) - 1);
        assert!(rig.weigh(&[ContainerState::Exited]) < rig.weigh(&[ContainerState::Created]));
        let listed = rig.containers().await;
        assert_eq!((listed.mode, listed.coverage), (mode, coverage));
        assert_eq!(count(&listed, ContainerState::Running), 10);
        rig.assert_all(&listed).await;
    }
}

#[tokio::test]
async fn where_no_list_names_the_pods_containerd_does() {
    let dead = |n| {
        let pod = PodSpec::new(&format!("old-{n}"));
        (0..4)
            .fold(pod, |pod, attempt| pod.exited("a", attempt, hours(3)))
            .deleted()
    };
    let node = NodeBuilder::new().pods(40, dead);
    let rig = Rig::of(node, Options::default(), Duration::from_secs(30));
    rig.forbid_the_dead();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Containerd, Coverage::Whole)
    );
    let sandboxes = rig.sandboxes().await;
    assert_eq!(sandboxes.coverage, Coverage::Whole);
    assert_eq!(sandboxes.response_bytes, rig.weigh_sandboxes() as u64);
    assert_eq!(sandboxes.rows.len(), rig.sim.sandboxes().len());
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn log_names_on_disk_provide_the_pods_if_no_list_does() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_the_dead();
    let listed = rig.containers().await;
    assert_eq!(listed.coverage, Coverage::Living);
    assert_eq!(
        count(&listed, ContainerState::Exited),
        10,
        "only those of pods that live"
    );
    assert!(
        listed.response_bytes >= rig.weigh_all() as u64,
        "as the error told"
    );
    rig.write_names();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::PerPod, Coverage::Living)
    );
    let sandboxes = rig.sandboxes().await;
    assert_eq!(
        (sandboxes.mode, sandboxes.coverage),
        (ListMode::PerPod, Coverage::Living)
    );
    assert_eq!(sandboxes.rows.len(), rig.sim.sandboxes().len());
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn links_to_logs_give_container_ids() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_the_dead();
    rig.write_links();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Status, Coverage::Living)
    );
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn links_without_a_container_are_not_asked_about_where_all_ids_are_known() {
    let rig = Rig::new(Options::default());
    rig.forbid_exited();
    rig.write_links();
    let id = ContainerId::new(rig.sim.container_id("default/web-0/app#0").unwrap()).unwrap();
    rig.client.remove_container(&id).await.unwrap();
    rig.forbid_exited();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Status, Coverage::Whole)
    );
    // The nine pods with a single exited container.
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 9);
}

#[tokio::test]
async fn a_runtime_that_applies_no_filter_is_asked_id_by_id() {
    let rig = Rig::new(Options::default());
    let bytes = rig.weigh_all();
    rig.forbid_exited();
    rig.sim.conduct(|it| it.ignores_filters = true);
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Status, Coverage::Whole)
    );
    assert_eq!(listed.response_bytes, bytes as u64);
    // One unfiltered, four states, and as many pods as it takes to be sure.
    assert!(rig.sim.call_count(Rpc::ListContainers) <= 12);
    rig.assert_all(&listed).await;
    rig.sim.conduct(|it| it.ignores_filters = true);
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh_sandboxes() - 1);
    let sandboxes = rig.sandboxes().await;
    assert_eq!(
        (sandboxes.mode, sandboxes.coverage),
        (ListMode::Status, Coverage::Whole)
    );
    assert_eq!(sandboxes.rows.len(), 45);
}

#[tokio::test]
async fn a_pod_that_is_over_the_limit_by_itself_is_read_id_by_id() {
    let crash = (0..200).fold(PodSpec::new("crash"), |pod, attempt| {
        pod.exited("app", attempt, hours(2))
    });
    let rig = Rig::of(
        node().pod(crash),
        Options::default(),
        Duration::from_secs(30),
    );
    let limit = rig.weigh(&[ContainerState::Exited]) / 2;
    rig.sim.conduct(|it| it.send_limit_bytes = limit);
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Status, Coverage::Whole)
    );
    assert_eq!(
        listed.response_bytes,
        rig.weigh_all() as u64,
        "as the error told"
    );
    rig.assert_all(&listed).await;
}

#[tokio::test]
async fn of_very_many_pods_the_containers_are_asked_about_and_not_the_pods() {
    let job = |n| {
        PodSpec::new(&format!("job-{n}"))
            .exited("a", 0, hours(3))
            .deleted()
    };
    let node = || NodeBuilder::new().pods(300, job);
    let rig = Rig::of(node(), Options::default(), Duration::from_secs(30));
    rig.forbid_exited();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::Status, Coverage::Whole)
    );
    assert!(rig.sim.call_count(Rpc::ListContainers) < 10);
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 300);
    assert!(
        listed.rows.iter().all(|row| row.finished_at.is_some()),
        "told by the same answer"
    );
    let rig = Rig::of(node(), Options::not_containerd(), Duration::from_secs(30));
    rig.forbid_exited();
    rig.write_names();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::PerPod, Coverage::Living)
    );
    assert!(rig.sim.call_count(Rpc::ListContainers) > 300);
}

#[tokio::test]
async fn an_id_that_cannot_be_asked_about_leaves_a_gap() {
    let rig = Rig::new(Options::default());
    rig.forbid_exited();
    rig.sim.conduct(|it| it.ignores_filters = true);
    let fault = Fault::fail(Code::Unknown, "a broken record").times(1);
    rig.sim.set_fault(Rpc::ContainerStatus, fault);
    let listed = rig.containers().await;
    assert_eq!(listed.coverage, Coverage::Partial);
    assert_eq!(listed.rows.len(), rig.sim.containers().len() - 1);
}

#[tokio::test]
async fn questions_that_hang_end_and_leave_a_gap() {
    for rpc in [Rpc::ContainerStatus, Rpc::ContainersListStream] {
        let rig = Rig::of(node(), Options::default(), Duration::from_secs(1));
        rig.forbid_exited();
        if rpc == Rpc::ContainerStatus {
            rig.sim.conduct(|it| it.ignores_filters = true);
        }
        rig.sim.set_fault(rpc, Fault::hang());
        rig.client.version().await.unwrap();
        let listed = rig.client.list_containers().await;
        if rpc == Rpc::ContainerStatus {
            // No row at all, so the error is returned.
            assert_eq!(listed.unwrap_err().label(), "too-large");
        } else {
            assert_eq!(listed.unwrap().coverage, Coverage::Living);
        }
    }
}

#[tokio::test]
async fn a_list_that_was_read_in_parts_and_then_not_at_all_is_an_error_and_not_empty() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_exited();
    let bytes = rig.containers().await.response_bytes;
    // It does not answer by id either: rows read earlier are not a list of the present.
    rig.sim.conduct(|it| it.ignores_filters = true);
    let fault = Fault::fail(Code::Internal, "a broken store");
    rig.sim.set_fault(Rpc::ContainerStatus, fault);
    for _ in 0..2 {
        let error = rig.client.list_containers().await.unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { bytes: told, .. } if told == bytes),
            "{error}"
        );
    }
    rig.sim.conduct(|it| it.send_limit_bytes = 64 << 20);
    assert_eq!(rig.containers().await.mode, ListMode::Unary);
}

#[tokio::test]
async fn a_runtime_that_stops_during_a_fallback_is_an_error_and_not_an_empty_list() {
    let rig = Rig::new(Options::default());
    rig.forbid_exited();
    let away = Fault::fail(Code::Unavailable, "error reading from server: EOF");
    rig.sim.set_fault(Rpc::ContainersListStream, away);
    let error = rig.client.list_containers().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
}

#[tokio::test]
async fn a_list_of_ids_that_lacks_an_existing_container_proves_nothing() {
    let mut ids = containerd::Ids::new();
    let rig = Rig::new(Options::default());
    let found = |rows: &Listing<Container>| {
        let mut found = FoundRows::default();
        for row in &rows.rows {
            let entry = found::FoundRow::asked(row.clone(), Vec::new());
            found.by_id.insert(row.id.as_str().into(), entry);
        }
        found
    };
    let listed = rig.containers().await;
    let clock = Clock::new(Duration::from_secs(30));
    let mut whole = found(&listed);
    for row in &listed.rows {
        ids.insert(row.id.as_str().into(), None);
    }
    let good = by_name::proves::<cri::ContainerRow>(&rig.client, &ids, &mut whole, clock);
    assert!(good.await.unwrap());
    let first = listed.rows[0].id.clone();
    ids.remove(first.as_str());
    let bad = by_name::proves::<cri::ContainerRow>(&rig.client, &ids, &mut whole, clock);
    assert!(!bad.await.unwrap());
    // Unless it is gone by now.
    rig.client.remove_container(&first).await.unwrap();
    let good = by_name::proves::<cri::ContainerRow>(&rig.client, &ids, &mut whole, clock);
    assert!(good.await.unwrap());
    assert!(!whole.contains(first.as_str()));
    let (nobody, mut nothing) = (containerd::Ids::new(), FoundRows::default());
    let bad = by_name::proves::<cri::ContainerRow>(&rig.client, &nobody, &mut nothing, clock);
    assert!(
        !bad.await.unwrap(),
        "no id at all of what was too much to send"
    );
}

#[tokio::test]
async fn containers_of_a_sandbox_that_no_pod_names_are_asked_for_by_its_id() {
    // A pod of another tool lacks the kubelet's labels.
    let foreign = PodSpec::new("tool").unmanaged().exited("job", 0, hours(3));
    let rig = Rig::of(
        node().pod(foreign),
        Options::not_containerd(),
        Duration::from_secs(30),
    );
    rig.forbid_exited();
    rig.write_names();
    let listed = rig.containers().await;
    assert_eq!(
        (listed.mode, listed.coverage),
        (ListMode::PerPod, Coverage::Living)
    );
    rig.assert_all(&listed).await;
}

#[test]
fn a_row_seen_twice_is_seen_in_its_later_state() {
    #[derive(Debug, PartialEq)]
    struct Row(&'static str, u8);

    impl HasId for Row {
        fn id(&self) -> &str {
            self.0
        }
    }

    let page = |state| ListChunk {
        rows: vec![Row("a", state)],
        malformed: 1,
        bytes: 10,
    };
    let mut found = FoundRows::default();
    found.add(page(1));
    found.add(page(2));
    let entry = found::FoundRow::asked(Row("b", 2), vec!["model".to_owned()]);
    found.by_id.insert("b".into(), entry);
    assert_eq!(found.asked().collect::<Vec<_>>(), [&Row("b", 2)]);
    let mounted = [("b".into(), vec!["model".to_owned()])].into();
    assert_eq!(
        found.into_parts(),
        (vec![Row("a", 2), Row("b", 2)], 2, mounted)
    );
}

#[tokio::test]
async fn rows_without_ids_are_counted_in_fallbacks_too() {
    let rig = Rig::new(Options::default());
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh_all() - 1);
    let answer = list_of(vec![container("a", "s"), container("", "")]);
    // Only answers within the limit are replaced.
    rig.sim
        .set_fault(Rpc::ListContainers, Fault::garbage(answer));
    let listed = rig.client.list_containers().await.unwrap();
    // Each of four answers has both rows.
    assert_eq!(
        (listed.mode, listed.rows.len(), listed.malformed),
        (ListMode::PerState, 1, 4)
    );
}

#[tokio::test]
async fn a_removed_sandbox_is_gone_from_the_fallbacks() {
    let rig = Rig::new(Options::default());
    rig.sim
        .conduct(|it| it.send_limit_bytes = rig.weigh_sandboxes() - 1);
    let before = rig.sandboxes().await;
    assert_eq!(
        (before.mode, before.coverage),
        (ListMode::PerState, Coverage::Whole)
    );
    let id = PodSandboxId::new(rig.sim.sandbox_id("default/old-3#0").unwrap()).unwrap();
    rig.client.remove_pod_sandbox(&id).await.unwrap();
    let after = rig.sandboxes().await;
    let ids: BTreeSet<_> = after.rows.iter().map(|row| row.id.clone()).collect();
    assert_eq!((ids.len(), ids.contains(&id)), (44, false));
    assert!(rig.dir.path().exists());
}
