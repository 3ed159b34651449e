//! Questions about passes and removals.

use super::super::Journal;
use super::super::audit::{PassFilter, RemovalFilter};
use super::*;

async fn journal(dir: &Path, entries: &[Entry]) -> Journal {
    live(dir, entries);
    let opened = Journal::open(dir.to_owned(), SMALL, Counter::default()).await;
    opened.unwrap().journal
}

/// Five removals: 0 was removed, 1 failed, of the others the end is not known.
fn five() -> Vec<Entry> {
    let failed = RemovalOutcome::failed(FailureClass::Busy, "in use".to_owned());
    let mut entries = vec![at(ended(1))];
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

#[tokio::test]
async fn each_filter_narrows_the_removals() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(dir.path(), &five()).await;
    let (first, last) = (
        Timestamp::UNIX_EPOCH.to_string(),
        Timestamp::MAX.to_string(),
    );
    let third = format!("{:064x}", 3);
    for (key, value, wanted) in [
        ("limit", "9", "43210"),
        ("result", "failed", "1"),
        ("result", "unknown", "432"),
        ("id", third.as_str(), "3"),
        ("id", "00000000", "43210"),
        ("id", "ff", ""),
        ("pod", "web", "43210"),
        ("pod", "u", "43210"),
        ("pod", "api", ""),
        ("namespace", "default", "43210"),
        ("namespace", "other", ""),
        ("pass", "p-1", "43210"),
        ("pass", "p-2", ""),
        ("target", "images", ""),
        ("target", "all", "43210"),
        ("reason", "over-cap", ""),
        ("since", first.as_str(), "43210"),
        ("since", last.as_str(), ""),
        ("until", first.as_str(), ""),
        ("until", last.as_str(), "43210"),
    ] {
        let parameters = [(key.to_owned(), value.to_owned())];
        let filter = RemovalFilter::read(parameters, Timestamp::UNIX_EPOCH).unwrap();
        let page = journal.ask(filter).await.unwrap();
        assert_eq!(page.next, None);
        // The last digits of the ids, newest first.
        let found: String = page.rows.iter().map(|row| &row.id[63..]).collect();
        assert_eq!(found, wanted, "{key}={value}");
    }
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
async fn passes_that_tried_nothing_make_way_before_the_pass_of_a_removal() {
    let dir = tempfile::tempdir().unwrap();
    let mut entries = five();
    entries.extend((2..=200).map(|number| at(ended(number))));
    let journal = journal(dir.path(), &entries).await;
    let filter = PassFilter {
        limit: 200,
        ..PassFilter::default()
    };
    let passes = journal.ask(filter).await.unwrap().rows;
    assert_eq!(passes.len(), 100);
    assert_eq!((&passes[0], &passes[99]), (&ended(200), &ended(1)));
    let removals = journal.ask(all()).await.unwrap().rows;
    assert!(removals.iter().all(|it| it.trigger.is_some()));
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
