//! `docs/distributions.md`: its table, the sockets that discovery tries, and the chart's places are the same.

use std::collections::BTreeSet;
use std::path::Path;

use crisweep::runtime::discover::WELL_KNOWN;
use regex_lite::Regex;

const NAMES: [&str; 11] = [
    "kubeadm",
    "k3s",
    "RKE2",
    "k0s",
    "MicroK8s",
    "Talos",
    "Bottlerocket",
    "EKS",
    "GKE",
    "AKS",
    "OpenShift",
];

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

struct Row {
    name: String,
    sockets: Vec<String>,
    source: String,
}

fn table() -> Vec<Row> {
    let text = read("docs/distributions.md");
    let lines = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{line}");
        let sockets = cells[1].split('`').skip(1).step_by(2).map(str::to_owned);
        Row {
            name: cells[0].to_owned(),
            sockets: sockets.collect(),
            source: cells[3].to_owned(),
        }
    };
    lines.map(row).collect()
}

/// `/var/run` is a link to `/run` on every distribution, but for old images.
fn usual(socket: &str) -> String {
    socket
        .strip_prefix("/var")
        .filter(|rest| rest.starts_with("/run/"))
        .unwrap_or(socket)
        .to_owned()
}

#[test]
fn the_table_names_each_distribution_with_its_source() {
    let table = table();
    let names: Vec<&str> = table.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, NAMES);
    for row in &table {
        assert!(!row.sockets.is_empty(), "{}", row.name);
        assert!(
            row.source.contains("](https://github.com/"),
            "{}: {}",
            row.name,
            row.source
        );
    }
}

#[test]
fn discovery_tries_the_sockets_of_the_table_and_no_other() {
    let of_table: BTreeSet<String> = table().into_iter().flat_map(|row| row.sockets).collect();
    let tried: BTreeSet<String> = WELL_KNOWN.iter().map(|socket| usual(socket)).collect();
    assert_eq!(tried, of_table);
    for socket in &of_table {
        assert!(
            WELL_KNOWN.contains(&socket.as_str()),
            "{socket} is tried only under /var/run"
        );
        let other = format!("/var{socket}");
        let has_other = WELL_KNOWN.contains(&other.as_str());
        assert_eq!(has_other, socket.starts_with("/run/"), "{other}");
    }
}

#[test]
fn the_chart_mounts_places_of_the_table() {
    let helpers = read("deploy/helm/crisweep/templates/_helpers.tpl");
    let place = Regex::new(r#""(\w+)" \(list "(/[^"]+)" "([\w-]+\.sock)""#).unwrap();
    let of_table: BTreeSet<String> = table().into_iter().flat_map(|row| row.sockets).collect();
    let mut distributions = 0;
    for found in place.captures_iter(&helpers) {
        let socket = format!("{}/{}", &found[2], &found[3]);
        assert!(of_table.contains(&socket), "{}: {socket}", &found[1]);
        distributions += 1;
    }
    assert_eq!(distributions, 6, "the chart's distributions are not found");
}
