//! Reads a list's answer, as the service does with one that comes in one piece.

use std::sync::Arc;

use bytes::Bytes;
use crisweep::runtime::codec::{ListChunk, RowReader};
use crisweep::runtime::convert::{Interner, WireRow};
use parking_lot::Mutex;

/// Returns the rows of the answer; they share equal values with all that `shared` knows.
pub(crate) fn rows<R: WireRow>(
    answer: Bytes,
    shared: &Arc<Mutex<Interner>>,
) -> ListChunk<R::Model> {
    let mut reader = RowReader::<R>::new(Arc::clone(shared));
    let read = reader.read(answer).and_then(|()| reader.end());
    read.expect("rows");
    reader.take().expect("a message")
}
