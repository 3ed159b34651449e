//! Quarantined sandboxes, as plan, status and page show them.

use crisweep_sim::Fault;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Rig, nodes};

const WORDS: &str = r#"plugin said: <script>alert("1")</script> & more"#;

/// A node where 25 sandboxes failed, with hostile error texts.
async fn rig() -> Rig {
    let changes = json!({ "gc": { "failure_ratio": 0 }, "quarantine": { "base": "1h" } });
    let rig = Rig::start(nodes::leaks(25), changes).await;
    for number in 0..25 {
        let id = rig.sim.sandbox_id(&format!("default/leak-{number}#0"));
        let fault = Fault::fail(Code::Unknown, WORDS);
        rig.sim.set_removal_fault(&id.unwrap(), fault);
    }
    rig.gc("").await;
    rig
}

#[tokio::test]
async fn the_plan_shows_error_and_next_try_of_each_quarantined_sandbox() {
    let rig = rig().await;
    let plan = rig.get("/api/v1/plan?target=sandboxes").await.json();
    let kept = plan["kept"].as_array().unwrap();
    let of = |reason: &str| -> Vec<&Value> {
        let with = kept.iter().filter(|kept| kept["reason"] == reason);
        with.map(|kept| &kept["quarantine"]).collect()
    };
    let quarantined = of("quarantined");
    assert_eq!(quarantined.len(), 25);
    for known in quarantined {
        assert_eq!(
            (&known["failures"], &known["class"]),
            (&json!(1), &json!("other"))
        );
        assert!(known["error"].as_str().unwrap().contains(WORDS), "{known}");
        let next_try: jiff::Timestamp = known["next_try"].as_str().unwrap().parse().unwrap();
        let taken_at: jiff::Timestamp = plan["taken_at"].as_str().unwrap().parse().unwrap();
        assert!(next_try > taken_at);
    }
    assert_eq!(of("ready"), [&Value::Null]);
}

#[tokio::test]
async fn the_status_lists_the_first_of_them() {
    let rig = rig().await;
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["quarantined_sandboxes"], json!({ "other": 25 }));
    let listed = status["quarantine"].as_array().unwrap();
    assert_eq!(listed.len(), 20);
    let pods = listed.iter().map(|entry| entry["pod"]["name"].as_str());
    assert!(
        pods.into_iter()
            .all(|pod| pod.unwrap().starts_with("leak-"))
    );
    assert!(listed[0]["error"].as_str().unwrap().contains(WORDS));
    let times = listed.iter().map(|e| e["next_try"].as_str().unwrap());
    let times: Vec<jiff::Timestamp> = times.map(|time| time.parse().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    // A sandbox that the runtime no longer has is not shown.
    let first = listed[0]["id"].as_str().unwrap().to_owned();
    rig.sim.change(|node| node.vanish_sandbox(&first));
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["quarantined_sandboxes"], json!({ "other": 24 }));
}

#[tokio::test]
async fn the_page_shows_the_runtimes_words_as_text() {
    let rig = rig().await;
    let page = rig.get("/").await.text;
    let (_, part) = page.split_once("id=\"quarantine\"").unwrap();
    let (part, _) = part.split_once("</section>").unwrap();
    assert!(part.contains("the runtime fails 25"), "{part}");
    assert_eq!(part.matches("default/leak-").count(), 20, "{part}");
    let words = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; more";
    assert!(part.contains(words), "{part}");
    assert!(!part.contains("<script"), "{part}");
}
