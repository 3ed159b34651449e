//! A real containerd whose list of containers is over its own limit: no client can list, so the kubelet could
//! not clean up. The service cleans up, and afterwards every client can list again.

use std::collections::BTreeMap;
use std::time::Instant;

use crisweep_proto::cri::ContainerState;
use futures_util::StreamExt;
use serde_json::Value;
use tonic::Code;

use crate::support::cri::Cri;
use crate::support::crisweep::Crisweep;
use crate::support::node::Node;
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::release;
use crate::support::wait::{PATIENCE, wait_for};

const KIB: usize = 1024;
const LIMIT: usize = 16 << 20;

/// Ten living pods with 74 created containers each: just below the limit.
fn waiting() -> Vec<PodPlan> {
    let names: Vec<String> = (0..74).map(|number| format!("wait-{number}")).collect();
    let mut containers: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), 0, End::Created))
        .collect();
    containers.push(("app", 0, End::Runs));
    let pod = |number| {
        let pod = PodPlan::new(number, format!("waiting-{number}"), Known::Active);
        pod.sandbox(Fate::Ready, &containers).with_ballast(20 * KIB)
    };
    (0..10).map(pod).collect()
}

/// One pod whose containers together are over the limit.
fn crowd() -> PodPlan {
    let names: Vec<String> = (0..300).map(|number| format!("wait-{number}")).collect();
    let containers: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), 0, End::Created))
        .collect();
    let pod = PodPlan::new(50, "crowd".to_owned(), Known::Active);
    pod.sandbox(Fate::Ready, &containers).with_ballast(60 * KIB)
}

/// Deleted pods, each with three dead containers of such a row and a dead sandbox.
fn deleted(first: u32, pods: u32, ballast: usize) -> Vec<PodPlan> {
    let containers = ["a", "b", "c"].map(|name| (name, 0, End::Exits(0)));
    let pod = |number| {
        let pod = PodPlan::new(number, format!("deleted-{number}"), Known::Absent);
        pod.sandbox(Fate::Stopped, &containers)
            .with_ballast(ballast)
    };
    (first..first + pods).map(pod).collect()
}

/// Asserts that a plain list fails for its size, and returns the size.
pub(crate) async fn refused(cri: &Cri) -> usize {
    let status = cri.try_containers().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let text = status.message();
    let (_, sizes) = text.split_once("larger than max (").unwrap();
    let (bytes, limit) = sizes.split_once(" vs. ").unwrap();
    assert_eq!(limit, format!("{LIMIT})"));
    println!("a list of {bytes} bytes is refused");
    bytes.parse().unwrap()
}

/// Cleans the node; all dead objects of deleted pods are removed, everything else stays.
async fn sweep(crisweep: &Crisweep, cri: &Cri, pods: usize, left: &Population) {
    let began = Instant::now();
    let pass = crisweep.pass("").await;
    assert_eq!(
        pass["outcome"],
        "completed",
        "{pass}\n{}",
        crisweep.log_tail()
    );
    let removed = |target: &str| -> Value { pass["targets"][target]["removed"].clone() };
    assert_eq!(
        (removed("containers"), removed("sandboxes")),
        ((3 * pods).into(), pods.into())
    );
    println!("swept {pods} pods in {:?}", began.elapsed());
    let states: BTreeMap<String, ContainerState> = cri
        .containers()
        .await
        .iter()
        .map(|row| (row.id.clone(), row.state()))
        .collect();
    assert_eq!(states, left.container_states());
    assert_eq!(cri.sandboxes().await.len(), left.sandboxes().count());
}

/// Asserts the size of the list of containers, and that it was read compressed, or in this way from a containerd that
/// cannot compress.
async fn assert_list(crisweep: &Crisweep, in_parts: &str, bytes: usize) {
    let began = Instant::now();
    let page = crisweep.metrics().await;
    let is_old = page.contains("version=\"1.6.");
    let mode = if is_old { in_parts } else { "compressed" };
    println!("a page of {mode} in {:?}", began.elapsed());
    for line in [
        format!("cri_list_mode{{list=\"containers\",mode=\"{mode}\"}} 1"),
        format!("cri_list_response_bytes{{list=\"containers\"}} {bytes}"),
        format!("cri_list_limit_bytes{{list=\"containers\"}} {LIMIT}"),
        "cri_list_complete{list=\"containers\"} 1".to_owned(),
    ] {
        let is_there = page.lines().any(|found| found == line);
        let lists: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("cri_list"))
            .collect();
        assert!(is_there, "no {line} in {lists:#?}\n{}", crisweep.log_tail());
    }
    let lists = page
        .lines()
        .filter(|line| line.starts_with("cri_list_duration_seconds"));
    lists.for_each(|line| println!("{line}"));
}

/// Waits until the leftovers of this many pods are old enough to remove; each attempt is a look, so the next
/// page shows how the list was read.
async fn due(crisweep: &Crisweep, pods: usize) {
    wait_for("the dead to be old enough", PATIENCE, || async {
        let pass = crisweep.pass("dry_run=true").await;
        let planned = |target: &str| pass["targets"][target]["planned"].clone();
        let is_all = planned("containers") == 3 * pods && planned("sandboxes") == pods;
        if is_all {
            Ok(())
        } else {
            Err(pass.to_string())
        }
    })
    .await;
}

async fn make(node: &Node, plans: Vec<PodPlan>) -> Population {
    let began = Instant::now();
    let made = Population::make(node, plans).await;
    println!("made {} pods in {:?}", made.pods.len(), began.elapsed());
    made
}

#[tokio::test]
async fn a_node_that_no_client_can_list_is_swept_and_listed_again() {
    let node = Node::start().await;
    let lives = make(&node, waiting()).await;
    let cri = node.cri().await;
    assert_eq!(cri.containers().await.len(), 750, "they fit");
    // The dead containers alone are over the limit.
    make(&node, deleted(100, 20, 300 * KIB)).await;
    let pods_file = node.dir().join("pods.json");
    lives.write_pods_file(&pods_file);
    let bytes = refused(&cri).await;
    assert!(bytes > 2 * LIMIT, "{bytes}");
    let crisweep = Crisweep::start(&node, &pods_file).await;
    due(&crisweep, 20).await;
    assert_list(&crisweep, "status", bytes).await;
    sweep(&crisweep, &cri, 20, &lives).await;
    due(&crisweep, 0).await;
    let page = crisweep.metrics().await;
    assert!(
        page.contains("cri_list_mode{list=\"containers\",mode=\"unary\"} 1"),
        "{page}"
    );

    // Now all together are over it, but no state alone.
    make(&node, deleted(200, 20, 20 * KIB)).await;
    lives.write_pods_file(&pods_file);
    let bytes = refused(&cri).await;
    due(&crisweep, 20).await;
    assert_list(&crisweep, "per-state", bytes).await;
    sweep(&crisweep, &cri, 20, &lives).await;
    due(&crisweep, 0).await;
    let page = crisweep.metrics().await;
    assert!(
        page.contains("cri_list_mode{list=\"containers\",mode=\"unary\"} 1"),
        "{page}"
    );

    // Finally one pod alone is over the limit, and with it the created containers. Nothing of it may be
    // removed, so the list stays over the limit; the rest is still removed.
    let crowd = make(&node, vec![crowd()]).await;
    make(&node, deleted(300, 5, 20 * KIB)).await;
    let pods = lives.pods.into_iter().chain(crowd.pods).collect();
    Population { pods }.write_pods_file(&pods_file);
    let bytes = refused(&cri).await;
    due(&crisweep, 5).await;
    assert_list(&crisweep, "status", bytes).await;
    let pass = crisweep.pass("").await;
    assert_eq!(
        pass["outcome"],
        "completed",
        "{pass}\n{}",
        crisweep.log_tail()
    );
    due(&crisweep, 0).await;
    let page = crisweep.metrics().await;
    for line in [
        "cri_containers{state=\"created\"} 1040",
        "cri_containers{state=\"running\"} 10",
        "cri_containers{state=\"exited\"} 0",
        "cri_pod_sandboxes{state=\"notready\"} 0",
        "cri_list_complete{list=\"containers\"} 1",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "no {line} in {page}"
        );
    }
    assert!(refused(&cri).await < bytes);
}

#[tokio::test]
async fn a_newer_containerd_sends_a_list_over_its_limit_compressed() {
    let Some(programs) = release::unpacked("containerd", "trixie") else {
        return;
    };
    let node = Node::start_programs(&programs).await;
    let alive = [("app", 0, End::Runs)];
    let alive = PodPlan::new(1, "alive".to_owned(), Known::Active).sandbox(Fate::Ready, &alive);
    let lives = make(&node, vec![alive]).await;
    make(&node, deleted(100, 20, 300 * KIB)).await;
    let pods_file = node.dir().join("pods.json");
    lives.write_pods_file(&pods_file);
    let cri = node.cri().await;
    let bytes = refused(&cri).await;
    let crisweep = Crisweep::start(&node, &pods_file).await;
    due(&crisweep, 20).await;
    assert_list(&crisweep, "status", bytes).await;
    let page = crisweep.metrics().await;
    assert!(page.contains("mode=\"compressed\""), "{page}");
    sweep(&crisweep, &cri, 20, &lives).await;
}

/// Records that no list shows: 3,000 created and 300 exited.
fn unlistable() -> Vec<PodPlan> {
    let names: Vec<String> = (0..300).map(|number| format!("wait-{number}")).collect();
    let created: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), 0, End::Created))
        .collect();
    let waits = |number| {
        let pod = PodPlan::new(number, format!("waits-{number}"), Known::Active);
        pod.sandbox(Fate::Ready, &created).with_ballast(6 * KIB)
    };
    (0..10)
        .map(waits)
        .chain(deleted(100, 100, 60 * KIB))
        .collect()
}

mod measure {
    //! Run by `benches/big_lists.sh`.

    use super::*;

    /// Prints the time of single calls and of whole looks.
    #[tokio::test]
    async fn looks_at_lists_over_the_limit() {
        let node = Node::start().await;
        let made = make(&node, unlistable()).await;
        let cri = node.cri().await;
        refused(&cri).await;
        let ids: Vec<String> = made.containers().map(|(_, made)| made.id.clone()).collect();
        for verbose in [true, false] {
            for at_a_time in [1, 4, 8, 16] {
                let began = Instant::now();
                let asked = futures_util::stream::iter(ids.iter().take(400))
                    .map(|id| cri.ask(id, verbose))
                    .buffer_unordered(at_a_time)
                    .collect::<Vec<_>>();
                asked.await;
                let each = began.elapsed() / 400;
                println!("status, verbose {verbose}, {at_a_time} at a time: {each:?} each");
            }
        }
        let pods_file = node.dir().join("pods.json");
        made.write_pods_file(&pods_file);
        let crisweep = Crisweep::start(&node, &pods_file).await;
        for _ in 0..4 {
            let began = Instant::now();
            crisweep.pass("dry_run=true").await;
            println!("a look: {:?}", began.elapsed());
        }
    }
}
