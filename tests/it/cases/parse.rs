//! The words of a case file. Unknown words are errors.

mod images;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crisweep::gc::{PodKnowledge, Policy, Verdict};
use crisweep::model::{
    ConfigSource, Container, ContainerId, ContainerState, Coverage, Images, Labels, Outage,
    PodHistory, PodList, PodRef, PodSandbox, PodSandboxId, PodSandboxState, PodUid, Pods,
    PodsUnknown, Snapshot, SourcePod, Target, Targets, UnknownTarget,
};
use jiff::Timestamp;

use super::words::{
    self, container_name, container_state, label, pod_state, pod_uid, set_policy, unknown, verdict,
};

/// As the client names the sandbox of a container whose row names none.
const NO_ID: &str = "(no id)";

/// A node and the expectation for each object on it.
pub(crate) struct Case {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) policy: Policy,
    pub(crate) targets: BTreeSet<Target>,
    pub(crate) snapshot: Snapshot,
    pub(crate) expected: Vec<Expected>,
    pub(crate) pods: Vec<(usize, String, PodUid, PodKnowledge)>,
    declared: BTreeMap<String, PodRef>,
}

/// The expectation for one object.
pub(crate) struct Expected {
    pub(crate) line: usize,
    pub(crate) target: Target,
    pub(crate) id: String,
    pub(crate) verdict: Verdict,
    pub(crate) kubelet_removes: bool,
}

/// Reads the cases of a file; the lines before the first `case` belong to all of them.
pub(crate) fn cases(file: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut header: Vec<(usize, &str)> = Vec::new();
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split(" # ").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |error: String| format!("{file}:{number}: {error}");
        if line.starts_with("case ") {
            let mut case = Case::new(file, number);
            for (number, line) in &header {
                case.read(*number, line)
                    .map_err(|error| format!("{file}:{number}: {error}"))?;
            }
            cases.push(case);
        } else if let Some(case) = cases.last_mut() {
            case.read(number, line).map_err(at)?;
        } else {
            // Parsed once here, so that a typo is found even without a case.
            let known = [
                "policy",
                "pods",
                "pod",
                "targets",
                "uptime",
                "fs",
                "volumes",
                "sandbox_images",
            ];
            let word = line.split(' ').next().unwrap_or_default();
            if !known.contains(&word) {
                return Err(at(unknown(word)));
            }
            header.push((number, line));
        }
    }
    match cases
        .iter()
        .find(|case| case.expected.is_empty() && case.pods.is_empty())
    {
        Some(empty) => Err(format!("{file}:{}: the case expects nothing", empty.line)),
        None => Ok(cases),
    }
}

impl Case {
    fn new(file: &str, line: usize) -> Self {
        let snapshot = Snapshot::empty("2026-01-02T12:00:00Z".parse().unwrap());
        let target = Target::ALL
            .into_iter()
            .find(|target| file.contains(&format!("/{target}/")));
        let target = target.unwrap_or(Target::Containers);
        let mut policy = Policy::default();
        // In other cases a preview's logs would be noise.
        policy.logs.enabled = target == Target::Logs;
        // A case without earlier looks has none, and one answer is enough.
        (policy.pods.settle, policy.pods.quiet) = (Duration::ZERO, Duration::ZERO);
        Self {
            file: file.to_owned(),
            line,
            policy,
            targets: [target].into(),
            snapshot,
            expected: Vec::new(),
            pods: Vec::new(),
            declared: BTreeMap::new(),
        }
    }

    /// Returns the pod UID that the case knows under this text.
    pub(crate) fn uid(&self, uid: &str) -> Option<PodUid> {
        self.declared
            .values()
            .map(|pod| &pod.uid)
            .find(|known| known.as_str() == uid)
            .cloned()
    }

    fn read(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (text, expectation) = match text.split_once(" -> ") {
            Some((text, expectation)) => (text, Some(expectation.trim())),
            None => (text, None),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (first, rest) = words.split_first().ok_or("an empty line")?;
        match *first {
            "policy" => rest
                .iter()
                .try_for_each(|word| set_policy(&mut self.policy, word)),
            "targets" => {
                let targets: Targets = rest
                    .join(" ")
                    .parse()
                    .map_err(|error: UnknownTarget| error.to_string())?;
                self.targets = targets.0;
                Ok(())
            }
            "list" => self.read_coverage(rest),
            "uptime" => {
                let [age] = rest else {
                    return Err("say: uptime AGE".into());
                };
                self.snapshot.uptime = words::age(age)?.unsigned_abs();
                Ok(())
            }
            "pods" => self.read_pods(rest),
            "pod" => self.read_pod(line, rest, expectation),
            "last_exit" => {
                let [pod, age] = rest else {
                    return Err("say: last_exit POD AGE".into());
                };
                let pod = self.pod(pod)?.ok_or("it needs a pod")?;
                let at = self.ago(age)?;
                Arc::make_mut(&mut self.snapshot.last_exits).insert(pod.uid, at);
                Ok(())
            }
            "sandbox" => self.read_sandbox(line, rest, expectation),
            "outage" => self.read_outage(rest),
            "dir" => self.read_dir(line, rest, expectation),
            "link" => self.read_link(line, rest, expectation),
            "removed" => self.read_removed(line, rest, expectation),
            "log" => self.read_log(line, rest, expectation),
            "image" => self.read_image(line, rest, expectation),
            "fs" => self.read_filesystem(rest),
            "volumes" => {
                self.store()?.volume_images = images::names(rest);
                Ok(())
            }
            "sandbox_images" => {
                self.store()?.sandbox_images = images::names(rest);
                Ok(())
            }
            "images" if rest == ["unknown"] => {
                self.snapshot.images = Images::Unknown("no route".into());
                Ok(())
            }
            word if word.contains('/') => self.read_container(line, &words, expectation),
            word => Err(unknown(word)),
        }
    }

    fn read_coverage(&mut self, words: &[&str]) -> Result<(), String> {
        if let [name, "whole"] = words {
            let pod = self.pod(name)?.ok_or("it needs a pod")?;
            self.snapshot.whole_pods.insert(pod.uid);
            return Ok(());
        }
        let [list, coverage] = words else {
            return Err("say: list containers|sandboxes partial|living, or list POD whole".into());
        };
        let seen = &mut self.snapshot.seen;
        let seen = match *list {
            "containers" => &mut seen.containers,
            "sandboxes" => &mut seen.sandboxes,
            word => return Err(unknown(word)),
        };
        *seen = match *coverage {
            "partial" => Coverage::Partial,
            "living" => Coverage::Living,
            word => return Err(unknown(word)),
        };
        Ok(())
    }

    fn read_outage(&mut self, words: &[&str]) -> Result<(), String> {
        let [first, last] = words else {
            return Err("say since when, and until when or lasts".into());
        };
        let last_seen = match *last {
            "lasts" => self.snapshot.taken_at,
            age => self.ago(age)?,
        };
        self.snapshot.outage = Some(Outage {
            first_seen: self.ago(first)?,
            last_seen,
            fits_since: (*last != "lasts").then_some(last_seen),
        });
        Ok(())
    }

    fn read_pods(&mut self, words: &[&str]) -> Result<(), String> {
        self.snapshot.pods = match words {
            ["known"] => Pods::Known(PodList::default()),
            ["known", "mirrors"] => Pods::Known(PodList {
                by_mirrors: true,
                ..PodList::default()
            }),
            ["known", word] => match word.split_once('=') {
                Some(("as_of", age)) => Pods::Known(PodList {
                    as_of: Some(self.ago(age)?),
                    ..PodList::default()
                }),
                _ => return Err(unknown(word)),
            },
            ["none"] => Pods::Unknown(PodsUnknown::NoSource),
            ["settling"] => Pods::Unknown(PodsUnknown::Settling),
            ["failed"] => Pods::Unknown(PodsUnknown::Failed("no route".into())),
            _ => return Err(unknown(&words.join(" "))),
        };
        Ok(())
    }

    fn read_pod(&mut self, line: usize, words: &[&str], state: Option<&str>) -> Result<(), String> {
        let (name, words) = words.split_first().ok_or("a pod needs a name")?;
        let (mut is_static, mut finished, mut absent) = (false, None, false);
        let (mut uid_is_static, mut namespace) = (None, "default");
        let (mut history, mut in_list) = (PodHistory::default(), None);
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("active", "") => finished = Some(false),
                ("succeeded" | "failed", "") => finished = Some(true),
                ("absent", "") => absent = true,
                ("static", "") => is_static = true,
                ("since", age) => history.over_since = Some(self.ago(age)?),
                ("source", word) => history.config_source = Some(words::config_source(word)?),
                ("listed", word) => in_list = Some(words::config_source(word)?),
                ("uid", "hash") => uid_is_static = Some(true),
                ("uid", "uuid") => uid_is_static = Some(false),
                ("ns", "?") => namespace = "",
                ("ns", value) => namespace = value,
                _ => return Err(unknown(word)),
            }
        }
        let uid = pod_uid(name, uid_is_static.unwrap_or(is_static));
        match (&mut self.snapshot.pods, finished, absent) {
            (Pods::Known(list), Some(finished), false) => {
                list.pods.insert(
                    uid.clone(),
                    SourcePod {
                        finished,
                        config_source: in_list.unwrap_or(if is_static {
                            ConfigSource::File
                        } else {
                            ConfigSource::Api
                        }),
                    },
                );
            }
            (Pods::Known(_), None, true) | (Pods::Unknown(_), None, false) => {}
            (Pods::Known(_), _, _) => return Err("say how the list has it, or absent".into()),
            (Pods::Unknown(_), _, _) => return Err("there is no list that could have it".into()),
        }
        if history.over_since.is_some() && finished != Some(true) && !absent {
            return Err("say since when it is finished or absent".into());
        }
        history.absent_since = history.over_since.filter(|_| absent);
        if history != PodHistory::default() {
            Arc::make_mut(&mut self.snapshot.pod_history).insert(uid.clone(), history);
        }
        if let Some(state) = state {
            self.pods
                .push((line, (*name).to_owned(), uid.clone(), pod_state(state)?));
        }
        let pod = PodRef {
            uid,
            namespace: namespace.into(),
            name: (*name).into(),
        };
        match self.declared.insert((*name).to_owned(), pod) {
            Some(_) => Err(format!("pod \"{name}\" is there twice")),
            None => Ok(()),
        }
    }

    pub(super) fn pod(&self, name: &str) -> Result<Option<PodRef>, String> {
        match (name, self.declared.get(name)) {
            ("-", _) => Ok(None),
            (_, Some(pod)) => Ok(Some(pod.clone())),
            (_, None) => Err(format!("no pod \"{name}\"")),
        }
    }

    fn read_container(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [whole, state, age, rest @ ..] = words else {
            return Err("say: POD/NAME#N STATE AGE".into());
        };
        let (pod, name, attempt) = container_name(whole)?;
        let state = container_state(state)?;
        let (created_at, finished_at) = match (state, *age) {
            (ContainerState::Exited, "?") => (None, None),
            (ContainerState::Exited, age) => (Some(self.ago(age)?), Some(self.ago(age)?)),
            (_, age) => (Some(self.ago(age)?), None),
        };
        let (rest, created_at) = match rest {
            ["created", age, rest @ ..] if state == ContainerState::Exited => {
                (rest, self.ago(age)?)
            }
            rest => (rest, created_at.ok_or("say when it was created")?),
        };
        let mut container = Container {
            id: ContainerId::new(*whole).ok_or("empty id")?,
            sandbox_id: PodSandboxId::new(format!("{pod}#0")).ok_or("empty id")?,
            name: name.into(),
            attempt,
            state,
            created_at,
            finished_at,
            exit_undated: false,
            pod: self.pod(pod)?.map(Arc::new),
            image: Arc::default(),
            labels: Labels::default(),
        };
        let image = Arc::make_mut(&mut container.image);
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("id", value) => container.id = ContainerId::new(value).ok_or("empty id")?,
                ("in", value) => {
                    let id = if value == "?" { NO_ID } else { value };
                    container.sandbox_id = PodSandboxId::new(id).ok_or("empty id")?;
                }
                ("label", value) => container.labels = [label(value)?].into_iter().collect(),
                ("image", value) => image.names.push(value.to_owned()),
                ("handler", value) => value.clone_into(&mut image.handler),
                _ => return Err(unknown(word.split('=').next().unwrap_or_default())),
            }
        }
        self.name_as_logs_do(&mut container, whole);
        self.expect(line, Target::Containers, container.id.as_str(), expectation)?;
        self.snapshot.containers.push(container);
        Ok(())
    }

    fn read_sandbox(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [whole, state, age, rest @ ..] = words else {
            return Err("say: sandbox POD#N STATE AGE".into());
        };
        let (pod, attempt) = whole.split_once('#').ok_or("no #attempt")?;
        let state = match *state {
            "ready" => PodSandboxState::Ready,
            "notready" => PodSandboxState::NotReady,
            word => return Err(unknown(word)),
        };
        let mut sandbox = PodSandbox {
            id: PodSandboxId::new(*whole).ok_or("empty id")?,
            pod: self.pod(pod)?.map(Arc::new),
            attempt: attempt
                .parse()
                .map_err(|_error| format!("\"{attempt}\" is no attempt"))?,
            state,
            created_at: self.ago(age)?,
            config_source: None,
            labels: Labels::default(),
        };
        let mut quarantined = None;
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("id", value) => sandbox.id = PodSandboxId::new(value).ok_or("empty id")?,
                ("label", value) => sandbox.labels = [label(value)?].into_iter().collect(),
                ("source", word) => sandbox.config_source = Some(words::config_source(word)?),
                ("quarantined_for", value) => quarantined = Some(words::age(value)?),
                _ => return Err(unknown(word.split('=').next().unwrap_or_default())),
            }
        }
        if let Some(left) = quarantined {
            self.snapshot
                .quarantine
                .insert(sandbox.id.clone(), self.snapshot.taken_at + left);
        }
        self.expect(line, Target::Sandboxes, sandbox.id.as_str(), expectation)?;
        self.snapshot.sandboxes.push(sandbox);
        Ok(())
    }

    pub(super) fn expect(
        &mut self,
        line: usize,
        target: Target,
        id: &str,
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let expectation = match (self.targets.contains(&target), expectation) {
            (true, Some(expectation)) => expectation,
            (true, None) => return Err("expects no verdict".into()),
            (false, None) => return Ok(()),
            (false, Some(_)) => return Err(format!("{target} are not judged here")),
        };
        let (text, kubelet) = match expectation.split_once(" (") {
            Some((text, kubelet)) => (text.trim(), Some(format!("({kubelet}"))),
            None => (expectation, None),
        };
        let verdict = verdict(target, text)?;
        let we_remove = matches!(verdict, Verdict::Remove(_));
        let kubelet_removes = match kubelet.as_deref() {
            None => we_remove,
            Some("(kubelet: remove)") if !we_remove => true,
            Some("(kubelet: keep)") if we_remove => false,
            Some("(kubelet: keep)" | "(kubelet: remove)") => {
                return Err("the kubelet agrees: say nothing of it".into());
            }
            Some(word) => return Err(unknown(word)),
        };
        if self
            .expected
            .iter()
            .any(|other| other.target == target && other.id == id)
        {
            return Err(format!("{id} is there twice"));
        }
        self.expected.push(Expected {
            line,
            target,
            id: id.to_owned(),
            verdict,
            kubelet_removes,
        });
        Ok(())
    }

    pub(super) fn ago(&self, text: &str) -> Result<Timestamp, String> {
        Ok(self.snapshot.taken_at - words::age(text)?)
    }
}
