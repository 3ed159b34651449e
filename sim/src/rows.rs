//! Labels and annotations as the kubelet sets them: they are most of a list's weight.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ids::Ids;
use super::node::{LABEL_CONTAINER_NAME, LABEL_POD_NAME, LABEL_POD_NAMESPACE, LABEL_POD_UID};
use super::spec::{ContainerSpec, PodSpec};
use crisweep_proto::cri;

const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";

/// The pod of a new container.
#[derive(Debug)]
pub(super) struct Pod<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) uid: &'a str,
    pub(super) sandbox_id: &'a str,
}

type Pairs = BTreeMap<String, String>;

pub(super) fn container_labels(pod: &Pod<'_>, name: &str) -> Pairs {
    if !pod.spec.managed {
        return Pairs::new();
    }
    kubelet_labels(&pod.spec.namespace, &pod.spec.name, pod.uid, Some(name))
}

pub(super) fn container_annotations(pod: &Pod<'_>, spec: &ContainerSpec, ids: &mut Ids) -> Pairs {
    if !pod.spec.managed {
        return Pairs::new();
    }
    let hash = ids.rng().u32(..);
    let ports =
        r#"[{"name":"http","hostPort":0,"containerPort":8080,"protocol":"TCP","hostIP":""}]"#;
    let stop = r#"{"exec":{"command":["/bin/sh","-c","sleep 5"]}}"#;
    pairs([
        ("io.kubernetes.container.hash", &format!("{hash:08x}")),
        ("io.kubernetes.container.ports", ports),
        ("io.kubernetes.container.preStopHandler", stop),
        (RESTART_COUNT, &spec.attempt.to_string()),
        (
            "io.kubernetes.container.terminationMessagePath",
            "/dev/termination-log",
        ),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "30"),
    ])
}

pub(super) fn set_restart_count(row: &mut cri::Container, attempt: u32) {
    if let Some(count) = row.annotations.get_mut(RESTART_COUNT) {
        *count = attempt.to_string();
    }
}

pub(super) fn sandbox_labels(spec: &PodSpec, uid: &str) -> Pairs {
    let mut labels = spec.labels.clone();
    if spec.managed {
        labels.extend(kubelet_labels(&spec.namespace, &spec.name, uid, None));
        let instance = format!("{}-{}", spec.name, spec.namespace);
        labels.extend(pairs([
            ("app.kubernetes.io/component", "backend"),
            ("app.kubernetes.io/instance", &instance),
            ("app.kubernetes.io/managed-by", "Helm"),
            ("app.kubernetes.io/name", &spec.name),
            ("app.kubernetes.io/part-of", &spec.namespace),
            ("app.kubernetes.io/version", "1.4.2"),
            ("pod-template-hash", "6d4cf56db6"),
        ]));
    }
    labels
}

pub(super) fn sandbox_annotations(
    spec: &PodSpec,
    uid: &str,
    ids: &mut Ids,
    created_at: Timestamp,
) -> Pairs {
    if !spec.managed {
        return Pairs::new();
    }
    let seen = created_at.to_string();
    let address = format!("10.244.{}.{}/32", ids.rng().u8(..), ids.rng().u8(1..));
    let network = format!(
        r#"[{{"name":"k8s-pod-network","ips":["{}"],"default":true,"dns":{{}}}}]"#,
        address.trim_end_matches("/32")
    );
    let mut annotations = pairs([
        ("checksum/config", &ids.digest()),
        ("cni.projectcalico.org/containerID", &ids.digest()),
        ("cni.projectcalico.org/podIP", &address),
        ("cni.projectcalico.org/podIPs", &address),
        ("kubectl.kubernetes.io/restartedAt", &seen),
        ("kubernetes.io/config.seen", &seen),
        (
            "kubernetes.io/config.source",
            if spec.is_static { "file" } else { "api" },
        ),
        ("k8s.v1.cni.cncf.io/network-status", &network),
        ("prometheus.io/port", "8080"),
        ("prometheus.io/scrape", "true"),
    ]);
    if spec.is_static {
        annotations.insert("kubernetes.io/config.hash".to_owned(), uid.to_owned());
    }
    annotations
}

pub(super) fn image_spec(id: &str, tag: &str) -> cri::ImageSpec {
    cri::ImageSpec {
        image: id.to_owned(),
        user_specified_image: tag.to_owned(),
        ..cri::ImageSpec::default()
    }
}

/// Returns the labels that the kubelet gives a container; a sandbox gets the first three.
fn kubelet_labels(namespace: &str, pod: &str, uid: &str, container: Option<&str>) -> Pairs {
    let mut labels = pairs([
        (LABEL_POD_NAME, pod),
        (LABEL_POD_NAMESPACE, namespace),
        (LABEL_POD_UID, uid),
    ]);
    labels.extend(container.map(|name| (LABEL_CONTAINER_NAME.to_owned(), name.to_owned())));
    labels
}

/// Returns pairs as entries of a map on the wire.
pub(super) fn entries(pairs: &Pairs) -> Vec<cri::EntryRow> {
    let entry = |(key, value): (&String, &String)| cri::EntryRow {
        key: key.clone().into(),
        value: value.clone().into(),
    };
    pairs.iter().map(entry).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Pairs {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
