//! Frames: every record on disk is wrapped in one, so that torn or damaged records are recognised.
//!
//! magic (4) | kind (1) | version (1) | zero (2) | length (4) | CRC-32 (4) | sequence (8) | payload,
//! little endian, padded to a multiple of eight. Pure: never touches a file.

/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 24;
/// Frames begin at multiples of this.
pub(super) const ALIGN: usize = 8;
/// Two of these bytes never occur in UTF-8, so no payload of ours looks like a frame.
const MAGIC: [u8; 4] = [0xF5, b'C', b'S', 0xFA];
const VERSION: u8 = 1;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The head of a file.
    Head = 1,
    /// A journal's record.
    Record = 2,
    /// Filler: the rest of the ring, skipped at the end of a lap. The checksum does not cover its content,
    /// which stays unwritten.
    Pad = 3,
    /// A slot of image ages.
    Ages = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Head, Self::Record, Self::Pad, Self::Ages]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A complete frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    /// Grows by one from frame to frame.
    pub(super) sequence: u64,
    /// Empty for a pad.
    pub(super) payload: &'a [u8],
    /// Its size on disk, padding included.
    pub(super) bytes: usize,
}

/// Returns how many bytes a payload of this length takes on disk.
pub(super) fn framed(payload: usize) -> usize {
    (HEADER_BYTES + payload).next_multiple_of(ALIGN)
}

/// Wraps a payload; `None` if it is too long for a frame.
pub(super) fn encode(kind: Kind, sequence: u64, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(payload.len()).ok()?;
    let mut bytes = header(kind, sequence, length, payload);
    bytes.extend_from_slice(payload);
    bytes.resize(framed(payload.len()), 0);
    Some(bytes)
}

/// Returns the header of a pad over `bytes` bytes, itself included; `None` if the header does not fit.
pub(super) fn pad(sequence: u64, bytes: u64) -> Option<Vec<u8>> {
    let covered = bytes.checked_sub(HEADER_BYTES as u64)?;
    let length = u32::try_from(covered).ok()?;
    Some(header(Kind::Pad, sequence, length, &[]))
}

fn header(kind: Kind, sequence: u64, length: u32, payload: &[u8]) -> Vec<u8> {
    let front = front(kind as u8, VERSION, length);
    let sum = sum(&front, sequence, payload);
    let mut bytes = Vec::with_capacity(framed(payload.len()));
    bytes.extend_from_slice(&front);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes
}

fn front(kind: u8, version: u8, length: u32) -> Vec<u8> {
    let mut front = MAGIC.to_vec();
    front.extend_from_slice(&[kind, version, 0, 0]);
    front.extend_from_slice(&length.to_le_bytes());
    front
}

fn sum(front: &[u8], sequence: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(front);
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Decodes the frame at the start of `bytes`; `None` if it is not complete.
pub(super) fn decode(bytes: &[u8]) -> Option<Frame<'_>> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let ([kind, version, zeros @ ..], rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (stored, rest) = rest.split_first_chunk::<4>()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    if *magic != MAGIC || *version != VERSION || *zeros != [0, 0] {
        return None;
    }
    let kind = Kind::from_byte(*kind)?;
    let sequence = u64::from_le_bytes(*sequence);
    let length = u32::from_le_bytes(*length);
    let covered = rest.get(..usize::try_from(length).ok()?)?;
    let payload = if kind == Kind::Pad { &[] } else { covered };
    let front = front(kind as u8, VERSION, length);
    (sum(&front, sequence, payload) == u32::from_le_bytes(*stored)).then_some(Frame {
        kind,
        sequence,
        payload,
        bytes: framed(covered.len()).min(bytes.len()),
    })
}

/// Finds every complete frame, with its offset.
pub(super) fn scan(bytes: &[u8]) -> Vec<(usize, Frame<'_>)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
        match decode(rest) {
            Some(frame) => {
                found.push((offset, frame));
                offset += frame.bytes;
            }
            None => offset += ALIGN,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_back_what_was_written(payload: Vec<u8>, sequence: u64) {
            let bytes = encode(Kind::Record, sequence, &payload).unwrap();
            let frame = decode(&bytes).unwrap();
            prop_assert_eq!(frame.payload, payload);
            prop_assert_eq!((frame.kind, frame.sequence), (Kind::Record, sequence));
            prop_assert_eq!(frame.bytes, bytes.len());
        }

        #[test]
        fn a_flipped_bit_is_never_read(payload: Vec<u8>, sequence: u64, at: prop::sample::Index, bit in 0..8_u8) {
            let mut bytes = encode(Kind::Record, sequence, &payload).unwrap();
            // The padding has no content.
            let at = at.index(HEADER_BYTES + payload.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn no_bytes_break_the_scan(bytes: Vec<u8>) {
            scan(&bytes);
        }
    }

    #[test]
    fn a_frame_cut_anywhere_is_not_read() {
        let bytes = encode(Kind::Record, 7, b"payload of some length").unwrap();
        for cut in 0..HEADER_BYTES + 22 {
            assert_eq!(decode(&bytes[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_pad_hides_the_frames_it_covers() {
        let old = encode(Kind::Record, 1, b"old").unwrap();
        let mut bytes = pad(9, 24 + 64).unwrap();
        bytes.extend(&old);
        bytes.resize(24 + 64, 0);
        let found = scan(&bytes);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].1.kind, found[0].1.sequence), (Kind::Pad, 9));
    }

    #[test]
    fn scanning_continues_after_a_damaged_frame() {
        let mut bytes = Vec::new();
        for sequence in 1..=3 {
            bytes.extend(encode(Kind::Record, sequence, b"abc").unwrap());
        }
        bytes[framed(3) + 20] ^= 1;
        let sequences: Vec<u64> = scan(&bytes).iter().map(|(_, f)| f.sequence).collect();
        assert_eq!(sequences, [1, 3]);
    }
}
