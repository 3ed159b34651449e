//! Words about logs, and the kubelet's behaviour for them.

use std::collections::BTreeSet;

use crisweep::gc::PodKnowledge;
use crisweep::gc::knowledge::Knowledge;
use crisweep::model::{
    Container, LinkTarget, LinkedContainer, LogLink, PodLogDir, PodRef, PodUid, RemovedContainer,
    Target, container_id_of,
};
use jiff::Timestamp;

use super::parse::Case;
use super::words::{self, unknown};
use crate::kubelet_model::logs::{Status, removes_dir, removes_link};

const PODS_ROOT: &str = "/var/log/pods";
const CONTAINERS_ROOT: &str = "/var/log/containers";

fn dir_name(pod: &PodRef) -> String {
    format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

impl Case {
    /// In cases about logs containers have full ids, because the links' names need them.
    pub(super) fn name_as_logs_do(&self, container: &mut Container, whole: &str) {
        if self.file.contains("/logs/") && container.id.as_str() == whole {
            container.id = words::container_id(whole);
        }
    }

    /// Reads `dir POD|NAME AGE [orphan=AGE] [file|symlink]`.
    pub(super) fn read_dir(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [name, age, rest @ ..] = words else {
            return Err("say: dir POD|NAME AGE".into());
        };
        let name = match self.pod(name) {
            Ok(Some(pod)) => dir_name(&pod),
            Ok(None) | Err(_) => (*name).to_owned(),
        };
        let mut dir = PodLogDir {
            path: format!("{PODS_ROOT}/{name}").into(),
            name,
            is_dir: true,
            inode: 7,
            modified_at: self.ago(age)?,
            orphan_since: None,
        };
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("orphan", age) => dir.orphan_since = Some(self.ago(age)?),
                ("file" | "symlink", "") => dir.is_dir = false,
                _ => return Err(unknown(word)),
            }
        }
        self.expect(line, Target::Logs, &dir.path, expectation)?;
        self.snapshot.logs.dirs.push(dir);
        Ok(())
    }

    /// Reads `link POD/NAME#N|NAME missing|exists|unclear [not-found|exited|lives] [file]`.
    pub(super) fn read_link(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [name, target, rest @ ..] = words else {
            return Err("say: link POD/NAME#N|NAME missing|exists|unclear".into());
        };
        let name = match words::container_name(name) {
            Ok((pod, container, _)) => {
                let pod = self.pod(pod)?.ok_or("it needs a pod")?;
                let id = words::container_id(name);
                format!("{}_{}_{container}-{id}.log", pod.name, pod.namespace)
            }
            Err(_) => (*name).to_owned(),
        };
        let mut entry = LogLink {
            path: format!("{CONTAINERS_ROOT}/{name}").into(),
            name: name.into(),
            is_link: true,
            target: match *target {
                "missing" => LinkTarget::Missing,
                "exists" => LinkTarget::Exists,
                "unclear" => LinkTarget::Unknown,
                word => return Err(unknown(word)),
            },
            container: LinkedContainer::NotAsked,
            modified_at: self.snapshot.taken_at,
        };
        for further in rest {
            match *further {
                "not-found" => entry.container = LinkedContainer::NotFound,
                "exited" => entry.container = LinkedContainer::Exited,
                "lives" => entry.container = LinkedContainer::Lives,
                "file" => entry.is_link = false,
                word => return Err(unknown(word)),
            }
        }
        self.expect(line, Target::Logs, &entry.path, expectation)?;
        self.snapshot.logs.links.push(entry);
        Ok(())
    }

    /// Reads `removed POD/NAME#N AGE [log=PATH] [id=ID]`.
    pub(super) fn read_removed(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [whole, age, rest @ ..] = words else {
            return Err("say: removed POD/NAME#N AGE".into());
        };
        let (pod, name, attempt) = words::container_name(whole)?;
        let pod = self.pod(pod)?.ok_or("it needs a pod")?;
        let mut removed = RemovedContainer {
            id: words::container_id(whole),
            name: name.into(),
            attempt,
            log_path: log_path(&pod, name, attempt).into(),
            pod: pod.into(),
            created_at: self.ago(age)?,
        };
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("log", path) => {
                    let dir = dir_name(&removed.pod);
                    removed.log_path = path.replace("DIR", &format!("{PODS_ROOT}/{dir}")).into();
                }
                _ => return Err(unknown(word)),
            }
        }
        self.expect(line, Target::Logs, &removed.log_path, expectation)?;
        self.snapshot.removed.push(removed);
        Ok(())
    }

    /// Reads `log POD/NAME#N`: the log of a container that the same plan removes.
    pub(super) fn read_log(
        &mut self,
        line: usize,
        words: &[&str],
        expectation: Option<&str>,
    ) -> Result<(), String> {
        let [whole] = words else {
            return Err("say: log POD/NAME#N".into());
        };
        let (pod, name, attempt) = words::container_name(whole)?;
        let pod = self.pod(pod)?.ok_or("it needs a pod")?;
        let path = log_path(&pod, name, attempt);
        self.expect(line, Target::Logs, &path, expectation)
    }
}

fn log_path(pod: &PodRef, name: &str, attempt: u32) -> String {
    format!("{PODS_ROOT}/{}/{name}/{attempt}.log", dir_name(pod))
}

/// The logs that the kubelet removes, including those of its removed containers.
pub(super) fn kubelets(
    case: &Case,
    knowledge: &Knowledge<'_>,
    synced: bool,
) -> BTreeSet<(Target, String)> {
    let logs = &case.snapshot.logs;
    let is_deleted = |uid: &str| match case.uid(uid) {
        Some(uid) => is_deleted(knowledge, &uid),
        None => true,
    };
    let dirs = logs.dirs.iter();
    let dirs = dirs.filter(|dir| removes_dir(&dir.name, synced, &is_deleted));
    let links = logs.links.iter().filter(|link| {
        let missing = link.target == LinkTarget::Missing;
        removes_link(&link.path, missing, &|id| status(case, link, id))
    });
    let removed = case.snapshot.removed.iter().map(|it| it.log_path.clone());
    let planned = case.snapshot.containers.iter().filter_map(|it| {
        let pod = it.pod.as_ref()?;
        Some(log_path(pod, &it.name, it.attempt).into())
    });
    let planned = planned.filter(|_| case.targets.contains(&Target::Containers));
    dirs.map(|dir| dir.path.clone())
        .chain(links.map(|link| link.path.clone()))
        .chain(removed)
        .chain(planned)
        .map(|path| (Target::Logs, path.to_string()))
        .collect()
}

/// The kubelet knows its own pods: the age of our list does not matter to it.
fn is_deleted(knowledge: &Knowledge<'_>, uid: &PodUid) -> bool {
    knowledge.get_or_absent(uid, Timestamp::MIN) == PodKnowledge::Deleted
}

fn status(case: &Case, link: &LogLink, id: &str) -> Status {
    use crisweep::model::ContainerState::{Exited, Running};
    let listed = case
        .snapshot
        .containers
        .iter()
        .find(|it| it.id.as_str() == id);
    let known = container_id_of(&link.name).is_some();
    match (listed, link.container) {
        (Some(container), _) => Status::Is(container.state),
        (None, LinkedContainer::Exited) if known => Status::Is(Exited),
        (None, LinkedContainer::Lives) if known => Status::Is(Running),
        (None, _) => Status::Fails,
    }
}
