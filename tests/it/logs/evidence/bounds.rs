//! How long evidence stays, and what is said of its room.

use serde_json::json;

use super::super::tree::Tree;
use super::{dead, kept, lines, log_of, on};
use crate::support::wait::until;
use crate::support::{Rig, nodes};

const BYTES: &str = "crisweep_evidence_bytes";

#[tokio::test]
async fn evidence_goes_after_its_age_whether_or_not_more_is_kept() {
    let tree = Tree::plain();
    let mut rig = Rig::start(dead(&tree), on(&tree, &json!({ "max_age": "2s" }))).await;
    std::fs::write(log_of(&tree, &rig), lines(0, 3).0).unwrap();
    rig.metrics().await.is(BYTES, 0.0);
    rig.gc("target=containers").await;
    rig.metrics().await.is("crisweep_evidence_kept_total", 1.0);
    // Switched off, nothing is kept that could push it out.
    rig.configure(&json!({ "evidence": { "enabled": false } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    until("it is gone", || async {
        kept(&rig, "").await.is_empty().then_some(())
    })
    .await;
    let page = until("its room is counted as free", || async {
        let page = rig.metrics().await;
        (page.get(BYTES) == Some(0.0)).then_some(page)
    })
    .await;
    page.is("crisweep_evidence_dropped_total", 1.0);
}

#[tokio::test]
async fn while_the_database_does_not_open_the_room_that_evidence_takes_is_not_known() {
    let changes = json!({ "state": { "dir": "/proc/crisweep" } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    assert_eq!(rig.metrics().await.get(BYTES), None);
    rig.gc("").await;
    assert_eq!(rig.metrics().await.get(BYTES), None);
    let changes = json!({ "state": { "dir": null } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    rig.metrics().await.is(BYTES, 0.0);
}
