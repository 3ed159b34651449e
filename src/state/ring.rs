//! A file of fixed size, written in place as a ring: new records overwrite the oldest.
//!
//! Never grows, so it can be written on a full disk. Does not know the records' content.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files;
use super::frame::{self, HEADER_BYTES, Kind};

/// The head has its own page; records begin here.
const DATA_START: u64 = 4096;
/// Sizes are multiples of this.
const PAGE: u64 = 4096;
/// The smallest file.
pub(super) const BYTES_MIN: u64 = 64 << 10;
/// The largest file: it is read into memory at start.
pub(super) const BYTES_MAX: u64 = 64 << 20;
/// The text in the head; each version has its own.
const FORMAT: &str = "crisweep journal 1";

/// The records of a file, oldest first. Holds the file's bytes once, and no copies of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Records {
    bytes: Vec<u8>,
    found: Vec<(u64, Range<usize>)>,
}

impl Records {
    /// Returns each record's sequence number, where a gap means lost records, and its payload, which is empty
    /// for the pad at the end of a lap.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let payload = |at: &Range<usize>| self.bytes.get(at.clone()).unwrap_or_default();
        self.found
            .iter()
            .map(move |(number, at)| (*number, payload(at)))
    }
}

/// A ring that is open for writing.
#[derive(Debug)]
pub(super) struct Ring {
    file: File,
    /// The size of the file.
    end: u64,
    /// The offset of the next frame.
    head: u64,
    next_sequence: u64,
}

/// The result of reading a file.
#[derive(Debug)]
pub(super) struct Found {
    /// The ring, ready for writing.
    pub(super) ring: Ring,
    /// Oldest first.
    pub(super) records: Records,
    /// Damage other than a last record that a crash cut off.
    pub(super) damage: Option<&'static str>,
}

/// Returns the file size for a configured size.
pub(super) fn size(bytes: u64) -> u64 {
    bytes.clamp(BYTES_MIN, BYTES_MAX) / PAGE * PAGE
}

impl Ring {
    /// Makes a file and the empty ring in it.
    pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let end = size(bytes);
        Self::format(files::create(path, end)?, end)
    }

    /// Starts an empty ring in a file of zeros.
    fn format(file: File, end: u64) -> io::Result<Self> {
        let text = format!("{FORMAT}\nbytes {end}\n");
        let head = frame::encode(Kind::Head, 0, text.as_bytes());
        file.write_all_at(&head.unwrap_or_default(), 0)?;
        file.sync_all()?;
        Ok(Self {
            file,
            end,
            head: DATA_START,
            next_sequence: 1,
        })
    }

    /// Empties a file in place, if there is no space for another one.
    pub(super) fn wipe(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if !(BYTES_MIN..=BYTES_MAX).contains(&length) {
            return Err(io::Error::other("its size is not a valid journal size"));
        }
        let end = size(length);
        let zeros = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.write_all_at(&zeros, 0)?;
        Self::format(file, end)
    }

    /// Reads a file; the inner `Err` says why it is not a journal.
    pub(super) fn read(file: File) -> io::Result<Result<Found, &'static str>> {
        let length = file.metadata()?.len();
        if !(BYTES_MIN..=BYTES_MAX).contains(&length) {
            return Ok(Err("its size is not a valid journal size"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        let end = match declared_size(&bytes) {
            Ok(end) => end,
            Err(why) => return Ok(Err(why)),
        };
        let whole = length == end;
        let (found, last, contiguous) = records(&bytes);
        let (head, next_sequence) = last.unwrap_or((DATA_START, 1));
        let damage = match (whole, contiguous) {
            (false, _) => Some("its length differs from the size in its head"),
            (true, false) => Some("records in its middle are lost"),
            (true, true) => None,
        };
        Ok(Ok(Found {
            ring: Self {
                file,
                end,
                head,
                next_sequence,
            },
            records: Records { bytes, found },
            damage,
        }))
    }

    /// Returns the size of the file.
    pub(super) fn size(&self) -> u64 {
        self.end
    }

    /// Writes a record over the oldest ones. After a failure the next record uses the same place.
    pub(super) fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = frame::framed(payload.len()) as u64;
        if length > self.end - DATA_START {
            return Err(io::Error::other("a record is longer than the journal"));
        }
        let left = self.end.saturating_sub(self.head);
        if left < length {
            // Without a pad, old records behind the last one of a lap would look current.
            if let Some(pad) = frame::pad(self.next_sequence, left) {
                self.file.write_all_at(&pad, self.head)?;
                self.next_sequence += 1;
            }
            self.head = DATA_START;
        }
        let bytes = frame::encode(Kind::Record, self.next_sequence, payload)
            .ok_or_else(|| io::Error::other("a record is too long"))?;
        self.file.write_all_at(&bytes, self.head)?;
        self.next_sequence += 1;
        self.head += length;
        Ok(())
    }

    /// Waits until all writes are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn declared_size(bytes: &[u8]) -> Result<u64, &'static str> {
    let head = frame::decode(bytes).filter(|frame| frame.kind == Kind::Head);
    let text = head.and_then(|frame| std::str::from_utf8(frame.payload).ok());
    let mut lines = text.ok_or("its head is damaged")?.lines();
    if lines.next() != Some(FORMAT) {
        return Err("another version wrote it");
    }
    let size = lines.next().and_then(|line| line.strip_prefix("bytes "));
    size.and_then(|size| size.parse().ok())
        .filter(|size| (BYTES_MIN..=BYTES_MAX).contains(size) && size % PAGE == 0)
        .ok_or("its head has no size")
}

type Last = Option<(u64, u64)>;

/// Returns the records in order, offset and number of the next one, and whether none is missing in between.
fn records(bytes: &[u8]) -> (Vec<(u64, Range<usize>)>, Last, bool) {
    let start = usize::try_from(DATA_START).unwrap_or(usize::MAX);
    let mut frames = frame::scan(bytes.get(start..).unwrap_or_default());
    frames.retain(|(_, frame)| matches!(frame.kind, Kind::Record | Kind::Pad));
    frames.sort_by_key(|(_, frame)| frame.sequence);
    let numbers = frames.iter().map(|(_, frame)| frame.sequence);
    let contiguous = numbers
        .clone()
        .zip(numbers.skip(1))
        .all(|(number, next)| number.checked_add(1) == Some(next));
    let last = frames.last().and_then(|(offset, frame)| {
        let head = DATA_START + (offset + frame.bytes) as u64;
        // After a pad the next lap begins.
        let head = if frame.kind == Kind::Pad {
            DATA_START
        } else {
            head
        };
        Some((head, frame.sequence.checked_add(1)?))
    });
    // Includes pads, as empty records: without them there would seem to be gaps.
    let found = frames.into_iter().map(|(offset, frame)| {
        let begins = start + offset + HEADER_BYTES;
        (frame.sequence, begins..begins + frame.payload.len())
    });
    (found.collect(), last, contiguous)
}
