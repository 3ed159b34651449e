//! Logs of real containers, and links to them as the kubelet makes them: they are removed with their
//! containers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::crisweep::Crisweep;
use crate::support::node::Node;
use crate::support::plan;
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};

/// A container's log and link.
struct Files {
    log: PathBuf,
    link: PathBuf,
}

/// Links every container's log, as the kubelet does when it starts one; by container id.
async fn link_logs(node: &Node, population: &Population) -> BTreeMap<String, Files> {
    fs::create_dir_all(node.link_root()).unwrap();
    let cri = node.cri().await;
    let mut files = BTreeMap::new();
    for (pod, container) in population.containers() {
        let status = cri.container_status(&container.id).await.unwrap();
        let log = PathBuf::from(status.log_path);
        let (plan, name) = (&pod.plan, &container.plan.name);
        let link = format!(
            "{}_{}_{name}-{}.log",
            plan.name, plan.namespace, container.id
        );
        let link = node.link_root().join(link);
        symlink(&log, &link).unwrap();
        files.insert(container.id.clone(), Files { log, link });
    }
    files
}

/// Asserts that the evidence of each container has its log, byte for byte.
async fn evidence_is_kept(crisweep: &Crisweep, logs: BTreeMap<&String, Vec<u8>>) {
    let mut told = 0;
    for (id, log) in logs {
        let raw = format!("/api/v1/evidence/{id}/log?raw=true");
        assert_eq!(crisweep.bytes(&raw).await, log, "evidence of {id}");
        let evidence = crisweep.get(&format!("/api/v1/evidence/{id}")).await;
        let evidence = evidence.unwrap();
        assert!(evidence["exit_code"].is_i64(), "{evidence}");
        told += usize::from(!log.is_empty());
    }
    assert!(told > 0, "no container had written anything");
}

#[tokio::test]
async fn logs_and_links_go_with_their_containers() {
    let node = Node::start().await;
    let population = Population::make(&node, plan::handful()).await;
    let files = link_logs(&node, &population).await;
    // A created container has no log; all others have one.
    let with_log: Vec<&String> = files
        .iter()
        .filter(|(_, it)| it.log.exists())
        .map(|(id, _)| id)
        .collect();
    assert!(with_log.len() > 5, "{with_log:?}");
    let written: BTreeMap<&String, Vec<u8>> = with_log
        .iter()
        .map(|id| (*id, fs::read(&files[*id].log).unwrap()))
        .collect();
    let pods_file = node.dir().join("pods.json");
    population.write_pods_file(&pods_file);
    let crisweep = Crisweep::start(&node, &pods_file).await;
    wait_for("the pod source to settle", PATIENCE, || async {
        let status = crisweep.get("/api/v1/status").await?;
        if status["pods"]["known"] == true {
            Ok(())
        } else {
            Err(status["pods"].to_string())
        }
    })
    .await;

    let (status, pass) = crisweep.post("/gc?wait=60s").await;
    assert_eq!(status.as_u16(), 200, "{pass}");
    assert_eq!(
        pass["outcome"],
        "completed",
        "{pass}\n{}",
        crisweep.log_tail()
    );
    let cri = node.cri().await;
    let left: Vec<String> = cri
        .containers()
        .await
        .into_iter()
        .map(|row| row.id)
        .collect();
    let mut gone = 0;
    for (id, files) in &files {
        let goes = !left.contains(id);
        gone += usize::from(goes);
        let is_there = files.link.symlink_metadata().is_ok();
        assert_eq!(is_there, !goes, "{}", files.link.display());
        let had_log = with_log.contains(&id);
        assert_eq!(
            files.log.exists(),
            had_log && !goes,
            "{}",
            files.log.display()
        );
    }
    assert!(gone > 0 && left.len() > 1, "{gone} {left:?}");
    let written = written.into_iter().filter(|(id, _)| !left.contains(id));
    evidence_is_kept(&crisweep, written.collect()).await;
    let logs = &pass["targets"]["logs"];
    assert_eq!(logs["reasons"]["container-removed"], gone, "{logs}");
    assert!(logs["freed_bytes"].as_u64() > Some(0), "{logs}");

    let (_, again) = crisweep.post("/gc?wait=60s").await;
    assert_eq!(again["outcome"], Value::from("nothing-to-do"), "{again}");
}
