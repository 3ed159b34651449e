//! Automatic passes: polled alerts and crossed thresholds.

mod credentials;
mod poll;
mod thresholds;

use serde_json::Value;

use crate::support::{Rig, until};

/// Waits for an ended pass with this cause, and returns the first: a slow one may have met the same trigger twice.
async fn pass_by(rig: &Rig, cause: &str) -> Value {
    until("a pass that came by itself", || async {
        let passes = rig.passes().await;
        let over = |pass: &&Value| pass["trigger"]["cause"] == cause && pass["state"] == "done";
        passes.iter().rfind(over).cloned()
    })
    .await
}
