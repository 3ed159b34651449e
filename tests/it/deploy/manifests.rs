//! The checked-in manifests: they ask for no right that SECURITY.md does not name, their configuration is one that the
//! program takes, and the chart knows every section of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::read;

const STAGES: [&str; 3] = ["watch", "canary", "all"];

/// What the pods may see of the host, and whether they may write there.
const HOST_PATHS: [(&str, bool); 5] = [
    ("/run/containerd", false),
    (
        "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs",
        false,
    ),
    ("/var/log/pods", false),
    ("/var/log/containers", false),
    ("/var/lib/crisweep", true),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes")
}

fn documents(directory: &str) -> Vec<Yaml> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join(directory))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "yaml"))
        .filter(|path| !path.ends_with("kustomization.yaml"))
        .collect();
    files.sort();
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    texts
        .flat_map(|text| YamlLoader::load_from_str(&text).unwrap())
        .filter(|document| !document.is_null())
        .collect()
}

fn of_kind(directory: &str, kind: &str) -> Vec<Yaml> {
    let found: Vec<Yaml> = documents(directory)
        .into_iter()
        .filter(|document| document["kind"].as_str() == Some(kind))
        .collect();
    assert!(!found.is_empty(), "{directory} has no {kind}");
    found
}

fn list(yaml: &Yaml) -> &[Yaml] {
    yaml.as_vec().map_or(&[], Vec::as_slice)
}

fn words(yaml: &Yaml) -> Vec<&str> {
    list(yaml).iter().filter_map(Yaml::as_str).collect()
}

/// Each pod template of a stage, with the name of its `DaemonSet`.
fn pods(stage: &str) -> Vec<(String, Yaml)> {
    let sets = of_kind(stage, "DaemonSet").into_iter();
    sets.map(|set| {
        let name = set["metadata"]["name"].as_str().unwrap().to_owned();
        (name, set["spec"]["template"]["spec"].clone())
    })
    .collect()
}

fn containers(pod: &Yaml) -> impl Iterator<Item = &Yaml> {
    list(&pod["initContainers"])
        .iter()
        .chain(list(&pod["containers"]))
}

#[test]
fn every_stage_is_there_and_only_canary_has_two_kinds_of_pods() {
    let names =
        |stage: &str| -> Vec<String> { pods(stage).into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names("watch"), ["crisweep"]);
    assert_eq!(names("canary"), ["crisweep", "crisweep-canary"]);
    assert_eq!(names("all"), ["crisweep"]);
}

#[test]
fn pods_have_no_privilege_and_no_part_of_the_host_but_its_files() {
    for (name, pod) in STAGES.into_iter().flat_map(pods) {
        for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
            assert!(pod[key].is_badvalue(), "{name}: {key}");
        }
        assert_eq!(pod["enableServiceLinks"].as_bool(), Some(false));
        for container in containers(&pod) {
            let context = &container["securityContext"];
            let of = |key: &str| context[key].as_bool();
            assert_eq!(of("allowPrivilegeEscalation"), Some(false), "{name}");
            assert_eq!(of("privileged"), Some(false), "{name}");
            assert_eq!(of("readOnlyRootFilesystem"), Some(true), "{name}");
            assert_eq!(words(&context["capabilities"]["drop"]), ["ALL"]);
            assert_eq!(
                context["seccompProfile"]["type"].as_str(),
                Some("RuntimeDefault")
            );
            assert_eq!(context["runAsGroup"].as_i64(), Some(0));
            assert!(!container["resources"]["requests"]["cpu"].is_badvalue());
            assert!(!container["resources"]["limits"]["memory"].is_badvalue());
        }
    }
}

#[test]
fn only_the_init_step_is_root_and_it_sees_nothing_but_the_state() {
    for (name, pod) in STAGES.into_iter().flat_map(pods) {
        let service = &pod["containers"][0]["securityContext"];
        assert_eq!(service["runAsUser"].as_i64(), Some(65532), "{name}");
        assert_eq!(service["runAsNonRoot"].as_bool(), Some(true), "{name}");
        assert!(service["capabilities"]["add"].is_badvalue(), "{name}");
        let [init] = list(&pod["initContainers"]) else {
            panic!("{name}: one init container")
        };
        let context = &init["securityContext"];
        assert_eq!(context["runAsUser"].as_i64(), Some(0), "{name}");
        assert_eq!(words(&context["capabilities"]["add"]), ["CHOWN"], "{name}");
        let wanted = ["prepare-state", "--owner", "65532:0", "/var/lib/crisweep"];
        assert_eq!(words(&init["args"]), wanted, "{name}");
        let [mount] = list(&init["volumeMounts"]) else {
            panic!("{name}: one mount")
        };
        assert_eq!(mount["name"].as_str(), Some("state"), "{name}");
    }
}

#[test]
fn of_the_host_only_the_state_is_writable() {
    for (name, pod) in STAGES.into_iter().flat_map(pods) {
        let mut paths = BTreeSet::new();
        for volume in list(&pod["volumes"]) {
            let Some(path) = volume["hostPath"]["path"].as_str() else {
                assert!(volume["configMap"].is_hash(), "{name}: {volume:?}");
                continue;
            };
            let is_writable = containers(&pod)
                .flat_map(|container| list(&container["volumeMounts"]))
                .filter(|mount| mount["name"] == volume["name"])
                .any(|mount| mount["readOnly"].as_bool() != Some(true));
            paths.insert((path.to_owned(), is_writable));
        }
        let wanted = HOST_PATHS.map(|(path, is_writable)| (path.to_owned(), is_writable));
        assert_eq!(paths, BTreeSet::from(wanted), "{name}");
    }
}

#[test]
fn the_image_has_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    let wanted = format!("ghcr.io/crisweep/crisweep:{version}");
    for (name, pod) in STAGES.into_iter().flat_map(pods) {
        for container in containers(&pod) {
            assert_eq!(container["image"].as_str(), Some(&*wanted), "{name}");
        }
    }
    let chart = &YamlLoader::load_from_str(&read("deploy/helm/crisweep/Chart.yaml")).unwrap()[0];
    assert_eq!(chart["appVersion"].as_str(), Some(version));
    let image = read("deploy/kubernetes/image/kustomization.yaml");
    assert!(image.contains(&format!("newTag: {version}\n")));
    for stage in STAGES {
        let file = read(&format!("deploy/kubernetes/{stage}/kustomization.yaml"));
        assert!(file.contains("components:\n  - ../image\n"), "{stage}");
    }
}

#[test]
fn the_account_may_list_pods_read_one_config_map_and_nothing_else() {
    let cluster_roles = of_kind("common", "ClusterRole");
    assert_eq!(cluster_roles.len(), 1);
    let rules = list(&cluster_roles[0]["rules"]);
    assert_eq!(rules.len(), 1);
    assert_eq!(words(&rules[0]["apiGroups"]), [""]);
    assert_eq!(words(&rules[0]["resources"]), ["pods"]);
    assert_eq!(words(&rules[0]["verbs"]), ["list"]);
    let in_namespace = of_kind("common", "Role");
    assert_eq!(in_namespace.len(), 1);
    assert_eq!(
        in_namespace[0]["metadata"]["namespace"].as_str(),
        Some("crisweep")
    );
    let [rule] = list(&in_namespace[0]["rules"]) else {
        panic!("one rule: {in_namespace:?}")
    };
    assert_eq!(words(&rule["apiGroups"]), [""]);
    assert_eq!(words(&rule["resources"]), ["configmaps"]);
    assert_eq!(words(&rule["verbs"]), ["get"]);
    assert_eq!(words(&rule["resourceNames"]), ["crisweep-brakes"]);
    let accounts = of_kind("common", "ServiceAccount");
    assert_eq!(
        accounts[0]["automountServiceAccountToken"].as_bool(),
        Some(false)
    );
    let kinds: BTreeSet<String> = documents("common")
        .iter()
        .map(|document| document["kind"].as_str().unwrap().to_owned())
        .collect();
    let wanted = [
        "ClusterRole",
        "ClusterRoleBinding",
        "Namespace",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    ];
    assert_eq!(kinds, BTreeSet::from(wanted.map(str::to_owned)));
}

/// The chart's templates can grant these rights at most, whatever the values are.
#[test]
fn no_value_of_the_chart_grants_more() {
    let template = read("deploy/helm/crisweep/templates/rbac.yaml");
    let rules: BTreeSet<&str> = template
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- { apiGroups: "))
        .collect();
    let wanted = [
        "[\"\"], resources: [pods], verbs: [list] }",
        "[\"\"], resources: [nodes/pods], verbs: [get] }",
        "[\"\"], resources: [configmaps], verbs: [get], resourceNames: {{ $switches | toJson }} }",
        "[coordination.k8s.io], resources: [leases], verbs: [get, update], resourceNames: {{ $leases | toJson }} }",
        "[authentication.k8s.io], resources: [tokenreviews], verbs: [create] }",
        "[authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create] }",
        "[\"\"], resources: [events], verbs: [create, patch] }",
    ];
    assert_eq!(rules, BTreeSet::from(wanted));
    // Events: in the namespace default, or in all.
    assert_eq!(template.matches("apiGroups").count(), wanted.len() + 1);
}

#[test]
fn the_pods_end_in_time_and_probes_ask_the_paths_that_need_no_credential() {
    for (name, pod) in STAGES.into_iter().flat_map(pods) {
        // docs/dev/reliability.md: the process is gone within 14 s.
        let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap();
        assert!(grace >= 20, "{name}: {grace}");
        let probes = &pod["containers"][0];
        let path = |probe: &str| probes[probe]["httpGet"]["path"].as_str();
        assert_eq!(path("livenessProbe"), Some("/-/healthy"), "{name}");
        assert_eq!(path("readinessProbe"), Some("/-/ready"), "{name}");
        assert_eq!(
            words(&probes["args"]),
            ["--config.file", "/etc/crisweep/crisweep.yaml"]
        );
    }
}

/// Runs `crisweep config` on a text, as in a pod; returns the effective configuration.
fn effective(text: &str) -> Yaml {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("crisweep.yaml");
    fs::write(&file, text).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_crisweep"))
        .env_clear()
        .env("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        .env("KUBERNETES_SERVICE_PORT", "443")
        .arg("config")
        .arg(&file)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}\n{text}");
    let printed = String::from_utf8(done.stdout).unwrap();
    YamlLoader::load_from_str(&printed).unwrap().remove(0)
}

#[test]
fn the_program_takes_each_configuration_and_each_stage_has_its_mode() {
    for (stage, wanted) in [
        ("watch", vec![("crisweep", "observe")]),
        (
            "canary",
            vec![("crisweep", "observe"), ("crisweep-canary", "enforce")],
        ),
        ("all", vec![("crisweep", "enforce")]),
    ] {
        let maps = of_kind(stage, "ConfigMap");
        let mut modes = Vec::new();
        for map in &maps {
            let text = map["data"]["crisweep.yaml"].as_str().unwrap();
            let config = effective(text);
            assert_eq!(config["pods"]["source"].as_str(), Some("api-server"));
            assert_eq!(config["policy"]["logs"]["enabled"].as_bool(), Some(false));
            assert_eq!(config["thresholds"]["enabled"].as_bool(), Some(true));
            let mode = config["mode"].as_str().unwrap().to_owned();
            modes.push((map["metadata"]["name"].as_str().unwrap(), mode));
        }
        let modes: Vec<(&str, &str)> = modes.iter().map(|(name, mode)| (*name, &**mode)).collect();
        assert_eq!(modes, wanted, "{stage}");
    }
}

#[test]
fn the_charts_schema_knows_every_section_of_the_configuration() {
    let schema: Value =
        serde_json::from_str(&read("deploy/helm/crisweep/values.schema.json")).unwrap();
    let config = &schema["properties"]["config"];
    assert_eq!(config["additionalProperties"], false);
    let known = config["properties"].as_object().unwrap().keys();
    let known: BTreeSet<&str> = known.map(String::as_str).collect();
    let text = read("docs/configuration.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let keys = rows.filter_map(|row| row.split('`').next());
    let sections: BTreeSet<&str> = keys.filter_map(|key| key.split('.').next()).collect();
    assert_eq!(
        known, sections,
        "left: the schema, right: docs/configuration.md"
    );
}

#[test]
fn the_charts_alert_rules_are_the_repositorys() {
    let copy = read("deploy/helm/crisweep/files/crisweep.rules.yaml");
    assert!(
        copy == read("alerts/crisweep.rules.yaml"),
        "run deploy/render.sh"
    );
}
