//! The log roots: their content, since when each directory is an orphan, and the runtime's answers about
//! containers of dead links.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::queries::{Queries, QueryLimits};
use super::{ListResult, LookMemory, PodHistories, timed};
use crate::logs::{ENTRIES_MAX, KnownLinks, Roots, scan};
use crate::model::{
    Container, ContainerId, ContainerState, Coverage, LinkTarget, LinkedContainer, Logs,
    PodSandbox, PodUid, Pods, Rows, Text, container_id_of, pod_uid_of,
};
use crate::pods::LookStart;
use crate::runtime;
use crate::system::blocking::BlockingPool;
use crate::system::maps::IdSet;

/// How long a look waits for the roots on a dead disk.
const SCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a look asks about containers of dead links. Unread links are kept, and the next look goes on with
/// them.
const LINKS_BUDGET: Duration = Duration::from_secs(3);

/// What one look must know of earlier ones.
#[derive(Debug, Default)]
pub(super) struct LogHistory {
    /// Since when each directory is an orphan, by path.
    orphans: BTreeMap<Text, Instant>,
    /// Containers that the runtime did not find; an id never comes back.
    not_found: BTreeSet<ContainerId>,
    asker: Queries<ContainerId, Option<runtime::ContainerStatus>>,
    links: KnownLinks,
}

/// The runtime's lists of the same look.
type Lists<'a> = (&'a ListResult<Container>, &'a ListResult<PodSandbox>);

/// What the pod source says of a directory's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirOwner {
    /// It exists.
    Listed,
    /// An answer that is believed lacks it.
    Absent,
    /// No answer that is believed says anything of it.
    Unknown,
}

impl DirOwner {
    fn of(uid: &PodUid, pods: &Pods, histories: &PodHistories) -> Self {
        match pods.known() {
            Some(list) if list.pods.contains_key(uid) => Self::Listed,
            Some(_) if histories.is_absent(uid) => Self::Absent,
            Some(_) | None => Self::Unknown,
        }
    }
}

impl LookMemory {
    /// Adds what the runtime and the pod source know of the same look; call it after [`Self::note`]. Asks the runtime
    /// for at most [`LINKS_BUDGET`].
    pub(super) async fn fill_logs(
        &mut self,
        client: &runtime::Client,
        logs: &mut Logs,
        lists: Lists<'_>,
        pods: &Pods,
        look: LookStart,
    ) {
        let (known, histories) = (&mut self.logs, &self.pod_histories);
        let (Ok(containers), Ok(sandboxes)) = lists else {
            // An incomplete list proves no pod's end. Known orphans stay known.
            return;
        };
        if logs.dirs.is_empty() && logs.links.is_empty() && known.is_empty() {
            return;
        }
        let of_containers = containers.rows.iter().filter_map(|it| it.pod.as_ref());
        let of_sandboxes = sandboxes.rows.iter().filter_map(|it| it.pod.as_ref());
        let shown = of_containers.chain(of_sandboxes).map(|pod| &pod.uid);
        let coverage = containers.coverage.min(sandboxes.coverage);
        let owner = |uid: &PodUid| DirOwner::of(uid, pods, histories);
        known.date_orphans(logs, &shown.collect(), coverage, owner, look);
        known.ask(client, logs, &containers.rows).await;
    }
}

impl LogHistory {
    /// Reads the roots, if any, and measures the time.
    pub(super) async fn read(
        &mut self,
        disk: &BlockingPool,
        roots: Option<Roots>,
        took: &mut Duration,
    ) -> Logs {
        let Some(roots) = roots else {
            return Logs::default();
        };
        let known = std::mem::take(&mut self.links);
        let work = move || scan(&roots, known);
        let scanned = timed(took, disk.run(SCAN_TIMEOUT, work)).await;
        match scanned {
            Ok((logs, links)) => {
                self.links = links;
                logs
            }
            Err(error) => Logs {
                unread: vec![format!("log roots: {error}")],
                ..Logs::default()
            },
        }
    }

    fn is_empty(&self) -> bool {
        self.orphans.is_empty() && self.not_found.is_empty()
    }

    /// Dates each orphaned directory; `shown` are the pods of which the runtime's lists show something. A pod
    /// that is seen again starts anew; a failed or incomplete answer changes nothing. A step of the
    /// wall clock makes no orphan older.
    fn date_orphans(
        &mut self,
        logs: &mut Logs,
        shown: &IdSet<&PodUid>,
        coverage: Coverage,
        owner: impl Fn(&PodUid) -> DirOwner,
        look: LookStart,
    ) {
        if forgets(logs, self.orphans.len()) {
            let present: BTreeSet<&str> = logs.dirs.iter().map(|dir| dir.path.as_str()).collect();
            self.orphans
                .retain(|path, _| present.contains(path.as_str()));
        }
        for dir in logs.dirs.iter_mut() {
            let Some(uid) = pod_uid_of(&dir.name) else {
                continue;
            };
            let owner = owner(&uid);
            if shown.contains(&uid) || owner == DirOwner::Listed {
                self.orphans.remove(&dir.path);
            } else if owner == DirOwner::Absent
                && coverage == Coverage::Whole
                && !self.orphans.contains_key(&dir.path)
            {
                self.orphans.insert(dir.path.clone(), look.began);
            }
            dir.orphan_since = self.orphans.get(&dir.path).map(|at| look.wall_time_of(*at));
        }
    }

    /// Asks about the containers of dead links that the list lacks, each once.
    async fn ask(
        &mut self,
        client: &runtime::Client,
        logs: &mut Logs,
        containers: &Rows<Container>,
    ) {
        let mut dead: BTreeMap<usize, ContainerId> = logs
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| link.is_link && link.target == LinkTarget::Missing)
            .filter_map(|(at, link)| Some((at, container_id_of(&link.name)?)))
            .collect();
        if !dead.is_empty() {
            let listed: IdSet<&ContainerId> = containers.iter().map(|it| &it.id).collect();
            dead.retain(|_, id| !listed.contains(id));
        }
        if forgets(logs, self.not_found.len()) {
            let named: BTreeSet<&ContainerId> = dead.values().collect();
            self.not_found.retain(|id| named.contains(id));
            self.asker.retain(|id| named.contains(id));
        }
        if dead.is_empty() {
            return;
        }
        let unasked = dead.values().filter(|id| !self.not_found.contains(*id));
        let unasked = unasked.cloned().collect();
        let answers = answers(&mut self.asker, client, unasked).await;
        let gone = answers
            .iter()
            .filter(|(_, answer)| **answer == LinkedContainer::NotFound);
        self.not_found.extend(gone.map(|(id, _)| id.clone()));
        for (at, id) in dead {
            if let Some(link) = logs.links.get_mut(at) {
                link.container = if self.not_found.contains(&id) {
                    LinkedContainer::NotFound
                } else {
                    let answer = answers.get(&id);
                    answer.copied().unwrap_or(LinkedContainer::NotAsked)
                };
            }
        }
    }
}

/// Says whether a look shows what is gone. One that could not read everything does not, until more is known than roots
/// have entries: something that can never be read must not keep what is long gone.
fn forgets(logs: &Logs, known: usize) -> bool {
    logs.unread.is_empty() || known > ENTRIES_MAX
}

async fn answers(
    asker: &mut Queries<ContainerId, Option<runtime::ContainerStatus>>,
    client: &runtime::Client,
    ids: Vec<ContainerId>,
) -> BTreeMap<ContainerId, LinkedContainer> {
    let mut answers = BTreeMap::new();
    let call = |id: ContainerId| {
        let client = client.clone();
        async move { client.container_status(&id).await }
    };
    // An error other than *not found* is no answer.
    let answered = |id, status: Option<runtime::ContainerStatus>, _asked| {
        let answer = match status.map(|status| status.state) {
            None => LinkedContainer::NotFound,
            Some(ContainerState::Exited) => LinkedContainer::Exited,
            Some(ContainerState::Created | ContainerState::Running | ContainerState::Unknown) => {
                LinkedContainer::Lives
            }
        };
        answers.insert(id, answer);
    };
    let until = Instant::now() + LINKS_BUDGET;
    let pass_began = None;
    let limits = QueryLimits { until, pass_began };
    asker.each(ids, limits, call, answered).await;
    answers
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::{ConfigSource, PodList, PodLogDir, PodsUnknown, SourcePod};

    const UID: &str = "0d5f6a2c-1111-4222-8333-0123456789ab";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A look at a second of both clocks.
    fn look(second: i64) -> LookStart {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        LookStart {
            at: at(second),
            began: *START + Duration::from_secs(second.unsigned_abs()),
        }
    }

    /// Looks at a root with one directory, or with none; returns since when it is an orphan.
    fn since(known: &mut LogHistory, second: i64, owner: DirOwner, shown: bool) -> Option<i64> {
        since_on(known, look(second), owner, shown, Coverage::Whole)
    }

    fn since_on(
        known: &mut LogHistory,
        look: LookStart,
        owner: DirOwner,
        shown: bool,
        coverage: Coverage,
    ) -> Option<i64> {
        let dir = PodLogDir {
            name: format!("default_web_{UID}"),
            path: "/the/dir".into(),
            is_dir: true,
            inode: 7,
            modified_at: at(0),
            orphan_since: None,
        };
        let mut logs = Logs {
            dirs: vec![dir].into(),
            ..Logs::default()
        };
        let uid = PodUid::new(UID).unwrap();
        let shown = shown.then_some(&uid).into_iter().collect();
        known.date_orphans(&mut logs, &shown, coverage, |_| owner, look);
        logs.dirs[0].orphan_since.map(Timestamp::as_second)
    }

    #[test]
    fn a_list_alone_makes_no_owner_absent() {
        let uid = PodUid::new(UID).unwrap();
        let owner = |pods| DirOwner::of(&uid, &pods, &PodHistories::default());
        assert_eq!(owner(Pods::Known(PodList::default())), DirOwner::Unknown);
        let pod = SourcePod {
            finished: true,
            config_source: ConfigSource::Api,
        };
        let list = PodList {
            pods: [(uid.clone(), pod)].into(),
            ..PodList::default()
        };
        assert_eq!(owner(Pods::Known(list)), DirOwner::Listed);
        assert_eq!(
            owner(Pods::Unknown(PodsUnknown::Settling)),
            DirOwner::Unknown
        );
    }

    #[test]
    fn an_orphan_is_dated_from_the_first_list_that_lacks_it() {
        let (known, absent) = (&mut LogHistory::default(), DirOwner::Absent);
        let unknown = DirOwner::Unknown;
        assert_eq!(since(known, 10, unknown, false), None);
        assert_eq!(since(known, 20, absent, true), None);
        assert_eq!(since(known, 30, absent, false), Some(30));
        // A missing answer does not change what was known.
        assert_eq!(since(known, 40, unknown, false), Some(30));
        assert_eq!(since(known, 50, absent, false), Some(30));
        // The runtime or a list has it again, even as finished.
        assert_eq!(since(known, 60, unknown, true), None);
        assert_eq!(since(known, 70, unknown, false), None);
        assert_eq!(since(known, 80, absent, false), Some(80));
        assert_eq!(since(known, 90, DirOwner::Listed, false), None);
        assert_eq!(since(known, 100, absent, false), Some(100));
    }

    #[test]
    fn directories_that_come_and_go_are_forgotten_beside_a_root_that_can_never_be_read() {
        let mut known = LogHistory::default();
        for number in 0..3 {
            let dirs = (0..ENTRIES_MAX).map(|entry| PodLogDir {
                name: format!("default_web_0d5f6a2c-1111-4222-{number:04x}-{entry:012x}"),
                path: format!("/{number}/{entry}").into(),
                is_dir: true,
                inode: 7,
                modified_at: at(0),
                orphan_since: None,
            });
            let mut logs = Logs {
                dirs: dirs.collect::<Vec<_>>().into(),
                unread: vec!["permission denied".into()],
                ..Logs::default()
            };
            let (nobody, whole) = (IdSet::default(), Coverage::Whole);
            known.date_orphans(
                &mut logs,
                &nobody,
                whole,
                |_| DirOwner::Absent,
                look(number),
            );
            assert_eq!(logs.dirs[0].orphan_since, Some(at(number)));
        }
        assert!(known.orphans.len() <= 2 * ENTRIES_MAX);
    }

    #[test]
    fn a_missing_directory_is_forgotten_and_an_unread_one_is_not() {
        let (known, absent) = (&mut LogHistory::default(), DirOwner::Absent);
        assert_eq!(since(known, 10, absent, false), Some(10));
        let mut unread = Logs {
            unread: vec!["it hangs".into()],
            ..Logs::default()
        };
        let (nobody, whole) = (IdSet::default(), Coverage::Whole);
        known.date_orphans(&mut unread, &nobody, whole, |_| absent, look(20));
        assert_eq!(since(known, 30, absent, false), Some(10));
        known.date_orphans(&mut Logs::default(), &nobody, whole, |_| absent, look(40));
        assert_eq!(since(known, 50, absent, false), Some(50));
    }

    #[test]
    fn a_clock_that_steps_forward_makes_no_orphan_older() {
        let (known, absent) = (&mut LogHistory::default(), DirOwner::Absent);
        assert_eq!(since(known, 10, absent, false), Some(10));
        let stepped = LookStart {
            at: at(3_600),
            ..look(20)
        };
        let since = since_on(known, stepped, absent, false, Coverage::Whole);
        assert_eq!(since, Some(3_590));
    }

    #[test]
    fn an_incomplete_look_makes_no_orphan() {
        let (known, absent) = (&mut LogHistory::default(), DirOwner::Absent);
        for coverage in [Coverage::Partial, Coverage::Living] {
            let since = since_on(known, look(10), absent, false, coverage);
            assert_eq!(since, None, "{coverage:?}");
        }
        assert_eq!(since(known, 20, absent, false), Some(20));
        // A missing answer does not end what was known.
        let later = since_on(known, look(30), absent, false, Coverage::Partial);
        assert_eq!(later, Some(20));
    }
}
