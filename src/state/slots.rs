//! Two slots in a file of fixed size, written alternately in place: whatever a crash or a full disk does to
//! one, the other is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ages::{Ages, ENCODED_MAX_BYTES};
use super::files;
use super::frame::{self, HEADER_BYTES, Kind};

/// The file's name, and its temporary name.
const NAME: &str = "ages";
const NEW_NAME: &str = "ages.new";
/// Size of a slot: the largest content, in whole pages.
const SLOT_BYTES: usize = (HEADER_BYTES + ENCODED_MAX_BYTES).next_multiple_of(4096);

/// The file of image ages.
#[derive(Debug)]
pub(super) struct Slots {
    file: File,
    /// Number of writes; odd ones use the second slot.
    sequence: u64,
}

impl Slots {
    /// Opens the file and reads the newer complete slot. Replaces a file without one; then all images are
    /// young. Returns a note if the file could not be read.
    pub(super) fn open(dir: &Path) -> io::Result<(Self, Ages, Option<String>)> {
        let why = match files::open(&dir.join(NAME)).and_then(read) {
            Ok(Ok((slots, ages))) => return Ok((slots, ages, None)),
            Ok(Err(why)) => Some(why.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        };
        let slots = match (Self::create(dir, why.is_some()), &why) {
            (Ok(slots), _) => slots,
            (Err(error), None) => return Err(error),
            // No space for another file: reuse the damaged one.
            (Err(error), Some(_)) => Self::reuse(dir).map_err(|_worse| error)?,
        };
        Ok((slots, Ages::default(), why))
    }

    fn create(dir: &Path, set_aside: bool) -> io::Result<Self> {
        let file = files::create(&dir.join(NEW_NAME), 2 * SLOT_BYTES as u64)?;
        let mut slots = Self { file, sequence: 0 };
        slots.write(&Ages::default().encode())?;
        files::replace(dir, NEW_NAME, NAME, set_aside)?;
        Ok(slots)
    }

    fn reuse(dir: &Path) -> io::Result<Self> {
        let file = files::open(&dir.join(NAME))?;
        if file.metadata()?.len() != 2 * SLOT_BYTES as u64 {
            return Err(io::Error::other("it has another size"));
        }
        let mut slots = Self { file, sequence: 0 };
        slots.write(&Ages::default().encode())?;
        Ok(slots)
    }

    /// Overwrites the older slot and waits until it is on the disk: only then may the other one be
    /// overwritten.
    pub(super) fn write(&mut self, ages: &[u8]) -> io::Result<()> {
        let bytes = frame::encode(Kind::Ages, self.sequence + 1, ages)
            .filter(|bytes| bytes.len() <= SLOT_BYTES)
            .ok_or_else(|| io::Error::other("more image ages than fit"))?;
        self.file.write_all_at(&bytes, offset(self.sequence + 1))?;
        self.file.sync_data()?;
        self.sequence += 1;
        Ok(())
    }
}

/// Reads the image ages of a state directory without its lock, while a service may be writing: if one slot is
/// half written, the other one counts. Changes nothing; returns nothing if it cannot read.
pub fn peek(dir: &Path) -> Ages {
    match files::open_to_read(&dir.join(NAME)).and_then(read) {
        Ok(Ok((_, ages))) => ages,
        Ok(Err(why)) => {
            tracing::warn!(
                why,
                "the image ages could not be read; every image is young"
            );
            Ages::default()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ages::default(),
        Err(error) => {
            tracing::warn!(%error, "the image ages could not be read; every image is young");
            Ages::default()
        }
    }
}

fn offset(sequence: u64) -> u64 {
    sequence % 2 * SLOT_BYTES as u64
}

fn read(file: File) -> io::Result<Result<(Slots, Ages), &'static str>> {
    if file.metadata()?.len() != 2 * SLOT_BYTES as u64 {
        return Ok(Err("it has another size"));
    }
    let mut newest: Option<(u64, Ages)> = None;
    let mut bytes = vec![0; SLOT_BYTES];
    for slot in [0, 1] {
        file.read_exact_at(&mut bytes, offset(slot))?;
        let frame = frame::decode(&bytes).filter(|frame| frame.kind == Kind::Ages);
        let ages = frame.and_then(|frame| Some((frame.sequence, Ages::decode(frame.payload)?)));
        let newer = |(sequence, _): &(u64, Ages)| {
            newest.as_ref().is_none_or(|(newest, _)| sequence > newest)
        };
        if let Some(ages) = ages.filter(newer) {
            newest = Some(ages);
        }
    }
    Ok(match newest {
        Some((sequence, ages)) if sequence < u64::MAX => Ok((Slots { file, sequence }, ages)),
        _ => Err("neither of its slots is valid"),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn some(count: usize) -> Ages {
        let mut ages = Ages::default();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        for n in 0..count {
            ages.touch(&format!("sha256:{n:064x}"), true, now);
        }
        ages
    }

    #[test]
    fn saved_content_is_read_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let (mut slots, ages, why) = Slots::open(dir.path()).unwrap();
        assert_eq!((ages.len(), why), (0, None));
        for count in [3, 5, 4] {
            slots.write(&some(count).encode()).unwrap();
            let (_, ages, why) = Slots::open(dir.path()).unwrap();
            assert_eq!((ages, why), (some(count), None));
        }
    }

    #[test]
    fn a_write_that_is_cut_off_anywhere_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let (mut slots, ..) = Slots::open(dir.path()).unwrap();
        slots.write(&some(2).encode()).unwrap();
        let next = frame::encode(Kind::Ages, slots.sequence + 1, &some(3).encode()).unwrap();
        let before = std::fs::read(dir.path().join(NAME)).unwrap();
        let start = usize::try_from(offset(slots.sequence + 1)).unwrap();
        for cut in 0..next.len() - 8 {
            let mut torn = before.clone();
            torn[start..start + cut].copy_from_slice(&next[..cut]);
            std::fs::write(dir.path().join(NAME), torn).unwrap();
            assert_eq!(peek(dir.path()), some(2), "{cut}");
            let (_, ages, why) = Slots::open(dir.path()).unwrap();
            assert_eq!((ages, why), (some(2), None), "{cut}");
        }
    }

    #[test]
    fn reading_beside_a_service_changes_nothing_and_survives_anything() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(peek(dir.path()), Ages::default());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        for bytes in [vec![], vec![7; 100], vec![0xF5; 2 * SLOT_BYTES]] {
            std::fs::write(dir.path().join(NAME), &bytes).unwrap();
            assert_eq!(peek(dir.path()), Ages::default());
            assert_eq!(std::fs::read(dir.path().join(NAME)).unwrap(), bytes);
        }
    }

    #[test]
    fn an_invalid_slots_file_is_set_aside() {
        for bytes in [vec![], vec![7; 100], vec![0xF5; 2 * SLOT_BYTES]] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(NAME), &bytes).unwrap();
            let (mut slots, ages, why) = Slots::open(dir.path()).unwrap();
            assert!(ages.is_empty() && why.is_some());
            assert_eq!(
                std::fs::read(dir.path().join("ages.damaged-1")).unwrap(),
                bytes
            );
            slots.write(&some(1).encode()).unwrap();
            assert_eq!(Slots::open(dir.path()).unwrap().1, some(1));
        }
    }
}
