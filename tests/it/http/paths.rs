//! The paths, and the answer of each to a wrong method.

use crate::support::{Answer, Rig, nodes};

#[tokio::test]
async fn every_path_answers_and_refuses_wrong_methods_in_json() {
    let rig = Rig::start(nodes::litter(1), serde_json::json!({})).await;
    let read = [
        "/",
        "/metrics",
        "/-/healthy",
        "/-/ready",
        "/api/v1/status",
        "/api/v1/plan",
        "/api/v1/plan?target=containers&target=all",
        "/api/v1/snapshot",
        "/api/v1/passes",
    ];
    for path in read {
        let answer = rig.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(!answer.text.is_empty());
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let answer = Answer::of(rig.request(method, path)).await;
            answer.refused(405, method);
        }
    }
    for path in ["/gc", "/webhook/alertmanager", "/-/reload"] {
        for method in ["GET", "PUT", "DELETE"] {
            Answer::of(rig.request(method, path))
                .await
                .refused(405, path);
        }
    }
    for (path, wanted) in [
        ("/gc", "use POST"),
        ("/api/v1/plans", "use GET or POST"),
        ("/api/v1/passes/none", "use GET or DELETE"),
    ] {
        let answer = Answer::of(rig.request("PUT", path)).await;
        answer.refused(405, wanted);
    }
    rig.nothing_was_touched();
}

#[tokio::test]
async fn unknown_paths_and_passes_are_not_found() {
    let rig = Rig::start(nodes::litter(1), serde_json::json!({})).await;
    for path in [
        "/gc/",
        "/metric",
        "/api",
        "/api/v1/",
        "/api/v2/status",
        "/api/v1/explain/",
    ] {
        rig.get(path).await.refused(404, path);
    }
    rig.get("/api/v1/passes/20200101T000000Z-1")
        .await
        .refused(404, "20200101T000000Z-1");
    rig.get("/api/v1/explain/0123456789abcdef")
        .await
        .refused(404, "0123456789abcdef");
}

#[tokio::test]
async fn an_unreadable_path_or_query_is_named_in_a_json_error() {
    let rig = Rig::start(nodes::litter(1), serde_json::json!({})).await;
    rig.get("/api/v1/explain/%ff").await.refused(400, "UTF-8");
    rig.get("/api/v1/passes/%ff").await.refused(400, "UTF-8");
    rig.delete("/api/v1/passes/%ff").await.refused(400, "UTF-8");
    rig.get("/api/v1/plan?target=pods")
        .await
        .refused(400, "unknown target \"pods\"");
    rig.get("/api/v1/plan?targets=all")
        .await
        .refused(400, "unknown parameter \"targets\"");
    for path in [
        "/api/v1/status",
        "/api/v1/doctor",
        "/api/v1/events",
        "/api/v1/plans",
        "/api/v1/plans/1",
        "/api/v1/passes/1",
        "/api/v1/evidence/1",
        "/api/v1/explain/web",
    ] {
        rig.get(&format!("{path}?x=1"))
            .await
            .refused(400, &format!("unknown parameter \"x\"; {path} takes none"));
    }
    rig.post("/-/reload?force=true")
        .await
        .refused(400, "unknown parameter \"force\"; /-/reload takes none");
    rig.post_json("/-/reload", &serde_json::json!({ "mode": "observe" }))
        .await
        .refused(400, "a reload takes no body");
    rig.delete("/api/v1/passes/1?x=1")
        .await
        .refused(400, "takes none");
    for path in ["/metrics?x=1", "/-/healthy?x=1", "/-/ready?x=1"] {
        assert_eq!(rig.get(path).await.status, 200, "{path}");
    }
}
