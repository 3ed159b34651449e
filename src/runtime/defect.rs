//! Defects of an answer that our side of the wire detects.
//!
//! The gRPC library passes on only statuses: a defect travels as the source of one. A status from the wire
//! never has a source.

use std::error::Error;
use std::sync::Arc;

use prost::DecodeError;
use tonic::{Code, Status};

use super::wire;

/// The messages of an answer, up to the last that has begun, are above our limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer of {bytes} bytes is over the limit of {limit} bytes")]
pub(super) struct Oversize {
    pub(super) bytes: u64,
    pub(super) limit: u64,
}

/// Why an answer violates the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It ends inside a message.
    #[error("it ends in the middle of a message")]
    CutOff,
    /// It ends without a status.
    #[error("it ends without a status")]
    NoStatus,
    /// Its status comes before its messages, so that nothing says whether they are all.
    #[error("its status comes before its messages")]
    EarlyStatus,
    /// The status is OK, but the requested object is missing.
    #[error("it has no message")]
    Empty,
    /// A message is compressed although its headers do not say so, or the bytes are not gRPC.
    #[error("a message of it begins with {0:#04x} and not with 0x00")]
    Flag(u8),
    /// A message cannot be decoded.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// This call was broken off, on a connection that lives: the status is too long, or the call's time is over.
    #[error("it was broken off: {0}")]
    BrokenOff(String),
    /// It is about another object than the one with this id.
    #[error("it is not about {0}")]
    NotAbout(String),
    /// This many rows without a readable id; each could be the wanted one.
    #[error("{0} rows lack a readable id")]
    NoIds(usize),
    /// It has more ids than any node.
    #[error("it has more than {0} ids")]
    TooManyIds(usize),
}

/// Why a message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not consist of fields.
    #[error(transparent)]
    Wire(#[from] wire::Error),
    /// A compressed message is no gzip stream, or goes on after its end.
    #[error("a compressed message is not a gzip stream")]
    Gzip,
    /// The field of the rows holds something else.
    #[error("a row is not a message")]
    NoRow,
    /// A field or its content is invalid.
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

/// Returns the first cause of this type in a status.
pub(super) fn cause<T: Error + 'static>(status: &Status) -> Option<&T> {
    let mut causes = std::iter::successors(status.source(), |&error| error.source());
    causes.find_map(|error| error.downcast_ref())
}
