//! What runs in the cluster: each start of a container adds a line to a file of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::node::BUSYBOX_IMAGE;

pub(super) const FOREVER: &str = "exec sleep 2147483647";

/// Makes objects whose pods count the starts of their containers.
pub(super) struct Workload {
    starts: PathBuf,
}

impl Workload {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self {
            starts: cluster.node.dir().join("starts"),
        }
    }

    /// Makes a Deployment `alive` and a Job `done`, and waits until the one runs and the other is over.
    pub(super) async fn alive_and_done(&self, cluster: &Cluster, replicas: u32) {
        let objects = [
            self.deployment("alive", replicas, FOREVER),
            self.job("done", "Never", "sleep 1"),
        ];
        cluster.apply("default", &objects);
        cluster
            .deployment_is_ready("default", "alive", replicas)
            .await;
        cluster.job_is_done("default", "done").await;
    }

    /// Returns how often each container has started, by its pod's name and UID and its own name.
    pub(super) fn starts(&self) -> BTreeMap<String, usize> {
        let files = fs::read_dir(&self.starts).unwrap().flatten();
        let count = |entry: fs::DirEntry| {
            let lines = fs::read_to_string(entry.path()).unwrap().lines().count();
            (entry.file_name().to_string_lossy().into_owned(), lines)
        };
        files.map(count).collect()
    }

    /// Returns a pod.
    pub(super) fn pod(&self, name: &str, policy: &str, script: &str) -> Value {
        let mut pod = self.template(name, policy, script);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(name);
        pod
    }

    /// Returns the same with an init container.
    pub(super) fn pod_with_init(&self, name: &str, policy: &str, script: &str) -> Value {
        let mut pod = self.pod(name, policy, script);
        pod["spec"]["initContainers"] = json!([container("init", "true")]);
        pod
    }

    /// Returns a pod that the kubelet evicts, because it writes more into its volume than it may.
    pub(super) fn pod_with_full_volume(&self, name: &str) -> Value {
        let script = "while :; do echo more >>/full/file; sleep 0.1; done";
        let mut pod = self.pod(name, "Always", script);
        let spec = &mut pod["spec"];
        let volume = json!({ "name": "full", "emptyDir": { "sizeLimit": "1Ki" } });
        push(&mut spec["volumes"], volume);
        let mount = json!({ "name": "full", "mountPath": "/full" });
        push(&mut spec["containers"][0]["volumeMounts"], mount);
        pod
    }

    pub(super) fn job(&self, name: &str, policy: &str, script: &str) -> Value {
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": name },
            "spec": { "backoffLimit": 0, "template": self.template(name, policy, script) },
        })
    }

    pub(super) fn deployment(&self, name: &str, replicas: u32, script: &str) -> Value {
        self.set("Deployment", name, replicas, script)
    }

    pub(super) fn stateful_set(&self, name: &str, script: &str) -> Value {
        let mut set = self.set("StatefulSet", name, 1, script);
        set["spec"]["serviceName"] = json!(name);
        set
    }

    fn set(&self, kind: &str, name: &str, replicas: u32, script: &str) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": name } },
                "template": self.template(name, "Always", script),
            },
        })
    }

    fn template(&self, name: &str, policy: &str, script: &str) -> Value {
        json!({
            "metadata": { "labels": { "app": name } },
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": 1,
                "containers": [container("app", script)],
                "volumes": [{ "name": "starts", "hostPath": { "path": self.starts } }],
            },
        })
    }
}

fn container(name: &str, script: &str) -> Value {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!({
        "name": name,
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", format!("echo >>/starts/$NAME-$UID-{name}; {script}")],
        "env": [field("NAME", "metadata.name"), field("UID", "metadata.uid")],
        "volumeMounts": [{ "name": "starts", "mountPath": "/starts" }],
    })
}

fn push(list: &mut Value, value: Value) {
    list.as_array_mut().unwrap().push(value);
}
