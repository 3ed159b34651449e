//! Documents, alerts and dashboards may name only existing metrics, and every metric is documented. The
//! existing ones are read from the page snapshot of a known node.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PREFIXES: [&str; 3] = ["cri_", "crisweep_", "process_"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect()
}

/// Names on the page in text 0.0.4, from its TYPE lines.
fn exist() -> BTreeSet<String> {
    let page = read(
        "src/metrics/scrape/snapshots/crisweep__metrics__scrape__tests__text_page_of_a_known_node.snap",
    );
    let types = page
        .lines()
        .filter_map(|line| line.trim().strip_prefix("# TYPE "));
    let names: BTreeSet<String> = types
        .filter_map(|rest| rest.split(' ').next())
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 40, "{names:?}");
    names
}

/// Words in a text that look like one of our metrics; `cri_list_*` is a pattern.
fn named(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_word(c))
        .filter(|word| !word.ends_with('_'))
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

fn base(name: &str) -> &str {
    ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name)
}

/// The known node's writable layers are on a file system without inode figures; one collector writes both.
fn is_known(known: &BTreeSet<String>, name: &str) -> bool {
    let image_fs = name.replace("container_fs", "image_fs");
    [name, base(name), &image_fs]
        .iter()
        .any(|name| known.contains(*name))
}

#[test]
fn alerts_dashboards_and_runbooks_name_only_metrics_that_exist() {
    let known = exist();
    let mut texts: Vec<PathBuf> = files("alerts", "yaml");
    texts.extend(files("alerts/tests", "yaml"));
    texts.extend(files("dashboards", "json"));
    texts.extend(files("dashboards", "py"));
    texts.extend(files("docs/runbooks", "md"));
    let mut seen = 0;
    for path in texts {
        for name in named(&std::fs::read_to_string(&path).unwrap()) {
            assert!(
                is_known(&known, &name),
                "{}: no metric {name}",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} names were found");
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let known = exist();
    let text = read("docs/metrics.md");
    let documented = named(&text);
    // Bare prefixes are explained too.
    for name in documented
        .iter()
        .filter(|name| !PREFIXES.contains(&name.as_str()))
    {
        assert!(is_known(&known, name), "docs/metrics.md: no metric {name}");
    }
    let total = |name: &String| documented.contains(&format!("{name}_total"));
    for name in known {
        assert!(
            documented.contains(&name) || total(&name),
            "docs/metrics.md lacks {name}"
        );
    }
}

/// What Grafana's own linter asks of a dashboard that is shipped.
#[test]
fn every_panel_of_a_dashboard_is_described_and_follows_its_data_source() {
    let dashboards = files("dashboards", "json");
    assert_eq!(dashboards.len(), 2, "{dashboards:?}");
    for path in dashboards {
        let text = std::fs::read_to_string(&path).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(dashboard["editable"], false);
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        for name in ["datasource", "cluster", "job", "instance"] {
            assert!(variables.iter().any(|it| it["name"] == name), "{name}");
        }
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let panels: Vec<_> = panels.filter(|panel| panel["type"] != "row").collect();
        assert!(panels.len() > 10, "{}", path.display());
        for panel in panels {
            panel_is_sound(panel);
        }
    }
}

#[track_caller]
fn panel_is_sound(panel: &serde_json::Value) {
    let title = panel["title"].as_str().unwrap();
    let described = panel["description"].as_str();
    // What it shows, what is bad, what to do.
    assert!(described.is_some_and(|text| text.len() > 80), "{title}");
    let unit = &panel["fieldConfig"]["defaults"]["unit"];
    assert!(unit.is_string(), "{title}");
    assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
    for target in panel["targets"].as_array().unwrap() {
        let query = target["expr"].as_str().unwrap();
        let has_rate = query.contains("rate(") || query.contains("increase(");
        let range = ["[$__rate_interval]", "[$__range]"];
        let is_ranged = range.iter().any(|range| query.contains(range));
        assert!(!has_rate || is_ranged, "{title}");
        assert!(query.contains("$cluster"), "{title}");
    }
}
