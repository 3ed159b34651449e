//! Brakes for all nodes: what they hold, and what they say while the API server is away.

mod budget;
mod hold;
mod storm;

use serde_json::{Value, json};

use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, until};

/// An API server with a switch that was never set.
async fn api_server() -> PodServer {
    let server = PodServer::plain().await;
    server.reply(absent());
    server
}

/// The configuration of a node that asks it.
fn config(server: &PodServer) -> Value {
    json!({
        "pods": { "api_url": format!("http://{}", server.address) },
        "fleet": { "namespace": "gc", "hold_config_map": "brakes" },
    })
}

/// The API server's answer that there is no switch.
fn absent() -> Reply {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "configmaps \"brakes\" not found", "details": { "name": "brakes", "kind": "configmaps" },
    });
    Reply::of("404 Not Found", "application/json", &status.to_string())
}

/// A switch with this data.
fn switch(data: &Value) -> Reply {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": data });
    Reply::json(&map.to_string())
}

fn held() -> Reply {
    switch(&json!({ "hold": "true", "reason": "a bad rollout" }))
}

/// Waits until the switch is known in this state.
async fn state(rig: &Rig, wanted: &str) -> Value {
    until(wanted, || async {
        let status = rig.get("/api/v1/status").await.json();
        (status["fleet"]["hold"]["state"] == wanted).then_some(status)
    })
    .await
}

/// Reads the switch anew, and waits until the reading shows.
async fn reload(rig: &Rig, server: &PodServer, wanted: &str) -> Value {
    let before = server.asked().len();
    assert_eq!(rig.post("/-/reload").await.status, 200);
    until("the switch is asked for", || async {
        (server.asked().len() > before).then_some(())
    })
    .await;
    state(rig, wanted).await
}
