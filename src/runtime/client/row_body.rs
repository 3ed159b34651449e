//! The body of a list's answer: reads the rows while they come, and passes on only the end with its status.
//!
//! The gRPC library would first copy each message together. `framing` has already checked that the messages are within
//! the limit and whole, and compressed only if we asked for it.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use flate2::write::GzDecoder;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use tonic::Status;

use super::framing::HEAD_BYTES;
use crate::runtime::codec::RowReader;
use crate::runtime::convert::WireRow;
use crate::runtime::defect::{Defect, Oversize, ReadError};

/// A body whose rows go to a reader.
#[derive(Debug)]
pub(super) struct RowBody<B, R: WireRow> {
    body: B,
    /// The received bytes of the next message's header.
    head: BytesMut,
    /// The missing bytes of the present message.
    left: usize,
    /// The present message, if it is compressed.
    compressed: Option<Compressed>,
    rows: Arc<Mutex<RowReader<R>>>,
    /// The most bytes of all messages, uncompressed.
    limit_bytes: usize,
}

/// A compressed message, of which the bytes that have come are uncompressed.
#[derive(Debug)]
struct Compressed {
    decoder: GzDecoder<Vec<u8>>,
    limit_bytes: usize,
}

impl<B, R: WireRow> RowBody<B, R> {
    /// Reads the messages of a body into `rows`.
    pub(super) fn new(body: B, rows: Arc<Mutex<RowReader<R>>>, limit_bytes: usize) -> Self {
        Self {
            body,
            head: BytesMut::with_capacity(HEAD_BYTES),
            left: 0,
            compressed: None,
            rows,
            limit_bytes,
        }
    }

    fn read(&mut self, mut data: Bytes) -> Result<(), Status> {
        let mut rows = self.rows.lock();
        while !data.is_empty() {
            if self.left == 0 {
                let length = data.len().min(HEAD_BYTES - self.head.len());
                self.head.extend_from_slice(&data.split_to(length));
                if self.head.len() < HEAD_BYTES {
                    return Ok(());
                }
                let is_compressed = self.head.get_u8() != 0;
                self.compressed = is_compressed.then(|| Compressed::new(self.limit_bytes));
                self.left = usize::try_from(self.head.get_u32()).unwrap_or(usize::MAX);
                rows.begin();
            } else {
                let piece = data.split_to(self.left.min(data.len()));
                self.left -= piece.len();
                match &mut self.compressed {
                    None => rows.read(piece).map_err(Defect::from)?,
                    Some(compressed) => compressed.read(&piece, &mut rows)?,
                }
            }
            if self.left == 0 {
                if let Some(compressed) = self.compressed.take() {
                    compressed.end(&mut rows)?;
                }
                rows.end().map_err(Defect::from)?;
            }
        }
        Ok(())
    }
}

impl Compressed {
    fn new(limit_bytes: usize) -> Self {
        Self {
            decoder: GzDecoder::new(Vec::new()),
            limit_bytes,
        }
    }

    /// Reads the rows in the next bytes. Each step of the decoder gives at most 64 KiB, so a small piece with much in it
    /// takes no more memory than others.
    fn read<R: WireRow>(
        &mut self,
        mut piece: &[u8],
        rows: &mut RowReader<R>,
    ) -> Result<(), Status> {
        while !piece.is_empty() {
            let taken = match self.decoder.write(piece) {
                // The stream has ended before the message.
                Ok(0) | Err(_) => return Err(Defect::from(ReadError::Gzip).into()),
                Ok(taken) => taken,
            };
            piece.advance(taken);
            self.pass(rows)?;
        }
        Ok(())
    }

    /// Reads the rows at the end of the message.
    fn end<R: WireRow>(mut self, rows: &mut RowReader<R>) -> Result<(), Status> {
        let ended = self.decoder.try_finish();
        ended.map_err(|_io| Defect::from(ReadError::Gzip))?;
        self.pass(rows)
    }

    /// Hands on what the decoder gave.
    fn pass<R: WireRow>(&mut self, rows: &mut RowReader<R>) -> Result<(), Status> {
        let bytes = std::mem::take(self.decoder.get_mut());
        let (all, limit) = (rows.bytes() + bytes.len() as u64, self.limit_bytes as u64);
        if all > limit {
            return Err(Oversize { bytes: all, limit }.into());
        }
        rows.read(bytes.into()).map_err(Defect::from)?;
        Ok(())
    }
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
                        return Poll::Ready(Some(Err(error)));
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
    use std::time::Duration;

    use crisweep_proto::cri::{Container, ContainerRow, ListContainersResponse};
    use futures_util::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use prost::Message;
    use tonic::Code;
    use tonic::codegen::http::Response;

    use super::super::framing::{Awaits, Encoding, framed};
    use super::*;
    use crate::model;
    use crate::runtime::codec::ListChunk;
    use crate::runtime::codec::tests::read;
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
        let empty = Response::new(());
        as_answer(empty, Encoding::Plain, bytes, at_a_time, end).await
    }

    /// The same in an answer with these headers, which was asked for in this encoding.
    async fn as_answer(
        headers: Response<()>,
        asked: Encoding,
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
        let answer = framed(headers.map(|()| body), LIMIT, Awaits::Any, asked);
        let shared = Arc::new(Mutex::new(Interner::default()));
        let rows = Arc::new(Mutex::new(RowReader::<ContainerRow>::new(shared)));
        let body = RowBody::new(answer.into_body(), Arc::clone(&rows), LIMIT);
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

    #[tokio::test]
    async fn an_answer_that_goes_on_and_on_leaves_its_caller_room_for_a_deadline() {
        let empty = || Ok(Frame::data(Bytes::from_static(&[0; HEAD_BYTES])));
        let body = StreamBody::new(stream::repeat_with(empty).take(1 << 20));
        let answer = framed(Response::new(body), LIMIT, Awaits::Any, Encoding::Plain);
        let rows = RowReader::<ContainerRow>::new(Arc::default());
        let body = RowBody::new(answer.into_body(), Arc::new(Mutex::new(rows)), LIMIT);
        let end = tokio::time::timeout(Duration::from_millis(1), body.collect());
        assert!(end.await.is_err());
    }

    #[tokio::test]
    async fn messages_that_are_over_the_limit_together_are_an_error() {
        let half = framed_message(&answer(1, LIMIT / 2));
        let sent = through(half.repeat(2), LIMIT, Some(status("0"))).await;
        let (bytes, limit) = (2 * (half.len() - HEAD_BYTES) as u64, LIMIT as u64);
        let error = sent.unwrap_err();
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
            let body = framed(whole, LIMIT, Awaits::Any, Encoding::Plain).into_body();
            let shared = Arc::new(Mutex::new(Interner::default()));
            let rows = RowReader::<ContainerRow>::new(shared);
            let body = RowBody::new(body, Arc::new(Mutex::new(rows)), LIMIT);
            assert!(body.collect().await.is_err(), "{length} {end:?}");
        }
    }

    fn gzip(message: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(message).unwrap();
        encoder.finish().unwrap()
    }

    fn framed_gzip(compressed: &[u8]) -> Vec<u8> {
        let mut bytes = framed_message(compressed);
        bytes[0] = 1;
        bytes
    }

    /// Sends bytes in an answer that says that it is compressed.
    async fn through_gzip(
        asked: Encoding,
        bytes: impl AsRef<[u8]>,
        at_a_time: usize,
    ) -> Result<Option<Containers>, Status> {
        let mut headers = Response::new(());
        let gzip = "gzip".parse().unwrap();
        headers.headers_mut().insert("grpc-encoding", gzip);
        let sent = as_answer(headers, asked, bytes, at_a_time, Some(status("0"))).await;
        Ok(sent?.0)
    }

    #[tokio::test]
    async fn a_compressed_message_is_read_the_same_however_its_bytes_come() {
        let message = answer(600, 1_000);
        let plain = framed_message(&answer(2, 10));
        let bytes = [framed_gzip(&gzip(&message)), plain].concat();
        let both = read_at_once(&[message, answer(2, 10)].concat());
        for at_a_time in [1, 10, 1_000, LIMIT] {
            let sent = through_gzip(Encoding::Gzip, &bytes, at_a_time).await;
            assert_eq!(sent.unwrap().as_ref(), Some(&both));
        }
        let empty = framed_gzip(&gzip(&[]));
        let sent = through_gzip(Encoding::Gzip, &empty, 1).await;
        assert_eq!(sent.unwrap(), Some(Containers::default()));
    }

    #[tokio::test]
    async fn a_compressed_message_that_nobody_asked_for_or_announced_is_an_error() {
        let bytes = framed_gzip(&gzip(&answer(2, 10)));
        let announced = through_gzip(Encoding::Plain, &bytes, LIMIT).await;
        let headers = Response::new(());
        let end = Some(status("0"));
        let asked = as_answer(headers, Encoding::Gzip, &bytes, LIMIT, end).await;
        for error in [announced.unwrap_err(), asked.unwrap_err()] {
            assert_eq!(cause(&error), Some(&Defect::Flag(1)));
        }
    }

    #[tokio::test]
    async fn a_compressed_message_that_is_cut_or_damaged_is_an_error() {
        let whole = gzip(&answer(600, 1_000));
        let mut damaged = whole.clone();
        // The checksum of the content.
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        for bytes in [
            &whole[..3],
            &whole[..whole.len() / 2],
            &whole[..whole.len() - 1],
            &[&whole[..], &[0]].concat(),
            &damaged,
            b"hello, this is no gzip",
            b"",
        ] {
            for at_a_time in [1, LIMIT] {
                let sent = through_gzip(Encoding::Gzip, framed_gzip(bytes), at_a_time).await;
                let error = sent.unwrap_err();
                let defect = Defect::Unreadable(ReadError::Gzip);
                assert_eq!(cause(&error), Some(&defect), "{} bytes", bytes.len());
            }
        }
    }

    #[tokio::test]
    async fn a_compressed_message_is_read_up_to_the_limit_and_no_further() {
        let row = answer(1, LIMIT - 100);
        let exact = answer(1, LIMIT - 100 + (LIMIT - row.len()));
        assert_eq!(exact.len(), LIMIT);
        let sent = through_gzip(Encoding::Gzip, framed_gzip(&gzip(&exact)), 1_000).await;
        assert_eq!(sent.unwrap().unwrap().bytes, LIMIT as u64);
        // 64 MiB in some 300 KiB are read no further than the step after the limit.
        let bomb = framed_gzip(&gzip(&answer(1, 64 << 20)));
        let over = framed_gzip(&gzip(&answer(1, LIMIT + 1)));
        let half = framed_gzip(&gzip(&answer(1, LIMIT / 2)));
        for bytes in [bomb, over, half.repeat(2)] {
            let sent = through_gzip(Encoding::Gzip, bytes, LIMIT).await;
            let error = sent.unwrap_err();
            let Some(Oversize { bytes, limit }) = cause(&error) else {
                panic!("{error}");
            };
            assert_eq!(*limit, LIMIT as u64);
            assert!((limit + 1..limit + (64 << 10)).contains(bytes), "{bytes}");
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
