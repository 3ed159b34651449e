//! What the database costs: starts, the wait of a batch, image ages, memory at rest.
//!
//!     cargo bench --bench state [-- DIRECTORY]      in DIRECTORY, on its disk; else in the temporary directory

#[path = "../support/status.rs"]
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crisweep::gc::{Expected, PodKnowledge, Removal, Subject};
use crisweep::model::{PodRef, PodUid, RemovalOutcome, RemoveReason, Target};
use crisweep::state::{Config, ImageAges, Journal};
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use status::{Memory, mib};

const PATIENCE: Duration = Duration::from_secs(60);
const BATCHES: u64 = 300;

fn main() {
    let given = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let given = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(given).expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure(dir.path()));
}

async fn open(dir: &Path) -> Journal {
    let limits = Config::default().limits(0);
    let opened = Journal::open(dir.into(), limits, Counter::default());
    opened.await.expect("no other holds the lock").journal
}

async fn measure(dir: &Path) {
    let before = Memory::of("self");
    let began = Instant::now();
    let journal = open(dir).await;
    println!("first start: {:.1?}", began.elapsed());

    let (mut waits, mut wholes) = (Vec::new(), Vec::new());
    for batch in 0..BATCHES {
        let due: Vec<Removal> = (0..50).map(|number| removal(50 * batch + number)).collect();
        let began = Instant::now();
        let intended: Vec<(u64, &Removal)> = due.iter().map(|removal| (batch, removal)).collect();
        journal.intended("pass", &intended, PATIENCE).await;
        waits.push(began.elapsed());
        for removal in &due {
            let took = Duration::from_millis(9);
            journal.tried("pass", removal, RemovalOutcome::REMOVED, took);
        }
        journal.settled(PATIENCE).await;
        wholes.push(began.elapsed());
    }
    print("a batch's wait for its intents", waits);
    print("a batch of 50: intents, flush, results", wholes);

    let mut ages = ImageAges::default();
    for image in 0..100 {
        ages.touch(
            &format!("sha256:{image:064}"),
            true,
            Timestamp::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        );
    }
    let began = Instant::now();
    journal.save_ages(&ages);
    journal.settled(PATIENCE).await;
    println!("saving 100 image ages: {:.1?}", began.elapsed());
    let after = Memory::of("self");
    let more = |now: u64, then: u64| mib(now.saturating_sub(then));
    let (rest, most) = (more(after.now, before.now), more(after.most, before.most));
    println!("resident memory for all of it: {rest:.1} MiB, at most {most:.1} MiB");

    drop(journal);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    open(dir).await;
    println!("a later start: {:.1?}", began.elapsed());
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get((times.len() - 1) * share / 100)
            .copied()
            .unwrap_or_default()
    };
    println!("{what}: median {:.1?}, 99 of 100 {:.1?}", at(50), at(99));
}

fn removal(number: u64) -> Removal {
    let pod = PodRef {
        uid: PodUid::new("0c6a3e0c-3a1a-4d59-9c5e-5f1a1a2b3c4d").expect("not empty"),
        namespace: "default".into(),
        name: "web-7d9c5b8f6d-x2x4v".into(),
    };
    Removal {
        subject: Subject {
            target: Target::Containers,
            id: format!("{number:064x}").into(),
            name: "app".into(),
            pod: Some(pod.into()),
            pod_state: PodKnowledge::Deleted,
            attempt: 0,
            created_at: Timestamp::UNIX_EPOCH,
            age_seconds: 9,
            image: None,
        },
        reason: RemoveReason::PodDeleted,
        detail: Box::default(),
        expected: Expected::Sandbox,
        superseded_by: Arc::default(),
    }
}
