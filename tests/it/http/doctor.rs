//! `GET /api/v1/doctor`: the causes of litter.

use std::fs;

use crisweep_sim::{Fault, NodeBuilder, PodSpec, Rpc, hours, minutes};
use serde_json::{Value, json};

use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes};

fn node() -> NodeBuilder {
    let crash = PodSpec::new("crash")
        .namespace("shop")
        .failed("app", 5, minutes(8))
        .failed("app", 6, minutes(4))
        .failed("app", 7, minutes(1));
    nodes::litter(30).pod(crash)
}

async fn doctor(rig: &Rig) -> Value {
    let answer = rig.get("/api/v1/doctor").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn found<'a>(report: &'a Value, id: &str) -> Option<&'a Value> {
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.find(|it| it["id"] == id)
}

#[tokio::test]
async fn causes_are_found_and_nothing_is_touched() {
    let rig = Rig::start(node(), json!({})).await;
    let report = doctor(&rig).await;
    assert_eq!(report["node"], "node-1");
    let litter = found(&report, "litter").unwrap();
    let dead = litter["details"]["total"]["dead_containers"]
        .as_u64()
        .unwrap();
    assert_eq!(dead, rig.exited_containers() as u64);
    assert_eq!(
        found(&report, "crash-loop").unwrap()["details"]["container"],
        "app"
    );
    assert!(
        found(&report, "kubelet-restart").unwrap()["details"]["statuses_asked"].as_u64()
            >= Some(20)
    );
    for finding in report["findings"].as_array().unwrap() {
        for field in ["id", "severity", "summary", "change"] {
            assert!(
                finding[field].as_str().is_some_and(|it| !it.is_empty()),
                "{finding}"
            );
        }
        assert!(finding["details"].is_object(), "{finding}");
    }
    rig.get("/api/v1/doctor?x=1")
        .await
        .refused(400, "unknown parameter");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn what_was_removed_still_counts_as_grown() {
    let rig = Rig::start(node(), json!({})).await;
    let before = doctor(&rig).await;
    let came = |report: &Value| {
        let rows = report["top"]["namespaces"].as_array().unwrap().iter();
        rows.map(|it| it["came_24h"].as_u64().unwrap()).sum::<u64>()
    };
    let lying = |report: &Value| {
        let rows = report["top"]["namespaces"].as_array().unwrap().iter();
        rows.map(|it| it["dead_containers"].as_u64().unwrap())
            .sum::<u64>()
    };
    let pass = rig.post("/gc?wait=60s&target=containers").await.json();
    assert!(
        pass["targets"]["containers"]["removed"].as_u64() > Some(0),
        "{pass}"
    );
    let after = doctor(&rig).await;
    assert!(lying(&after) < lying(&before));
    assert_eq!(came(&after), came(&before));
}

#[tokio::test]
async fn a_kubelet_that_answers_refuses_or_hangs_is_told() {
    let server = PodServer::plain().await;
    let changes = json!({
        "runtime": { "timeout": "2s" },
        "pods": { "source": "kubelet", "file": null, "kubelet_url": format!("http://{}", server.address) },
    });
    let rig = Rig::start(nodes::litter(3), changes).await;
    server.reply(Reply::json(&rig.sim.pods_json()));
    let config = json!({ "kubeletconfig": { "imageGCHighThresholdPercent": 77 } }).to_string();
    for (reply, wanted) in [
        (Reply::json(&config), None),
        (Reply::status("403 Forbidden"), Some("nodes/configz")),
        (Reply::status("401 Unauthorized"), Some("refuses")),
        (Reply::silence(), Some("no answer to /configz in time")),
        (Reply::stall(&config), Some("no answer to /configz in time")),
        (Reply::json("{}"), Some("no kubeletconfig")),
        (Reply::flood(true), Some("larger than 1048576 bytes")),
    ] {
        server.reply_to("GET /configz", reply);
        let report = doctor(&rig).await;
        let kubelet = &report["kubelet"];
        match wanted {
            None => assert_eq!(
                kubelet["settings"]["imageGCHighThresholdPercent"],
                json!({ "value": 77, "from": "configz" })
            ),
            Some(words) => {
                let missing = kubelet["missing"].to_string();
                assert!(missing.contains(words), "{words}: {missing}");
            }
        }
    }
    rig.nothing_was_touched();
}

#[tokio::test]
async fn the_kubelets_command_line_and_file_are_read_below_the_hosts_root() {
    let host = tempfile::tempdir().unwrap();
    let process = host.path().join("proc/812");
    fs::create_dir_all(&process).unwrap();
    fs::write(
        process.join("cmdline"),
        "/usr/bin/kubelet\0--config=/k.yaml\0",
    )
    .unwrap();
    let file = "kind: KubeletConfiguration\nmaximumDeadContainers: 100\n";
    fs::write(host.path().join("k.yaml"), file).unwrap();
    let changes = json!({ "runtime": { "host_root": host.path() } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    let report = doctor(&rig).await;
    assert_eq!(
        report["kubelet"]["source"],
        "command line of process 812, /k.yaml"
    );
    let ignored = found(&report, "kubelet-ignored-key").unwrap();
    assert_eq!(ignored["severity"], "problem");
    assert_eq!(ignored["details"]["key"], "maximumDeadContainers");
}

#[tokio::test]
async fn hostile_names_stay_one_line_of_text() {
    let name = "a\u{1b}[2J\u{202e}\nb";
    let bad = PodSpec::new(name)
        .namespace("ns\u{7}")
        .exited("app", 6, minutes(2))
        .exited("app", 7, minutes(1));
    let rig = Rig::start(nodes::litter(30).pod(bad), json!({})).await;
    let answer = rig.get("/api/v1/doctor").await;
    assert_eq!(answer.status, 200);
    for raw in ['\u{1b}', '\u{202e}', '\u{7}'] {
        assert!(!answer.text.contains(raw), "{raw:?}");
    }
    let report = answer.json();
    let change = found(&report, "crash-loop").unwrap()["change"].to_string();
    assert!(!change.contains("kubectl -n"), "{change}");
}

#[tokio::test]
async fn a_runtime_that_gives_no_status_costs_its_figures_alone() {
    let rig = Rig::start(
        nodes::litter(2).pod(PodSpec::new("old").exited("app", 0, hours(2))),
        json!({}),
    )
    .await;
    rig.sim.set_fault(Rpc::ContainerStatus, Fault::hang());
    let report = doctor(&rig).await;
    assert!(
        found(&report, "kubelet-restart").is_some(),
        "the time it hung counts"
    );
    assert!(!report["top"]["owners"].as_array().unwrap().is_empty());
}
