//! What is wrong with an answer, as our own side of the wire finds it.
//!
//! The gRPC library hands on nothing but statuses: a defect travels as the source of one, which no
//! status from the wire has.

use std::error::Error;
use std::sync::Arc;

use prost::DecodeError;
use tonic::{Code, Status};

use super::wire;

/// A message of an answer weighs more than we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes is over the limit of {limit} bytes")]
pub(super) struct Oversize {
    pub(super) bytes: u64,
    pub(super) limit: u64,
}

/// Why an answer is not what the interface says it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It ends within a message.
    #[error("it ends in the middle of a message")]
    CutOff,
    /// It ends without saying how the call went.
    #[error("it ends without a status")]
    NoStatus,
    /// All went well, but what was asked for is not there.
    #[error("it has no message")]
    Empty,
    /// A message is compressed, which is never asked for, or the bytes are none of gRPC's.
    #[error("a message of it begins with {0:#04x} and not with 0x00")]
    Flag(u8),
    /// A message cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// It is about another object than the one with this id.
    #[error("it is not about {0}")]
    NotAbout(String),
    /// So many rows, of which each could be the one that matters.
    #[error("{0} rows lack an id")]
    NoIds(usize),
    /// It tells more ids than any node has.
    #[error("it has more than {0} ids")]
    TooManyIds(usize),
}

/// Why a message is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is not made of fields.
    #[error(transparent)]
    Wire(#[from] wire::Error),
    /// The field that holds the rows holds something else.
    #[error("a row is no message")]
    NoRow,
    /// A field, or what is in it, is not what it should be.
    #[error(transparent)]
    Protobuf(#[from] DecodeError),
}

impl From<Oversize> for Status {
    fn from(oversize: Oversize) -> Self {
        from_source(Code::OutOfRange, oversize)
    }
}

impl From<Defect> for Status {
    fn from(defect: Defect) -> Self {
        from_source(Code::Internal, defect)
    }
}

fn from_source(code: Code, source: impl Error + Send + Sync + 'static) -> Status {
    let mut status = Status::new(code, source.to_string());
    status.set_source(Arc::new(source));
    status
}

/// Returns the first cause of a status that is of this type.
pub(super) fn cause<T: Error + 'static>(status: &Status) -> Option<&T> {
    let mut causes = std::iter::successors(status.source(), |&error| error.source());
    causes.find_map(|error| error.downcast_ref())
}
