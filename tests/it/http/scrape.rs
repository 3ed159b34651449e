//! `GET /metrics`, as Prometheus and promtool see it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crisweep_sim::{Fault, Rpc};
use serde_json::json;

use crate::support::{Answer, Page, Rig, nodes, until};

#[tokio::test]
async fn a_fresh_page_has_at_most_200_samples() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let page = rig.get("/metrics").await.text;
    let samples = page.lines().filter(|line| !line.starts_with('#')).count();
    assert!(samples <= 200, "{samples} samples: {page}");
    // `increase()` misses the event that creates a series, so series whose first event may take weeks exist
    // from the start; the others appear with their first event.
    let first =
        "crisweep_passes_total{target=\"containers\",cause=\"alert\",outcome=\"partial\"} 0";
    assert!(page.contains(first), "{page}");
    for absent in ["cause=\"poll\"", "crisweep_removal_duration_seconds"] {
        assert!(!page.contains(absent), "nothing has happened yet: {page}");
    }
}

#[tokio::test]
async fn the_format_follows_the_accept_header() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, wanted) in [
        (None, text),
        (
            Some("application/openmetrics-text;version=1.0.0"),
            openmetrics,
        ),
    ] {
        let mut request = rig.request("GET", "/metrics");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some(wanted), "{accept:?}");
        let ends = answer.text.ends_with("# EOF\n");
        assert_eq!(ends, wanted == openmetrics, "{accept:?}");
    }
}

#[tokio::test]
async fn the_page_passes_promtool() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    rig.gc("").await;
    let page = rig.get("/metrics").await.text;
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(error) => {
            println!("skipped: promtool cannot be run: {error}");
            return;
        }
    };
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(page.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[tokio::test]
async fn a_node_and_its_passes_are_counted() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let page = rig.metrics().await;
    page.is("cri_up", 1.0);
    page.is("cri_containers{state=\"exited\"}", 3.0);
    page.is("cri_containers{state=\"running\"}", 1.0);
    page.is("cri_pod_sandboxes{state=\"notready\"}", 3.0);
    page.is(
        "crisweep_removable{target=\"containers\",reason=\"pod-deleted\"}",
        3.0,
    );
    page.is(
        "crisweep_removable{target=\"sandboxes\",reason=\"pod-deleted\"}",
        3.0,
    );
    page.is("crisweep_node_info{node=\"node-1\"}", 1.0);
    page.is(
        "crisweep_removals_total{target=\"containers\",reason=\"pod-deleted\"}",
        0.0,
    );
    rig.gc("").await;
    rig.gc("dry_run=true").await;
    let page = rig.metrics().await;
    page.is("cri_containers{state=\"exited\"}", 0.0);
    page.is(
        "crisweep_removals_total{target=\"containers\",reason=\"pod-deleted\"}",
        3.0,
    );
    page.is(
        "crisweep_removals_total{target=\"sandboxes\",reason=\"pod-deleted\"}",
        3.0,
    );
    let passes =
        "crisweep_passes_total{target=\"sandboxes\",cause=\"manual\",outcome=\"completed\"}";
    page.is(passes, 1.0);
    page.is("crisweep_dry_runs_total{cause=\"manual\"}", 1.0);
    page.is("crisweep_pass_duration_seconds_count", 1.0);
    page.is(
        "crisweep_removal_duration_seconds_count{target=\"containers\"}",
        3.0,
    );
    assert!(
        page.get("crisweep_last_pass_timestamp_seconds{outcome=\"completed\"}")
            .is_some()
    );
    assert!(
        page.get("crisweep_last_pass_timestamp_seconds{outcome=\"aborted\"}")
            .is_none()
    );
    assert!(page.sum("crisweep_http_requests_total", "code=\"2xx\"") > 0.0);
}

#[tokio::test]
async fn a_hanging_runtime_cannot_make_a_scrape_late() {
    let rig = Rig::start(nodes::litter(1), json!({ "runtime": { "timeout": "60s" } })).await;
    for (rpc, up) in [(Rpc::Version, None), (Rpc::ListContainers, Some(1.0))] {
        rig.sim.set_fault(rpc, Fault::hang());
        let began = Instant::now();
        let request = rig
            .request("GET", "/metrics")
            .header("x-prometheus-scrape-timeout-seconds", "2");
        let answer = Answer::of(request).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{began:?}");
        assert_eq!(answer.status, 200);
        let page = Page::parse(&answer.text);
        // It was not asked, or it answers: the page must not report it as down.
        assert_eq!(page.get("cri_up"), up);
        let runtime = page.get("crisweep_collector_success{collector=\"runtime\"}");
        assert_eq!(runtime, Some(up.unwrap_or(0.0)));
        page.is("crisweep_collector_success{collector=\"containers\"}", 0.0);
        assert!(page.get("cri_containers{state=\"exited\"}").is_none());
        assert!(
            page.get("crisweep_removable{target=\"containers\",reason=\"superseded\"}")
                .is_none()
        );
        rig.sim.clear_faults();
        rig.ready().await;
    }
}

#[tokio::test]
async fn what_hangs_about_images_hides_nothing_else_from_scrapes() {
    let changes = json!({ "runtime": { "timeout": "8s" }, "collect": { "max_age": "0s" } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    let hang = [
        Rpc::StreamImages,
        Rpc::ListImages,
        Rpc::ImageFsInfo,
        Rpc::Status,
    ];
    for rpc in hang {
        rig.sim.set_fault(rpc, Fault::hang());
    }
    until("the look that found it out has ended", || async {
        let plan = rig.get("/api/v1/plan").await;
        (plan.status == 200).then_some(())
    })
    .await;
    let request = rig
        .request("GET", "/metrics")
        .header("x-prometheus-scrape-timeout-seconds", "9.5");
    let page = Page::parse(&Answer::of(request).await.text);
    page.is("cri_containers{state=\"exited\"}", 1.0);
    page.is("crisweep_collector_success{collector=\"images\"}", 0.0);
    page.is("crisweep_collector_success{collector=\"filesystems\"}", 0.0);
}

#[tokio::test]
async fn a_scrape_waits_for_no_plans_of_other_people() {
    let rig = Rig::start(
        nodes::litter(1_500),
        json!({ "collect": { "max_age": "1h" } }),
    )
    .await;
    let plans = (0..40).map(|_| Answer::try_of(rig.request("GET", "/api/v1/plan")));
    let plans = tokio::spawn(futures_util::future::join_all(plans));
    for _ in 0..5 {
        let request = rig
            .request("GET", "/metrics")
            .header("x-prometheus-scrape-timeout-seconds", "3");
        let page = Page::parse(&Answer::of(request).await.text);
        page.is("cri_up", 1.0);
        page.is("crisweep_collector_success{collector=\"containers\"}", 1.0);
    }
    plans.abort();
}

/// A status for each of 20,000 containers takes seconds, and decides nothing that readiness promises.
#[tokio::test]
async fn the_service_is_ready_once_the_lists_are_read_and_before_all_statuses_are() {
    let rig = Rig::without_runtime(nodes::litter(200), json!({})).await;
    rig.sim.set_fault(Rpc::ContainerStatus, Fault::hang());
    rig.sim.start().unwrap();
    rig.listed().await;
    // The look gives up once 64 calls hang, more than three seconds after its first.
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    assert!(asked < 64, "ready only at the end of the look");
    rig.sim.clear_fault(Rpc::ContainerStatus);
}

#[tokio::test]
async fn scrapes_of_one_look_share_its_part_of_the_page_and_not_the_services_own_figures() {
    let mut rig = Rig::start(nodes::litter(3), json!({ "collect": { "max_age": "1h" } })).await;
    let first = rig.metrics().await;
    let dead = "cri_containers{state=\"exited\"}";
    let requests = "crisweep_http_requests_total{endpoint=\"metrics\",code=\"2xx\"}";
    let lists = rig.sim.call_count(Rpc::ListContainers);
    let second = rig.metrics().await;
    assert_eq!(second.get(dead), first.get(dead));
    assert!(second.get(requests) > first.get(requests));
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), lists);
    // What the page says must follow the configuration in force, whatever the age of the look.
    let removable = |page: &Page| page.sum("crisweep_removable", "target=\"containers\"");
    assert!(removable(&second) > 0.0);
    rig.configure(&json!({ "policy": { "containers": { "min_age": "1000h" } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    assert!(removable(&rig.metrics().await) < 0.5);
}
