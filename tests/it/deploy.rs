//! The shipped unit and Dockerfile: their restrictions are those that SECURITY.md names, and the service works
//! without root, without capabilities and on a read-only root file system.

mod kubectl;
mod manifests;
mod prepare_state;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crisweep_sim::{Options, Sim};
use serde_json::json;
use tokio::process::Command;

use crate::support::nodes;
use crate::support::rig::{config, no_harm, write};
use crate::support::service::Service;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Returns the directives of a unit's section, in order.
fn section(unit: &str, name: &str) -> Vec<(String, String)> {
    let start = format!("[{name}]");
    let lines = unit.lines().skip_while(|line| *line != start).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once('=').unwrap());
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Directives that restrict nothing.
const OTHER: [&str; 14] = [
    "Environment",
    "ExecReload",
    "ExecStart",
    "KillSignal",
    "MemoryMax",
    "Nice",
    "NotifyAccess",
    "OOMScoreAdjust",
    "Restart",
    "RestartSec",
    "TasksMax",
    "TimeoutStopSec",
    "Type",
    "WatchdogSec",
];

#[test]
fn the_units_restrictions_are_those_that_the_documentation_names() {
    let unit = section(&read("deploy/crisweep.service"), "Service");
    let directives = unit.iter().filter(|(key, _)| !OTHER.contains(&&**key));
    let in_unit: BTreeSet<String> = directives.map(|(key, it)| format!("{key}={it}")).collect();
    let text = read("SECURITY.md");
    let spans = text.split('`').skip(1).step_by(2);
    let is_directive = |span: &&str| {
        let key = span.split_once('=').map_or("", |(key, _)| key);
        key.starts_with(|c: char| c.is_ascii_uppercase())
            && key.bytes().all(|b| b.is_ascii_alphabetic())
    };
    let named: BTreeSet<String> = spans.filter(is_directive).map(str::to_owned).collect();
    assert_eq!(in_unit, named, "left: the unit, right: SECURITY.md");
}

#[test]
fn the_unit_grants_no_more_than_the_service_needs() {
    let unit = section(&read("deploy/crisweep.service"), "Service");
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, value) in &unit {
        values.entry(key).or_default().push(value);
    }
    for (key, wanted) in [
        ("User", "crisweep"),
        ("Group", "root"),
        ("UMask", "0077"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", "CAP_DAC_OVERRIDE"),
        ("AmbientCapabilities", "CAP_DAC_OVERRIDE"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("RestrictNamespaces", "yes"),
        ("RestrictSUIDSGID", "yes"),
        (
            "RestrictAddressFamilies",
            "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        ),
        ("SystemCallArchitectures", "native"),
        ("StateDirectory", "crisweep"),
        ("StateDirectoryMode", "0700"),
        ("ReadWritePaths", "-/var/log/pods -/var/log/containers"),
    ] {
        assert_eq!(values.get(key), Some(&vec![wanted]), "{key}");
    }
    let calls = ["@system-service", "~@privileged @resources", "@chown"];
    assert_eq!(values["SystemCallFilter"], calls);
    let settings: BTreeMap<String, String> = section(&read("deploy/crisweep.service"), "Unit")
        .into_iter()
        .collect();
    assert!(!settings.contains_key("Requires"));
}

/// Returns the instructions of a Dockerfile's last stage.
fn last_stage(dockerfile: &str) -> Vec<(String, String)> {
    let whole = dockerfile.replace("\\\n", " ");
    let lines = whole.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut stage = Vec::new();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap();
        if word == "FROM" {
            stage.clear();
        }
        stage.push((word.to_owned(), rest.to_owned()));
    }
    stage
}

#[test]
fn the_image_runs_one_binary_as_an_unprivileged_user_with_group_0() {
    let last = last_stage(&read("Dockerfile"));
    let words: Vec<&str> = last.iter().map(|(word, _)| &**word).collect();
    let wanted = [
        "FROM",
        "COPY",
        "COPY",
        "ARG",
        "LABEL",
        "ENV",
        "VOLUME",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
    ];
    assert_eq!(words, wanted, "nothing runs in the last stage");
    let of = |wanted: &str| {
        let found = last.iter().rfind(|(word, _)| word == wanted);
        found.map(|(_, rest)| rest.as_str()).unwrap()
    };
    assert_eq!(of("FROM"), "scratch");
    assert_eq!(of("USER"), "65532:0");
    assert_eq!(of("ENTRYPOINT"), r#"["/usr/local/bin/crisweep"]"#);
    let check = of("HEALTHCHECK");
    assert!(
        check.ends_with(r#"CMD ["/usr/local/bin/crisweep", "check", "--self"]"#),
        "{check}"
    );
    assert_eq!(of("VOLUME"), "/var/lib/crisweep");
    assert!(of("LABEL").contains(env!("CARGO_PKG_VERSION")));
    let state = of("COPY");
    assert!(
        state.contains("--chown=65532:0") && state.contains("--chmod=0700"),
        "{state}"
    );
}

/// Runs `$0` as the image's user without any right, in a directory `$1` that is read-only but for its state, with
/// a read-only root file system.
const CONFINED: &str = r#"set -e
dir=$1
shift
mount --bind "$dir" "$dir"
mount --bind "$0" "$dir/crisweep"
mount --bind "$dir/state" "$dir/state"
mount -o remount,ro,bind "$dir"
mount -o remount,ro,bind /
exec setpriv --reuid 65532 --regid 0 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
  "$dir/crisweep" "$@""#;

#[tokio::test]
async fn group_0_alone_is_enough_to_remove_containers_and_sandboxes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: changing the user needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(path, 0o750);
    fs::create_dir(path.join("state")).unwrap();
    mode(&path.join("state"), 0o700);
    std::os::unix::fs::chown(path.join("state"), Some(65532), Some(0)).unwrap();
    fs::write(path.join("crisweep"), "").unwrap();
    let options = Options {
        pods_file: Some(path.join("pods.json")),
        ..Options::default()
    };
    let sim = Sim::start(path.join("cri.sock"), nodes::litter(4).build(), options).unwrap();
    // As containerd and CRI-O have it.
    mode(&path.join("cri.sock"), 0o660);
    let mut command = Command::new("unshare");
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
        .kill_on_drop(true)
        .args(["--mount", "sh", "-c", CONFINED]);
    command.arg(env!("CARGO_BIN_EXE_crisweep")).arg(path);
    let settings = write(path, &config(path, &json!({})));
    let service = Service::start_as(command, &settings).await;
    service.ready().await;

    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        words.join(" ")
    };
    assert_eq!(of("Uid:"), ["65532"; 4].join(" "));
    assert_eq!(of("Gid:"), ["0"; 4].join(" "));
    assert_eq!(of("Groups:"), "");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(of(set), "0000000000000000", "{set}");
    }
    assert_eq!(of("NoNewPrivs:"), "1");

    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", service.pid())).unwrap();
    let root = mounts
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some("/"));
    let options = root.unwrap().split(' ').nth(5).unwrap();
    assert!(options.starts_with("ro"), "{options}");

    let pass = service.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], 4, "{pass:#}");
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 4, "{pass:#}");
    let page = service.metrics().await;
    page.is("crisweep_state_write_failures_total", 0.0);
    for entry in fs::read_dir(path.join("state")).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o077), (65532, 0));
    }
    service.stop().await;
    no_harm(&sim);
}
