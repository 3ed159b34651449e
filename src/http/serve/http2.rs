//! Serves an HTTP/2 connection: several requests at a time, within the bounds of HTTP/1.
//!
//! A client that closes its flow-control window keeps an answer from being sent while its connection looks well. So
//! bodies are handed over in pieces, and a piece that is not sent for [`STALL_MAX`] ends the connection.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::super::connections::{Exchange, WatchedBody};
use super::{DRAIN, HEAD_TIMEOUT, LINGER, STALL_MAX, Serving};
use crate::access::Peer;
use crate::access::tls::Tls;
use crate::system::stall::StallGuard;

/// Requests of a connection at a time.
const STREAMS_MAX: u32 = 8;
/// What a client may send before it is read, on one stream and on all of a connection together.
const WINDOW_BYTES: u32 = 65_535;
/// The largest head of a request, unpacked, with 32 bytes for each field.
const HEADER_LIST_MAX_BYTES: u32 = 16 << 10;
/// Fields of a request's head, as many as HTTP/1 takes. A few hundred bytes on the wire can name many.
const FIELDS_MAX: usize = 100;
/// The most of an answer that may wait inside the connection.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// The most of an answer that is handed over at a time. A client must read so much within [`STALL_MAX`].
const PIECE_BYTES: usize = 16 << 10;
/// Streams that a client reset before they were served, or that broke the protocol; one more ends the connection.
const RESETS_MAX: usize = 16;
/// How often a silent client is asked whether it is there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(15);
/// How often idle and stalled connections are looked for.
const CHECK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    serving: Serving,
    stream: S,
    peer: Peer,
    tls: Option<Tls>,
) {
    let connection = serving.connection.clone();
    let streams = OpenStreams::new(serving.shutdown.child_token());
    let (of_peer, of_streams) = (peer.clone(), streams.clone());
    let all_tasks = Arc::default();
    let tasks = StreamTasks(Arc::downgrade(&all_tasks));
    let builder = builder(tasks.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (serving, peer) = (serving.clone(), of_peer.clone());
        if !serving.is_in_force(&peer, tls.as_ref()) {
            of_streams.leave();
        }
        let stream = of_streams.open(serving.connection.exchange());
        let request = request.map(|body| drained(Body::new(body), tasks.clone()));
        async move { Ok::<_, Infallible>(stream.answer(&serving, peer, request).await) }
    });
    let stream = StallGuard::new(stream, STALL_MAX);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let mut checks = tokio::time::interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_left = false;
    let result = loop {
        tokio::select! {
            result = serving.as_mut() => break result,
            () = connection.closed() => {
                tracing::debug!(%peer, "a connection was closed to make room");
                return;
            }
            () = streams.0.leaves.cancelled(), if !has_left => {
                has_left = true;
                streams.0.state.lock().left = Some(Instant::now());
                serving.as_mut().graceful_shutdown();
            }
            _ = checks.tick() => match streams.check() {
                Check::Well => {}
                Check::Idle => streams.leave(),
                Check::Dead(why) => {
                    tracing::debug!(%peer, why, "a connection was closed");
                    return;
                }
            },
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended with an error");
    }
}

fn builder(tasks: StreamTasks) -> hyper::server::conn::http2::Builder<StreamTasks> {
    let mut builder = hyper::server::conn::http2::Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_LIST_MAX_BYTES)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY);
    builder
}

/// Runs what serves the streams of one connection, and ends with it.
#[derive(Clone)]
struct StreamTasks(Weak<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, task: F) {
        if let Some(tasks) = self.0.upgrade() {
            let mut tasks = tasks.lock();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }
}

/// Has the rest of a request's body read for a while after an early answer (413): some clients lose the answer when
/// their upload is cut off.
fn drained(body: Body, tasks: StreamTasks) -> Body {
    WatchedBody::wrap(body, move |mut rest, is_whole| {
        if is_whole {
            return;
        }
        tasks.execute(async move {
            let read = async { while let Some(Ok(_)) = rest.frame().await {} };
            // After `LINGER` the reset of the stream refuses the rest.
            let _ = tokio::time::timeout(LINGER, read).await;
        });
    })
}

/// The open streams of a connection. Cloning shares.
#[derive(Clone)]
struct OpenStreams(Arc<OpenStreamsInner>);

struct OpenStreamsInner {
    state: Mutex<StreamsState>,
    /// The client is to make its next request on another connection.
    leaves: CancellationToken,
}

struct StreamsState {
    next: u64,
    open: BTreeMap<u64, OpenStream>,
    /// When the last stream ended, or the connection began.
    idle_since: Instant,
    /// When the client was told to make no further request here.
    left: Option<Instant>,
    /// It made one long after.
    stays: bool,
}

#[derive(Default)]
struct OpenStream {
    /// Pieces of the answer that were handed over and are not sent.
    unsent: usize,
    /// Since when none was sent.
    since: Option<Instant>,
}

enum Check {
    Well,
    Idle,
    Dead(&'static str),
}

impl OpenStreams {
    fn new(leaves: CancellationToken) -> Self {
        let state = StreamsState {
            next: 0,
            open: BTreeMap::new(),
            idle_since: Instant::now(),
            left: None,
            stays: false,
        };
        Self(Arc::new(OpenStreamsInner {
            state: Mutex::new(state),
            leaves,
        }))
    }

    fn open(&self, exchange: Exchange) -> Http2Stream {
        let mut state = self.0.state.lock();
        let id = state.next;
        state.next += 1;
        state.stays |= state.left.is_some_and(|left| left.elapsed() >= DRAIN);
        state.open.insert(id, OpenStream::default());
        Http2Stream {
            streams: self.clone(),
            id,
            exchange,
        }
    }

    /// Lets the client make its next request on another connection.
    fn leave(&self) {
        self.0.leaves.cancel();
    }

    fn check(&self) -> Check {
        let state = self.0.state.lock();
        let is_stalled = |open: &OpenStream| open.since.is_some_and(|it| it.elapsed() >= STALL_MAX);
        if state.open.values().any(is_stalled) {
            return Check::Dead("its client did not read an answer");
        }
        if state.stays {
            return Check::Dead("its client was told to go and went on");
        }
        if !state.open.is_empty() {
            return Check::Well;
        }
        match state.left {
            None if state.idle_since.elapsed() >= HEAD_TIMEOUT => Check::Idle,
            Some(left) if state.idle_since.max(left).elapsed() >= DRAIN => {
                Check::Dead("its client was told to go and stayed")
            }
            None | Some(_) => Check::Well,
        }
    }
}

/// A request and its answer, until the last byte is sent.
struct Http2Stream {
    streams: OpenStreams,
    id: u64,
    exchange: Exchange,
}

impl Http2Stream {
    async fn answer(self, serving: &Serving, peer: Peer, request: Request<Body>) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        let mut answer = if request.headers().len() > FIELDS_MAX {
            drop(request);
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            answer
        } else {
            serving.answer(request, peer, self.exchange.clone()).await
        };
        if is_head {
            without_body(&mut answer);
        }
        answer.map(|body| {
            Body::new(PacedBody {
                body,
                rest: Bytes::new(),
                stream: Arc::new(self),
            })
        })
    }

    fn change(&self, change: impl FnOnce(&mut OpenStream)) {
        if let Some(open) = self.streams.0.state.lock().open.get_mut(&self.id) {
            change(open);
        }
    }

    fn handed_over(&self) {
        self.change(|open| {
            open.unsent += 1;
            open.since.get_or_insert_with(Instant::now);
        });
    }

    fn sent(&self) {
        self.change(|open| {
            open.unsent = open.unsent.saturating_sub(1);
            open.since = (open.unsent > 0).then(Instant::now);
        });
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let mut state = self.streams.0.state.lock();
        state.open.remove(&self.id);
        if state.open.is_empty() {
            state.idle_since = Instant::now();
        }
    }
}

/// Hyper sends the body of an answer to `HEAD` over HTTP/2.
fn without_body(answer: &mut Response<Body>) {
    let body = std::mem::take(answer.body_mut());
    // Axum has emptied the body of a route, and put its length into the header if that is known.
    if let Some(length @ 1..) = body.size_hint().exact() {
        let length = HeaderValue::from(length);
        answer.headers_mut().entry(CONTENT_LENGTH).or_insert(length);
    }
}

/// An answer's body in small pieces, of which each tells when it is sent.
struct PacedBody {
    body: Body,
    rest: Bytes,
    stream: Arc<Http2Stream>,
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let bytes = self.rest.split_to(length);
        let stream = Arc::clone(&self.stream);
        stream.handed_over();
        let piece = Bytes::from_owner(Piece { bytes, stream });
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// Bytes that the connection drops once it has sent them.
struct Piece {
    bytes: Bytes,
    stream: Arc<Http2Stream>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.stream.sent();
    }
}
