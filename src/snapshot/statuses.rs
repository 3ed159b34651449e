//! Facts that only a container's status has: when it exited, and which images it has mounted. Each container is
//! asked once, and once more after it exited. Neither fact changes after that, so the answer is kept as long as
//! the container is listed.
//!
//! And when a dead container was created, where the list does not say it: containerd forgets it where it cannot read the
//! container's status file at its start. Its status has the time of containerd's own record.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::queries::{AnswerAge, Queries, QueryLimits};
use crate::model::{
    Container, ContainerId, ContainerState, Coverage, ImageNames, PodSandbox, PodUid,
};
use crate::runtime;
use crate::system::maps::{IdMap, IdSet};

/// Remembered statuses, or pods, while lists are incomplete; above that only those of listed ones are kept.
pub(super) const KNOWN_MAX: usize = 1 << 16;

/// What a container's status said.
#[derive(Clone, Copy, Debug)]
enum ExitStatus {
    /// It had not exited.
    NoExit,
    /// Its exit time.
    Exit(Timestamp),
    /// It had exited, and the runtime gives no time: when crisweep first saw it exited.
    SeenExited(Timestamp),
}

#[derive(Debug, Default)]
pub(super) struct Statuses {
    known: IdMap<ContainerId, ExitStatus>,
    /// Separate, because most containers have none.
    volumes: BTreeMap<ContainerId, Vec<String>>,
    /// When those were created whose list does not say it; `None`: nor does their status.
    created: BTreeMap<ContainerId, Option<Timestamp>>,
    /// When each pod's last container exited.
    pub(super) last_exits: BTreeMap<PodUid, Timestamp>,
    asker: Queries<ContainerId, Option<runtime::ContainerStatus>>,
}

impl Statuses {
    /// Fills in `finished_at` of the exited rows, and `created_at` where the list lacks it. Asks for unknown ones within
    /// `limits`, exited containers first, oldest creation first. Returns how many exited containers have no known exit
    /// time, and the images that containers have mounted.
    pub(super) async fn fill(
        &mut self,
        client: &runtime::Client,
        containers: &mut runtime::Listing<Container>,
        now: Timestamp,
        limits: QueryLimits,
    ) -> (usize, ImageNames) {
        let rows: &mut [Container] = &mut containers.rows;
        let listed: IdSet<&ContainerId> = rows.iter().map(|row| &row.id).collect();
        // Containers missing from a partial list may be listed again.
        let is_part = containers.coverage != Coverage::Whole && self.known.len() < KNOWN_MAX;
        self.known.retain(|id, _| is_part || listed.contains(id));
        self.volumes.retain(|id, _| is_part || listed.contains(id));
        self.created.retain(|id, _| is_part || listed.contains(id));
        self.note_statuses(rows, std::mem::take(&mut containers.mounted));
        self.asker.retain(|id| listed.contains(id));
        let gone = self.ask(client, rows, now, limits).await;
        for row in rows.iter_mut().filter(|row| lacks_creation(row)) {
            // Until its status says it, at its exit: it must not pass for newer than what came after that.
            let at_the_latest = match self.known.get(&row.id) {
                Some(ExitStatus::Exit(at)) => *at,
                Some(ExitStatus::NoExit | ExitStatus::SeenExited(_)) | None => row.created_at,
            };
            let created = self.created.get(&row.id).copied().flatten();
            row.created_at = created.unwrap_or(at_the_latest);
        }
        let mut exits_unknown = 0;
        for row in rows
            .iter_mut()
            .filter(|row| row.state == ContainerState::Exited)
        {
            // After a clock step an exit may lie before the creation: the later of the two errs towards young.
            row.finished_at = match self.known.get(&row.id) {
                Some(ExitStatus::Exit(at) | ExitStatus::SeenExited(at)) => {
                    let created = Some(row.created_at).filter(|at| *at < Timestamp::MAX);
                    Some(created.map_or(*at, |created| created.max(*at)))
                }
                // A row that was read by status has its exit time already.
                Some(ExitStatus::NoExit) | None => row.finished_at,
            };
            let known = self.known.get(&row.id);
            row.exit_undated = matches!(known, Some(ExitStatus::SeenExited(_)));
            match (row.finished_at, &row.pod) {
                (Some(at), Some(pod)) if at <= now => match self.last_exits.get_mut(&pod.uid) {
                    Some(last) => *last = at.max(*last),
                    None => drop(self.last_exits.insert(pod.uid.clone(), at)),
                },
                (Some(_), _) => {}
                (None, _) => exits_unknown += 1,
            }
        }
        (exits_unknown, self.volume_images(rows, &gone))
    }

    /// Notes the statuses that reading the list brought, because rows were read one by one.
    fn note_statuses(&mut self, rows: &[Container], mut mounted: BTreeMap<Box<str>, Vec<String>>) {
        for row in rows {
            let Some(images) = mounted.remove(row.id.as_str()) else {
                continue;
            };
            let told = row.finished_at.map_or(ExitStatus::NoExit, ExitStatus::Exit);
            self.note(&row.id, row.state, told, images);
        }
    }

    fn note(
        &mut self,
        id: &ContainerId,
        state: ContainerState,
        told: ExitStatus,
        volume_images: Vec<String>,
    ) {
        if !volume_images.is_empty() {
            self.volumes.insert(id.clone(), volume_images);
        }
        let before = self.known.get(id).copied();
        let before = before.filter(|it| !matches!(it, ExitStatus::NoExit));
        let status = match (state, told, before) {
            // Its exit, or the time at which crisweep first saw it exited, stays.
            (
                ContainerState::Exited,
                ExitStatus::NoExit | ExitStatus::SeenExited(_),
                Some(before),
            ) => before,
            (ContainerState::Exited, told, _) => told,
            _ => ExitStatus::NoExit,
        };
        self.known.insert(id.clone(), status);
    }

    /// Asks containers with missing facts; returns those that are gone.
    async fn ask(
        &mut self,
        client: &runtime::Client,
        rows: &[Container],
        now: Timestamp,
        limits: QueryLimits,
    ) -> BTreeSet<ContainerId> {
        let undated = rows.iter().filter(|row| lacks_creation(row));
        let undated: IdSet<&ContainerId> = undated.map(|row| &row.id).collect();
        let is_due = |row: &&Container| match self.known.get(&row.id) {
            _ if row.id.is_stand_in() => false,
            _ if undated.contains(&row.id) && !self.created.contains_key(&row.id) => true,
            None => true,
            Some(ExitStatus::NoExit) => row.state == ContainerState::Exited,
            Some(ExitStatus::Exit(_) | ExitStatus::SeenExited(_)) => false,
        };
        let mut due: Vec<&Container> = rows.iter().filter(is_due).collect();
        due.sort_by_key(|row| {
            let lives = row.state != ContainerState::Exited;
            (lives, row.created_at, &row.id)
        });
        let due = due.into_iter().map(|row| row.id.clone()).collect();
        let mut gone = BTreeSet::new();
        let mut asker = std::mem::take(&mut self.asker);
        let call = |id: ContainerId| {
            let client = client.clone();
            async move { client.container_status(&id).await }
        };
        let answered = |id: ContainerId, status: Option<runtime::ContainerStatus>, asked| {
            let Some(status) = status else {
                // It is listed now, so an older answer is wrong.
                if asked == AnswerAge::Now {
                    gone.insert(id);
                }
                return;
            };
            let runtime::ContainerStatus {
                state,
                created_at,
                finished_at,
                volume_images,
                ..
            } = status;
            if undated.contains(&id) {
                let told = Some(created_at).filter(|at| *at < Timestamp::MAX);
                let before = self.created.get(&id).copied().flatten();
                self.created
                    .insert(id.clone(), told.or(before).or(finished_at));
            }
            let told = finished_at.map_or(ExitStatus::SeenExited(now), ExitStatus::Exit);
            self.note(&id, state, told, volume_images);
        };
        asker.each(due, limits, call, answered).await;
        self.asker = asker;
        gone
    }

    /// A container that is gone uses no image; one that did not answer may use any image.
    fn volume_images(&self, rows: &[Container], gone: &BTreeSet<ContainerId>) -> ImageNames {
        let is_known = |id: &ContainerId| self.known.contains_key(id) || gone.contains(id);
        let silent: Vec<&ContainerId> = rows
            .iter()
            .map(|row| &row.id)
            .filter(|id| !is_known(id))
            .collect();
        match silent.as_slice() {
            [] => {}
            [one] => {
                return ImageNames::Unknown(format!(
                    "container {one} has not said yet which images it has mounted"
                ));
            }
            [first, others @ ..] => {
                let others = others.len();
                return ImageNames::Unknown(format!(
                    "container {first} and {others} more have not said yet which images they have mounted"
                ));
            }
        }
        ImageNames::Known(self.volumes.values().flatten().cloned().collect())
    }

    /// Drops the pods of which the runtime has nothing left. An object missing from an incomplete list (`is_part`) may
    /// still exist.
    pub(super) fn forget_pods_without(
        &mut self,
        rows: &[Container],
        sandboxes: &[PodSandbox],
        is_part: bool,
    ) {
        if is_part && self.last_exits.len() < KNOWN_MAX {
            return;
        }
        let of_rows = rows.iter().filter_map(|row| row.pod.as_ref());
        let of_sandboxes = sandboxes.iter().filter_map(|sandbox| sandbox.pod.as_ref());
        let present: IdSet<&PodUid> = of_rows.chain(of_sandboxes).map(|pod| &pod.uid).collect();
        self.last_exits.retain(|uid, _| present.contains(uid));
    }
}

/// Says whether a dead container's creation is unknown. One that was only created may be about to start, however long
/// it was listed so; one that runs stays anyway.
fn lacks_creation(row: &Container) -> bool {
    let is_dead = matches!(row.state, ContainerState::Exited | ContainerState::Unknown);
    is_dead && row.created_at == Timestamp::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_lists_are_incomplete_the_exits_of_unseen_pods_are_bounded() {
        let mut statuses = Statuses::default();
        for number in 1..=KNOWN_MAX {
            let uid = PodUid::new(number.to_string()).unwrap();
            statuses.last_exits.insert(uid, Timestamp::UNIX_EPOCH);
            statuses.forget_pods_without(&[], &[], true);
            assert_eq!(statuses.last_exits.len(), number % KNOWN_MAX);
        }
    }
}
