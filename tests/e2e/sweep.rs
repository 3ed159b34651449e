//! The main job from start to end: litter, metrics, alert, webhook, pass, and the alert resolves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crisweep_proto::cri::{ContainerState, PodSandboxState};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::node::is_as_planned;
use crate::support::alertmanager::Alertmanager;
use crate::support::crisweep::{Crisweep, NODE_NAME};
use crate::support::node::{Events, Node};
use crate::support::plan::{self, End, Fate, Known};
use crate::support::population::{MadeContainer, MadePod, MadeSandbox, Population};
use crate::support::prometheus::{Prometheus, shipped_rules};
use crate::support::wait::{PATIENCE, wait_for};

/// The alert that the incident's sandboxes cause: there are more than 50 of them.
const ALERT: &str = "CrisweepTooManyNotReadySandboxes";
const BATCH: usize = 50;
/// Less than the configured rest between batches, so that a busy machine cannot blur it; far more than the
/// time between two removals of one batch.
const REST: SignedDuration = SignedDuration::from_millis(1500);

/// Says whether no policy may remove a container: it is alive, the kubelet would run it again, or it is not
/// the kubelet's.
pub(crate) fn must_stay(pod: &MadePod, container: &MadeContainer) -> bool {
    match (container.plan.end, pod.plan.known) {
        (End::Created | End::Runs, _) | (End::Exits(_), Known::Unmanaged) => true,
        (End::Exits(_), Known::Active | Known::StaticSucceeded) => pod.is_newest(container),
        (End::Exits(_), Known::Succeeded | Known::Absent | Known::StaticAbsent) => false,
    }
}

/// Says whether a sandbox stays after all removable containers are gone.
pub(crate) fn sandbox_must_stay(pod: &MadePod, sandbox: &MadeSandbox) -> bool {
    let is_newest = pod
        .sandboxes
        .iter()
        .all(|other| other.plan.attempt <= sandbox.plan.attempt);
    let holds = sandbox
        .containers
        .iter()
        .any(|container| must_stay(pod, container));
    match pod.plan.known {
        _ if holds || sandbox.plan.fate == Fate::Ready => true,
        Known::Active | Known::StaticSucceeded => is_newest,
        Known::Unmanaged => true,
        Known::Succeeded | Known::Absent | Known::StaticAbsent => false,
    }
}

/// The node before the pass, and what must be true afterwards.
struct Expected {
    /// Dead containers to remove, oldest first.
    containers: Vec<String>,
    /// Sandboxes to remove, oldest first.
    sandboxes: Vec<String>,
    /// The processes of each running container.
    processes: BTreeMap<String, Vec<u32>>,
}

impl Expected {
    async fn of(node: &Node, population: &Population) -> Self {
        let cri = node.cri().await;
        let born: BTreeMap<String, i64> = cri
            .containers()
            .await
            .into_iter()
            .map(|row| (row.id, row.created_at))
            .chain(
                cri.sandboxes()
                    .await
                    .into_iter()
                    .map(|row| (row.id, row.created_at)),
            )
            .collect();
        let oldest_first = |mut ids: Vec<String>| {
            ids.sort_by_key(|id| born[id]);
            ids
        };
        let containers = population
            .containers()
            .filter(|(pod, c)| !must_stay(pod, c));
        let sandboxes = population
            .sandboxes()
            .filter(|(pod, s)| !sandbox_must_stay(pod, s));
        Self {
            containers: oldest_first(containers.map(|(_, c)| c.id.clone()).collect()),
            sandboxes: oldest_first(sandboxes.map(|(_, s)| s.id.clone()).collect()),
            processes: processes(node, population),
        }
    }
}

fn processes(node: &Node, population: &Population) -> BTreeMap<String, Vec<u32>> {
    population
        .containers()
        .filter(|(_, container)| container.plan.end == End::Runs)
        .map(|(_, container)| {
            (
                container.id.clone(),
                node.cgroups().processes(&container.id),
            )
        })
        .collect()
}

#[tokio::test]
async fn an_alert_sweeps_the_node() {
    let node = Node::start().await;
    let population = Population::make(&node, plan::incident()).await;
    is_as_planned(&node, &population).await;
    assert_eq!(population.count(ContainerState::ContainerRunning), 9);
    let pods_file = node.dir().join("pods.json");
    population.write_pods_file(&pods_file);
    let expected = Expected::of(&node, &population).await;
    assert!(expected.containers.len() > 2 * BATCH && expected.sandboxes.len() > BATCH);
    assert!(
        expected.processes.values().all(|pids| pids.len() == 1),
        "{:?}",
        expected.processes
    );

    let events = node.events().await;
    let crisweep = Crisweep::start(&node, &pods_file).await;
    let webhook = crisweep.url("/webhook/alertmanager");
    let alertmanager = Alertmanager::start(node.dir(), &webhook).await;
    let targets = [crisweep.address.clone()];
    let prometheus =
        Prometheus::start(node.dir(), &targets, &shipped_rules("1s"), &alertmanager).await;

    let pass = wait_for_alert_pass(&crisweep).await;
    assert_eq!(
        pass["outcome"],
        "completed",
        "{pass}\n{}",
        crisweep.log_tail()
    );
    for (target, ids) in [
        ("containers", &expected.containers),
        ("sandboxes", &expected.sandboxes),
    ] {
        let counts = &pass["targets"][target];
        assert_eq!(counts["planned"], ids.len(), "{target}: {pass}");
        assert_eq!(counts["removed"], ids.len(), "{target}: {pass}");
    }
    wait_for_events(&events, &expected).await;
    removed_oldest_first_in_batches(&events.removals(), &expected);
    only_the_dead_are_gone(&node, &population, &expected).await;
    wait_for_resolution(&prometheus, &alertmanager).await;
    metrics_tell_the_story(&prometheus, &population, &expected).await;

    let (status, again) = crisweep.post("/gc?wait=60s").await;
    assert_eq!(
        (status.as_u16(), &again["outcome"]),
        (200, &"nothing-to-do".into()),
        "{again}"
    );
    assert_eq!(
        events.removals().len(),
        expected.containers.len() + expected.sandboxes.len()
    );
}

/// As after a power failure: the list of containers has no time of creation, and the status has containerd's own.
#[tokio::test]
async fn containers_whose_status_files_were_damaged_are_as_old_as_they_are() {
    let mut node = Node::start().await;
    let population = Population::make(&node, plan::handful()).await;
    let pods_file = node.dir().join("pods.json");
    population.write_pods_file(&pods_file);
    let of_deleted = population
        .containers()
        .filter(|(pod, _)| pod.plan.known == Known::Absent);
    let damaged: BTreeSet<&str> = of_deleted.map(|(_, it)| it.id.as_str()).collect();
    node.pause().await;
    for id in &damaged {
        let file = format!("root/io.containerd.grpc.v1.cri/containers/{id}/status");
        std::fs::write(node.dir().join(file), "").unwrap();
    }
    node.resume().await;
    let cri = node.cri().await;
    for row in cri.containers().await {
        let is_lost = damaged.contains(row.id.as_str());
        assert_eq!(row.created_at == 0, is_lost, "{row:?}");
        assert!(!is_lost || row.state() == ContainerState::ContainerUnknown);
        assert!(cri.container_status(&row.id).await.unwrap().created_at > 0);
    }
    let crisweep = Crisweep::start_with(
        &node,
        &pods_file,
        json!({
            "policy": { "containers": { "min_age": "1s", "include_unknown": true } },
        }),
    );
    let crisweep = crisweep.await;
    let pass = crisweep.pass("target=containers").await;
    let left = cri.containers().await;
    let left: Vec<_> = left
        .iter()
        .filter(|row| damaged.contains(row.id.as_str()))
        .collect();
    assert_eq!(
        left,
        Vec::<&crisweep_proto::cri::Container>::new(),
        "{pass:#}"
    );
}

async fn wait_for_alert_pass(crisweep: &Crisweep) -> Value {
    wait_for("the alert's pass to end", 2 * PATIENCE, || async {
        let passes = crisweep.get("/api/v1/passes").await?;
        // Another alert's pass that found the node clean may have been withdrawn.
        let by_alert = |pass: &&Value| {
            let has_run = pass["state"] == "done" && pass["started_at"].is_string();
            pass["trigger"]["cause"] == "alert" && has_run
        };
        let pass = passes["passes"]
            .as_array()
            .into_iter()
            .flatten()
            .find(by_alert);
        pass.cloned()
            .ok_or_else(|| format!("{passes}\n{}", crisweep.log_tail()))
    })
    .await
}

async fn wait_for_events(events: &Events, expected: &Expected) {
    let all = expected.containers.len() + expected.sandboxes.len();
    wait_for("containerd's word for each removal", PATIENCE, || async {
        let seen = events.removed().len();
        if seen >= all {
            Ok(())
        } else {
            Err(format!("{seen} of {all}"))
        }
    })
    .await;
}

/// Inside a batch a few removals run at a time, so only whole batches are ordered.
fn removed_oldest_first_in_batches(removals: &[(Timestamp, String)], expected: &Expected) {
    let mut rest = removals;
    for ids in [&expected.containers, &expected.sandboxes] {
        let mut ended: Option<Timestamp> = None;
        for batch in ids.chunks(BATCH) {
            let (now, later) = rest.split_at(batch.len().min(rest.len()));
            let removed: BTreeSet<&String> = now.iter().map(|(_, id)| id).collect();
            let due: BTreeSet<&String> = batch.iter().collect();
            let early: Vec<_> = removed.difference(&due).collect();
            let late: Vec<_> = due.difference(&removed).collect();
            assert!(
                removed == due,
                "went too early: {early:?}; too late, or not at all: {late:?}"
            );
            if let Some(rest) = ended.map(|ended| now[0].0.duration_since(ended)) {
                assert!(rest >= REST, "only {rest:#} between two batches");
            }
            ended = now.last().map(|(at, _)| *at);
            rest = later;
        }
    }
    assert!(rest.is_empty(), "more went than should: {rest:?}");
}

async fn only_the_dead_are_gone(node: &Node, population: &Population, expected: &Expected) {
    let cri = node.cri().await;
    let containers: BTreeMap<String, ContainerState> = cri
        .containers()
        .await
        .iter()
        .map(|row| (row.id.clone(), row.state()))
        .collect();
    let mut left = population.container_states();
    left.retain(|id, _| !expected.containers.contains(id));
    assert_eq!(containers, left);
    let sandboxes: BTreeMap<String, PodSandboxState> = cri
        .sandboxes()
        .await
        .iter()
        .map(|row| (row.id.clone(), row.state()))
        .collect();
    let mut left = population.sandbox_states();
    left.retain(|id, _| !expected.sandboxes.contains(id));
    assert_eq!(sandboxes, left);
    assert_eq!(processes(node, population), expected.processes);
    assert_eq!(cri.images().await.len(), 2);
}

async fn wait_for_resolution(prometheus: &Prometheus, alertmanager: &Alertmanager) {
    wait_for("the alert to resolve in Prometheus", PATIENCE, || async {
        let fired = format!(
            r#"max_over_time(ALERTS{{alertname="{ALERT}", alertstate="firing", node="{NODE_NAME}"}}[30m])"#
        );
        prometheus.query_one(&fired).await?;
        let alerts = prometheus.alerts().await?;
        let is_on = alerts.iter().any(|alert| alert.labels["alertname"] == ALERT);
        if is_on { Err(format!("{alerts:?}")) } else { Ok(()) }
    })
    .await;
    wait_for("the alert to resolve in Alertmanager", PATIENCE, || async {
        let alerts = alertmanager.alerts().await?;
        let is_on = alerts
            .iter()
            .any(|alert| alert["labels"]["alertname"] == ALERT);
        if is_on {
            Err(format!("{alerts:?}"))
        } else {
            Ok(())
        }
    })
    .await;
}

async fn metrics_tell_the_story(
    prometheus: &Prometheus,
    population: &Population,
    expected: &Expected,
) {
    let exited = population.count(ContainerState::ContainerExited);
    let dead = population.count_sandboxes(PodSandboxState::SandboxNotready);
    let running = population.count(ContainerState::ContainerRunning);
    let (containers, sandboxes) = (expected.containers.len(), expected.sandboxes.len());
    let facts = [
        (
            r#"max_over_time(cri_containers{state="exited"}[30m])"#,
            exited,
        ),
        (r#"cri_containers{state="exited"}"#, exited - containers),
        (
            r#"max_over_time(cri_pod_sandboxes{state="notready"}[30m])"#,
            dead,
        ),
        (r#"cri_pod_sandboxes{state="notready"}"#, dead - sandboxes),
        (
            r#"min_over_time(cri_containers{state="running"}[30m])"#,
            running,
        ),
        (
            r#"sum(crisweep_removals_total{target="containers"})"#,
            containers,
        ),
        (
            r#"sum(crisweep_removals_total{target="sandboxes"})"#,
            sandboxes,
        ),
        ("sum(crisweep_removal_failures_total)", 0),
        ("min_over_time(cri_up[30m])", 1),
    ];
    for (query, wanted) in facts {
        wait_for(query, Duration::from_secs(30), || async {
            let value = prometheus.query_one(query).await?;
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            let is_it = (value - wanted as f64).abs() < 0.5;
            if is_it {
                Ok(())
            } else {
                Err(format!("{value}, not {wanted}"))
            }
        })
        .await;
    }
}
