//! Protobuf's outermost layer: the bounds of the first field in some bytes.
//!
//! Never looks into a field, never copies, never panics. Refuses groups, because no message of the interface
//! has one.

use std::ops::Range;

/// The longest varint of 64 bits, in bytes.
const VARINT_BYTES_MAX: usize = 10;
/// The largest value of its last byte: one bit is left.
const LAST_BYTE_MAX: u8 = 1;

/// The wire type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// A varint.
    Varint,
    /// Eight bytes.
    Fixed64,
    /// Text, bytes or a message, with its length in front.
    Delimited,
    /// Four bytes.
    Fixed32,
}

/// One field, as ranges in the bytes that begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its number.
    pub number: u32,
    /// How its value is written.
    pub kind: WireType,
    /// Its value, without key and length. The next field begins at its end.
    pub value: Range<usize>,
}

/// Why bytes do not begin with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They end inside it.
    #[error("a field ends past the end of its message")]
    CutOff,
    /// A number of more than 64 bits, a field number of 0 or of more than 29 bits, or an unknown wire type.
    #[error("a field is invalid")]
    Invalid,
    /// It is a group, or the end of one.
    #[error("a field is a group")]
    Group,
}

impl Field {
    /// Returns the varint that it is, in the bytes that begin with it.
    pub(super) fn number_in(&self, bytes: &[u8]) -> Option<u64> {
        varint(bytes, self.value.start).ok().map(|(value, _)| value)
    }
}

/// Reads the first field.
pub(super) fn field(bytes: &[u8]) -> Result<Field, Error> {
    let field = begun_field(bytes)?;
    if field.value.end > bytes.len() {
        return Err(Error::CutOff);
    }
    Ok(field)
}

/// Reads the bounds of the first field, which may end past the end of the bytes.
pub(super) fn begun_field(bytes: &[u8]) -> Result<Field, Error> {
    let (key, start) = varint(bytes, 0)?;
    let (number, kind) = number_and_kind(key)?;
    let value = match kind {
        WireType::Varint => start..varint(bytes, start)?.1,
        WireType::Fixed64 => counted(start, 8)?,
        WireType::Fixed32 => counted(start, 4)?,
        WireType::Delimited => {
            let (length, start) = varint(bytes, start)?;
            counted(start, length)?
        }
    };
    Ok(Field {
        number,
        kind,
        value,
    })
}

fn number_and_kind(key: u64) -> Result<(u32, WireType), Error> {
    let (number, kind) = match u32::try_from(key) {
        Ok(key) if key >> 3 > 0 => (key >> 3, key & 7),
        Ok(_) | Err(_) => return Err(Error::Invalid),
    };
    match kind {
        0 => Ok((number, WireType::Varint)),
        1 => Ok((number, WireType::Fixed64)),
        2 => Ok((number, WireType::Delimited)),
        3 | 4 => Err(Error::Group),
        5 => Ok((number, WireType::Fixed32)),
        _ => Err(Error::Invalid),
    }
}

/// Reads a varint at `start`; returns also its end.
fn varint(bytes: &[u8], start: usize) -> Result<(u64, usize), Error> {
    // Nearly all keys and lengths.
    if let Some(byte) = bytes.get(start).filter(|byte| **byte < 0x80) {
        return Ok((u64::from(*byte), start + 1));
    }
    let mut value = 0;
    for (place, byte) in bytes.iter().skip(start).take(VARINT_BYTES_MAX).enumerate() {
        let is_tenth = place + 1 == VARINT_BYTES_MAX;
        if is_tenth && *byte > LAST_BYTE_MAX {
            return Err(Error::Invalid);
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Ok((value, start + place + 1));
        }
    }
    Err(Error::CutOff)
}

/// Returns the range of the next `count` bytes.
fn counted(start: usize, count: u64) -> Result<Range<usize>, Error> {
    let count = usize::try_from(count).ok();
    let end = count.and_then(|count| start.checked_add(count));
    Ok(start..end.ok_or(Error::CutOff)?)
}

#[cfg(test)]
pub(super) mod testing {
    //! Valid and invalid fields of every kind.

    use proptest::prelude::*;

    /// Default number of cases of a test.
    const CASES: u32 = 256;

    pub(in crate::runtime) fn cases() -> ProptestConfig {
        let cases = std::env::var("PROPTEST_CASES").ok();
        let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
        ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(cases)
        }
    }

    pub(in crate::runtime) fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push((value & 0x7f) as u8);
        bytes
    }

    /// A field of any number and wire type; its value mostly fits the type.
    pub(in crate::runtime) fn field() -> impl Strategy<Value = Vec<u8>> {
        let number = prop_oneof![4 => Just(1_u64), 4 => 0..20_u64, 1 => any::<u64>()];
        let fixed = |count: usize| prop::collection::vec(any::<u8>(), count);
        let some = || prop::collection::vec(any::<u8>(), 0..20);
        let kind_and_value = prop_oneof![
            3 => any::<u64>().prop_map(|value| (0_u64, varint(value))),
            2 => fixed(8).prop_map(|value| (1, value)),
            2 => fixed(4).prop_map(|value| (5, value)),
            4 => some().prop_map(|value| (2, [varint(value.len() as u64), value].concat())),
            2 => (0..8_u64, some()),
        ];
        (number, kind_and_value).prop_map(|(number, (kind, value))| {
            let key = number.wrapping_shl(3) | kind;
            [varint(key), value].concat()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::testing::{cases, varint};
    use super::*;

    /// A field of each kind, as prost writes and reads it.
    #[derive(Clone, PartialEq, Message)]
    struct EachKind {
        #[prost(uint64, tag = "1")]
        varint: u64,
        #[prost(fixed64, tag = "2")]
        fixed64: u64,
        #[prost(bytes = "vec", tag = "3")]
        delimited: Vec<u8>,
        #[prost(fixed32, tag = "536870911")]
        fixed32: u32,
    }

    /// A message without fields: prost skips everything.
    #[derive(Clone, PartialEq, Message)]
    struct Nothing {}

    /// Returns the fields of a message and where each ends.
    fn all_fields(bytes: &[u8]) -> Result<Vec<(Field, usize)>, Error> {
        let (mut fields, mut end) = (Vec::new(), 0);
        while end < bytes.len() {
            let field = field(&bytes[end..])?;
            assert!(field.value.end > 0, "each field gets on");
            end += field.value.end;
            fields.push((field, end));
        }
        Ok(fields)
    }

    #[test]
    fn numbers_end_at_ten_bytes_and_at_sixty_four_bits() {
        let nine = [0xff; 9];
        let with = |last: &[u8]| [&[0x08][..], &nine, last].concat();
        let end = |bytes: &[u8]| field(bytes).map(|field| field.value.end);
        assert_eq!(end(&with(&[1])), Ok(11));
        assert_eq!(end(&with(&[2])), Err(Error::Invalid));
        assert_eq!(end(&with(&[0x81, 0])), Err(Error::Invalid));
        assert_eq!(end(&with(&[])), Err(Error::CutOff));
        assert_eq!(super::varint(&with(&[1]), 1), Ok((u64::MAX, 11)));
    }

    #[test]
    fn invalid_keys_and_wire_kinds_are_refused() {
        let last = u64::from(u32::MAX >> 3);
        let of = |key: u64| field(&[varint(key), vec![0; 8]].concat()).map(|field| field.number);
        assert_eq!(of(last << 3), Ok(u32::MAX >> 3));
        for kind in [3, 4] {
            assert_eq!(of(9 << 3 | kind), Err(Error::Group));
        }
        for invalid in [(last + 1) << 3, 0, 9 << 3 | 6, 9 << 3 | 7] {
            assert_eq!(of(invalid), Err(Error::Invalid));
        }
    }

    #[test]
    fn a_length_that_lies_is_cut_off() {
        for length in [3, 1 << 31, u64::MAX - 2, u64::MAX] {
            let bytes = [vec![0x0a], varint(length), vec![0, 0]].concat();
            assert_eq!(field(&bytes), Err(Error::CutOff), "{length}");
        }
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn finds_every_field_that_prost_writes_and_nothing_more(numbers in any::<(u64, u64, u32)>(), delimited in prop::collection::vec(any::<u8>(), 0..300)) {
            let (varint, fixed64, fixed32) = numbers;
            let message = EachKind { varint, fixed64, delimited, fixed32 };
            let bytes = message.encode_to_vec();
            let fields = all_fields(&bytes).unwrap();
            let (mut again, mut start) = (EachKind::default(), 0);
            for (field, end) in &fields {
                // Each field alone is a message: together they hold the same.
                again.merge(&bytes[start..*end]).unwrap();
                if field.kind == WireType::Delimited {
                    let value = start + field.value.start..start + field.value.end;
                    prop_assert_eq!(&bytes[value], &message.delimited[..]);
                }
                start = *end;
            }
            prop_assert_eq!(again, message);
            for end in 0..bytes.len() {
                let is_whole = end == 0 || fields.iter().any(|(_, it)| *it == end);
                prop_assert_eq!(all_fields(&bytes[..end]).is_ok(), is_whole, "{}", end);
            }
        }

        #[test]
        fn any_bytes_are_fields_exactly_if_prost_can_skip_them(fields in prop::collection::vec(testing::field(), 0..4), garbage in prop::collection::vec(any::<u8>(), 0..40)) {
            for bytes in [fields.concat(), garbage.clone(), [fields.concat(), garbage].concat()] {
                let theirs = Nothing::decode(bytes.as_slice());
                match all_fields(&bytes) {
                    // prost skips a group; no server sends one.
                    Err(Error::Group) => {}
                    ours => prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}, {:?}", ours, theirs),
                }
            }
        }
    }
}
