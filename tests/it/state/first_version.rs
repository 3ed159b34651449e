//! The state of the first version that kept any: an upgrade takes it over, once.
//!
//! `first_version/*.gz` are the files of its program (revision ec30790 of this repository) after a pass on the demo's
//! node that ended, and one that was killed before it did.

use std::fs;
use std::path::Path;
use std::process::Command;

use crisweep::metrics::Metrics;
use crisweep::model::Outcome;
use crisweep::model::Target;
use crisweep::state::{self, Journal, Limits};
use crisweep_sim::demo::{Demo, DemoOptions};
use jiff::Timestamp;
use serde_json::json;

use crate::support::rig::{config, write};
use crate::support::service::Service;

/// One of the demo's images, which are the same at each start.
const ID: &str = "sha256:3a313742b3e187ec4fb4f30feea63f236ddeab044913848d64256ef49b316c64";
/// When the first version saw it.
const FIRST_SEEN: &str = "2026-11-22T21:41:18.014Z";
const RUNTIME: &str = "/run/demo/crisweep-demo-11360/cri.sock";
const LIMITS: Limits = Limits {
    evidence_bytes: 0,
    journal_bytes: 64 << 10,
};

fn unpack(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/state/first_version");
    for name in ["ages", "journal"] {
        let packed = kept.join(format!("{name}.gz"));
        let output = Command::new("gzip")
            .arg("-dc")
            .arg(packed)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::write(dir.join(name), output.stdout).unwrap();
    }
}

/// Returns the names of files that were set aside.
fn set_aside(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("damaged")).collect()
}

#[tokio::test]
async fn passes_and_ages_of_the_first_version_are_read() {
    let dir = tempfile::tempdir().unwrap();
    unpack(dir.path());
    let failures = Metrics::new("node").state_write_failures();
    let dir_path = dir.path().to_owned();
    let opened = Journal::open(dir_path, LIMITS, RUNTIME.to_owned(), failures).await;
    let opened = opened.unwrap();

    assert_eq!(opened.ages.len(), 41);
    let age = opened.ages.get(ID, Timestamp::MAX).unwrap();
    assert_eq!(age.first_seen.to_string(), FIRST_SEEN);
    let [ended] = &opened.history.ended[..] else {
        panic!("{:#?}", opened.history);
    };
    assert_eq!(
        (&*ended.id, ended.outcome),
        ("20261122T214123Z-1", Some(Outcome::Partial))
    );
    assert_eq!(ended.targets[&Target::Containers].removed, 20);
    assert_eq!(ended.runtime, RUNTIME);
    let [interrupted] = &opened.history.interrupted[..] else {
        panic!("{:#?}", opened.history);
    };
    assert_eq!(
        (&*interrupted.id, interrupted.outcome),
        ("20261122T214140Z-2", None)
    );
    for name in ["journal", "ages"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    assert_eq!(set_aside(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn the_program_goes_on_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("state");
    unpack(&kept);
    let mut options = DemoOptions::new(dir.path().join("cri.sock"));
    options.pods_file = Some(dir.path().join("pods.json"));
    let demo = Demo::start(options).unwrap();
    let service = Service::start(&write(dir.path(), &config(dir.path(), &json!({})))).await;
    service.ready().await;
    service.gc("dry_run=true").await;
    assert!(
        !service.log_text().contains("could not be read"),
        "{}",
        service.log_text()
    );
    service.stop().await;

    let ages = state::read_ages(&kept);
    let first_seen = ages.get(ID, Timestamp::MAX).unwrap().first_seen;
    assert_eq!(first_seen.to_string(), FIRST_SEEN);
    assert_eq!(set_aside(&kept), Vec::<String>::new());
    demo.shutdown().await;
}

#[tokio::test]
async fn other_files_of_these_names_stay() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("journal")).unwrap();
    fs::write(dir.path().join("journal/system"), "theirs").unwrap();
    fs::write(dir.path().join("ages"), "theirs").unwrap();
    let failures = Metrics::new("node").state_write_failures();
    let opened = Journal::open(dir.path().into(), LIMITS, RUNTIME.to_owned(), failures).await;
    assert!(opened.unwrap().ages.is_empty());
    for name in ["journal/system", "ages"] {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(text, "theirs");
    }
}
