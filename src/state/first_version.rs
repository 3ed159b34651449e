//! The files of versions before the database, read once: a journal of frames and two slots of image ages.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::ages::{Ages, ENTRIES_MAX, KEY_MAX_BYTES};
use super::database::Writing;
use super::files;
use super::passes::{self, Ended, Object};
use crate::model::{Pass, RemovalOutcome, Target};

/// The files.
const JOURNAL: &str = "journal";
const AGES: &str = "ages";
/// The largest file that those versions made.
const BYTES_MAX: u64 = 64 << 20;
/// Frames begin at multiples of this.
const ALIGN: usize = 8;
const MAGIC: [u8; 4] = [0xF5, b'C', b'S', 0xFA];
/// The kind of a frame that covers old ones.
const PAD: u8 = 3;
/// Bytes before a frame's payload.
const HEADER_BYTES: usize = 24;
/// "Never used".
const NEVER: i64 = i64::MIN;

/// A record of the journal.
#[derive(Debug, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
enum Entry {
    Opened,
    Begun {
        pass: Box<Pass>,
    },
    Intended {
        pass_id: String,
        #[serde(flatten)]
        object: Box<Object>,
    },
    Tried {
        pass_id: String,
        target: Target,
        id: String,
        #[serde(flatten)]
        outcome: RemovalOutcome,
        duration_ms: u64,
    },
    Progress {
        pass: Box<Pass>,
    },
    Ended {
        pass: Box<Pass>,
    },
}

/// A frame's kind, number and payload.
type Frame<'a> = (u8, u64, &'a [u8]);

/// Says whether there are such files.
pub(super) fn is_there(dir: &Path) -> bool {
    [JOURNAL, AGES]
        .iter()
        .any(|name| files::check(&dir.join(name)).is_ok())
}

/// Writes the content of the files, as far as it can be read, into a database that has none.
pub(super) fn take_over(dir: &Path, writing: &Writing<'_>) -> rusqlite::Result<()> {
    let rows = "SELECT (SELECT count(*) FROM passes) + (SELECT count(*) FROM image_ages)";
    let rows: i64 = writing.sql.query_row(rows, [], |row| row.get(0))?;
    if rows > 0 {
        return Ok(());
    }
    if let Some(bytes) = read(&dir.join(AGES))
        && let Some(ages) = ages(&bytes)
    {
        ages.write(writing.sql)?;
    }
    let bytes = read(&dir.join(JOURNAL)).unwrap_or_default();
    let mut frames = frames(&bytes);
    frames.sort_unstable_by_key(|(_, number, _)| *number);
    // Processes before this one have numbers below its own.
    let mut process = -1_000_000;
    for (_, _, payload) in frames {
        // Records that another version wrote are left out.
        let Ok(entry) = serde_json::from_slice(payload) else {
            continue;
        };
        let then = Writing {
            process,
            ..*writing
        };
        replay(entry, &then, &mut process)?;
    }
    Ok(())
}

fn replay(entry: Entry, then: &Writing<'_>, process: &mut i64) -> rusqlite::Result<()> {
    match entry {
        Entry::Opened => *process += 1,
        Entry::Begun { pass } | Entry::Progress { pass } => passes::put_unfinished(then, &pass)?,
        Entry::Ended { pass } => passes::put_ended(then, &pass)?,
        Entry::Intended { pass_id, object } => passes::put_intended(then, &pass_id, &[*object])?,
        Entry::Tried {
            pass_id,
            target,
            id,
            outcome,
            duration_ms,
        } => {
            let ended = Ended {
                target,
                id: passes::cut(&id),
                outcome,
                duration_ms,
                object: None,
            };
            passes::put_outcome(then, &pass_id, &ended)?;
        }
    }
    Ok(())
}

/// Removes the files: their content is in the database.
pub(super) fn remove(dir: &Path) {
    for name in [JOURNAL, AGES] {
        let path = dir.join(name);
        if read(&path).is_some()
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(%error, path = %path.display(), "a file of an earlier version stays");
        }
    }
}

/// Reads a file if it is one of those versions: `state.dir` may hold other files of these names.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = files::open_to_read(path).ok()?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    (!frames(&bytes).is_empty()).then_some(bytes)
}

/// Finds every complete frame.
fn frames(bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        match frame(rest) {
            Some((frame, length)) => {
                found.push(frame);
                offset += length;
            }
            None => offset += ALIGN,
        }
    }
    found
}

/// Decodes the frame at the start of `bytes`, and says how long it is: magic, kind, version, two zeros, the payload's
/// length, a checksum, a number, the payload.
fn frame(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let (front, back) = header.split_first_chunk::<12>()?;
    let (stored, number) = back.split_first_chunk::<4>()?;
    let [m0, m1, m2, m3, kind, 1, 0, 0, l0, l1, l2, l3] = *front else {
        return None;
    };
    if [m0, m1, m2, m3] != MAGIC {
        return None;
    }
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
    let covered = rest.get(..length)?;
    // A pad covers old frames.
    let payload = if kind == PAD { &[][..] } else { covered };
    let mut sum = crc32fast::Hasher::new();
    for part in [&front[..], number, payload] {
        sum.update(part);
    }
    let number = u64::from_le_bytes(number.try_into().ok()?);
    let is_whole = sum.finalize() == u32::from_le_bytes(*stored);
    let size = (HEADER_BYTES + length).next_multiple_of(ALIGN);
    is_whole.then_some(((kind, number, payload), size))
}

/// The newer complete slot.
fn ages(bytes: &[u8]) -> Option<Ages> {
    let mut slots = frames(bytes);
    slots.sort_unstable_by_key(|(_, number, _)| *number);
    let mut newest_first = slots.into_iter().rev();
    newest_first.find_map(|(_, _, payload)| decode_ages(payload))
}

fn decode_ages(mut bytes: &[u8]) -> Option<Ages> {
    let mut ages = Ages::default();
    while let Some((length, rest)) = bytes.split_first() {
        let (first_seen, rest) = rest.split_first_chunk::<8>()?;
        let (used, rest) = rest.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_at_checked(usize::from(*length))?;
        if !(1..=KEY_MAX_BYTES).contains(&key.len()) || ages.len() >= ENTRIES_MAX {
            return None;
        }
        let used = i64::from_le_bytes(*used);
        let key = std::str::from_utf8(key).ok()?.to_owned();
        let used = (used != NEVER).then_some(used);
        ages.put(key, i64::from_le_bytes(*first_seen), used);
        bytes = rest;
    }
    Some(ages)
}
