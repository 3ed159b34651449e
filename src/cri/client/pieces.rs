//! Cuts a long answer between its rows, so that no more of it is in memory than is read just now.
//!
//! A protobuf message can be cut between any two of its fields: each part is a message, and together
//! they hold what it held. Never judges: what cannot be cut goes on as it is, for the decoder to say
//! what is wrong with it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tonic::{Code, Status};

/// What a piece weighs, unless a single row weighs more.
const PIECE_BYTES: usize = 64 << 10;
/// A message's head: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;

/// The body of an answer, with each of its messages in pieces that are messages.
#[derive(Debug)]
pub(super) struct Pieces<B> {
    body: B,
    limit_bytes: usize,
    place: Place,
    /// What has come and has not gone on.
    ahead: BytesMut,
    /// The rest of a piece whose head has gone on.
    piece: Option<Bytes>,
}

/// Where in the body `ahead` begins.
#[derive(Clone, Copy, Debug)]
enum Place {
    Head,
    Message {
        left: usize,
    },
    /// In what cannot be cut, or after the end.
    Beyond,
}

impl<B> Pieces<B> {
    /// Cuts what is within the limit; a message over it goes on as it is.
    pub(super) fn new(body: B, limit_bytes: usize) -> Self {
        Self {
            body,
            limit_bytes,
            place: Place::Head,
            ahead: BytesMut::new(),
            piece: None,
        }
    }

    /// Returns what can go on already.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.piece.take() {
            return Some(piece);
        }
        if matches!(self.place, Place::Head) {
            self.place = self.head()?;
        }
        match self.place {
            Place::Head => None,
            Place::Message { left } => self.cut(left),
            Place::Beyond => (!self.ahead.is_empty()).then(|| self.ahead.split().freeze()),
        }
    }

    fn head(&mut self) -> Option<Place> {
        let mut head = self.ahead.get(..HEAD_BYTES)?;
        let is_plain = head.get_u8() == 0;
        let left = usize::try_from(head.get_u32()).ok()?;
        if !is_plain || left > self.limit_bytes {
            return Some(Place::Beyond);
        }
        self.ahead.advance(HEAD_BYTES);
        Some(Place::Message { left })
    }

    /// Cuts a piece off a message of which so much has not gone on; returns the piece's head.
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

    /// Ends the body here, if it may end here: after half a message that has gone on in pieces it may
    /// not, for what went on would pass for all of it.
    fn end(&mut self) -> Result<(), Status> {
        let is_whole = match self.place {
            Place::Head => self.ahead.is_empty(),
            Place::Message { .. } => false,
            Place::Beyond => true,
        };
        self.place = Place::Beyond;
        self.ahead.clear();
        if is_whole {
            Ok(())
        } else {
            Err(Status::internal("Unexpected EOF decoding stream."))
        }
    }
}

/// Returns where the last field ends that is there as a whole.
fn whole_fields(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    let mut end = 0;
    while skip(&mut rest).is_some() {
        end = bytes.len() - rest.len();
    }
    end
}

fn skip(rest: &mut &[u8]) -> Option<()> {
    let (field, wire_type) = decode_key(rest).ok()?;
    skip_field(wire_type, field, rest, DecodeContext::default()).ok()
}

impl<B> Body for Pieces<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(bytes) = self.next() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(self.end().err().map(Err)),
            };
            match frame.into_data() {
                Ok(data) => self.ahead.extend_from_slice(&data),
                Err(other) => {
                    let end = self.end();
                    let status = other.trailers_ref().and_then(Status::from_header_map);
                    // The runtime's own word for what went wrong is better than ours.
                    let failed = status.is_some_and(|status| status.code() != Code::Ok);
                    let end = if failed { Ok(()) } else { end };
                    return Poll::Ready(Some(end.map(|()| other)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};
    use prost::Message;

    use super::*;
    use crate::cri::proto::{Container, ListContainersResponse};

    const LIMIT: usize = 1 << 20;

    fn answer(rows: usize, row_bytes: usize) -> Vec<u8> {
        let row = |number: usize| Container {
            id: format!("{number:04}{}", "x".repeat(row_bytes)),
            ..Default::default()
        };
        let containers = (0..rows).map(row).collect();
        ListContainersResponse { containers }.encode_to_vec()
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0][..], &length.to_be_bytes(), message].concat()
    }

    fn status(code: &'static str) -> Frame<Bytes> {
        let mut trailers = tonic::codegen::http::HeaderMap::new();
        trailers.insert("grpc-status", code.parse().unwrap());
        Frame::trailers(trailers)
    }

    /// Sends bytes, so many at a time, then the end, and returns the messages and the trailers that arrive.
    async fn through(
        bytes: &[u8],
        at_a_time: usize,
        end: Option<Frame<Bytes>>,
    ) -> Result<(Vec<Vec<u8>>, Option<Status>), Status> {
        let data = |chunk: &[u8]| Frame::data(Bytes::copy_from_slice(chunk));
        let frames = bytes.chunks(at_a_time).map(data).chain(end).map(Ok);
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let arrived = Pieces::new(body, LIMIT).collect().await?;
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
    async fn a_message_arrives_in_messages_that_hold_what_it_held() {
        let message = answer(600, 1_000);
        for at_a_time in [1, 1_000, 16 << 10, 300_000, LIMIT] {
            let (pieces, status) = through(&framed(&message), at_a_time, Some(status("0")))
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
        let bytes = messages.each_ref().map(|message| framed(message)).concat();
        let (arrived, _) = through(&bytes, 1_000, None).await.unwrap();
        assert_eq!(arrived[..2], messages[..2]);
        assert_eq!(arrived[2..].concat(), messages[2]);
        assert_eq!(arrived.len(), 4);
    }

    #[tokio::test]
    async fn what_is_no_protobuf_or_over_the_limit_goes_on_as_it_is() {
        for garbage in [vec![0xff; 3 * PIECE_BYTES], vec![7; LIMIT + 1]] {
            let (arrived, _) = through(&framed(&garbage), 1_000, None).await.unwrap();
            assert_eq!(arrived, [garbage]);
        }
    }

    #[tokio::test]
    async fn half_a_message_is_an_error_wherever_it_was_cut() {
        let whole = framed(&answer(600, 1_000));
        let row_bytes = answer(1, 1_000).len();
        for length in [3, HEAD_BYTES, HEAD_BYTES + 200 * row_bytes, whole.len() - 1] {
            for end in [None, Some("0")] {
                let sent = through(&whole[..length], row_bytes, end.map(status)).await;
                let error = sent.unwrap_err();
                assert!(error.message().starts_with("Unexpected EOF"), "{error}");
            }
            let sent = through(&whole[..length], row_bytes, Some(status("13"))).await;
            assert_eq!(sent.unwrap().1.unwrap().code(), Code::Internal);
        }
    }
}
