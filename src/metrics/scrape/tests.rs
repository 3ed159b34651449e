//! The whole page of a known node, and what must hold of any page.

mod node;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::gc::Policy;
use crate::gc::knowledge::Knowledge;
use crate::model::{
    Cause, Container, ContainerId, ContainerState, KeepReason, Outcome, Pods, PodsUnknown,
    RemoveReason, Snapshot,
};
use crate::runtime::ListMode;
use node::{container, hours_ago, listed, look, metrics, plan, quarantined, refused};

/// Adds how far the look's pods are believed.
fn judged(look: &Look) -> (&Look, SourceState) {
    let of = |it: Snapshot| Knowledge::of(&it, &Policy::default()).source_state();
    let pods = look.snapshot(BTreeMap::new());
    (look, pods.map_or_else(|_| (&look.pods).into(), of))
}

fn page_of(look: Option<&Look>, format: Format) -> String {
    let (metrics, plan, quarantined) = (metrics(), plan(), quarantined());
    let plan = look.is_some().then_some(&plan);
    let part = NodePart::of(&PageInput {
        look: look.map(judged),
        version: None,
        plan,
        quarantined: &quarantined,
        thresholds: &node::thresholds(),
    });
    render(&part.unwrap(), &metrics, format).unwrap()
}

/// Masks what differs between runs: the figures of the test's own process, and the build.
fn masked(page: &str) -> String {
    let mask = |line: &str| match line.split_once(' ') {
        Some((name, _)) if name.starts_with("process_") => format!("{name} (masked)\n"),
        Some(_) if line.starts_with("crisweep_build_info{") => {
            "crisweep_build_info{(masked)} 1\n".to_owned()
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(mask).collect()
}

/// Parses a text page as strictly as Prometheus: each sample belongs to the last announced family, and no
/// sample or family comes twice. Returns the samples.
fn parse(page: &str) -> BTreeMap<String, String> {
    let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
    let (mut helped, mut family, mut kind) = ("", "", "");
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !help.ends_with('.'), "{line}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').unwrap();
            assert_eq!(family, helped);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
            assert!(families.insert(family), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let suffix = name
                .strip_prefix(family)
                .unwrap_or_else(|| panic!("{line} in {family}"));
            let allowed: &[&str] = match kind {
                "histogram" => &["_sum", "_count", "_bucket"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let old = samples.insert(series.to_owned(), value.to_owned());
            assert_eq!(old, None, "twice: {line}");
        }
    }
    samples
}

#[test]
fn openmetrics_page_of_a_known_node() {
    insta::assert_snapshot!(masked(&page_of(Some(&look()), Format::OpenMetrics)));
}

#[test]
fn text_page_of_a_known_node() {
    insta::assert_snapshot!(masked(&page_of(Some(&look()), Format::Text)));
}

#[test]
fn text_page_of_a_node_that_could_not_be_looked_at() {
    insta::assert_snapshot!(masked(&page_of(None, Format::Text)));
}

#[test]
fn both_formats_hold_the_same_samples() {
    let samples = |format| {
        let page = masked(&page_of(Some(&look()), format));
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let text = samples(Format::Text);
    assert!(text.len() > 100);
    assert_eq!(text, samples(Format::OpenMetrics));
}

#[test]
fn text_page_is_well_formed() {
    let samples = parse(&page_of(Some(&look()), Format::Text));
    let hostile = r#"cri_namespace_exited_containers{namespace="a \"quoted\\name\"\nspace"}"#;
    assert!(
        !samples.contains_key(hostile),
        "the eleventh and twelfth namespace do not show"
    );
    assert_eq!(
        samples
            .keys()
            .filter(|name| name.starts_with("cri_namespace"))
            .count(),
        10
    );
    let figure = |name: &str| samples[name].parse::<f64>().unwrap();
    assert!(figure("process_resident_memory_bytes") > 1e6);
    assert!(figure("process_virtual_memory_bytes") > figure("process_resident_memory_bytes"));
    assert!(figure("process_open_fds") >= 3.0 && figure("process_threads") >= 1.0);
    #[expect(
        clippy::disallowed_methods,
        reason = "the process's start is a time of the clock"
    )]
    let now = Timestamp::now();
    let age = now.as_duration().as_secs_f64() - figure("process_start_time_seconds");
    assert!(
        (-60.0..86_400.0).contains(&age),
        "the process is {age} s old"
    );
}

#[test]
fn label_values_from_outside_are_escaped() {
    let mut look = look();
    look.containers.as_mut().unwrap().rows.truncate(3);
    let samples = parse(&page_of(Some(&look), Format::Text));
    let escaped = r#"cri_namespace_exited_containers{namespace="a \"quoted\\name\"\nspace"}"#;
    assert_eq!(samples.get(escaped), Some(&"1".to_owned()));
}

#[test]
fn unread_values_are_absent_and_their_collector_failed() {
    let mut look = look();
    look.containers = Err(refused());
    look.filesystems.as_mut().unwrap().container[0].usage = None;
    look.pods = Pods::Unknown(PodsUnknown::Settling);
    let samples = parse(&page_of(Some(&look), Format::Text));
    let success =
        |name| samples[&format!("crisweep_collector_success{{collector=\"{name}\"}}")].as_str();
    let collectors = [
        "runtime",
        "containers",
        "sandboxes",
        "images",
        "filesystems",
        "pods",
    ];
    assert_eq!(collectors.map(success), ["1", "0", "1", "1", "0", "0"]);
    let shows = |prefix: &str| samples.keys().any(|name| name.starts_with(prefix));
    for prefix in [
        "cri_containers",
        "cri_oldest_exited",
        "cri_namespace",
        "cri_list_response_bytes{list=\"containers\"}",
        "cri_list_duration_seconds{list=\"containers\"}",
        "cri_list_mode{list=\"containers\"",
        "cri_images{state=\"used\"}",
        "cri_images{state=\"unused\"}",
        "cri_container_fs_used",
    ] {
        assert!(!shows(prefix), "{prefix}");
    }
    assert!(shows("cri_images{state=\"pinned\"}") && shows("cri_image_fs_used_bytes"));
}

/// Then nothing says how full it is.
#[test]
fn a_runtime_that_names_no_file_system_of_images_is_not_read() {
    let mut look = look();
    look.filesystems.as_mut().unwrap().image.clear();
    let samples = parse(&page_of(Some(&look), Format::Text));
    let success = "crisweep_collector_success{collector=\"filesystems\"}";
    assert_eq!(samples[success], "0");
}

#[test]
fn an_incomplete_list_is_reported_and_makes_no_image_unused() {
    let mut look = look();
    let mut list = listed(node::containers(), ListMode::PerPod);
    list.coverage = Coverage::Living;
    list.limit_bytes = Some(4 << 20);
    look.containers = Ok(list);
    let samples = parse(&page_of(Some(&look), Format::Text));
    assert_eq!(samples["cri_list_complete{list=\"containers\"}"], "0");
    assert_eq!(samples["cri_list_complete{list=\"sandboxes\"}"], "1");
    assert_eq!(
        samples["cri_list_mode{list=\"containers\",mode=\"per-pod\"}"],
        "1"
    );
    assert_eq!(
        samples["cri_list_limit_bytes{list=\"containers\"}"],
        "4194304"
    );
    assert!(samples.contains_key("cri_images{state=\"pinned\"}"));
    assert!(!samples.contains_key("cri_images{state=\"unused\"}"));
}

#[test]
fn an_empty_node_reads_zero_and_has_no_oldest_container() {
    let mut look = look();
    look.containers = Ok(listed(vec![], ListMode::Unary));
    let samples = parse(&page_of(Some(&look), Format::Text));
    assert_eq!(samples["cri_containers{state=\"exited\"}"], "0");
    assert_eq!(samples["cri_list_response_bytes{list=\"containers\"}"], "0");
    assert!(!samples.contains_key("cri_oldest_exited_container_timestamp_seconds"));
}

#[test]
fn a_container_of_which_no_time_is_known_died_in_no_distant_year() {
    let mut look = look();
    let lost = Container {
        created_at: Timestamp::MAX,
        ..container(1, ContainerState::Exited, "a", "b")
    };
    look.containers = Ok(listed(vec![lost], ListMode::Unary));
    let samples = parse(&page_of(Some(&look), Format::Text));
    assert_eq!(samples["cri_containers{state=\"exited\"}"], "1");
    assert!(!samples.contains_key("cri_oldest_exited_container_timestamp_seconds"));
}

#[test]
fn a_pass_counts_for_each_of_its_targets_and_a_dry_run_apart() {
    let samples = parse(&page_of(None, Format::Text));
    for target in ["containers", "sandboxes"] {
        let series = |outcome| {
            format!(
                "crisweep_passes_total{{target=\"{target}\",cause=\"alert\",outcome=\"{outcome}\"}}"
            )
        };
        assert_eq!(samples[&series("partial")], "1");
        assert!(!samples.contains_key(&series("completed")));
    }
    assert_eq!(samples["crisweep_dry_runs_total{cause=\"alert\"}"], "1");
    assert_eq!(samples["crisweep_pass_duration_seconds_sum"], "1.25");
    assert_eq!(
        samples["crisweep_last_pass_timestamp_seconds{outcome=\"partial\"}"],
        "1767323046.928"
    );
    assert!(!samples.contains_key("crisweep_last_pass_timestamp_seconds{outcome=\"completed\"}"));
    // Of begun targets only.
    let of = |target| format!("crisweep_last_pass_remaining{{target=\"{target}\"}}");
    assert_eq!(samples[&of("containers")], "2.0");
    assert!(!samples.contains_key(&of("sandboxes")));
}

/// Thousands of nodes have a page each: 200 samples are 600,000 for 3,000 nodes.
#[test]
fn a_page_has_few_samples_however_much_the_service_has_done() {
    let plan = Target::ALL.map(|target| {
        let counts = |reason: &KeepReason| (*reason, 1);
        let summary = Summary {
            remove: RemoveReason::all(target).iter().map(|r| (*r, 1)).collect(),
            keep: KeepReason::ALL.iter().take(4).map(counts).collect(),
        };
        (target, summary)
    });
    let look = look();
    let samples_of = |metrics: &Metrics| {
        let input = PageInput {
            look: Some(judged(&look)),
            version: None,
            plan: Some(&plan.clone().into()),
            quarantined: &quarantined(),
            thresholds: &node::thresholds(),
        };
        let part = NodePart::of(&input).unwrap();
        parse(&render(&part, metrics, Format::Text).unwrap()).len()
    };
    let fresh = Metrics::new("node-1");
    fresh.expect_passes([Cause::Alert, Cause::Threshold]);
    let fresh = samples_of(&fresh);
    assert!(fresh <= 220, "{fresh} samples on a fresh page");
    let busy = samples_of(&node::busy_metrics());
    assert!(busy <= 325, "{busy} samples on a busy page");
}

fn arbitrary_container() -> impl Strategy<Value = Container> {
    let state = prop::sample::select(ContainerState::ALL.to_vec());
    (
        "[0-9a-f]{64}",
        state,
        "[a-z]{1,3}",
        any::<bool>(),
        0_i64..1000,
    )
        .prop_map(|(id, state, namespace, exit_known, hours)| {
            let mut row = container(1, state, &namespace, &format!("sha256:{id}"));
            row.id = ContainerId::new(id).unwrap();
            row.finished_at = exit_known.then(|| hours_ago(hours));
            row
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_id_is_on_any_page(rows in prop::collection::vec(arbitrary_container(), 0..60)) {
        let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
        let exited = rows.iter().filter(|row| row.state == ContainerState::Exited).count();
        let mut look = look();
        look.containers = Ok(listed(rows, ListMode::Unary));
        let page = page_of(Some(&look), Format::Text);
        prop_assert!(ids.iter().all(|id| !page.contains(id.as_str())));
        let long_hex = |word: &str| word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
        prop_assert!(!page.split(|c: char| !c.is_ascii_alphanumeric()).any(long_hex));
        let samples = parse(&page);
        prop_assert_eq!(&samples["cri_containers{state=\"exited\"}"], &exited.to_string());
        let namespaces = samples.keys().filter(|name| name.starts_with("cri_namespace_")).count();
        prop_assert!(namespaces <= 10);
    }
}

#[test]
fn an_interrupted_pass_counts_but_has_no_duration() {
    let metrics = Metrics::new("node-1");
    metrics.pass_finished(&node::pass(Outcome::Interrupted, false));
    let input = PageInput {
        look: None,
        version: None,
        plan: None,
        quarantined: &BTreeMap::new(),
        thresholds: &node::thresholds(),
    };
    let part = NodePart::of(&input).unwrap();
    let samples = parse(&render(&part, &metrics, Format::Text).unwrap());
    assert_eq!(samples["crisweep_pass_duration_seconds_count"], "0");
    assert!(samples.contains_key("crisweep_last_pass_timestamp_seconds{outcome=\"interrupted\"}"));
}
