//! Accepted and refused documents, with their messages.

mod documentation;
mod layers;
mod reload;

use std::time::Duration;

use super::*;
use crate::gc::Limit;
use crate::kubernetes::ApiServer;
use crate::model::Target;
use crate::outgoing::TlsConfig;
use crate::pods::{Auto, KUBELET_SOCKETS, Source};
use crate::telemetry::LogFormat;

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn load_all(yaml: &str, env: &[(&str, &str)], flags: &Overrides) -> Result<Config, String> {
    let (_dir, path) = file("config.yaml", yaml);
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(Some(&path), env, flags).map_err(|error| crate::telemetry::chain(&error))
}

fn yaml(text: &str) -> Result<Config, String> {
    load_all(text, &[("NODE_NAME", "n1")], &Overrides::default())
}

fn env(name: &str, value: &str) -> Result<Config, String> {
    load_all(
        "",
        &[("NODE_NAME", "n1"), (name, value)],
        &Overrides::default(),
    )
}

/// Asserts that a document is refused in one line that begins with `key` and contains `words`.
fn refused(text: &str, key: &str, words: &str) {
    let error = yaml(text).map(|_| ()).expect_err(text);
    assert!(error.starts_with(&format!("{key}: ")), "{text}\n{error}");
    assert!(error.contains(words), "{text}\n{error}");
    assert_eq!(error.lines().count(), 1, "{text}\n{error}");
    assert!(!error.contains("s3cret"), "{text}\n{error}");
}

/// Asserts the same for every line `document => key => words`.
fn all_refused(cases: &str) {
    for case in cases.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<_> = case.split(" => ").collect();
        refused(parts[0], parts[1], parts[2]);
    }
}

#[test]
fn defaults_are_the_contracts() {
    let config = yaml("").unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(config.policy, Policy::default());
    assert_eq!(
        (config.mode, config.node.name.as_str()),
        (Mode::Enforce, "n1")
    );
    assert_eq!(config.runtime.timeout, seconds(10));
    assert_eq!(config.runtime.removal_timeout, seconds(60));
    assert_eq!(config.runtime.max_message_bytes, 128 << 20);
    assert_eq!(config.runtime.host_root, Path::new("/"));
    assert_eq!(
        (config.runtime.endpoint, config.runtime.image_endpoint),
        (None, None)
    );
    assert_eq!(config.collect.max_age, seconds(10));
    let gc = Gc {
        batch_size: 50,
        max_concurrency: 8,
        max_removals: None,
        deadline: Some(seconds(600)),
        batch_pause: Duration::ZERO,
        io_pressure_pause_percent: Some(20.0),
        failure_ratio: Some(0.5),
    };
    assert_eq!(config.gc, gc);
    assert_eq!(
        config.quarantine,
        BackOff {
            base: seconds(60),
            max: seconds(3600)
        }
    );
    let auto = Auto {
        kubelet_sockets: KUBELET_SOCKETS.map(PathBuf::from).to_vec(),
        api_server: None,
    };
    assert_eq!(config.pods.source("n1"), Source::Auto(auto));
    assert_eq!(config.alerts, []);
    let brakes = Brakes {
        cooldown: seconds(60),
        max_passes_per_hour: Some(30),
        jitter: None,
        pause: false,
    };
    assert_eq!(config.brakes, brakes);
    let listen: Vec<String> = config.web.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:20950"]);
    assert_eq!(
        config.log,
        Log {
            level: "info".to_owned(),
            format: LogFormat::Text
        }
    );
}

#[test]
fn an_empty_file_gives_the_defaults() {
    for text in [
        "",
        "# only words\n",
        "---\n",
        "gc:\n",
        "policy:\n  containers:\n",
    ] {
        assert_eq!(yaml(text), yaml("mode: enforce"), "{text}");
    }
}

#[test]
fn state_may_be_switched_off() {
    let state = yaml("").unwrap().state;
    assert_eq!(state.dir, Some("/var/lib/crisweep".into()));
    assert_eq!(state.journal_bytes, 4 << 20);
    assert_eq!(yaml("state: {dir: null}").unwrap().state.dir, None);
    let empty = env("CRISWEEP__STATE__DIR", "").unwrap();
    assert_eq!(empty.state.dir, None);
}

#[test]
fn zero_switches_off_each_setting_that_may_be_off() {
    let config = yaml(
        "gc: {max_removals: 0, deadline: 0, io_pressure_pause_percent: 0, failure_ratio: 0.0}
brakes: {cooldown: 0s, max_passes_per_hour: 0}
collect: {max_age: 0}
pods: {settle: 0, quiet: 0, assume_finished_after: 0}
policy: {containers: {max_dead: -1, max_per_container: 0}}",
    )
    .unwrap();
    assert_eq!((config.gc.max_removals, config.gc.deadline), (None, None));
    assert_eq!(
        (config.gc.io_pressure_pause_percent, config.gc.failure_ratio),
        (None, None)
    );
    assert_eq!(
        (config.brakes.cooldown, config.brakes.max_passes_per_hour),
        (Duration::ZERO, None)
    );
    assert_eq!(config.policy.assume_finished_after, None);
    let pods = &config.policy.pods;
    assert_eq!((pods.settle, pods.quiet), (Duration::ZERO, Duration::ZERO));
    assert_eq!(config.policy.containers.max_dead, Limit::None);
    assert_eq!(config.policy.containers.max_per_container, Limit::AtMost(0));
}

#[test]
fn a_whole_number_may_have_an_exponent() {
    let config = yaml("gc: {batch_size: 1e3}\nstate: {journal_bytes: 8e6}\n").unwrap();
    assert_eq!(
        (config.gc.batch_size, config.state.journal_bytes),
        (1000, 8_000_000)
    );
}

#[test]
fn impossible_values_name_key_value_and_remedy() {
    all_refused(include_str!("tests/impossible.txt"));
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_key() {
    all_refused(include_str!("tests/unknown.txt"));
}

#[test]
fn all_errors_are_reported_at_once() {
    let error = yaml("gc: {batch_size: 0, nope: 1}\nmode: x\nweb: {listen: [a, b]}").unwrap_err();
    for key in [
        "gc.batch_size: ",
        "gc.nope: ",
        "mode: ",
        "web.listen[0]: ",
        "web.listen[1]: ",
    ] {
        assert!(
            error.lines().any(|line| line.starts_with(key)),
            "{key} in {error}"
        );
    }
    assert_eq!(error.lines().count(), 5, "{error}");
    let error =
        yaml("pods: {source: kubelet-socket, file: /x, api_cert_file: /c, kubelet_token_file: /t}");
    let error = error.unwrap_err();
    let keys: Vec<_> = error
        .lines()
        .filter_map(|it| it.split(": ").next())
        .collect();
    let wrong = [
        "pods.kubelet_token_file",
        "pods.api_cert_file",
        "pods.file",
        "pods.api_key_file",
    ];
    assert_eq!(keys, wrong, "{error}");
}

#[test]
fn evidence_is_checked_and_required_evidence_needs_a_place() {
    all_refused(include_str!("tests/evidence.txt"));
}

#[test]
fn each_pod_source_is_read_with_its_keys() {
    let source = |text: &str| {
        let config = yaml(&format!("pods: {{{text}}}")).unwrap();
        config.pods.source("n1")
    };
    assert_eq!(source("source: none"), Source::None);
    assert_eq!(source("source: file, file: /p"), Source::File("/p".into()));
    assert_eq!(
        source("source: kubelet-socket"),
        Source::KubeletSocket {
            paths: KUBELET_SOCKETS.map(PathBuf::from).to_vec(),
            api_server: None,
        }
    );
    assert_eq!(
        source("source: kubelet-socket, kubelet_socket: /s"),
        Source::KubeletSocket {
            paths: vec!["/s".into()],
            api_server: None,
        }
    );
    assert_eq!(
        source("source: kubelet, kubelet_ca_file: /ca, kubelet_token_file: /t"),
        Source::Kubelet(ApiServer::kubelet(
            "https://127.0.0.1:10250".to_owned(),
            Some("/t".into()),
            TlsConfig {
                server_name: Some("n1".to_owned()),
                ca_file: Some("/ca".into()),
                ..TlsConfig::default()
            },
        ))
    );
    for url in [
        "http://127.0.0.1:10255",
        "http://[::1]:10255",
        "http://localhost",
    ] {
        let text = format!("source: kubelet, kubelet_url: '{url}'");
        let kubelet = ApiServer::kubelet(url.to_owned(), None, TlsConfig::default());
        assert_eq!(source(&text), Source::Kubelet(kubelet));
    }
}

#[test]
fn alert_routes_are_read_and_checked() {
    let config = yaml(
        "alerts: [{match: {alertname: A, x: y}, targets: [sandboxes]}, {match: {b: c}, targets: [all]}]",
    );
    let alerts = config.unwrap().alerts;
    assert_eq!(alerts[0].matches["alertname"], "A");
    assert_eq!(alerts[0].targets, [Target::Sandboxes].into());
    assert_eq!(alerts[1].targets.len(), Target::ALL.len());
    for (entry, at, words) in [
        ("{match: {}, targets: [all]}", ".match", "is empty"),
        ("{targets: [all]}", ".match", "is null"),
        ("{match: {a: 1}, targets: [all]}", ".match.a", "is 1"),
        ("{match: {a: b}, targets: []}", ".targets", "is empty"),
        (
            "{match: {a: b}, targets: [pods]}",
            ".targets[0]",
            "unknown target \"pods\"",
        ),
        (
            "{match: {a: b}, targets: [all], when: x}",
            ".when",
            "not a known key",
        ),
        ("all", "", "match and targets"),
        (
            "[{a: b}, [all]]",
            "",
            "is a list, but must be a section with match and targets",
        ),
    ] {
        let text = format!("alerts: [{{match: {{k: v}}, targets: [all]}}, {entry}]");
        refused(&text, &format!("alerts[1]{at}"), words);
    }
}

#[test]
fn the_effective_configuration_loads_again_to_the_same() {
    let text = "runtime: {endpoint: 'unix:///run/x.sock', max_message_bytes: 20000000}
node: {name: n9}
policy: {protect: {labels: ['a=b', c]}, containers: {max_dead: -1}}
gc: {failure_ratio: 1.0}
pods: {source: file, file: /etc/pods.json, assume_finished_after: 1h 30m}
alerts: [{match: {alertname: 'yes', n: '5'}, targets: [all]}]
web: {listen: [':20950'], trusted_hosts: [Node.Example]}";
    for text in ["", text] {
        let config = yaml(text).unwrap();
        let effective = config.effective_yaml();
        assert_eq!(yaml(&effective).as_ref(), Ok(&config), "{effective}");
    }
    assert!(yaml("").unwrap().effective_yaml().contains("cooldown: 1m"));
}

#[test]
fn toml_reads_as_yaml_does() {
    let (_dir, path) = file(
        "c.toml",
        "mode = 'observe'\n[gc]\nbatch_size = 7\n[policy.containers]\nmax_dead = -1\n",
    );
    let config = Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap();
    assert_eq!((config.mode, config.gc.batch_size), (Mode::Observe, 7));
    std::fs::write(&path, "[gc]\nfailure_ratio = nan").unwrap();
    let error = Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap_err();
    assert!(
        error.to_string().starts_with("gc.failure_ratio: is NaN"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_no_text_is_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, b"mode: \xff\n").unwrap();
    let error = Config::load(Some(&path), std::iter::empty(), &Overrides::default()).unwrap_err();
    let error = crate::telemetry::chain(&error);
    assert!(
        error.ends_with("c.yaml: it is not text in UTF-8"),
        "{error}"
    );
}

#[test]
fn the_error_of_a_malformed_file_repeats_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        (
            "c.toml",
            "[alertmanager]\npoll = ['http://u:s3cret@am' 1]\n",
        ),
        (
            "c.yaml",
            "alertmanager:\n  poll: ['http://u:s3cret@am' 1]\n",
        ),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let error = Config::load(Some(&path), std::iter::empty(), &Overrides::default());
        let error = crate::telemetry::chain(&error.unwrap_err());
        assert!(
            error.contains("line 2, col") || error.contains("line 2 col"),
            "{error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn unusable_files_have_distinct_errors() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d.yaml")).unwrap();
    let big = "#".repeat(usize::try_from(file::FILE_MAX).unwrap() + 1);
    for (name, text, words) in [
        ("none.yaml", None, "No such file"),
        ("d.yaml", None, "it is not a regular file"),
        ("c.json", Some("{}"), ".yaml, .yml or .toml"),
        ("c", Some(""), ".yaml, .yml or .toml"),
        ("c.yml", Some("a: [1"), "not a well-formed"),
        (
            "c.yml",
            Some("alerts: [{}, {match: {a: b, a: c}}]"),
            "the key a stands twice",
        ),
        (
            "c.yml",
            Some("gc:\n  deadline: 1m\n  deadline: 2m\n"),
            "line 3, column 3: the key deadline stands twice",
        ),
        (
            "c.yml",
            Some("mode: enforce\n---\nmode: observe\n"),
            "2 YAML documents",
        ),
        ("c.yml", Some("- a\n"), "not a well-formed"),
        (
            "c.yml",
            Some("gc: {}\n\0mode: observe\n"),
            "a NUL character",
        ),
        (
            "c.toml",
            Some("mode = 'enforce'\nmode = 'observe'\n"),
            "duplicate key",
        ),
        ("c.yml", Some(big.as_str()), "larger than"),
    ] {
        let path = dir.path().join(name);
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let error = Config::load(Some(&path), std::iter::empty(), &Overrides::default());
        let error = crate::telemetry::chain(&error.unwrap_err());
        assert!(
            error.contains(words) && error.contains(name),
            "{name}: {error}"
        );
    }
}
