//! Look-ups for explanations of a plan's verdicts: the rows behind its objects, which object uses which, and what is
//! known of the pods. Never judges.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::index::RowSet;
use super::knowledge::Knowledge;
use super::{Plan, Policy, Subject};
use crate::model::{
    Container, ContainerImage, Image, ImageMatcher, Images, LogLink, PodHistory, PodLogDir, PodRef,
    PodSandbox, PodSandboxId, Snapshot, Target, container_id_of, short_duration,
};

/// The snapshot behind a plan, indexed for explanations.
#[derive(Debug)]
pub struct PlanFacts<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) knowledge: Knowledge<'a>,
    /// The containers that the plan removes.
    pub(super) gone: RowSet,
    /// Places by id.
    containers: BTreeMap<&'a str, usize>,
    sandboxes: BTreeMap<&'a str, usize>,
    images: BTreeMap<Cow<'a, str>, &'a Image>,
    /// By their paths, as the links.
    log_dirs: BTreeMap<&'a str, &'a PodLogDir>,
    log_links: BTreeMap<&'a str, &'a LogLink>,
    /// The containers that stay.
    containers_in: BTreeMap<&'a PodSandboxId, Vec<&'a Container>>,
    /// The containers that stay, by their image. Most share it with others.
    users: BTreeMap<&'a ContainerImage, (ImageMatcher, Vec<&'a Container>)>,
}

impl<'a> PlanFacts<'a> {
    /// Indexes the snapshot and the policy that `plan` was made from.
    pub fn of(snapshot: &'a Snapshot, policy: &'a Policy, plan: &Plan) -> Self {
        let knowledge = Knowledge::of(snapshot, policy);
        let going: BTreeSet<&str> = plan
            .removals_of(Target::Containers)
            .map(|removal| removal.subject.id.as_str())
            .collect();
        let mut gone = RowSet::none(snapshot.containers.len());
        let mut containers_in: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut users = BTreeMap::new();
        for (place, container) in knowledge.index.oldest_containers() {
            if going.contains(container.id.as_str()) {
                gone.add(place);
                continue;
            }
            let containers_in = containers_in.entry(&container.sandbox_id).or_default();
            containers_in.push(container);
            let image = &*container.image;
            let matcher = || ImageMatcher::new(image.names.iter().map(String::as_str));
            let (_, users) = users
                .entry(image)
                .or_insert_with(|| (matcher(), Vec::new()));
            users.push(container);
        }
        let images = match &snapshot.images {
            Images::Known(store) => store.rows.iter().map(|row| (row.key(), row)).collect(),
            Images::Unknown(_) => BTreeMap::new(),
        };
        let (dirs, links) = (snapshot.logs.dirs.iter(), snapshot.logs.links.iter());
        let containers = snapshot.containers.iter().zip(0..);
        let sandboxes = snapshot.sandboxes.iter().zip(0..);
        Self {
            snapshot,
            policy,
            gone,
            knowledge,
            containers: containers.map(|(row, at)| (row.id.as_str(), at)).collect(),
            sandboxes: sandboxes.map(|(row, at)| (row.id.as_str(), at)).collect(),
            images,
            log_dirs: dirs.map(|it| (it.path.as_str(), it)).collect(),
            log_links: links.map(|it| (it.path.as_str(), it)).collect(),
            containers_in,
            users,
        }
    }

    /// Returns a container and its place.
    pub(super) fn container(&self, id: &str) -> Option<(usize, &'a Container)> {
        let place = *self.containers.get(id)?;
        Some((place, self.snapshot.containers.get(place)?))
    }

    /// Returns a sandbox and its place.
    pub(super) fn sandbox(&self, id: &str) -> Option<(usize, &'a PodSandbox)> {
        let place = *self.sandboxes.get(id)?;
        Some((place, self.snapshot.sandboxes.get(place)?))
    }

    pub(super) fn image(&self, key: &str) -> Option<&'a Image> {
        self.images.get(key).copied()
    }

    pub(super) fn log_dir(&self, subject: &Subject) -> Option<&'a PodLogDir> {
        self.log_dirs.get(subject.id.as_str()).copied()
    }

    pub(super) fn log_link(&self, subject: &Subject) -> Option<&'a LogLink> {
        self.log_links.get(subject.id.as_str()).copied()
    }

    /// Returns the listed container that a link names.
    pub(super) fn linked(&self, link: &LogLink) -> Option<&'a Container> {
        let id = container_id_of(&link.name)?;
        self.container(id.as_str()).map(|(_, row)| row)
    }

    /// Returns the containers that stay in a sandbox, oldest first.
    pub(super) fn containers_in(&self, sandbox: &PodSandbox) -> &[&'a Container] {
        self.containers_in
            .get(&sandbox.id)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the containers that stay and use an image.
    pub(super) fn users(&self, image: &Image) -> impl Iterator<Item = &'a Container> {
        let users = self.users.values();
        let users = users.filter(|(matcher, _)| matcher.matches(image));
        users.flat_map(|(_, users)| users.iter().copied())
    }

    /// Returns a pod's containers, oldest first.
    pub(super) fn containers_of(
        &self,
        pod: Option<&PodRef>,
    ) -> impl Iterator<Item = &'a Container> {
        let rows = self.knowledge.index.oldest_containers();
        let rows = rows.map(|(_, row)| row);
        rows.filter(move |row| is_of(row.pod.as_ref(), pod))
    }

    /// Returns a pod's sandboxes, oldest first.
    pub(super) fn sandboxes_of(
        &self,
        pod: Option<&PodRef>,
    ) -> impl Iterator<Item = &'a PodSandbox> {
        let rows = self.knowledge.index.oldest_sandboxes();
        let rows = rows.map(|(_, row)| row);
        rows.filter(move |row| is_of(row.pod.as_ref(), pod))
    }

    pub(super) fn history(&self, pod: Option<&PodRef>) -> Option<&'a PodHistory> {
        self.snapshot.pod_history.get(&pod?.uid)
    }

    pub(super) fn age_words(&self, then: Timestamp) -> String {
        // After a clock step back, ages are not negative.
        short_duration(self.snapshot.age(then).max(SignedDuration::ZERO))
    }
}

fn is_of(row: Option<&Arc<PodRef>>, pod: Option<&PodRef>) -> bool {
    pod.is_some_and(|pod| row.is_some_and(|row| row.uid == pod.uid))
}

/// Writes an id as people compare it.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

pub(super) fn span(duration: Duration) -> String {
    if duration.as_secs() == 0 && !duration.is_zero() {
        return format!("{duration:?}");
    }
    SignedDuration::try_from(duration).map_or_else(|_| "forever".to_owned(), short_duration)
}
