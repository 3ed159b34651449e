//! Reads a list's answer row by row while its bytes come, and converts each row before it decodes the next.
//!
//! Never holds more than one raw row: ten thousand decoded rows take many times the memory of the model's rows.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;

use super::convert::{Interner, WireRow};
use super::defect::ReadError;
use super::known_rows::Key;
use super::wire::{self, Field, WireType};

/// The field of the rows in every list answer, streamed or unary.
const ROWS_FIELD: u32 = 1;

/// The content of a list answer, or of one message of it.
#[derive(Debug, PartialEq, Eq)]
pub struct ListChunk<M> {
    /// Its rows, converted.
    pub rows: Vec<M>,
    /// Rows without a readable id.
    pub malformed: usize,
    /// The weight of all fields on the wire.
    pub bytes: u64,
}

impl<M> Default for ListChunk<M> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            malformed: 0,
            bytes: 0,
        }
    }
}

/// Reads the messages of one list's answer, each in the pieces in which it comes.
#[derive(Debug)]
pub struct RowReader<R: WireRow> {
    shared: Arc<Mutex<Interner>>,
    /// The first bytes of a field whose end has not come yet.
    begun: BytesMut,
    /// `None`: no message has begun.
    page: Option<ListChunk<R::Model>>,
}

impl<R: WireRow> RowReader<R> {
    /// Returns a reader whose rows share equal values with all that `shared` knows, and which does not read those known
    /// anew.
    pub fn new(shared: Arc<Mutex<Interner>>) -> Self {
        Self {
            shared,
            begun: BytesMut::new(),
            page: None,
        }
    }

    /// Begins a message.
    pub(crate) fn begin(&mut self) {
        self.page.get_or_insert_default();
    }

    /// Reads the next bytes of the present message. Copies only the bytes of a field that came in two pieces.
    ///
    /// # Errors
    /// If a row cannot be decoded: its references are unknown, so the other rows prove nothing.
    pub fn read(&mut self, mut piece: Bytes) -> Result<(), ReadError> {
        let page = self.page.get_or_insert_default();
        page.bytes += piece.len() as u64;
        let mut shared = self.shared.lock();
        if !self.begun.is_empty() {
            let is_whole = complete(&mut self.begun, &mut piece)?;
            if !is_whole {
                return Ok(());
            }
            let mut field = self.begun.split().freeze();
            take_fields::<R>(&mut field, page, &mut shared)?;
        }
        take_fields::<R>(&mut piece, page, &mut shared)?;
        self.begun.extend_from_slice(&piece);
        Ok(())
    }

    /// Ends the present message.
    ///
    /// # Errors
    /// If it ends inside a field.
    pub fn end(&mut self) -> Result<(), ReadError> {
        let is_whole = self.begun.is_empty();
        is_whole.then_some(()).ok_or(wire::Error::CutOff.into())
    }

    /// Returns the weight of what was read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.page.as_ref().map_or(0, |page| page.bytes)
    }

    /// Returns what all messages held; `None` if there was none.
    pub fn take(&mut self) -> Option<ListChunk<R::Model>> {
        self.page.take()
    }
}

/// Moves bytes of the next piece behind the begun field until that is whole; says whether it is.
fn complete(begun: &mut BytesMut, piece: &mut Bytes) -> Result<bool, wire::Error> {
    loop {
        let missing = match wire::begun_field(begun) {
            Ok(field) => field.value.end.saturating_sub(begun.len()),
            // Not even its length is known.
            Err(wire::Error::CutOff) => 1,
            Err(error) => return Err(error),
        };
        if missing == 0 || piece.is_empty() {
            return Ok(missing == 0);
        }
        begun.extend_from_slice(&piece.split_to(missing.min(piece.len())));
    }
}

/// Takes every whole field off the bytes and adds its row to the page. What is left begins a field.
fn take_fields<R: WireRow>(
    bytes: &mut Bytes,
    page: &mut ListChunk<R::Model>,
    shared: &mut Interner,
) -> Result<(), ReadError> {
    loop {
        let field = match wire::field(bytes) {
            Ok(field) => field,
            Err(wire::Error::CutOff) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Some(row) = take_row(&field, bytes)? else {
            continue;
        };
        match model::<R>(&row, shared)? {
            Some(row) => page.rows.push(row),
            None => page.malformed += 1,
        }
    }
}

/// Reads a row, unless the last list had the same; `None` if it is malformed.
fn model<R: WireRow>(bytes: &Bytes, shared: &mut Interner) -> Result<Option<R::Model>, ReadError> {
    let key = R::KEY.and_then(|fields| Key::of(bytes, fields));
    if let (Some(key), Some(known)) = (&key, R::known(shared))
        && let Some(row) = known.get(key)
    {
        return Ok(Some(row));
    }
    let Ok(row) = R::decode(bytes.clone())?.into_model(shared) else {
        return Ok(None);
    };
    if let (Some(key), Some(known)) = (&key, R::known(shared)) {
        known.insert(key, row.clone());
    }
    Ok(Some(row))
}

/// Takes the first field off a message; returns its row, if it is one.
fn take_row(field: &Field, message: &mut Bytes) -> Result<Option<Bytes>, ReadError> {
    if field.number != ROWS_FIELD {
        message.advance(field.value.end);
        return Ok(None);
    }
    if field.kind != WireType::Delimited {
        return Err(ReadError::NoRow);
    }
    message.advance(field.value.start);
    Ok(Some(message.split_to(field.value.len())))
}

#[cfg(test)]
pub(in crate::runtime) mod tests;
