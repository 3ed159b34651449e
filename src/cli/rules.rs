//! `crisweep rules`: the alert rules of `alerts/crisweep.rules.tmpl`, which holds all of their text. Fills in labels
//! and addresses; never parses or writes a rule.

use clap::Args;
use regex_lite::Regex;

/// The rules, with `@placeholders@`.
const TEMPLATE: &str = include_str!("../../alerts/crisweep.rules.tmpl");

/// The runbooks of this version.
const RUNBOOKS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbooks");

/// What stands before the groups of a `PrometheusRule`.
const OPERATOR_HEAD: &str = "\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: crisweep
spec:
";

/// Arguments of `rules`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
pub struct RulesArgs {
    /// Labels that tell fleets apart where one Prometheus has several, such as cluster; separated by commas
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    labels: Vec<String>,
    /// Where the runbooks are: ALERT.md is added to it [default: those of the project]
    #[arg(long, value_name = "URL", value_parser = url)]
    runbook_url: Option<String>,
    /// Matchers of `kube_node_info` for the nodes that should have a crisweep, such as 'node!~"virtual-.+"'
    #[arg(long, value_name = "MATCHERS", value_parser = matchers)]
    nodes: Option<String>,
    /// Print a `PrometheusRule` object, for prometheus-operator
    #[arg(long)]
    operator: bool,
}

const AFTER_HELP: &str = "\
Rules about one node keep every label anyway; --labels matters to those about the fleet.

Exit codes:
  0  printed
  2  wrong arguments

Examples:
  crisweep rules > /etc/prometheus/crisweep.rules.yaml
  crisweep rules --labels cluster              one Prometheus, several clusters
  crisweep rules --operator | kubectl -n monitoring apply -f -
  crisweep rules --operator |
    kubectl label --local -f - -o yaml release=prometheus
  crisweep rules --runbook-url https://wiki.example.com/crisweep
  crisweep rules --nodes 'node!~\"virtual-.+\"'  not on virtual nodes
";

/// Returns the rules as YAML.
pub fn text(args: &RulesArgs) -> String {
    let labels = args.labels.join(", ");
    let before_others = match &*labels {
        "" => String::new(),
        labels => format!("{labels}, "),
    };
    let nodes = args.nodes.as_ref();
    let nodes = nodes.map(|matchers| format!("{{{matchers}}}"));
    let runbooks = args.runbook_url.as_deref().unwrap_or(RUNBOOKS);
    let filled = TEMPLATE
        .replace("@labels@", &labels)
        .replace("@labels_and@", &before_others)
        .replace("@nodes@", &nodes.unwrap_or_default())
        .replace("@runbooks@", runbooks);
    if args.operator {
        operator(&filled)
    } else {
        filled
    }
}

/// Puts the groups under `spec`; the comment before them stays at the top.
fn operator(rules: &str) -> String {
    let (comment, groups) = rules.split_at(rules.find("groups:").unwrap_or_default());
    let indented = groups.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("  {line}\n"),
    });
    format!("{comment}{OPERATOR_HEAD}{}", indented.collect::<String>())
}

fn label(text: &str) -> Result<String, String> {
    let is_name = is_match("^[a-zA-Z_][a-zA-Z0-9_]*$", text);
    let is_of_a_node = ["instance", "node", "pod", "hash", "mode"].contains(&text);
    if is_name && !is_of_a_node {
        return Ok(text.to_owned());
    }
    Err("must be the name of a label that all nodes of a fleet share, such as cluster".to_owned())
}

/// Nothing that YAML or Prometheus' templates would read otherwise.
fn url(text: &str) -> Result<String, String> {
    let is_url = is_match("^https?://[A-Za-z0-9._~:/?&=%+,;-]+$", text);
    let url = is_url.then(|| text.trim_end_matches('/').to_owned());
    url.ok_or_else(|| "must be an http or https URL".to_owned())
}

fn matchers(text: &str) -> Result<String, String> {
    let one = r#"\s*[a-zA-Z_][a-zA-Z0-9_]*(=|!=|=~|!~)"([^"\\\n\r\x00]|\\[^\n\r\x00])*"\s*"#;
    let all = is_match(&format!("^{one}(,{one})*$"), text);
    all.then(|| text.trim().to_owned()).ok_or_else(|| {
        "must be matchers such as node!~\"virtual-.+\", separated by commas".to_owned()
    })
}

fn is_match(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with(labels: &[&str]) -> RulesArgs {
        RulesArgs {
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            ..RulesArgs::default()
        }
    }

    /// `CRISWEEP_GENERATE=1` writes the file.
    #[test]
    fn the_shipped_rules_are_the_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/crisweep.rules.yaml");
        let text = text(&RulesArgs::default());
        if std::env::var_os("CRISWEEP_GENERATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let shipped = std::fs::read_to_string(path).unwrap();
        assert!(
            text == shipped,
            "CRISWEEP_GENERATE=1 writes alerts/crisweep.rules.yaml anew"
        );
    }

    #[test]
    fn every_placeholder_is_filled() {
        for labels in [&[][..], &["cluster"], &["cluster", "region"]] {
            let text = text(&with(labels));
            assert!(!text.contains('@'), "{labels:?}");
        }
        assert!(text(&with(&["cluster", "region"])).contains("by (cluster, region, node)"));
        let args = RulesArgs {
            runbook_url: Some("https://wiki.example.com/x".to_owned()),
            nodes: Some(r#"node!~"v-.+""#.to_owned()),
            ..RulesArgs::default()
        };
        let text = text(&args);
        assert!(text.contains("runbook_url: https://wiki.example.com/x/CrisweepDown.md"));
        assert!(!text.contains(RUNBOOKS));
        assert!(text.contains(r#"kube_node_info{node!~"v-.+"}"#));
    }

    #[test]
    fn an_operator_object_holds_the_same_groups() {
        let args = RulesArgs {
            operator: true,
            ..RulesArgs::default()
        };
        let object = text(&args);
        let (head, groups) = object.split_once(OPERATOR_HEAD).unwrap();
        assert!(head.lines().all(|line| line.starts_with('#')));
        let plain = text(&RulesArgs::default());
        let lines: Vec<&str> = groups
            .lines()
            .map(|line| line.strip_prefix("  ").unwrap_or(line))
            .collect();
        assert!(plain.ends_with(&format!("\n{}\n", lines.join("\n"))));
    }

    #[test]
    fn arguments_that_would_break_a_rule_are_refused() {
        for good in ["cluster", "_x", "region2"] {
            assert!(label(good).is_ok(), "{good}");
        }
        for bad in ["", "a-b", "node", "instance", "a)", "a b", "é"] {
            assert!(label(bad).is_err(), "{bad}");
        }
        assert_eq!(url("https://wiki/x/"), Ok("https://wiki/x".to_owned()));
        for bad in [
            "wiki/x",
            "https://",
            "https://x y",
            "https://x\n",
            "https://x #",
            "https://{{x}}",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
        for good in [r#"node="a""#, r#" node!~"a|b", role=~"x\"y" "#] {
            assert!(matchers(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "node",
            r#"node="a"}"#,
            "node=\"a\n\"",
            r#"node="a"b"#,
            r#"node="a","#,
        ] {
            assert!(matchers(bad).is_err(), "{bad}");
        }
    }
}
