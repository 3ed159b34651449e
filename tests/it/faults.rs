//! A runtime that hangs, lies and returns garbage; signals at any point; clock jumps; limited memory. In
//! every case the service answers, its passes end, nothing needed is removed (each rig asserts that when it
//! is dropped), and the node gets clean after the fault.

mod answers;
mod clock;
mod disk;
mod hang;
mod memory;
mod occasions;
mod restart;
mod signals;
mod stderr;
mod threads;

use crisweep_proto::cri::ContainerState;
use serde_json::Value;

use crate::support::{Answer, Page, Rig, until};

/// Scrapes as Prometheus does, and asserts that everything answers.
async fn answers(rig: &Rig) -> Page {
    let scrape = rig.request("GET", "/metrics");
    let scrape = scrape.header("x-prometheus-scrape-timeout-seconds", "3");
    let page = Answer::of(scrape).await;
    assert_eq!(page.status, 200, "{}", page.text);
    for (path, statuses) in [
        ("/-/healthy", [200, 200]),
        ("/-/ready", [200, 503]),
        ("/api/v1/status", [200, 200]),
        ("/api/v1/plan", [200, 503]),
        ("/", [200, 200]),
    ] {
        let answer = rig.get(path).await;
        assert!(
            statuses.contains(&answer.status),
            "{path}: {} {}",
            answer.status,
            answer.text
        );
    }
    Page::parse(&page.text)
}

/// Runs passes until nothing dead is left: quarantined sandboxes wait for their next try.
async fn heals(rig: &Rig) {
    until("what failed may be tried again", || async {
        // A container that was stopped meanwhile exited after the list.
        rig.write_pods_again();
        let pass = rig.gc("").await;
        let clean = pass["state"] == "done" && rig.exited_containers() + rig.dead_sandboxes() == 0;
        clean.then_some(())
    })
    .await;
    cleans(rig).await;
}

/// Runs a pass and asserts that it removed everything dead.
async fn cleans(rig: &Rig) -> Value {
    rig.ready().await;
    let pass = rig.gc("").await;
    let good = ["completed", "nothing-to-do"];
    assert!(
        good.contains(&pass["outcome"].as_str().unwrap()),
        "{pass:#}"
    );
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    let lost = rig.sim.count_containers(ContainerState::ContainerUnknown);
    assert_eq!(lost, 0);
    pass
}
