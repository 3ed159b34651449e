//! What is small and outlives the process: image ages, the hold of all nodes, and since when an outage lasts.

use jiff::SignedDuration;
use rusqlite::Connection;

use super::*;
use crate::model::FleetHold;
use crate::state::ages::ImageAges;
use crate::state::{hold, outage};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

fn ages() -> ImageAges {
    let mut ages = ImageAges::default();
    ages.touch("used", true, at(10));
    ages.touch("unused", false, at(20));
    ages
}

fn held() -> FleetHold {
    FleetHold {
        place: "GET https://api/switch".to_owned(),
        reason: "a bad rollout".to_owned(),
        read_at: at(5),
    }
}

/// A directory with ages, a hold and an outage.
fn kept() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, found) = live_with(dir.path(), SMALL, &[]);
    assert_eq!(found.hold, None);
    let write = |it: &Writing<'_>| {
        hold::put(it, Some(&held()))?;
        outage::put(it, Some(at(7)))?;
        ages().write(it.sql)
    };
    store.write(Sync::Now, write).unwrap();
    dir
}

fn change(dir: &Path, sql: &str) {
    let database = Connection::open(file(dir)).unwrap();
    database.execute_batch(sql).unwrap();
}

#[test]
fn ages_a_hold_and_an_outage_outlive_the_process() {
    let dir = kept();
    let (mut store, found) = live_with(dir.path(), SMALL, &[]);
    assert_eq!((found.ages, found.hold), (ages(), Some(held())));
    assert_eq!(found.outage_since, Some(at(7)));
    let end = |it: &Writing<'_>| hold::put(it, None).and_then(|()| outage::put(it, None));
    store.write(Sync::Now, end).unwrap();
    drop(store);
    let found = live(dir.path(), &[]);
    assert_eq!((found.hold, found.outage_since), (None, None));
}

#[tokio::test]
async fn an_earlier_beginning_of_an_outage_stays_until_a_look_learns_of_it() {
    let dir = kept();
    let opened = crate::state::Journal::open(dir.path().to_owned(), SMALL, Counter::default());
    let journal = opened.await.unwrap().journal;
    let write = async |since| {
        journal.outage(since);
        let minute = Duration::from_secs(60);
        journal.read(minute, outage::read).await.unwrap()
    };
    assert_eq!(write(Some(at(9))).await, Some(at(7)));
    assert_eq!(write(Some(at(5))).await, Some(at(5)));
    assert_eq!(journal.earlier_outage(), Some(at(7)));
    // From then on what the look knows counts: the clock was behind, or the end of an outage could not be written.
    assert_eq!(write(Some(at(9))).await, Some(at(9)));
    let same = at(9) + SignedDuration::from_millis(1);
    assert_eq!(write(Some(same)).await, Some(at(9)), "no write for it");
    assert_eq!(write(None).await, None);
}

#[test]
fn an_outage_by_a_clock_that_was_not_set_says_nothing() {
    for since in [i64::MIN, -1, 60_000, i64::MAX] {
        let dir = kept();
        change(dir.path(), &format!("UPDATE outage SET since = {since}"));
        assert_eq!(live(dir.path(), &[]).outage_since, None, "{since}");
    }
}

#[test]
fn a_flipped_bit_makes_an_image_young() {
    for damage in [
        "UPDATE image_ages SET first_seen = first_seen - 1073741824 WHERE key = 'used'",
        "UPDATE image_ages SET last_used = last_used - 1073741824 WHERE key = 'used'",
        "UPDATE image_ages SET last_used = NULL WHERE key = 'used'",
        "UPDATE image_ages SET sum = sum + 1 WHERE key = 'used'",
        "UPDATE image_ages SET key = 'vsed' WHERE key = 'used'",
    ] {
        let dir = kept();
        change(dir.path(), damage);
        let found = live(dir.path(), &[]).ages;
        assert_eq!(found.len(), 1, "{damage}");
        assert!(found.get("unused", at(30)).is_some());
    }
}

#[test]
fn a_database_of_version_2_is_raised_with_its_ages() {
    let dir = kept();
    let back = "DROP TABLE outage; DROP TABLE fleet_hold; ALTER TABLE image_ages DROP COLUMN sum; PRAGMA user_version = 2;";
    change(dir.path(), back);
    let (mut store, found) = live_with(dir.path(), SMALL, &[]);
    assert_eq!((&found.ages, found.hold), (&ages(), None));
    store.write(Sync::Now, |it| ages().write(it.sql)).unwrap();
    let unsummed = "SELECT count(*) FROM image_ages WHERE sum IS NULL";
    assert_eq!(query::<i64>(&mut store, unsummed), 0);
}

#[test]
fn a_later_version_gives_its_ages_and_its_hold() {
    let dir = kept();
    change(dir.path(), "PRAGMA user_version = 99");
    let found = live(dir.path(), &[]);
    assert_eq!((found.ages, found.hold), (ages(), Some(held())));
    // They are in the new file.
    let found = live(dir.path(), &[]);
    assert_eq!((found.ages, found.hold), (ages(), Some(held())));
    assert_eq!(found.outage_since, Some(at(7)));
}
