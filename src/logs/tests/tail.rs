//! The end of a container's log.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::tail::tail_at_most;
use super::*;

const LOG: &str = "app/3.log";
const OLDEST: &str = "app/3.log.20260101-000000.gz";
const OLD: &str = "app/3.log.20260102-000000.gz";
const ROTATED: &str = "app/3.log.20260103-000000";

/// A path below the pods' log root.
fn below(path: &str) -> String {
    format!("{DIR}/{path}")
}

fn write(host: &Host, path: &str, bytes: impl AsRef<[u8]>) {
    host.write(&format!("pods/{}", below(path)), 0);
    fs::write(host.at(&format!("pods/{}", below(path))), bytes).unwrap();
}

fn zipped(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(bytes.as_ref()).unwrap();
    to.finish().unwrap()
}

fn read(host: &Host, bytes_max: usize) -> Tail {
    tail(&host.roots, Path::new(&below(LOG)), bytes_max)
        .unwrap()
        .unwrap()
}

fn error(host: &Host) -> String {
    let read = tail(&host.roots, Path::new(&below(LOG)), 100);
    read.unwrap_err().to_string()
}

#[test]
fn the_tail_is_the_last_bytes_of_the_file() {
    for host in [Host::plain(), Host::mounted()] {
        // Invalid as text, and with a half line at its end.
        let log: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        write(&host, LOG, &log);
        for bytes_max in [0, 1, 9_999, 10_000, 10_001, 1 << 20] {
            let tail = read(&host, bytes_max);
            let from = log.len().saturating_sub(bytes_max);
            assert_eq!(tail.bytes, log[from..]);
            assert_eq!((tail.is_whole, tail.stopped), (from == 0, None));
            assert_eq!(tail.files, ["3.log"]);
        }
    }
}

#[test]
fn rotations_are_followed_only_as_far_back_as_needed() {
    let host = Host::plain();
    write(&host, LOG, "44");
    write(&host, ROTATED, "333");
    write(&host, OLD, zipped("22"));
    write(&host, OLDEST, zipped("1111"));
    // Of no log, of another attempt's, half written.
    for other in [
        "3.log.txt",
        "3.log.20260104-000000.tmp",
        "13.log.20260104-000000",
        "3.log.",
    ] {
        write(&host, &format!("app/{other}"), "x");
    }
    let files = [
        "3.log.20260101-000000.gz",
        "3.log.20260102-000000.gz",
        "3.log.20260103-000000",
        "3.log",
    ];
    for (bytes_max, wanted, first) in [
        (1, "4", 3),
        (2, "44", 3),
        (3, "344", 2),
        (5, "33344", 2),
        (6, "233344", 1),
        (7, "2233344", 1),
        (8, "12233344", 0),
        (100, "11112233344", 0),
    ] {
        let tail = read(&host, bytes_max);
        assert_eq!(tail.bytes, wanted.as_bytes());
        assert_eq!(tail.files, files[first..], "{bytes_max}");
        assert_eq!(tail.is_whole, bytes_max == 100, "{bytes_max}");
        assert_eq!(tail.stopped, None);
    }
    fs::remove_file(host.at(&format!("pods/{}", below(LOG)))).unwrap();
    assert_eq!(read(&host, 4).bytes, b"2333", "only rotations are left");
}

#[test]
fn a_rotation_that_is_being_compressed_counts_once() {
    let host = Host::plain();
    write(&host, LOG, "3");
    write(&host, ROTATED, "12");
    write(&host, &format!("{ROTATED}.gz"), zipped("12"));
    let tail = read(&host, 100);
    assert_eq!((tail.bytes.as_slice(), tail.is_whole), (&b"123"[..], true));
}

#[test]
fn a_rotation_that_cannot_be_read_ends_the_tail_and_says_so() {
    for (older, wanted) in [
        (
            zipped("22").split_last_chunk::<9>().unwrap().0.to_vec(),
            "incomplete deflate stream",
        ),
        (b"not compressed".to_vec(), "invalid gzip header"),
        (zipped(vec![b'x'; 1001]), "it holds more than 1000 bytes"),
        (zipped("").repeat(51), "it is larger than 1000 bytes"),
    ] {
        let host = Host::plain();
        write(&host, LOG, "4");
        write(&host, OLD, older);
        write(&host, OLDEST, zipped("1"));
        let tail = tail_at_most(&host.roots, Path::new(&below(LOG)), 100, 1000);
        let tail = tail.unwrap().unwrap();
        assert_eq!((tail.bytes.as_slice(), tail.is_whole), (&b"4"[..], false));
        let why = tail.stopped.unwrap();
        assert!(why.starts_with("3.log.20260102-000000.gz: "), "{why}");
        assert!(why.contains(wanted), "{why}");
    }
    let host = Host::plain();
    write(&host, LOG, "4");
    write(&host, OLD, zipped(vec![b'x'; 1000]));
    let tail = tail_at_most(&host.roots, Path::new(&below(LOG)), 100, 1000).unwrap();
    assert_eq!(tail.unwrap().bytes.len(), 100, "at the limit it is read");
}

#[test]
fn so_many_rotations_are_read_and_no_more() {
    let host = Host::plain();
    write(&host, LOG, "");
    for day in 1..=17 {
        write(&host, &format!("app/3.log.202601{day:02}-000000"), "x");
    }
    let tail = read(&host, 100);
    assert_eq!((tail.bytes.len(), tail.is_whole), (16, false));
    assert!(tail.stopped.unwrap().contains("more than 16 files"));
}

#[test]
fn a_missing_log_is_none_and_an_empty_one_is_empty() {
    let host = Host::plain();
    let log = below(LOG);
    let log = Path::new(&log);
    let error = tail(&host.roots, log, 100).unwrap_err();
    assert!(
        error.to_string().contains("No such file"),
        "a root without a pod is not the host's"
    );
    host.write("pods/default_other_x/app/0.log", 1);
    assert_eq!(tail(&host.roots, log, 100), Ok(None));
    write(&host, "app/2.log", "x");
    assert_eq!(tail(&host.roots, log, 100), Ok(None));
    write(&host, LOG, "");
    let empty = read(&host, 100);
    assert_eq!((empty.bytes.len(), empty.is_whole), (0, true));
}

#[test]
fn nothing_is_read_through_a_link_or_of_another_kind_of_file() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "secret").unwrap();
    let path = |host: &Host| host.at(&format!("pods/{}", below(LOG)));

    // The log itself, as cri-dockerd makes it.
    let host = Host::plain();
    write(&host, "app/x", "");
    symlink(secret.path(), path(&host)).unwrap();
    assert!(error(&host).contains("it is a link or no regular file"));

    // Its directory.
    let host = Host::plain();
    write(&host, "other/x", "");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("3.log"), "secret").unwrap();
    symlink(elsewhere.path(), host.at(&format!("pods/{DIR}/app"))).unwrap();
    assert!(error(&host).contains("Not a directory"));

    // A rotation.
    let host = Host::plain();
    write(&host, LOG, "4");
    symlink(secret.path(), host.at(&format!("pods/{}", below(ROTATED)))).unwrap();
    let tail = read(&host, 100);
    assert_eq!((tail.bytes.as_slice(), tail.is_whole), (&b"4"[..], false));

    // A path that leaves the root.
    let out = Path::new("../../secret/3.log");
    host.write("secret/3.log", 1);
    assert!(super::super::tail(&host.roots, out, 100).is_err());

    // A pipe without a writer, which must not block.
    let host = Host::plain();
    write(&host, "app/x", "");
    mknodat(CWD, path(&host), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(error(&host).contains("no regular file"));

    // A directory.
    let host = Host::plain();
    write(&host, &format!("{LOG}/x"), "");
    assert!(error(&host).contains("no regular file"));

    // A file of the host, linked here by someone who may write below the root.
    let host = Host::plain();
    write(&host, "app/x", "");
    host.write("private", 1);
    fs::hard_link(host.at("private"), path(&host)).unwrap();
    assert!(error(&host).contains("several names"));
}

#[test]
fn a_huge_file_with_holes_costs_its_end() {
    let host = Host::plain();
    write(&host, LOG, "");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(host.at(&format!("pods/{}", below(LOG))));
    let mut file = file.unwrap();
    file.set_len(1 << 40).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    file.write_all(b"end").unwrap();
    let tail = read(&host, 5);
    assert_eq!(
        (tail.bytes.as_slice(), tail.is_whole),
        (&b"\0\0end"[..], false)
    );
}
