//! The sample for node-problem-detector: its custom plugin monitor ignores unknown keys and stops at a wrong value, so
//! every key is held to what that monitor reads.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use crisweep::cli::{Cli, Command};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Monitor {
    plugin: String,
    #[serde(rename = "pluginConfig")]
    plugin_config: PluginConfig,
    source: String,
    #[serde(rename = "metricsReporting")]
    metrics_reporting: bool,
    conditions: Vec<Condition>,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    invoke_interval: String,
    timeout: String,
    max_output_length: usize,
    concurrency: usize,
    enable_message_change_based_condition_update: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(rename = "type")]
    kind: String,
    condition: Option<String>,
    reason: String,
    path: String,
    args: Vec<String>,
    timeout: String,
}

/// Go's durations of one unit are ours too.
fn duration(text: &str) -> Duration {
    humantime::parse_duration(text).unwrap()
}

fn is_camel_case(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[test]
fn the_sample_is_what_node_problem_detector_reads() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/node-problem-detector/crisweep.json");
    let monitor: Monitor = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(monitor.plugin, "custom");
    assert!(!monitor.source.is_empty() && monitor.metrics_reporting);
    let plugin = &monitor.plugin_config;
    assert!(plugin.max_output_length >= 80 && plugin.concurrency >= monitor.rules.len());
    assert!(duration(&plugin.invoke_interval) >= Duration::from_secs(30));
    // Figures change with each check, and each change would be a write to the API server.
    assert!(!plugin.enable_message_change_based_condition_update);
    for condition in &monitor.conditions {
        assert!(is_camel_case(&condition.kind) && is_camel_case(&condition.reason));
        assert!(condition.message.is_ascii(), "{}", condition.message);
    }
    let known: BTreeSet<&str> = monitor.conditions.iter().map(|it| &*it.kind).collect();
    let permanent = monitor.rules.iter().filter(|rule| rule.kind == "permanent");
    let set: Vec<&str> = permanent
        .filter_map(|rule| rule.condition.as_deref())
        .collect();
    // Of two rules for one condition, the one that is well would take back what the other one set.
    assert_eq!(set.iter().copied().collect::<BTreeSet<_>>(), known);
    assert_eq!(set.len(), known.len());
    for rule in &monitor.rules {
        rule_is_sound(rule, plugin);
    }
}

fn rule_is_sound(rule: &Rule, plugin: &PluginConfig) {
    assert!(
        ["permanent", "temporary"].contains(&&*rule.kind),
        "{}",
        rule.kind
    );
    assert_eq!(
        rule.condition.is_some(),
        rule.kind == "permanent",
        "{}",
        rule.reason
    );
    assert!(is_camel_case(&rule.reason), "{}", rule.reason);
    assert_eq!(rule.path, "/usr/local/bin/crisweep");
    // A rule that may take longer than all is refused, which stops the detector.
    assert!(
        duration(&rule.timeout) <= duration(&plugin.timeout),
        "{}",
        rule.reason
    );
    let words = std::iter::once("crisweep").chain(rule.args.iter().map(String::as_str));
    let Some(Command::Check(args)) = Cli::try_parse_from(words).unwrap().command else {
        panic!("{} runs another command", rule.reason);
    };
    let margin = duration(&rule.timeout).saturating_sub(args.timeout);
    assert!(
        margin >= Duration::from_millis(500),
        "{}: it must end by itself",
        rule.reason
    );
}
