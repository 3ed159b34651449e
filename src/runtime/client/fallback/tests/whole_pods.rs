//! Pods of which an incomplete list has every record.

use super::*;
use crate::model::PodUid;

fn uid(row: &Container) -> PodUid {
    row.pod.as_ref().unwrap().uid.clone()
}

#[tokio::test]
async fn without_proof_the_pods_that_were_asked_for_are_whole() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_exited();
    for _ in 0..2 {
        let listed = rig.containers().await;
        let pods: BTreeSet<PodUid> = listed.rows.iter().map(uid).collect();
        assert_eq!(pods.len(), 45);
        assert_eq!(listed.whole_pods, pods);
    }
    // Ids that only links tell may not be all of a pod.
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_the_dead();
    rig.write_links();
    let listed = rig.containers().await;
    assert_eq!(listed.mode, ListMode::Status);
    assert!(listed.whole_pods.len() < 45);
}

/// A pod with two containers, whose part was answered with both.
struct PartRead {
    row_cache: RowCache<Container>,
    part: ListFilter,
    containers: [Container; 2],
    /// Another pod's.
    stranger: Container,
}

impl PartRead {
    async fn new() -> Self {
        let rig = Rig::new(Options::not_containerd());
        let rows = rig.containers().await.rows.to_vec();
        let second = rows.iter().find(|it| &*it.name == "b").unwrap();
        let of_pod = rows.iter().filter(|it| uid(it) == uid(second)).cloned();
        let mut read = Self {
            row_cache: RowCache::default(),
            part: ListFilter::Pod(uid(second)),
            containers: of_pod.collect::<Vec<_>>().try_into().unwrap(),
            stranger: rows
                .iter()
                .find(|it| uid(it) != uid(second))
                .unwrap()
                .clone(),
        };
        let page = page(&read.containers.each_ref());
        read.answer(&page);
        read
    }

    fn answer(&mut self, page: &ListChunk<Container>) {
        self.row_cache.keep_page(page);
        self.row_cache.note_part(&self.part, page);
        self.row_cache.read.insert(self.part.clone());
    }

    /// Says whether the pod is whole in a look that found these rows.
    fn is_whole(&mut self, seen: &[&Container]) -> bool {
        let mut found = FoundRows::default();
        found.add(page(seen));
        !self.row_cache.whole_pods(&found).is_empty()
    }
}

fn page(rows: &[&Container]) -> ListChunk<Container> {
    ListChunk {
        rows: rows.iter().copied().cloned().collect(),
        ..ListChunk::default()
    }
}

#[tokio::test]
async fn a_pod_is_whole_while_nothing_of_it_has_changed() {
    let mut read = PartRead::new().await;
    let [first, second] = &read.containers.clone();
    assert!(read.is_whole(&[first, second]));
    // One ended since, or went: this look lacks its present row.
    assert!(!read.is_whole(&[first]));
    assert!(!read.is_whole(&[]));
    assert!(read.is_whole(&[first, second]));
    // One came since: the part is asked for again, until then nothing is certain of the pod.
    let third = Container {
        id: ContainerId::new("third").unwrap(),
        ..first.clone()
    };
    assert!(!read.is_whole(&[first, second, &third]));
    assert!(!read.row_cache.read.contains(&read.part));
    assert!(!read.is_whole(&[first, second]));
    read.answer(&page(&[first, second, &third]));
    assert!(read.is_whole(&[first, second, &third]));
}

#[tokio::test]
async fn a_pod_is_not_whole_after_an_answer_that_may_lack_a_record() {
    type Change = fn(&mut PartRead);
    let changes: [(&str, Change); 9] = [
        ("no record", |read| read.answer(&page(&[]))),
        ("one that cannot be read", |read| {
            let unreadable = ListChunk {
                malformed: 1,
                ..page(&read.containers.each_ref())
            };
            read.answer(&unreadable);
        }),
        ("another pod's", |read| {
            let page = page(&[&read.containers[0], &read.stranger]);
            read.answer(&page);
        }),
        ("none", |read| read.row_cache.note_unread(&read.part)),
        ("a record told elsewhere", |read| {
            let [row, _] = read.containers.clone();
            let entry = found::FoundRow::asked(row, Vec::new());
            read.row_cache.keep("third", entry);
            read.row_cache.rows.remove("third");
        }),
        ("one that is gone", |read| {
            read.row_cache.note_gone(read.containers[1].id.as_str());
        }),
        ("a record in another part", |read| {
            let third = Container {
                id: ContainerId::new("third").unwrap(),
                ..read.containers[0].clone()
            };
            read.row_cache.keep_page(&page(&[&third]));
            read.row_cache.rows.remove("third");
        }),
        ("one that another part lacks", |read| {
            let part = ListFilter::Sandbox(read.containers[1].sandbox_id.clone());
            let page = page(&[&read.containers[0]]);
            read.row_cache.forget_others(&part, &page);
        }),
        ("one whose id is gone", |read| {
            let ids = [(read.containers[0].id.as_str().into(), None)].into();
            read.row_cache.fill(&ids, &mut FoundRows::default());
        }),
    ];
    for (answer, change) in changes {
        let mut read = PartRead::new().await;
        let [first, second] = &read.containers.clone();
        change(&mut read);
        let gone = !read.row_cache.rows.contains_key(second.id.as_str());
        let seen = if gone {
            vec![first]
        } else {
            vec![first, second]
        };
        assert!(!read.is_whole(&seen), "{answer}");
    }
}

#[tokio::test]
async fn with_a_list_of_all_ids_nothing_else_is_remembered() {
    let mut read = PartRead::new().await;
    let [first, second] = &read.containers;
    let own = |row: &Container| (Box::from(row.id.as_str()), Some(uid(row)));
    let stranger = ListFilter::Pod(uid(&read.stranger));
    let row_cache = &mut read.row_cache;
    row_cache
        .refused
        .extend([read.part.clone(), stranger.clone()]);
    row_cache.read.insert(stranger);
    row_cache.note_gone("third");
    let ids = [own(first), own(second)].into();
    row_cache.fill(&ids, &mut FoundRows::default());
    let own = BTreeSet::from([read.part.clone()]);
    assert_eq!((&row_cache.refused, &row_cache.read), (&own, &own));
    assert!(!row_cache.is_gone("third"));
}

/// Asserts that the list has every record of each whole pod.
fn assert_none_is_missing(rig: &Rig, listed: &Listing<Container>) {
    let ids: BTreeSet<&str> = listed.rows.iter().map(|row| row.id.as_str()).collect();
    for record in rig.sim.containers() {
        let uid = record.row.labels.get("io.kubernetes.pod.uid");
        let uid = PodUid::new(uid.unwrap().as_str()).unwrap();
        let is_there = ids.contains(&*record.row.id);
        assert!(is_there || !listed.whole_pods.contains(&uid), "{uid}");
    }
}

#[tokio::test]
async fn a_container_that_ran_while_an_id_could_not_be_read_is_not_forgotten() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_exited();
    let listed = rig.containers().await;
    let mut dead: Vec<&Container> = listed.rows.iter().filter(|it| &*it.name == "b").collect();
    dead.sort_by_key(|row| uid(row));
    // Too few parts are asked for again in a look to reach the last ones.
    let slow = Fault::slow(Duration::from_millis(100));
    rig.sim.set_fault(Rpc::ListContainers, slow.clone());
    let next = |row: &Container| {
        let next = rig.sim.change(|node| node.next_attempt(row.id.as_str()));
        next.unwrap()
    };
    let [.., other, last] = dead[..] else {
        panic!("no dead pods");
    };
    let unread = next(other);
    rig.sim.change(|node| node.exit_container(&unread, 0));
    rig.write_links();
    rig.sim
        .set_status_fault(&unread, Fault::fail(Code::Unknown, "try again"));
    // The kubelet has made no link yet.
    let ran = next(last);
    assert!(rig.containers().await.whole_pods.is_empty());
    rig.sim.change(|node| node.exit_container(&ran, 0));
    rig.sim.clear_faults();
    rig.sim.set_fault(Rpc::ListContainers, slow.clone());
    let listed = rig.containers().await;
    assert!(!listed.whole_pods.is_empty());
    assert_none_is_missing(&rig, &listed);
}

#[tokio::test]
async fn a_container_that_ran_while_the_other_list_was_read_is_not_forgotten() {
    let rig = Rig::new(Options::not_containerd());
    rig.forbid_the_dead();
    rig.write_names();
    let listed = rig.containers().await;
    let dead = listed.rows.iter().filter(|it| &*it.name == "b");
    let last = dead.max_by_key(|row| uid(row)).unwrap();
    let ran = rig.sim.change(|node| node.next_attempt(last.id.as_str()));
    // Asks for the running containers, to know the sandboxes' names.
    rig.sandboxes().await;
    assert!(rig.sim.change(|node| node.exit_container(&ran.unwrap(), 0)));
    // Too few parts are asked for again in a look to reach the last one.
    let slow = Fault::slow(Duration::from_millis(100));
    rig.sim.set_fault(Rpc::ListContainers, slow);
    let listed = rig.containers().await;
    assert!(!listed.whole_pods.is_empty());
    assert_none_is_missing(&rig, &listed);
}

/// A list may be over its limit for weeks, on one connection.
#[tokio::test]
async fn of_pods_that_are_gone_nothing_is_remembered() {
    for options in [Options::not_containerd(), Options::default()] {
        let rig = Rig::new(options);
        rig.forbid_exited();
        for number in 0..15 {
            let name = format!("default/short-{number}");
            let pod = PodSpec::new(&format!("short-{number}"));
            // In containerd a list is cheaper than asking for each.
            rig.sim
                .add_pod(&(0..9).fold(pod, |pod, attempt| pod.exited("app", attempt, hours(1))));
            rig.containers().await;
            for attempt in 0..9 {
                let id = rig
                    .sim
                    .container_id(&format!("{name}/app#{attempt}"))
                    .unwrap();
                let id = ContainerId::new(id).unwrap();
                rig.client.remove_container(&id).await.unwrap();
            }
            let sandbox = rig.sim.sandbox_id(&format!("{name}#0")).unwrap();
            assert!(rig.sim.change(|node| node.vanish_sandbox(&sandbox)));
        }
        rig.containers().await;
        let row_cache = rig.client.shared.list_states.containers.row_cache.lock();
        assert!(!row_cache.read.is_empty());
        assert!(row_cache.read.len() <= 45, "{}", row_cache.read.len());
    }
}
