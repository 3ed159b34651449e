//! The pods that the node's kubelet knows, and its `/pods` answer. Records of all other pods are litter.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

/// A pod's phase, as Kubernetes names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It runs.
    #[default]
    Running,
    /// All containers ended with success and will not run again.
    Succeeded,
    /// All containers ended, at least one with failure, and will not run again.
    Failed,
}

/// A pod that the kubelet knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a UUID, or 32 hex digits for a static pod.
    pub uid: String,
    /// It comes from a file on the node.
    pub is_static: bool,
    /// Its phase.
    pub phase: Phase,
    /// When it was created.
    pub created_at: Timestamp,
}

impl KubeletPod {
    pub(super) fn subject(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Says whether no container of the pod will ever run again. A finished static pod runs again at the
    /// kubelet's next start.
    pub(super) fn is_over(&self) -> bool {
        !self.is_static && matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    fn json(&self) -> Value {
        let source = if self.is_static { "file" } else { "api" };
        let mut annotations = json!({
            "kubernetes.io/config.seen": self.created_at.to_string(),
            "kubernetes.io/config.source": source,
        });
        if let (true, Some(map)) = (self.is_static, annotations.as_object_mut()) {
            map.insert("kubernetes.io/config.hash".to_owned(), json!(self.uid));
        }
        json!({
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "creationTimestamp": self.created_at.to_string(),
                "annotations": annotations,
            },
            "spec": {},
            "status": { "phase": format!("{:?}", self.phase) },
        })
    }
}

/// Writes the answer of the kubelet's `/pods`. Its items carry neither `apiVersion` nor `kind`.
pub(super) fn pods_json(pods: &BTreeMap<String, KubeletPod>) -> String {
    let items: Vec<Value> = pods.values().map(KubeletPod::json).collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }).to_string()
}
