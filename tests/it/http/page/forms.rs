//! The page's forms: who may send them, and where they lead.

use std::fs;

use crisweep_sim::{Fault, Rpc};
use serde_json::{Value, json};

use super::{browser, refused_as_page, words};
use crate::support::{Answer, Rig, nodes};

#[tokio::test]
async fn a_form_leads_a_browser_to_the_pass_and_a_program_stays_as_it_was() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let answer = Answer::of(browser(&rig, "POST", "/gc?dry_run=true")).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let page = answer.header("location").unwrap().to_owned();
    let id = page.strip_prefix("./?pass=").unwrap();
    let id = id.strip_suffix("#pass").unwrap().to_owned();
    rig.finished(&id).await;
    let shown = words(&rig.get(&format!("/?pass={id}")).await.text);
    assert!(shown.contains("was a dry run"), "{shown}");
    // curl's usual header.
    let program = rig.request("POST", "/gc?dry_run=true");
    let answer = Answer::of(program.header("accept", "*/*")).await;
    assert_eq!(answer.status, 202);
    assert!(
        answer
            .header("location")
            .unwrap()
            .starts_with("/api/v1/passes/")
    );
}

#[tokio::test]
async fn behind_a_reverse_proxy_the_page_may_be_below_any_path() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.gc("target=containers").await;
    let pass = rig.passes().await[0]["id"].as_str().unwrap().to_owned();
    let own = [
        "/?confirm=pass",
        "/?doctor=true",
        "/?q=none",
        "/?evidence=1",
    ]
    .map(str::to_owned);
    for path in own.into_iter().chain([format!("/?pass={pass}")]) {
        let page = Answer::of(browser(&rig, "GET", &path)).await.text;
        assert!(page.contains("href=\"./"), "{page}");
        for absolute in ["href=\"/", "action=\"/", "url=/", "EventSource(\"/"] {
            assert!(!page.contains(absolute), "{path}: {absolute} in {page}");
        }
    }
    for (path, back) in [
        ("/gc?target=none", "./"),
        ("/api/v1/passes/none/cancel", "./../../../../"),
    ] {
        let page = Answer::of(browser(&rig, "POST", path)).await.text;
        assert!(page.contains(&format!("href=\"{back}\"")), "{page}");
    }
}

/// Sends a form of the page.
async fn form(rig: &Rig, body: &'static str) -> Answer {
    let request = browser(rig, "POST", "/gc").body(body);
    Answer::of(request.header("content-type", "application/x-www-form-urlencoded")).await
}

#[tokio::test]
async fn a_pass_of_the_page_is_for_what_is_ticked_and_none_is_none() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let page = rig.get("/?confirm=pass").await.text;
    let (start, end) = (page.find("action=\"gc\"").unwrap(), page.len());
    let form_of_pass = &page[start..start + page[start..end].find("</form>").unwrap()];
    assert_eq!(
        form_of_pass.matches(" checked").count(),
        4,
        "{form_of_pass}"
    );
    assert!(form_of_pass.contains("id=\"confirmed\""), "{form_of_pass}");
    let refused = form(&rig, "ticked=true").await;
    refused_as_page(&refused, 400, "nothing is ticked");
    let page = words(&rig.get("/?confirm=pass&ticked=true").await.text);
    assert!(page.contains("Nothing is ticked."), "{page}");
    assert!(rig.passes().await.is_empty());
    let answer = form(&rig, "ticked=true&target=containers").await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let page = answer.header("location").unwrap().to_owned();
    let id = page.strip_prefix("./?pass=").unwrap();
    let pass = rig.finished(id.strip_suffix("#pass").unwrap()).await;
    let targets: Vec<_> = pass["targets"].as_object().unwrap().keys().collect();
    assert_eq!(targets, ["containers"], "{pass:#}");
    // What curl -d sends is JSON, whatever the header says.
    let program = rig.request("POST", "/gc").body("{\"dry_run\": true}");
    let program = program.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(Answer::of(program).await.status, 202);
}

#[tokio::test]
async fn a_running_pass_is_cancelled_by_a_form() {
    let changes = json!({ "gc": { "batch_size": 1, "max_concurrency": 1 } });
    let rig = Rig::start(nodes::litter(4), changes).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("").await;
    rig.removing().await;
    let path = format!("/api/v1/passes/{id}/cancel");
    let answer = Answer::of(browser(&rig, "POST", &path)).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let page = answer.header("location").unwrap();
    assert_eq!(page, format!("./../../../../?pass={id}#pass"));
    rig.sim.clear_faults();
    assert_eq!(rig.finished(&id).await["outcome"], "aborted");
    let answer = Answer::of(browser(&rig, "POST", &path)).await;
    refused_as_page(&answer, 409, "already done");
    rig.post(&path).await.refused(409, "already done");
    rig.post("/api/v1/passes/none/cancel")
        .await
        .refused(404, "none");
}

#[tokio::test]
async fn forms_of_other_pages_and_of_nameless_ones_are_refused_as_pages() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let accept = "text/html,*/*";
    for path in [
        "/gc",
        "/gc?dry_run=true",
        "/api/v1/passes/none/cancel",
        "/-/reload",
    ] {
        for (header, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("host", "evil.example"),
            // Neither header: no browser of today.
            ("x-none", "none"),
        ] {
            let request = rig.request("POST", path).header("accept", accept);
            let answer = Answer::of(request.header(header, value)).await;
            refused_as_page(&answer, 403, "Forbidden");
            assert!(answer.header("content-security-policy").is_some());
        }
    }
    assert!(rig.passes().await.is_empty());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_paused_node_says_so_before_and_after_the_button() {
    let rig = Rig::start(nodes::litter(1), json!({ "brakes": { "pause": true } })).await;
    let page = rig.get("/?confirm=pass").await.text;
    assert!(page.contains("name=\"force\" value=\"true\""), "{page}");
    let answer = Answer::of(browser(&rig, "POST", "/gc")).await;
    refused_as_page(&answer, 409, "paused");
    rig.nothing_was_touched();
}

fn tokens(dir: &std::path::Path) -> Value {
    let write = |name: &str, token: &str| {
        let path = dir.join(name);
        fs::write(&path, token).unwrap();
        path
    };
    json!({ "read": [write("people", "may-read")], "act": [write("operators", "may-act")] })
}

#[tokio::test]
async fn a_token_is_the_password_of_the_user_token() {
    let dir = tempfile::tempdir().unwrap();
    let files = tokens(dir.path());
    let rig = Rig::start(
        nodes::litter(1),
        json!({ "web": { "bearer_token_files": files } }),
    )
    .await;
    let ask = async |user: &str, password: &str, method: &str, path: &str| {
        let request = browser(&rig, method, path).basic_auth(user, Some(password));
        Answer::of(request).await
    };
    assert_eq!(ask("token", "may-read", "GET", "/").await.status, 200);
    assert_eq!(ask("token", "may-act", "GET", "/").await.status, 200);
    let answer = ask("token", "may-read", "POST", "/gc?dry_run=true").await;
    refused_as_page(&answer, 403, "may read, but not act");
    assert_eq!(
        ask("token", "may-act", "POST", "/gc?dry_run=true")
            .await
            .status,
        303
    );
    for (user, password) in [
        ("token", "wrong"),
        ("token", ""),
        ("ops", "may-act"),
        ("", "may-act"),
    ] {
        assert_eq!(
            ask(user, password, "GET", "/").await.status,
            401,
            "{user} {password}"
        );
    }
    let passes = rig.request("GET", "/api/v1/passes").bearer_auth("may-read");
    let passes = Answer::of(passes).await.json();
    let by = json!({ "kind": "token", "name": "operators" });
    assert_eq!(passes["passes"][0]["trigger"]["by"], by);
    // The page tells who may only read.
    let page = ask("token", "may-read", "GET", "/").await.text;
    assert!(words(&page).contains("You may look, not act"), "{page}");
}

#[tokio::test]
async fn only_browsers_are_asked_for_a_token_as_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let act = tokens(dir.path())["act"].clone();
    let files = json!({ "web": { "bearer_token_files": { "act": act } } });
    let rig = Rig::start(nodes::litter(1), files).await;
    let challenges = |answer: &Answer| {
        let all = answer.headers.get_all("www-authenticate").iter();
        all.map(|it| it.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let answer = Answer::of(browser(&rig, "POST", "/gc")).await;
    refused_as_page(&answer, 401, "needs a credential");
    let basic = "Basic realm=\"crisweep\", charset=\"UTF-8\"";
    assert_eq!(challenges(&answer), [basic, "Bearer realm=\"crisweep\""]);
    let answer = rig.post("/gc").await;
    answer.refused(401, "needs a credential");
    assert_eq!(challenges(&answer), ["Bearer realm=\"crisweep\""]);
    let page = words(&rig.get("/").await.text);
    assert!(page.contains("Your browser will ask for"), "{page}");
    assert!(page.contains("Dry run"), "{page}");
}

#[tokio::test]
async fn a_reader_who_may_not_act_sees_how_to_and_no_button() {
    let Some(own) = crate::http::guard::own_address() else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    let mut rig = Rig::start(
        nodes::litter(1),
        json!({ "web": { "listen": ["0.0.0.0:0"] } }),
    )
    .await;
    let page = rig.get("/").await.text;
    assert!(page.contains("id=\"dry-run\""), "{page}");
    let port = rig.address.rsplit_once(':').unwrap().1.to_owned();
    rig.service.address = format!("{own}:{port}");
    let page = rig.get("/").await.text;
    assert!(!page.contains("method=\"post\""), "{page}");
    let page = words(&page);
    assert!(
        page.contains("crisweep gc --dry-run # plans only"),
        "{page}"
    );
    rig.service.address = format!("127.0.0.1:{port}");
}
