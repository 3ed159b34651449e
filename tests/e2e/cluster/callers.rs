//! What the API server says of callers, Events and the brakes for all nodes.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::workload::Workload;
use super::{Site, Source};
use crate::support::cluster::Cluster;
use crate::support::crisweep::NODE_NAME;
use crate::support::prometheus::http;
use crate::support::wait::{PATIENCE, wait_for};

/// Asks crisweep with a token, or with none; returns the status and the answer.
async fn ask(site: &Site, method: Method, path: &str, token: &str) -> (u16, Value) {
    send(
        http::client().request(method, site.crisweep.url(path)),
        token,
    )
    .await
}

async fn send(mut request: RequestBuilder, token: &str) -> (u16, Value) {
    if !token.is_empty() {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
    let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, answer)
}

/// Grants an account what docs/security.md shows, and returns a token of it.
fn caller(cluster: &Cluster, name: &str, rules: &Value) -> String {
    cluster.kubectl(&format!("create serviceaccount {name}"));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": name },
        "rules": rules,
    });
    cluster.apply("default", &[role]);
    cluster.kubectl(&format!(
        "create clusterrolebinding {name} --clusterrole={name} --serviceaccount=default:{name}"
    ));
    cluster.token(&format!("default/{name}"))
}

/// The site with all that asks the API server for more than pods.
async fn start(cluster: Cluster) -> Site {
    let more = json!({
        "web": { "token_review": { "enabled": true } },
        "events": { "enabled": true, "pods": true },
        "fleet": { "hold_config_map": "crisweep-brakes", "budget": { "max_nodes": 2 } },
    });
    let pods = Source::ApiServer.granted(&cluster, &more);
    let mut sections = more;
    sections["fleet"]["namespace"] = json!("crisweep");
    sections["alerts"] = json!([{ "match": { "alertname": "Litter" }, "targets": ["containers"] }]);
    Site::start(cluster, pods, &sections).await
}

/// Waits until there is an Event of this reason, so often.
async fn event(cluster: &Cluster, reason: &str, count: u64) -> Value {
    wait_for(reason, PATIENCE, || async {
        let list = cluster.try_get("events")?;
        let events = list["items"].as_array().unwrap();
        let event = events
            .iter()
            .find(|event| event["reason"] == reason && event["count"] == count);
        event.cloned().ok_or_else(|| format!("{events:?}"))
    })
    .await
}

#[tokio::test]
async fn the_api_server_knows_who_may_act_and_is_told_what_was_done() {
    let cluster = Cluster::start().await;
    let rules = json!([
        { "nonResourceURLs": ["/metrics"], "verbs": ["get"] },
        { "nonResourceURLs": ["/gc", "/webhook/alertmanager"], "verbs": ["post"] },
        { "nonResourceURLs": ["/crisweep/api/*"], "verbs": ["get", "delete"] },
    ]);
    let may = caller(&cluster, "may", &rules);
    let may_read = caller(&cluster, "may-read", &json!([rules[0]]));
    let site = start(cluster).await;

    let forged = format!("{}AAAA", may.rsplit_once('.').unwrap().0);
    let kept = kept_token(&site.cluster, "may");
    let other = site.cluster.kubectl("create token may --audience=other");
    for (token, status) in [
        (&*may, 200),
        (&*kept, 200),
        (&*may_read, 403),
        ("", 401),
        (&*forged, 401),
        (other.trim(), 401),
    ] {
        let (got, answer) = ask(&site, Method::POST, "/gc?dry_run=true&wait=60s", token).await;
        assert_eq!(got, status, "{answer}\n{}", site.crisweep.log_tail());
    }
    for (path, status) in [("/metrics", 200), ("/api/v1/status", 403)] {
        assert_eq!(ask(&site, Method::GET, path, &may_read).await.0, status);
        assert_eq!(ask(&site, Method::GET, path, &may).await.0, 200);
    }
    told(&site, &may).await;
    held(&site, &may).await;
    budget(&site, &may).await;
}

/// Returns the account's token that is in a Secret and has no end.
fn kept_token(cluster: &Cluster, account: &str) -> String {
    let account = cluster.try_get(&format!("serviceaccount/{account}"));
    let account = account.unwrap();
    let secret = account["secrets"][0]["name"].as_str().unwrap();
    cluster.kubectl(&format!(
        "get secret {secret} --output=go-template={{{{.data.token|base64decode}}}}"
    ))
}

/// The second pass that removes something is added to the Event of the first.
async fn told(site: &Site, token: &str) {
    let (cluster, workload) = (&site.cluster, Workload::new(&site.cluster));
    for count in 1..=2 {
        let name = format!("done-{count}");
        cluster.apply("default", &[workload.job(&name, "Never", "sleep 1")]);
        cluster.job_is_done("default", &name).await;
        wait_for("the job's records to go", PATIENCE, || async {
            let path = "/gc?target=containers&target=sandboxes&wait=60s";
            let (_, pass) = ask(site, Method::POST, path, token).await;
            match pass["targets"]["containers"]["removed"].as_u64() {
                Some(1..) => Ok(()),
                _ => Err(pass.to_string()),
            }
        })
        .await;
        let event = event(cluster, "GarbageCollected", count).await;
        assert_eq!(event["involvedObject"]["name"], NODE_NAME);
    }
    event(cluster, "ContainerRecordsRemoved", 1).await;
    let described = cluster.kubectl(&format!("describe node {NODE_NAME}"));
    assert!(described.contains("GarbageCollected"), "{described}");
}

/// The switch as docs/fleet.md has it.
async fn held(site: &Site, token: &str) {
    let is = |state: &'static str| async move {
        wait_for(state, PATIENCE, || async {
            let (_, status) = ask(site, Method::GET, "/api/v1/status", token).await;
            let hold = &status["fleet"]["hold"];
            if hold["state"] == state {
                Ok(hold.clone())
            } else {
                Err(status.to_string())
            }
        })
        .await
    };
    is("free").await;
    site.cluster.kubectl(
        "create configmap crisweep-brakes --namespace=crisweep --from-literal=hold=true --from-literal=reason=rollout",
    );
    is("held").await;
    let (status, answer) = ask(site, Method::POST, "/gc", token).await;
    assert_eq!(status, 409, "{answer}");
    assert!(answer.to_string().contains("rollout"), "{answer}");
    site.cluster
        .kubectl("delete configmap crisweep-brakes --namespace=crisweep");
    is("free").await;
}

/// An automatic pass takes one of the chart's Leases, and gives it back.
async fn budget(site: &Site, token: &str) {
    let alert = json!({
        "status": "firing",
        "labels": { "alertname": "Litter", "node": NODE_NAME },
        "annotations": {},
        "startsAt": "2026-01-01T00:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": "1",
    });
    let body = json!({
        "version": "4", "groupKey": "g", "status": "firing", "receiver": "r", "groupLabels": {},
        "commonLabels": {}, "commonAnnotations": {}, "externalURL": "", "alerts": [alert],
    });
    let webhook = site.crisweep.url("/webhook/alertmanager");
    let (status, answer) = send(http::client().post(webhook).json(&body), token).await;
    assert_eq!(status, 202, "{answer}");
    wait_for("a slot to be taken and given back", PATIENCE, || async {
        let leases = site.cluster.try_get("leases --namespace=crisweep")?;
        let leases = leases["items"].as_array().unwrap();
        let was_taken = leases.iter().any(|lease| {
            lease["spec"]["acquireTime"].is_string()
                && lease["spec"]["holderIdentity"]
                    .as_str()
                    .unwrap_or_default()
                    .is_empty()
        });
        if was_taken {
            Ok(())
        } else {
            let (_, status) = ask(site, Method::GET, "/api/v1/status", token).await;
            Err(format!("{leases:?}\n{}", status["fleet"]))
        }
    })
    .await;
}
