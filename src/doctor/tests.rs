//! A node under construction, and what its report says.

mod crashes;
mod finished;
mod kubelet;
mod limits;
mod litter;
mod node;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kubelet::{Process, assemble};
use super::*;
use crate::config::{Config, Mode};
use crate::model::{
    ConfigSource, Container, ContainerId, ContainerImage, ContainerState, Evidence, EvidenceLog,
    EvidencePod, FailureClass, Labels, PodList, PodOrigin, PodOwner, PodRef, PodSandbox,
    PodSandboxId, PodSandboxState, PodUid, Pods, PodsUnknown, RemoveReason, SourcePod,
};
use crate::snapshot::{Weight, Weights};
use crate::state::{Past, RemovedOfPod};

const MIB: u64 = 1 << 20;

fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().unwrap()
}

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

/// A node under construction.
struct Node {
    facts: DoctorFacts,
    list: PodList,
}

impl Node {
    fn new() -> Self {
        let weight = |bytes| Weight {
            bytes: Some(bytes),
            limit_bytes: 16 * MIB,
        };
        let weights = Weights {
            containers: weight(0),
            sandboxes: weight(0),
            images: weight(0),
        };
        let mut config = Config::default();
        config.node.name = "node-1".to_owned();
        let facts = DoctorFacts {
            taken_at: now(),
            config: Arc::new(config),
            containers: Vec::new().into(),
            sandboxes: Vec::new().into(),
            lists_read: ListsRead {
                containers: true,
                sandboxes: true,
            },
            unread: Vec::new(),
            pods: Pods::Unknown(PodsUnknown::NoSource),
            origin: PodOrigin::default(),
            weights,
            quarantined: BTreeMap::new(),
            past: Ok(Past::default()),
            ends: BTreeMap::new(),
            latency: None,
            kubelet: assemble(None, seen(&[])),
        };
        Self {
            facts,
            list: PodList::default(),
        }
    }

    fn pod(&mut self, name: &str, finished: bool, owner: Option<(&str, &str)>) {
        let uid = PodUid::new(name).unwrap();
        let pod = SourcePod {
            finished,
            config_source: ConfigSource::Api,
        };
        self.list.pods.insert(uid.clone(), pod);
        if let Some((kind, name)) = owner {
            let (kind, name) = (kind.to_owned(), name.to_owned());
            self.list.owners.insert(uid, PodOwner { kind, name });
        }
    }

    /// Adds a container that was created so many minutes ago and, if it is dead, ended right then.
    fn container(
        &mut self,
        pod: &str,
        attempt: u32,
        state: ContainerState,
        minutes: i64,
    ) -> ContainerId {
        let id = ContainerId::new(format!("{pod}-{attempt}")).unwrap();
        self.facts.containers.push(Container {
            id: id.clone(),
            sandbox_id: PodSandboxId::new("s").unwrap(),
            name: "app".into(),
            attempt,
            state,
            created_at: ago(minutes),
            finished_at: (state == ContainerState::Exited).then(|| ago(minutes)),
            exit_undated: false,
            pod: Some(reference(pod)),
            image: Arc::new(ContainerImage::default()),
            labels: Labels::default(),
        });
        self.facts.weights.containers.bytes = Some(1000 * self.facts.containers.len() as u64);
        id
    }

    fn dead(&mut self, pod: &str, attempt: u32, minutes: i64) -> ContainerId {
        self.container(pod, attempt, ContainerState::Exited, minutes)
    }

    fn sandbox(&mut self, pod: &str, labels: &[(&str, &str)], minutes: i64) {
        self.facts.sandboxes.push(PodSandbox {
            id: PodSandboxId::new(format!("{pod}-sandbox")).unwrap(),
            pod: Some(reference(pod)),
            attempt: 0,
            state: PodSandboxState::NotReady,
            created_at: ago(minutes),
            config_source: None,
            labels: labels.iter().copied().collect(),
        });
        self.facts.weights.sandboxes.bytes = Some(2000 * self.facts.sandboxes.len() as u64);
    }

    fn config(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::make_mut(&mut self.facts.config));
    }

    fn past(&mut self) -> &mut Past {
        self.facts.past.as_mut().unwrap()
    }

    fn report(mut self) -> Report {
        if !self.list.pods.is_empty() {
            self.facts.pods = Pods::Known(self.list);
        }
        diagnose(&self.facts)
    }
}

fn seen(args: &[&str]) -> Process {
    let args = std::iter::once("kubelet").chain(args.iter().copied());
    Process::Seen {
        pid: 1,
        args: args.map(str::to_owned).collect(),
        files: Vec::new(),
    }
}

fn reference(pod: &str) -> Arc<PodRef> {
    Arc::new(PodRef {
        uid: PodUid::new(pod).unwrap(),
        namespace: "shop".into(),
        name: pod.into(),
    })
}

fn found<'a>(report: &'a Report, id: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|it| it.id == id)
}

fn severity(report: &Report, id: &str) -> Option<Severity> {
    found(report, id).map(|it| it.severity)
}

fn owners(report: &Report) -> Vec<(&str, &str, u64)> {
    let rows = report.top.owners.iter();
    rows.map(|it| {
        let (kind, name) = (it.kind.as_deref().unwrap(), it.name.as_deref().unwrap());
        (kind, name, it.counts.objects())
    })
    .collect()
}
