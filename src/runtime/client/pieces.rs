//! Splits a long answer between its rows, so that only the current piece is in memory.
//!
//! A protobuf message can be split between any two fields: each piece is a message, and together they hold the
//! same fields. Never judges: bytes that cannot be split pass unchanged, and the decoder reports the error.
//! `framing` has already checked that each message is uncompressed, within the limit and whole.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};

use super::framing::HEAD_BYTES;
use crate::runtime::wire;

/// Weight of a piece, unless a single row weighs more.
const PIECE_BYTES: usize = 64 << 10;

/// The body of an answer, with each message split into pieces.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    body: B,
    place: Place,
    /// Received bytes that were not passed on.
    ahead: BytesMut,
    /// The rest of a piece whose header was passed on.
    piece: Option<Bytes>,
}

/// Position in the body at which `ahead` begins.
#[derive(Clone, Copy, Debug)]
enum Place {
    Head,
    Message { left: usize },
}

impl<B> Pieces<B> {
    /// Splits the messages of a body.
    pub(super) fn new(body: B) -> Self {
        Self {
            body,
            place: Place::Head,
            ahead: BytesMut::new(),
            piece: None,
        }
    }

    /// Returns the next bytes that can be passed on.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.piece.take() {
            return Some(piece);
        }
        let left = match self.place {
            Place::Head => self.head()?,
            Place::Message { left } => left,
        };
        self.place = Place::Message { left };
        self.cut(left)
    }

    /// Takes a message's header; returns the message's length.
    fn head(&mut self) -> Option<usize> {
        let mut head = self.ahead.get(..HEAD_BYTES)?;
        head.advance(1);
        let length = usize::try_from(head.get_u32()).ok()?;
        self.ahead.advance(HEAD_BYTES);
        Some(length)
    }

    /// Cuts a piece off a message with `left` bytes left; returns the piece's header.
    fn cut(&mut self, left: usize) -> Option<Bytes> {
        let length = match self.ahead.get(..left) {
            Some(_rest) => left,
            None if self.ahead.len() < PIECE_BYTES => return None,
            None => whole_fields(&self.ahead),
        };
        let is_last = length == left;
        if length == 0 && !is_last {
            return None;
        }
        self.place = if is_last {
            Place::Head
        } else {
            let left = left - length;
            Place::Message { left }
        };
        self.piece = (length > 0).then(|| self.ahead.split_to(length).freeze());
        let mut head = BytesMut::with_capacity(HEAD_BYTES);
        head.put_u8(0);
        head.put_u32(u32::try_from(length).ok()?);
        Some(head.freeze())
    }
}

/// Returns the end of the last complete field.
fn whole_fields(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Ok(field) = wire::field(rest) {
        rest = rest.get(field.value.end..).unwrap_or_default();
    }
    bytes.len() - rest.len()
}

impl<B> Body for Pieces<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            if let Some(bytes) = self.next() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => self.ahead.extend_from_slice(&data),
                // The client does not use data before an error.
                Ok(Err(end)) => return Poll::Ready(Some(Ok(end))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};
    use prost::Message;
    use tonic::codegen::http::Response;
    use tonic::{Code, Status};

    use super::super::framing::{Awaits, framed};
    use super::*;
    use crate::runtime::Defect;
    use crate::runtime::defect::{Oversize, cause};
    use crisweep_proto::cri::{Container, ListContainersResponse};

    const LIMIT: usize = 1 << 20;

    fn answer(rows: usize, row_bytes: usize) -> Vec<u8> {
        let row = |number: usize| Container {
            id: format!("{number:04}{}", "x".repeat(row_bytes)),
            ..Default::default()
        };
        let containers = (0..rows).map(row).collect();
        ListContainersResponse { containers }.encode_to_vec()
    }

    fn framed_message(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0][..], &length.to_be_bytes(), message].concat()
    }

    fn status(code: &'static str) -> Frame<Bytes> {
        let mut trailers = tonic::codegen::http::HeaderMap::new();
        trailers.insert("grpc-status", code.parse().unwrap());
        Frame::trailers(trailers)
    }

    /// Sends `bytes` in chunks, then the end; returns the received messages and trailers.
    async fn through(
        bytes: &[u8],
        at_a_time: usize,
        end: Option<Frame<Bytes>>,
    ) -> Result<(Vec<Vec<u8>>, Option<Status>), Status> {
        let data = |chunk: &[u8]| Frame::data(Bytes::copy_from_slice(chunk));
        let frames = bytes.chunks(at_a_time).map(data).chain(end).map(Ok);
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let answer = framed(Response::new(body), LIMIT, Awaits::Any);
        let arrived = Pieces::new(answer.into_body()).collect().await?;
        let status = arrived.trailers().and_then(Status::from_header_map);
        let mut bytes = arrived.to_bytes();
        let mut messages = Vec::new();
        while bytes.has_remaining() {
            assert_eq!(bytes.get_u8(), 0);
            let length = bytes.get_u32() as usize;
            messages.push(bytes.split_to(length.min(bytes.len())).to_vec());
        }
        Ok((messages, status))
    }

    #[tokio::test]
    async fn the_pieces_of_a_message_hold_all_its_bytes_and_decode_alone() {
        let message = answer(600, 1_000);
        for at_a_time in [1, 1_000, 16 << 10, 300_000, LIMIT] {
            let (pieces, status) = through(&framed_message(&message), at_a_time, Some(status("0")))
                .await
                .unwrap();
            assert_eq!(pieces.concat(), message);
            assert_eq!(status.unwrap().code(), Code::Ok);
            if at_a_time <= 16 << 10 {
                assert!(pieces.len() > 6, "{at_a_time}: {} pieces", pieces.len());
            }
            for piece in pieces {
                assert!(ListContainersResponse::decode(&*piece).is_ok());
            }
        }
    }

    #[tokio::test]
    async fn short_messages_stay_as_they_are_and_a_long_row_stays_one() {
        let messages = [answer(0, 1), answer(2, 10), answer(2, 2 * PIECE_BYTES)];
        let bytes = messages
            .each_ref()
            .map(|message| framed_message(message))
            .concat();
        let (arrived, _) = through(&bytes, 1_000, Some(status("0"))).await.unwrap();
        assert_eq!(arrived[..2], messages[..2]);
        assert_eq!(arrived[2..].concat(), messages[2]);
        assert_eq!(arrived.len(), 4);
    }

    #[tokio::test]
    async fn bytes_that_are_no_protobuf_are_passed_on_unchanged() {
        let garbage = vec![0xff; 3 * PIECE_BYTES];
        let ok = Some(status("0"));
        let (arrived, _) = through(&framed_message(&garbage), 1_000, ok).await.unwrap();
        assert_eq!(arrived, [garbage]);
    }

    #[tokio::test]
    async fn a_message_one_byte_over_the_limit_is_an_error_before_it_has_come() {
        let message = vec![7; LIMIT + 1];
        let sent = through(&framed_message(&message)[..HEAD_BYTES], 1_000, None).await;
        let error = sent.unwrap_err();
        let (bytes, limit) = (LIMIT as u64 + 1, LIMIT as u64);
        assert_eq!(cause(&error), Some(&Oversize { bytes, limit }));
    }

    #[tokio::test]
    async fn half_a_message_is_an_error_wherever_it_was_cut() {
        let whole = framed_message(&answer(600, 1_000));
        let row_bytes = answer(1, 1_000).len();
        for length in [3, HEAD_BYTES, HEAD_BYTES + 200 * row_bytes, whole.len() - 1] {
            for end in [None, Some("0")] {
                let sent = through(&whole[..length], row_bytes, end.map(status)).await;
                let error = sent.unwrap_err();
                assert_eq!(cause(&error), Some(&Defect::CutOff), "{error}");
            }
            let sent = through(&whole[..length], row_bytes, Some(status("13"))).await;
            assert_eq!(sent.unwrap().1.unwrap().code(), Code::Internal);
        }
    }
}
