//! Removals: what they remove, kill and refuse.

use super::*;

fn web() -> PodSpec {
    PodSpec::new("web")
        .namespace("shop")
        .failed("app", 0, hours(3))
        .running("app", 1)
}

fn gone() -> PodSpec {
    PodSpec::new("gone").deleted().exited("app", 0, hours(1))
}

#[tokio::test]
async fn removing_what_is_missing_is_fine_and_its_status_is_not_found() {
    let rig = Rig::with(web()).await;
    let id = rig.container("shop/web/app#0");
    rig.remove_container(&id).await.unwrap();
    rig.remove_container(&id).await.unwrap();
    rig.remove_sandbox("0123").await.unwrap();
    rig.remove_image("none:1").await.unwrap();
    assert_eq!(rig.status(&id).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(codes(&rig.sim.calls()), [Code::Ok; 4]);
    assert_eq!(rig.sim.harm_count(), 0);
}

#[tokio::test]
async fn removing_a_running_container_kills_it_and_is_harm() {
    let rig = Rig::with(web()).await;
    let id = rig.container("shop/web/app#1");
    rig.remove_container(&id).await.unwrap();
    assert!(rig.sim.container(&id).is_none());
    let calls = rig.sim.harmful_calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].subject, "shop/web/app#1");
    assert_eq!(
        calls[0].harms,
        [Harm::KilledRunningContainer, Harm::RemovedNewestOfLivingPod]
    );
}

#[tokio::test]
async fn the_newest_of_a_finished_or_deleted_pod_is_no_harm_but_a_static_pods_is() {
    let fixed = PodSpec::new("etcd")
        .static_pod()
        .succeeded()
        .exited("etcd", 0, hours(1));
    let done = PodSpec::new("done").succeeded().exited("app", 0, hours(1));
    let node = NodeBuilder::new().pod(fixed).pod(done).pod(gone());
    let rig = Rig::new(node, Options::default()).await;
    for subject in ["default/done/app#0", "default/gone/app#0"] {
        rig.remove_container(&rig.container(subject)).await.unwrap();
    }
    assert_eq!(rig.sim.harm_count(), 0);
    rig.remove_container(&rig.container("default/etcd/etcd#0"))
        .await
        .unwrap();
    let harms: Vec<_> = rig
        .sim
        .calls()
        .into_iter()
        .flat_map(|it| it.harms)
        .collect();
    assert_eq!(harms, [Harm::RemovedNewestOfLivingPod]);
}

#[tokio::test]
async fn the_highest_attempt_and_the_latest_creation_are_both_the_newest() {
    let early = ContainerSpec::exited("app", 5, hours(9));
    let pod = PodSpec::new("skew")
        .container(early)
        .exited("app", 1, hours(1))
        .exited("app", 0, hours(5));
    let rig = Rig::with(pod).await;
    rig.remove_container(&rig.container("default/skew/app#0"))
        .await
        .unwrap();
    assert_eq!(rig.sim.harm_count(), 0);
    rig.remove_container(&rig.container("default/skew/app#1"))
        .await
        .unwrap();
    assert_eq!(rig.sim.harm_count(), 1);
}

#[tokio::test]
async fn removing_a_sandbox_takes_everything_in_it() {
    let pod = PodSpec::new("web")
        .running("app", 0)
        .created("next", 0, minutes(1));
    let rig = Rig::with(pod).await;
    rig.remove_sandbox(&rig.sandbox("default/web#0"))
        .await
        .unwrap();
    assert!(rig.sim.containers().is_empty() && rig.sim.sandboxes().is_empty());
    let mut harms = rig.sim.calls()[0].harms.clone();
    harms.sort();
    harms.dedup();
    let expected = [
        Harm::KilledRunningContainer,
        Harm::RemovedCreatedWithSandbox,
        Harm::StoppedReadySandbox,
        Harm::RemovedNewestOfLivingPod,
    ];
    assert_eq!(harms, expected);
}

#[tokio::test]
async fn a_sandbox_without_its_pause_process_still_kills_what_runs_in_it() {
    let rig = Rig::with(
        PodSpec::new("web")
            .unknown_to_kubelet()
            .running("app", 0)
            .not_ready(),
    )
    .await;
    rig.remove_sandbox(&rig.sandbox("default/web#0"))
        .await
        .unwrap();
    assert_eq!(rig.sim.calls()[0].harms, [Harm::KilledRunningContainer]);
}

#[tokio::test]
async fn a_dead_sandbox_goes_without_harm() {
    let rig = Rig::with(gone()).await;
    rig.remove_sandbox(&rig.sandbox("default/gone#0"))
        .await
        .unwrap();
    assert!(rig.sim.containers().is_empty() && rig.sim.sandboxes().is_empty());
    assert_eq!(rig.sim.harm_count(), 0);
}

#[tokio::test]
async fn the_second_of_two_removals_at_once_is_refused() {
    let rig = Rig::with(gone()).await;
    let id = rig.container("default/gone/app#0");
    rig.sim.set_removal_fault(&id, Fault::hang());
    let (first, ()) = tokio::join!(rig.remove_container(&id), async {
        eventually("a removal in flight", || rig.sim.removals_in_flight() == 1).await;
        let refused = rig.remove_container(&id).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unknown);
        assert!(
            refused
                .message()
                .ends_with("container is already in removing state")
        );
        rig.sim.clear_removal_fault(&id);
    });
    first.unwrap();
    assert_eq!(rig.sim.peak_removals_in_flight(), 2);
    assert!(rig.sim.container(&id).is_none());
}

#[tokio::test]
async fn an_image_needs_a_name() {
    let rig = Rig::with(gone()).await;
    let refused = rig.remove_image("").await;
    assert_eq!(refused.unwrap_err().code(), Code::Unknown);
}

#[tokio::test]
async fn removing_an_image_checks_nothing_and_takes_all_its_tags() {
    let node = NodeBuilder::new()
        .pod(web())
        .edit_image(DEFAULT_IMAGE, |it| it.repo_tags.push("other:2".to_owned()))
        .image("idle:1", 5);
    let rig = Rig::new(node, Options::default()).await;
    rig.remove_image("idle:1").await.unwrap();
    assert_eq!(rig.sim.harm_count(), 0);
    rig.remove_image("other:2").await.unwrap();
    rig.remove_image(SANDBOX_IMAGE).await.unwrap();
    assert!(rig.sim.images().is_empty());
    let harms: Vec<_> = rig.sim.calls().into_iter().map(|call| call.harms).collect();
    let pause = vec![Harm::RemovedPinnedImage, Harm::RemovedImageInUse];
    assert_eq!(harms, [vec![], vec![Harm::RemovedImageInUse], pause]);
}

#[tokio::test]
async fn what_creates_is_unknown_and_counted() {
    let rig = Rig::with(web()).await;
    rig.remove_image("none:1").await.unwrap();
    assert_eq!(rig.sim.unknown_calls(), 0);
    let created = rig
        .runtime
        .clone()
        .run_pod_sandbox(cri::RunPodSandboxRequest::default())
        .await;
    assert_eq!(created.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(rig.sim.unknown_calls(), 1);
}

#[tokio::test]
async fn a_failing_cni_keeps_the_sandbox_until_it_is_well_again() {
    let rig = Rig::with(gone().cni(Cni::failing())).await;
    let id = rig.sandbox("default/gone#0");
    let refused = rig.remove_sandbox(&id).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    let why = format!(
        "failed to forcibly stop sandbox \"{id}\": failed to destroy network for sandbox \"{id}\": \
         plugin type=\"bridge\" failed (delete): network already deleted"
    );
    assert_eq!(refused.message(), why);
    assert!(rig.sim.sandbox(&id).is_some());
    assert!(
        rig.stop_sandbox(&id).await.is_err(),
        "DEL runs on every stop as well"
    );
    rig.sim.heal_cni();
    rig.remove_sandbox(&id).await.unwrap();
    assert!(rig.sim.sandbox(&id).is_none());
}

#[tokio::test]
async fn host_network_pods_make_no_cni_call() {
    let rig = Rig::with(gone().host_network().cni(Cni::plugin_missing())).await;
    rig.remove_sandbox(&rig.sandbox("default/gone#0"))
        .await
        .unwrap();
    assert!(rig.sim.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_shorter_than_a_slow_cni_makes_no_progress_ever() {
    let rig = Rig::with(gone().cni(Cni::slow(seconds(5)))).await;
    let id = rig.sandbox("default/gone#0");
    for _ in 0..3 {
        let removal = tokio::time::timeout(seconds(1), rig.remove_sandbox(&id)).await;
        assert!(removal.is_err());
    }
    assert!(rig.sim.sandbox(&id).is_some());
    eventually("cancelled", || rig.sim.removals_in_flight() == 0).await;
    assert_eq!(codes(&rig.sim.calls()), [Code::Cancelled; 3]);
    let begun = tokio::time::Instant::now();
    rig.remove_sandbox(&id).await.unwrap();
    assert!(begun.elapsed() >= seconds(5));
}

#[tokio::test(start_paused = true)]
async fn removals_crowd_a_slow_disk() {
    let node = NodeBuilder::new().pods(4, |n| {
        PodSpec::new(&format!("p{n}"))
            .deleted()
            .exited("app", 0, hours(1))
    });
    let rig = Rig::new(node, Options::default()).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: seconds(1),
            crowding: seconds(10),
        }
    });
    let ids: Vec<String> = rig.sim.containers().into_iter().map(|c| c.row.id).collect();
    let begun = tokio::time::Instant::now();
    rig.remove_container(&ids[0]).await.unwrap();
    assert!(begun.elapsed() < seconds(5), "alone");
    let begun = tokio::time::Instant::now();
    let all = futures_util::future::join_all(ids[1..].iter().map(|id| rig.remove_container(id)));
    assert!(all.await.iter().all(Result::is_ok));
    assert!(begun.elapsed() >= seconds(21), "three at once");
}

#[tokio::test]
async fn a_failing_removal_fails_as_often_as_configured() {
    let rig = Rig::with(gone()).await;
    let id = rig.container("default/gone/app#0");
    rig.sim
        .set_removal_fault(&id, Fault::fail(Code::Unknown, "device busy").times(2));
    for _ in 0..2 {
        assert_eq!(
            rig.remove_container(&id).await.unwrap_err().message(),
            "device busy"
        );
    }
    rig.remove_container(&id).await.unwrap();
    assert_eq!(
        codes(&rig.sim.calls()),
        [Code::Unknown, Code::Unknown, Code::Ok]
    );
}
