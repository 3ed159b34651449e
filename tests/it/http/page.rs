//! `GET /`: the page for people, its forms, and its live events.

mod events;
mod forms;

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::raw::exchange;
use crate::support::{Answer, Rig, nodes};

/// The largest page, however much the node has.
const PAGE_MAX_BYTES: usize = 300 << 10;

/// What a browser says that it wants.
pub(super) fn browser(rig: &Rig, method: &str, path: &str) -> reqwest::RequestBuilder {
    let request = rig.request(method, path);
    let request = request.header("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let origin = format!("http://{}", rig.address);
    request
        .header("origin", origin)
        .header("sec-fetch-site", "same-origin")
}

/// The text of a page, without its marks.
pub(super) fn words(page: &str) -> String {
    let body = page.split_once("<body>").unwrap().1;
    let body = body.split_once("<script>").unwrap().0;
    let mut text = String::new();
    let mut is_mark = false;
    for c in body.chars() {
        match c {
            '<' => is_mark = true,
            '>' => {
                is_mark = false;
                text.push(' ');
            }
            c if !is_mark => text.push(c),
            _ => {}
        }
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

async fn page(rig: &Rig, path: &str) -> String {
    let answer = rig.get(path).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.len() < PAGE_MAX_BYTES, "{}", answer.text.len());
    words(&answer.text)
}

#[track_caller]
fn has(page: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(page.contains(wanted), "{wanted:?} is not in: {page}");
    }
}

/// Returns how many objects the plan has.
async fn objects(rig: &Rig) -> usize {
    let plan = rig.get("/api/v1/plan").await.json();
    let count = |list: &str| plan[list].as_array().unwrap().len();
    count("removals") + count("kept")
}

#[tokio::test]
async fn the_first_sentence_is_the_judgement_of_the_check() {
    let marks =
        json!({ "exited_containers": 5, "not_ready_sandboxes": 3, "image_fs_used_percent": 0 });
    let rig = Rig::start(nodes::litter(4), json!({ "thresholds": marks })).await;
    let text = page(&rig, "/").await;
    has(
        &text,
        &[
            "Not healthy: 4 dead sandboxes",
            "node-1",
            "enforce : passes remove",
        ],
    );
    rig.gc("").await;
    has(
        &page(&rig, "/").await,
        &["Healthy: 0 exited, 0 dead sandboxes"],
    );
    let answer = rig.get("/").await;
    assert!(
        answer.text.contains("<title>Healthy: 0 exited"),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn a_runtime_that_is_away_is_told_and_no_plan_is_shown() {
    let rig = Rig::without_runtime(nodes::healthy(), json!({})).await;
    let text = page(&rig, "/").await;
    has(
        &text,
        &[
            "Not known whether healthy: runtime gives no answer",
            "What a pass would do is not known",
        ],
    );
    assert_eq!(text.matches("no connection to").count(), 1, "once: {text}");
}

#[tokio::test]
async fn the_mode_and_a_pause_stand_in_words() {
    for (changes, wanted) in [
        (json!({ "mode": "observe" }), "observe : passes only plan"),
        (
            json!({ "brakes": { "pause": true } }),
            "paused : only a forced pass removes",
        ),
    ] {
        let rig = Rig::start(nodes::healthy(), changes).await;
        has(&page(&rig, "/").await, &[wanted]);
    }
}

#[tokio::test]
async fn the_plan_in_words_is_that_of_the_api() {
    let rig = Rig::start(nodes::litter(7), json!({})).await;
    let plan = rig.get("/api/v1/plan").await.json();
    let count = |list: &str| plan[list].as_array().unwrap().len();
    let text = page(&rig, "/").await;
    let head = format!(
        "A pass now would remove {} and keep {}",
        count("removals"),
        count("kept")
    );
    has(
        &text,
        &[&head, "containers 7 : pod-deleted 7 1 : running 1"],
    );
    let text = page(&rig, "/?confirm=pass").await;
    has(
        &text,
        &[
            "Remove 7 containers and 7 sandboxes on node-1?",
            "Remove what is ticked",
        ],
    );
    let text = page(&rig, "/?confirm=pass&target=containers").await;
    has(
        &text,
        &["Remove 7 containers on node-1?", "Remove what is ticked"],
    );
}

#[tokio::test]
async fn objects_are_found_by_names_ids_and_reasons_and_explained() {
    let rig = Rig::start(nodes::litter(12), json!({})).await;
    let id = rig.sim.container_id("default/old-11/app#0").unwrap();
    let all = objects(&rig).await;
    let of = |count: usize| format!("{count} of {all} ");
    has(
        &page(&rig, "/?q=old-11").await,
        &[&of(2), "default/old-11", "container app#0"],
    );
    has(
        &page(&rig, &format!("/?q={}", &id[..12])).await,
        &[&of(1), "pod-deleted"],
    );
    has(
        &page(&rig, "/?q=ready&target=sandboxes").await,
        &[&of(1), "default/web", "stays"],
    );
    has(
        &page(&rig, "/?q=nothing-like-it").await,
        &["Nothing matches"],
    );
    // Eight words count, however many a search holds.
    let many = "old-11+".repeat(8) + &"zz+".repeat(40);
    has(&page(&rig, &format!("/?q={many}")).await, &[&of(2)]);

    let sandbox = rig.sim.sandbox_id("default/web#0").unwrap();
    let text = page(&rig, &format!("/?explain={sandbox}")).await;
    let api = rig.get(&format!("/api/v1/explain/{sandbox}")).await.json();
    has(&text, &["Why sandbox", "stays", "What would let it go"]);
    for change in api["would_change"].as_array().unwrap() {
        let what = change["what"].as_str().unwrap();
        assert!(text.contains(what), "{what}: {text}");
    }
    has(
        &page(&rig, "/?explain=default/old-3").await,
        &["Pod default/old-3", "pod-deleted"],
    );
    has(
        &page(&rig, "/?explain=zzzzzz").await,
        &["No explanation", "nothing on this node"],
    );
}

#[tokio::test]
async fn a_large_node_makes_no_large_page_and_says_what_is_left_out() {
    let changes = json!({ "runtime": { "timeout": "60s" }, "collect": { "max_age": "10m" } });
    let rig = Rig::start(nodes::litter(1_500), changes).await;
    let all = objects(&rig).await;
    let told = |count: usize| format!("{},{:03}", count / 1_000, count % 1_000);
    let head = format!("{0} of {0}, page 1 of 31", told(all));
    has(
        &page(&rig, "/").await,
        &[&head, &format!("{} more", told(all - 100))],
    );
    let text = page(&rig, "/?page=31").await;
    has(&text, &["page 31 of 31", "Previous 100"]);
    assert!(!text.contains(" more Past"), "{text}");
    has(&page(&rig, "/?page=99999").await, &["page 31 of 31"]);
}

#[tokio::test]
async fn passes_are_shown_with_before_and_after_and_in_detail() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    has(&page(&rig, "/").await, &["No pass yet"]);
    rig.gc("dry_run=true").await;
    has(
        &page(&rig, "/").await,
        &[
            "Last pass was a dry run: nothing was removed",
            "It would remove 3 containers",
        ],
    );
    let pass = rig.gc("").await;
    let text = page(&rig, "/").await;
    has(
        &text,
        &[
            "Last pass did all that it planned",
            "It removed 3 containers and 3 sandboxes.",
            "exited containers 3 0 −3",
            "3 → 0",
        ],
    );
    let text = page(&rig, &format!("/?pass={}", pass["id"].as_str().unwrap())).await;
    has(
        &text,
        &[
            "By target",
            "lines of progress",
            "containers 3 3 0 0 pod-deleted 3",
        ],
    );
    has(&page(&rig, "/?pass=none").await, &["No such pass"]);
}

#[tokio::test]
async fn evidence_is_listed_and_its_log_is_shown_as_text() {
    let rig = Rig::start(nodes::litter(2), json!({ "evidence": { "enabled": true } })).await;
    has(&page(&rig, "/").await, &["None is kept."]);
    rig.gc("").await;
    let text = page(&rig, "/").await;
    has(&text, &["default/old-0 app#0", "default/old-1 app#0"]);
    let text = page(&rig, "/?pod=old-1").await;
    assert!(!text.contains("default/old-0 app"), "{text}");
    let number =
        rig.get("/api/v1/evidence?pod=old-1").await.json()["evidence"][0]["number"].clone();
    let text = page(&rig, &format!("/?evidence={number}")).await;
    has(
        &text,
        &["Container app#0 of default/old-1", "The end of its log"],
    );
    has(&page(&rig, "/?evidence=999").await, &["No such evidence"]);
}

#[tokio::test]
async fn a_query_that_is_not_understood_is_named() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    for (query, words) in [
        ("x=1", "unknown parameter"),
        ("show=x", "is none of all, goes, stays"),
        ("q=a&q=b", "twice"),
    ] {
        let path = format!("/?{query}");
        rig.get(&path).await.refused(400, words);
        let answer = Answer::of(browser(&rig, "GET", &path)).await;
        refused_as_page(&answer, 400, words);
        assert!(answer.header("content-security-policy").is_some());
    }
}

/// Markup, quotes, bidirectional text, a colour, a line break.
const NAME: &str = "x\"'><script>alert(1)<b>\u{202e}\u{1b}[31m\nFORGED";

#[tokio::test]
async fn hostile_names_and_texts_stay_text_in_every_view() {
    let pod = PodSpec::new(NAME).exited(NAME, 0, hours(3)).deleted();
    let leak = PodSpec::new("leak").without_sandbox();
    let leak = leak.leaked_sandbox(0, hours(3)).deleted();
    let node = nodes::healthy().pod(pod).pod(leak);
    let rig = Rig::start(node, json!({ "evidence": { "enabled": true } })).await;
    let container = rig
        .sim
        .container_id(&format!("default/{NAME}/{NAME}#0"))
        .unwrap();
    let tame = |page: &str| {
        assert_eq!(page.matches("<script>").count(), 1, "{page}");
        assert!(!page.contains(['\u{202e}', '\u{1b}']), "{page}");
        assert!(
            !page.lines().any(|line| line.starts_with("FORGED")),
            "{page}"
        );
    };
    let url = |text: &str| crisweep::model::escape::url(text);
    let name = url(NAME);
    for path in [
        "/".to_owned(),
        format!("/?q={name}"),
        format!("/?explain={container}"),
        format!("/?explain={name}"),
        format!("/?pass={name}"),
        format!("/?evidence={name}"),
        format!("/?pod={name}"),
        format!("/?{name}=1"),
        format!("/?target={name}"),
    ] {
        tame(&Answer::of(browser(&rig, "GET", &path)).await.text);
    }
    rig.sim
        .set_fault(Rpc::RemovePodSandbox, Fault::fail(Code::Internal, NAME));
    let pass = rig.gc("").await;
    for path in [
        "/".to_owned(),
        format!("/?pass={}", pass["id"].as_str().unwrap()),
        "/?evidence=1".to_owned(),
    ] {
        let text = rig.get(&path).await.text;
        tame(&text);
        assert!(text.contains("&lt;script&gt;alert(1)"), "{path}: {text}");
    }
}

#[tokio::test]
async fn the_policy_allows_the_pages_own_style_and_script_and_nothing_else() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let answer = rig.get("/").await;
    let policy = answer.header("content-security-policy").unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    for part in [
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "connect-src 'self'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
        let (_, rest) = answer.text.split_once(&format!("<{element}>")).unwrap();
        let (text, _) = rest.split_once(&format!("</{element}>")).unwrap();
        assert!(
            policy.contains(&format!("{directive} 'sha256-{}'", sha256(text))),
            "{policy}"
        );
    }
    // Neither is allowed by a digest.
    for forbidden in [" style=", " onclick=", "javascript:", "http://", "https://"] {
        assert!(!answer.text.contains(forbidden), "{forbidden}");
    }
    assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
}

fn sha256(text: &str) -> String {
    use base64::Engine;
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::prelude::BASE64_STANDARD.encode(digest)
}

#[tokio::test]
async fn a_page_from_a_young_look_asks_the_runtime_nothing() {
    let rig = Rig::start(nodes::litter(3), json!({ "collect": { "max_age": "10m" } })).await;
    page(&rig, "/").await;
    let before = rig.sim.calls_of(Rpc::ListContainers).len();
    for path in ["/", "/?q=old", "/?confirm=pass", "/?explain=default/old-1"] {
        page(&rig, path).await;
    }
    assert_eq!(rig.sim.calls_of(Rpc::ListContainers).len(), before);
}

#[tokio::test]
async fn the_page_reloads_itself_without_javascript_only_while_a_pass_runs() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let refresh = "http-equiv=\"refresh\"";
    assert!(!rig.get("/").await.text.contains(refresh));
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("").await;
    rig.removing().await;
    let answer = rig.get("/").await;
    assert!(answer.text.contains(refresh));
    has(
        &words(&answer.text),
        &["A pass removes now", "Cancel this pass"],
    );
    rig.sim.clear_faults();
    rig.finished(&id).await;
    assert!(!rig.get("/").await.text.contains(refresh));
}

/// Used by `forms` too: a refusal as a page.
#[track_caller]
pub(super) fn refused_as_page(answer: &Answer, status: u16, wanted: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(
        answer.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(answer.text.contains(wanted), "{}", answer.text);
}

#[tokio::test]
async fn the_causes_of_litter_are_looked_for_where_they_are_asked_for() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    has(
        &page(&rig, "/").await,
        &["Why litter piles up Look for the causes"],
    );
    let report = rig.get("/api/v1/doctor").await.json();
    let text = page(&rig, "/?doctor=true").await;
    has(
        &text,
        &["The change that would stop it", "3 dead containers"],
    );
    assert!(!report["findings"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_head_has_no_body() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let request = b"HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let (status, body) = exchange(&rig.address, request).await;
    assert_eq!((status, body.as_str()), (200, ""));
    let _: Value = rig.get("/api/v1/status").await.json();
}
