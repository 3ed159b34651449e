//! Questions about passes and removals.

use super::super::Journal;
use super::super::audit::{PassFilter, RemovalFilter};
use super::*;

async fn journal(dir: &Path, entries: &[Entry]) -> Journal {
    live(dir, entries);
    let (path, runtime) = (dir.to_owned(), "/run/cri.sock".to_owned());
    let opened = Journal::open(path, SMALL, runtime, Counter::default()).await;
    opened.unwrap().journal
}

/// Five removals: 0 was removed, 1 failed, of the others the end is not known.
fn five() -> Vec<Entry> {
    let failed = RemovalOutcome::failed(FailureClass::Busy, "in use".to_owned());
    let mut entries = vec![end(ended(1))];
    entries.extend((0..5).map(Intended));
    entries.extend([tried(0, RemovalOutcome::REMOVED), tried(1, failed)]);
    entries
}

fn all() -> RemovalFilter {
    RemovalFilter {
        limit: 9,
        ..RemovalFilter::default()
    }
}

/// Returns the last digits of the ids, newest first.
async fn found(journal: &Journal, change: impl FnOnce(&mut RemovalFilter)) -> String {
    let mut filter = all();
    change(&mut filter);
    let page = journal.ask(filter).await.unwrap();
    assert_eq!(page.next, None);
    page.rows.iter().map(|row| &row.id[63..]).collect()
}

#[tokio::test]
async fn each_filter_narrows_the_removals() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path(), &five()).await;
    assert_eq!(found(&journal, |_| ()).await, "43210");
    assert_eq!(
        found(&journal, |it| it.result = Some("failed".to_owned())).await,
        "1"
    );
    assert_eq!(
        found(&journal, |it| it.result = Some("unknown".to_owned())).await,
        "432"
    );
    assert_eq!(
        found(&journal, |it| it.id = Some(format!("{:064x}", 3))).await,
        "3"
    );
    assert_eq!(
        found(&journal, |it| it.id = Some("00000000".to_owned())).await,
        "43210"
    );
    assert_eq!(
        found(&journal, |it| it.id = Some("ff".to_owned())).await,
        ""
    );
    for pod in ["web", "u"] {
        assert_eq!(
            found(&journal, |it| it.pod = Some(pod.to_owned())).await,
            "43210"
        );
    }
    assert_eq!(
        found(&journal, |it| it.pod = Some("api".to_owned())).await,
        ""
    );
    assert_eq!(
        found(&journal, |it| it.namespace = Some("default".to_owned())).await,
        "43210"
    );
    assert_eq!(
        found(&journal, |it| it.namespace = Some("other".to_owned())).await,
        ""
    );
    assert_eq!(
        found(&journal, |it| it.pass = Some("p-1".to_owned())).await,
        "43210"
    );
    assert_eq!(
        found(&journal, |it| it.pass = Some("p-2".to_owned())).await,
        ""
    );
    assert_eq!(
        found(&journal, |it| it.target = Some("images".to_owned())).await,
        ""
    );
    assert_eq!(
        found(&journal, |it| it.reason = Some("over-cap".to_owned())).await,
        ""
    );
    let (first, last) = (Some(Timestamp::UNIX_EPOCH), Some(Timestamp::MAX));
    assert_eq!(
        found(&journal, |it| (it.since, it.until) = (first, last)).await,
        "43210"
    );
    assert_eq!(found(&journal, |it| it.until = first).await, "");
    assert_eq!(found(&journal, |it| it.since = last).await, "");
}

#[tokio::test]
async fn pages_show_each_removal_once() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path(), &five()).await;
    let (mut before, mut pages) = (None, Vec::new());
    loop {
        let filter = RemovalFilter {
            limit: 2,
            before,
            ..all()
        };
        let page = journal.ask(filter).await.unwrap();
        pages.push(
            page.rows
                .iter()
                .map(|row| &row.id[63..])
                .collect::<String>(),
        );
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(pages, ["43", "21", "0"]);
}

#[tokio::test]
async fn a_removal_names_what_asked_for_it_and_how_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path(), &five()).await;
    let page = journal.ask(all()).await.unwrap();
    let row = &page.rows[3];
    assert_eq!(row.trigger.as_ref().unwrap()["cause"], "manual");
    let end = [&row.result, &row.class, &row.why].map(|text| text.as_deref().unwrap());
    assert_eq!(end, ["failed", "busy", "in use"]);
    assert_eq!((row.duration_ms, page.rows[0].duration_ms), (Some(3), None));
}

#[tokio::test]
async fn passes_are_found_by_outcome_and_cause() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path(), &five()).await;
    let found = async |outcome: Option<&str>, cause: Option<&str>| {
        let filter = PassFilter {
            outcome: outcome.map(str::to_owned),
            cause: cause.map(str::to_owned),
            limit: 5,
            ..PassFilter::default()
        };
        journal.ask(filter).await.unwrap().rows
    };
    assert_eq!(found(Some("completed"), Some("manual")).await, [ended(1)]);
    assert_eq!(found(None, None).await, [ended(1)]);
    assert_eq!(found(Some("partial"), None).await, []);
    assert_eq!(found(None, Some("alert")).await, []);
}
