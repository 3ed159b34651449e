//! crisweep in a real cluster of one node, with the rights that the chart grants. Run by `make cluster`.

mod callers;
mod churn;
mod daemon_set;
mod incident;
mod outage;
mod workload;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::crisweep::Crisweep;
use crate::support::wait::{PATIENCE, wait_for};

use workload::Workload;

/// On the API server's copy of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// crisweep beside the cluster's node. The order of the fields matters: it ends first.
struct Site {
    crisweep: Crisweep,
    cluster: Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    ApiServer,
    Kubelet,
    /// The API server, with the kubelet's kubeconfig file: the Node authorizer decides.
    KubeletAccount,
}

impl Source {
    /// Grants the chart's rights, and returns the section `pods`.
    fn granted(self, cluster: &Cluster, more: &Value) -> Value {
        let mut config = more.clone();
        config["pods"] = match self {
            Self::ApiServer => json!({ "source": "api-server" }),
            Self::Kubelet => json!({ "source": "kubelet", "kubelet_ca_file": "/ca.crt" }),
            Self::KubeletAccount => json!({ "source": "none" }),
        };
        let mut templates = vec!["namespace", "serviceaccount", "rbac"];
        if !more["fleet"]["budget"].is_null() {
            templates.push("leases");
        }
        cluster.install(&json!({ "config": config }), &templates);
        let token_file = cluster.node.dir().join("token");
        fs::write(&token_file, cluster.token("crisweep/crisweep")).unwrap();
        let times = json!({ "settle": "1s", "quiet": "5s" });
        match self {
            Self::ApiServer => merged(
                times,
                &json!({
                    "source": "api-server",
                    "api_url": format!("https://{}", cluster.address),
                    "api_token_file": token_file,
                    "api_ca_file": cluster.ca_file(),
                }),
            ),
            Self::Kubelet => cluster.kubelet().pods_section("5s"),
            Self::KubeletAccount => merged(
                times,
                &json!({
                    "source": "api-server",
                    "api_kubeconfig": cluster.kubeconfig("node"),
                }),
            ),
        }
    }
}

/// Returns an object with the other's keys too.
fn merged(mut object: Value, other: &Value) -> Value {
    for (name, value) in other.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
    object
}

impl Site {
    async fn start(cluster: Cluster, pods: Value, more: &Value) -> Self {
        let usual = json!({
            "pods": pods,
            "gc": { "batch_pause": "0s" },
            "brakes": { "cooldown": "0s", "max_passes_per_hour": 0 },
        });
        let sections = merged(usual, more);
        let crisweep = Crisweep::start_on_node(&cluster.node, sections).await;
        Self { crisweep, cluster }
    }
}

/// Returns the UIDs of the pods whose containers or sandboxes the runtime has.
async fn uids(cluster: &Cluster) -> BTreeSet<String> {
    let cri = cluster.node.cri().await;
    let containers = cri.containers().await.into_iter().map(|row| row.labels);
    let sandboxes = cri.sandboxes().await.into_iter().map(|row| row.labels);
    let labels = containers.chain(sandboxes);
    labels
        .filter_map(|labels| labels.get("io.kubernetes.pod.uid").cloned())
        .collect()
}

fn pods(cluster: &Cluster) -> Vec<Value> {
    let list = cluster.try_get("pods --all-namespaces").unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Returns how many objects passes have removed for this reason.
async fn removals(crisweep: &Crisweep, reason: &str) -> u64 {
    let reason = format!("reason=\"{reason}\"");
    let page = crisweep.metrics().await;
    let lines = page
        .lines()
        .filter(|line| line.starts_with("crisweep_removals_total{") && line.contains(&reason));
    lines
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

/// Fails if a container has started again that never should.
fn none_started_twice(site: &Site, workload: &Workload) {
    let starts = workload.starts();
    let twice: Vec<_> = starts
        .iter()
        .filter(|(name, count)| **count != 1 && !name.starts_with("crash-"))
        .collect();
    assert!(twice.is_empty(), "{twice:?}\n{}", site.crisweep.log_tail());
}

/// Passes until the runtime has nothing of pods that are over or gone.
async fn only_living_pods_are_left(site: &Site) {
    let mut passes = 0;
    wait_for("the litter to go", PATIENCE, || {
        passes += 1;
        async {
            let pass = site.crisweep.pass("").await;
            let left = uids(&site.cluster).await;
            let living: BTreeSet<String> = pods(&site.cluster)
                .iter()
                .filter(|pod| {
                    let is_over = ["Succeeded", "Failed"]
                        .iter()
                        .any(|phase| pod["status"]["phase"] == *phase);
                    // The kubelet runs a finished static pod again.
                    !is_over || pod["metadata"]["annotations"][MIRROR].is_string()
                })
                .map(uid_at_runtime)
                .collect();
            let litter: Vec<_> = left.difference(&living).collect();
            if litter.is_empty() {
                return Ok(());
            }
            let plan = site.crisweep.get("/api/v1/plan").await?;
            Err(format!("{litter:?}\n{pass}\n{}", plan["kept"]))
        }
    })
    .await;
    println!("{passes} passes");
}

/// A static pod has another UID at the API server; its mirror names the runtime's.
fn uid_at_runtime(pod: &Value) -> String {
    let mirror = pod["metadata"]["annotations"][MIRROR].as_str();
    let uid = mirror.or(pod["metadata"]["uid"].as_str());
    uid.unwrap().to_owned()
}
