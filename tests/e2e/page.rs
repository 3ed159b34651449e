//! The page beside a real containerd: a person asks why a sandbox stays, sweeps the node, and reads what a removed
//! container wrote. `make page` has the rest, beside the simulator.

use std::collections::BTreeMap;

use crisweep_proto::cri::ContainerState;
use serde_json::Value;
use tokio::process::Command;

use crate::support::crisweep::Crisweep;
use crate::support::node::Node;
use crate::support::plan;
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};
use crate::sweep::must_stay;

#[tokio::test]
async fn a_person_sweeps_the_node_from_the_page() {
    let node = Node::start().await;
    let population = Population::make(&node, plan::handful()).await;
    let pods_file = node.dir().join("pods.json");
    population.write_pods_file(&pods_file);
    let crisweep = Crisweep::start(&node, &pods_file).await;
    let gone: Vec<&String> = population
        .containers()
        .filter(|(pod, container)| !must_stay(pod, container))
        .map(|(_, container)| &container.id)
        .collect();
    wait_for("the plan to have all that is due", PATIENCE, || async {
        let plan = crisweep.get("/api/v1/plan?target=containers").await?;
        match plan["removals"].as_array().map(Vec::len) {
            Some(planned) if planned == gone.len() => Ok(()),
            _ => Err(plan["summary"].to_string()),
        }
    })
    .await;

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/node.mjs");
    let person = Command::new("node")
        .args([
            script,
            &crisweep.url("/"),
            &gone.len().to_string(),
            "severed",
        ])
        .kill_on_drop(true)
        .output();
    let person = tokio::time::timeout(2 * PATIENCE, person).await;
    let person = person.expect("the browser hangs").unwrap();
    let (told, errors) = (&person.stdout, String::from_utf8_lossy(&person.stderr));
    assert!(person.status.success(), "{errors}\n{}", crisweep.log_tail());

    let mut left = population.container_states();
    left.retain(|id, _| !gone.contains(&id));
    let rows = node.cri().await.containers().await;
    let rows: BTreeMap<String, ContainerState> = rows
        .iter()
        .map(|row| (row.id.clone(), row.state()))
        .collect();
    assert_eq!(rows, left);
    let told: Value = serde_json::from_slice(told).unwrap();
    let path = format!("/api/v1/evidence/{}/log", told["shown"].as_str().unwrap());
    let log = String::from_utf8(crisweep.bytes(&path).await).unwrap();
    assert_eq!(told["log"].as_str().unwrap().trim_end(), log.trim_end());
    assert!(!log.trim().is_empty(), "{told}");
}
