//! The body of a list's answer: reads the rows while they come, and passes on only the end with its status.
//!
//! The gRPC library would first copy each message together. `framing` has already checked that each message is
//! uncompressed, within the limit and whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use tonic::Status;

use super::framing::HEAD_BYTES;
use crate::runtime::codec::RowReader;
use crate::runtime::convert::WireRow;
use crate::runtime::defect::{Defect, ReadError};

/// A body whose rows go to a reader.
#[derive(Debug)]
pub(super) struct RowBody<B, R: WireRow> {
    body: B,
    /// The received bytes of the next message's header.
    head: BytesMut,
    /// The missing bytes of the present message.
    left: usize,
    rows: Arc<Mutex<RowReader<R>>>,
}

impl<B, R: WireRow> RowBody<B, R> {
    /// Reads the messages of a body into `rows`.
    pub(super) fn new(body: B, rows: Arc<Mutex<RowReader<R>>>) -> Self {
        Self {
            body,
            head: BytesMut::with_capacity(HEAD_BYTES),
            left: 0,
            rows,
        }
    }

    fn read(&mut self, mut data: Bytes) -> Result<(), ReadError> {
        let mut rows = self.rows.lock();
        while !data.is_empty() {
            if self.left == 0 {
                let length = data.len().min(HEAD_BYTES - self.head.len());
                self.head.extend_from_slice(&data.split_to(length));
                if self.head.len() < HEAD_BYTES {
                    return Ok(());
                }
                self.left = length_of(&self.head);
                self.head.clear();
                rows.begin();
            } else {
                let piece = data.split_to(self.left.min(data.len()));
                self.left -= piece.len();
                rows.read(piece)?;
            }
            if self.left == 0 {
                rows.end()?;
            }
        }
        Ok(())
    }
}

/// Returns the length of the message with this header.
fn length_of(mut head: &[u8]) -> usize {
    head.advance(1);
    usize::try_from(head.get_u32()).unwrap_or(usize::MAX)
}

impl<B, R> Body for RowBody<B, R>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
    R: WireRow,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    if let Err(error) = self.read(data) {
                        return Poll::Ready(Some(Err(Defect::from(error).into())));
                    }
                }
                // The client does not use data before an error.
                Ok(Err(end)) => return Poll::Ready(Some(Ok(end))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crisweep_proto::cri::{Container, ContainerRow, ListContainersResponse};
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};
    use prost::Message;
    use tonic::Code;
    use tonic::codegen::http::Response;

    use super::super::framing::{Awaits, framed};
    use super::*;
    use crate::model;
    use crate::runtime::codec::{ListChunk, read};
    use crate::runtime::convert::Interner;
    use crate::runtime::defect::{Oversize, cause};

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

    type Containers = ListChunk<model::Container>;

    /// Sends `bytes` in chunks, then the end; returns what was read, and the status.
    async fn through(
        bytes: impl AsRef<[u8]>,
        at_a_time: usize,
        end: Option<Frame<Bytes>>,
    ) -> Result<(Option<Containers>, Option<Status>), Status> {
        let data = |chunk: &[u8]| Frame::data(Bytes::copy_from_slice(chunk));
        let frames = bytes
            .as_ref()
            .chunks(at_a_time)
            .map(data)
            .chain(end)
            .map(Ok);
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        let answer = framed(Response::new(body), LIMIT, Awaits::Any);
        let shared = Arc::new(Mutex::new(Interner::default()));
        let rows = Arc::new(Mutex::new(RowReader::<ContainerRow>::new(shared)));
        let body = RowBody::new(answer.into_body(), Arc::clone(&rows));
        let arrived = body.collect().await?;
        let status = arrived.trailers().and_then(Status::from_header_map);
        assert_eq!(arrived.to_bytes(), Bytes::new());
        let page = rows.lock().take();
        Ok((page, status))
    }

    fn read_at_once(message: &[u8]) -> Containers {
        read::<ContainerRow>(Bytes::copy_from_slice(message)).unwrap()
    }

    #[tokio::test]
    async fn a_message_is_read_the_same_however_its_bytes_come() {
        let message = answer(600, 1_000);
        for at_a_time in [1, 1_000, 16 << 10, 300_000, LIMIT] {
            let sent = through(framed_message(&message), at_a_time, Some(status("0")));
            let (page, status) = sent.await.unwrap();
            assert_eq!(page, Some(read_at_once(&message)));
            assert_eq!(status.unwrap().code(), Code::Ok);
        }
    }

    #[tokio::test]
    async fn messages_are_added_up_and_one_without_rows_is_a_list() {
        let messages = [answer(0, 1), answer(2, 10), answer(2, 200_000)];
        let bytes = messages.each_ref().map(|message| framed_message(message));
        for at_a_time in [1, 7, 1_000, LIMIT] {
            let sent = through(bytes.concat(), at_a_time, Some(status("0")));
            let page = sent.await.unwrap().0.unwrap();
            assert_eq!(page, read_at_once(&messages.concat()));
            let sent = through(&bytes[0], at_a_time, Some(status("0")));
            let (page, _) = sent.await.unwrap();
            assert_eq!(page, Some(Containers::default()));
        }
        let (page, _) = through([], 1, Some(status("0"))).await.unwrap();
        assert_eq!(page, None, "nothing came");
    }

    #[tokio::test]
    async fn bytes_that_are_no_rows_are_an_error_wherever_they_are() {
        let field = answer(1, 10);
        for broken in [
            vec![0xff; 200_000],
            [&field[..], b"\x08\x01"].concat(),
            [&field[..], b"\x0a\x03\x0a\x01\xff"].concat(),
            [&field[..], &field[..field.len() - 1]].concat(),
        ] {
            for at_a_time in [1, 1_000, LIMIT] {
                let sent = through(framed_message(&broken), at_a_time, Some(status("0")));
                let error = sent.await.unwrap_err();
                assert!(
                    matches!(cause(&error), Some(Defect::Unreadable(_))),
                    "{error:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_message_one_byte_over_the_limit_is_an_error_before_it_has_come() {
        let message = vec![7; LIMIT + 1];
        let sent = through(&framed_message(&message)[..HEAD_BYTES], 1_000, None).await;
        let error = sent.unwrap_err();
        let (bytes, limit) = (LIMIT as u64 + 1, LIMIT as u64);
        assert_eq!(cause(&error), Some(&Oversize { bytes, limit }));
    }

    /// The gRPC library does not read the status at the end of such an answer.
    #[tokio::test]
    async fn a_status_before_the_messages_is_an_error() {
        let message = framed_message(&answer(2, 10));
        for (length, end) in [
            (message.len(), None),
            (message.len(), Some("13")),
            (message.len() - 1, Some("13")),
            (7, Some("0")),
            (0, Some("13")),
        ] {
            let data = Bytes::copy_from_slice(&message[..length]);
            let frames = [Frame::data(data)].into_iter().chain(end.map(status));
            let body = StreamBody::new(stream::iter(frames.map(Ok)));
            let mut whole = Response::new(body);
            let headers = whole.headers_mut();
            headers.insert("grpc-status", "0".parse().unwrap());
            let body = framed(whole, LIMIT, Awaits::Any).into_body();
            let shared = Arc::new(Mutex::new(Interner::default()));
            let rows = RowReader::<ContainerRow>::new(shared);
            let body = RowBody::new(body, Arc::new(Mutex::new(rows)));
            assert!(body.collect().await.is_err(), "{length} {end:?}");
        }
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
