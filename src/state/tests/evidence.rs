//! Evidence: its bounds, what makes way first, and how it is found.

use super::super::database::{Database, evidence_room};
use super::super::evidence::{EvidenceBounds, EvidenceFilter, EvidenceFound};
use super::super::{EvidenceOf, Journal, ask};
use super::*;
use crate::model::{Evidence, EvidenceLog, EvidencePod};

/// Patience of each question.
const LONG: Duration = Duration::from_secs(30);
/// A row's room: its log and a page.
const ROOM: u64 = 20 << 10;

const PLENTY: EvidenceBounds = EvidenceBounds {
    max_bytes: 4 << 20,
    max_age: None,
    keep_first: true,
    is_durable: false,
};

/// Evidence of a pod's container, kept at a second.
fn evidence(id: u64, pod: &str, second: i64) -> Evidence {
    let at = Timestamp::from_second(START + second).unwrap();
    Evidence {
        number: 0,
        kept_at: at,
        container_id: format!("{id:064x}"),
        container: "app".to_owned(),
        attempt: 0,
        pod: Some(EvidencePod {
            uid: pod.to_owned(),
            namespace: "default".to_owned(),
            name: pod.to_owned(),
        }),
        owner: None,
        labels: std::collections::BTreeMap::new(),
        image: String::new(),
        image_ref: String::new(),
        ending: String::new(),
        exit_code: Some(1),
        reason: String::new(),
        message: String::new(),
        created_at: at,
        started_at: None,
        finished_at: None,
        removed_for: RemoveReason::Superseded,
        pass: String::new(),
        log: EvidenceLog::default(),
    }
}

async fn open(dir: &Path) -> Journal {
    let limits = DatabaseLimits {
        evidence_bytes: PLENTY.max_bytes,
        ..SMALL
    };
    loop {
        let opened = Journal::open(dir.to_owned(), limits, Counter::default()).await;
        // An earlier thread may still hold the lock.
        match opened {
            Ok(opened) => return opened.journal,
            Err(_held) => tokio::task::yield_now().await,
        }
    }
}

async fn keep(journal: &Journal, it: Evidence, bounds: EvidenceBounds) -> u64 {
    let log = vec![7; 16 << 10];
    let kept = journal.keep_evidence(it, log, bounds, LONG).await.unwrap();
    assert!(kept.bytes <= bounds.max_bytes, "{kept:?}");
    kept.dropped
}

/// The last digits of the ids, newest first.
async fn ids(journal: &Journal) -> String {
    let filter = EvidenceFilter {
        limit: 1000,
        ..EvidenceFilter::default()
    };
    let page = journal.ask(filter).await.unwrap();
    page.rows
        .iter()
        .map(|row| &row.container_id[63..])
        .collect()
}

#[tokio::test]
async fn the_oldest_makes_way_and_the_first_and_the_last_of_a_name_go_last() {
    for (keep_first, wanted) in [(false, "6543"), (true, "6510")] {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path()).await;
        // The bound is above four rows, so that one makes way at a time.
        let bounds = EvidenceBounds {
            max_bytes: 4 * ROOM + (12 << 10),
            keep_first,
            ..PLENTY
        };
        for (id, pod) in [
            (0, "a"),
            (1, "b"),
            (2, "b"),
            (3, "b"),
            (4, "b"),
            (5, "b"),
            (6, "c"),
        ] {
            keep(&journal, evidence(id, pod, 0), bounds).await;
        }
        assert_eq!(ids(&journal).await, wanted, "{keep_first}");
    }
}

#[tokio::test]
async fn the_first_of_a_name_stays_the_first_when_its_removal_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await;
    let bounds = EvidenceBounds {
        max_bytes: 4 * ROOM + (12 << 10),
        ..PLENTY
    };
    for id in [1, 2, 3, 1, 4, 5, 6, 7] {
        keep(&journal, evidence(id, "a", 0), bounds).await;
    }
    assert_eq!(ids(&journal).await, "7651");
}

#[tokio::test]
async fn old_evidence_goes_and_one_container_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await;
    let bounds = EvidenceBounds {
        max_age: Some(Duration::from_secs(60)),
        ..PLENTY
    };
    keep(&journal, evidence(1, "a", 0), bounds).await;
    keep(&journal, evidence(2, "a", 60), bounds).await;
    keep(&journal, evidence(2, "a", 60), bounds).await;
    assert_eq!(ids(&journal).await, "21", "at the age it stays");
    assert_eq!(keep(&journal, evidence(3, "a", 61), bounds).await, 1);
    assert_eq!(ids(&journal).await, "32");
}

#[tokio::test]
async fn a_clock_that_was_behind_or_not_set_makes_no_evidence_old() {
    let bounds = EvidenceBounds {
        max_age: Some(Duration::from_secs(60)),
        ..PLENTY
    };
    // At a boot the clock may be unset, or as old as the disk's image.
    for (behind, wanted) in [(START - 60, "432"), (3 * 365 * 86_400, "43")] {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path()).await;
        keep(&journal, evidence(1, "a", 0), bounds).await;
        keep(&journal, evidence(2, "b", 10 - behind), bounds).await;
        let dropped = keep(&journal, evidence(3, "a", 10), bounds).await;
        assert_eq!((dropped, ids(&journal).await), (0, "321".to_owned()));
        keep(&journal, evidence(4, "a", 65), bounds).await;
        assert_eq!(ids(&journal).await, wanted, "with what was kept before it");
        keep(&journal, evidence(5, "a", 71), bounds).await;
        assert_eq!(ids(&journal).await, "54");
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await;
    keep(&journal, evidence(1, "a", 60 - START), bounds).await;
    keep(&journal, evidence(2, "a", 0), bounds).await;
    keep(&journal, evidence(3, "a", 60), bounds).await;
    assert_eq!(ids(&journal).await, "321", "from when it was set");
    keep(&journal, evidence(4, "a", 61), bounds).await;
    assert_eq!(ids(&journal).await, "43");
}

#[tokio::test]
async fn a_database_that_was_set_aside_goes_with_the_evidence_of_its_age() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await;
    let aside = dir.path().join("crisweep.db.damaged");
    fs::write(&aside, "the end of a log").unwrap();
    let day = Duration::from_secs(86_400);
    journal.drop_old_evidence(Some(day)).await.unwrap();
    assert!(aside.exists(), "young");
    let written = std::time::UNIX_EPOCH + 10 * day;
    let file = fs::File::options().write(true).open(&aside).unwrap();
    file.set_modified(written).unwrap();
    journal.drop_old_evidence(None).await.unwrap();
    assert!(aside.exists(), "evidence has no age");
    journal.drop_old_evidence(Some(day)).await.unwrap();
    assert!(!aside.exists());
}

#[tokio::test]
async fn it_never_outgrows_its_bound_and_leaves_the_journal_its_room() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await;
    for id in 0..300 {
        keep(&journal, evidence(id, "a", 0), PLENTY).await;
    }
    let size_before = size(&dir.path().join(NAME));
    let claimed = SMALL_MAX_BYTES - (512 << 10);
    let taken = || evidence_room(&Database::peek(dir.path()).unwrap()).unwrap();
    let before = taken();
    assert!((3 << 20..=PLENTY.max_bytes).contains(&before), "{before}");
    assert!(
        size_before <= SMALL_MAX_BYTES + PLENTY.max_bytes / 8 * 9,
        "{size_before}"
    );
    journal.settled(LONG).await;
    drop(journal);
    // Opened again it is all there, and the room beside it is claimed.
    let journal = open(dir.path()).await;
    let deadline = std::time::Instant::now() + LONG;
    while size(&dir.path().join(NAME)) < claimed + before {
        assert!(std::time::Instant::now() < deadline, "no room is claimed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Not earlier: beside one who reads for long no room is claimed.
    assert_eq!(taken(), before);
    let too_large = EvidenceBounds {
        max_bytes: 4096,
        ..PLENTY
    };
    let log = vec![7; 16 << 10];
    let refused = journal
        .keep_evidence(evidence(1000, "a", 0), log, too_large, LONG)
        .await;
    assert!(refused.unwrap_err().to_string().contains("no room"));
}

#[tokio::test]
async fn it_is_found_by_number_id_or_the_beginning_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await;
    keep(&journal, evidence(1, "a", 0), PLENTY).await;
    keep(&journal, evidence(0x1f << 50, "a", 0), PLENTY).await;
    let find = async |id: &str| match journal.ask(EvidenceOf(id.to_owned())).await.unwrap() {
        EvidenceFound::One(it, log) => Some((it.number, log.len())),
        EvidenceFound::Several => Some((0, 0)),
        EvidenceFound::None => None,
    };
    let id = format!("{:064x}", 1);
    assert_eq!(find(&id).await, Some((1, 16 << 10)));
    assert_eq!(find("2").await, Some((2, 16 << 10)));
    assert_eq!(find(&"0".repeat(6)).await, Some((0, 0)), "several");
    assert_eq!(find("3").await, None);
    assert_eq!(
        find("00000").await,
        None,
        "too short for an id, and no number"
    );
    assert_eq!(find("x").await, None);
    let all = ask(
        dir.path(),
        &EvidenceFilter {
            limit: 10,
            ..EvidenceFilter::default()
        },
    );
    assert_eq!(all.unwrap().rows.len(), 2, "also without the service");
}
