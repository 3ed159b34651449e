//! Checks the framing of an answer while it passes: its messages are within the limit together, or one by one where
//! none is kept; none is compressed unless we asked for it, and the answer ends only where it may.
//!
//! Never buffers. The gRPC library checks the same later, but reports it only as text.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame};
use tonic::codegen::http::header::HeaderValue;
use tonic::codegen::http::{Request, Response, StatusCode};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::Service;

use crate::runtime::defect::{Defect, Oversize};

/// A message's header: the compression flag and the length.
pub(super) const HEAD_BYTES: usize = 5;
/// The header that names the compression of messages, and its only value that we understand.
const ENCODING: &str = "grpc-encoding";
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// How many messages a successful answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    One,
    Any,
    /// Any number, and their reader holds one at a time: only each by itself must be within the limit.
    OneByOne,
}

/// How we ask for the messages of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    /// grpc-go answers in the encoding that the request names, if the program links its gzip package, and compares what
    /// it sends with its limit (`processUnaryRPC` and `sendResponse` in its `server.go`). Our request has no bytes to
    /// compress.
    Gzip,
}

/// A channel that checks its answers.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) channel: Channel,
    pub(super) limit_bytes: usize,
    pub(super) awaits: Awaits,
    pub(super) encoding: Encoding,
}

type FramedResponse = Response<Framed<tonic::body::Body>>;

impl Service<Request<tonic::body::Body>> for Checked {
    type Response = FramedResponse;
    type Error = tonic::transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<FramedResponse, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        if self.encoding == Encoding::Gzip {
            let headers = request.headers_mut();
            headers.insert(ENCODING, GZIP);
            headers.insert("grpc-accept-encoding", GZIP);
        }
        let (limit_bytes, awaits, encoding) = (self.limit_bytes, self.awaits, self.encoding);
        let answer = self.channel.call(request);
        Box::pin(async move { Ok(framed(answer.await?, limit_bytes, awaits, encoding)) })
    }
}

/// Wraps an answer's body in the check.
pub(super) fn framed<B>(
    mut answer: Response<B>,
    limit_bytes: usize,
    awaits: Awaits,
    encoding: Encoding,
) -> Response<Framed<B>> {
    // For another HTTP status the library has the better error text.
    let is_grpc = answer.status() == StatusCode::OK;
    let status = if answer.headers().contains_key("grpc-status") {
        StatusIs::AtTheHead
    } else if is_grpc {
        StatusIs::AtTheEnd
    } else {
        StatusIs::InHttp
    };
    let is_gzip = encoding == Encoding::Gzip && answer.headers().get(ENCODING) == Some(&GZIP);
    // The library, which does not get these messages, would refuse the answer.
    if is_gzip {
        answer.headers_mut().remove(ENCODING);
    }
    answer.map(|body| Framed {
        body,
        limit_bytes,
        is_gzip,
        needs_message: is_grpc && awaits == Awaits::One,
        status,
        head: Vec::with_capacity(HEAD_BYTES),
        awaits,
        bytes: 0,
        left: 0,
        is_over: false,
    })
}

/// Where the status of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusIs {
    /// It is HTTP's.
    InHttp,
    /// Only an answer without messages may have it there: the library reads no other one at the end.
    AtTheHead,
    /// The answer may not end without it.
    AtTheEnd,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Framed<B> {
    body: B,
    limit_bytes: usize,
    /// Its messages may be compressed.
    is_gzip: bool,
    /// It may not end before a message has begun.
    needs_message: bool,
    status: StatusIs,
    /// The received bytes of the next message's header.
    head: Vec<u8>,
    awaits: Awaits,
    /// The weight of all messages that have begun; of the last one, if they are read one by one.
    bytes: u64,
    /// The missing bytes of the current message.
    left: usize,
    is_over: bool,
}

impl<B> Framed<B> {
    fn checked(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Status> {
        match frame.data_ref() {
            Some(data) => self.pass(data)?,
            None => self.end(frame.trailers_ref().and_then(Status::from_header_map))?,
        }
        Ok(frame)
    }

    fn pass(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            if self.left > 0 {
                let length = self.left.min(data.len());
                self.left -= length;
                data.advance(length);
                continue;
            }
            let length = data.len().min(HEAD_BYTES - self.head.len());
            self.head.extend(data.iter().take(length));
            data.advance(length);
            if self.head.len() == HEAD_BYTES {
                self.open()?;
            }
        }
        Ok(())
    }

    /// Begins the message whose header is complete.
    fn open(&mut self) -> Result<(), Status> {
        let mut head = self.head.as_slice();
        let (flag, length) = (head.get_u8(), head.get_u32());
        self.head.clear();
        if flag > u8::from(self.is_gzip) {
            return Err(Defect::Flag(flag).into());
        }
        if self.status == StatusIs::AtTheHead {
            return Err(Defect::EarlyStatus.into());
        }
        let is_alone = self.awaits == Awaits::OneByOne;
        let before = if is_alone { 0 } else { self.bytes };
        self.bytes = before + u64::from(length);
        let (bytes, limit) = (self.bytes, self.limit_bytes as u64);
        self.left = match usize::try_from(length) {
            Ok(length) if bytes <= limit => length,
            Ok(_) | Err(_) => return Err(Oversize { bytes, limit }.into()),
        };
        self.needs_message = false;
        Ok(())
    }

    /// Says whether the answer may end here.
    fn end(&mut self, status: Option<Status>) -> Result<(), Status> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        let defect = match status {
            // The runtime's own error is better than ours.
            Some(status) if status.code() != Code::Ok => {
                let is_read = self.status != StatusIs::AtTheHead;
                return is_read.then_some(()).ok_or(status);
            }
            _ if self.left > 0 || !self.head.is_empty() => Defect::CutOff,
            None if self.status == StatusIs::AtTheEnd => Defect::NoStatus,
            _ if self.needs_message => Defect::Empty,
            _ => return Ok(()),
        };
        Err(defect.into())
    }
}

impl<B> Body for Framed<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // A runtime that always has more must not keep the call's deadline from being looked at.
        let turn = ready!(tokio::task::coop::poll_proceed(cx));
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        turn.made_progress();
        let next = match next {
            Some(frame) => Some(frame.and_then(|frame| self.checked(frame))),
            None => self.end(None).err().map(Err),
        };
        // After an error there is nothing left to check.
        self.is_over |= matches!(next, Some(Err(_)));
        Poll::Ready(next)
    }
}
