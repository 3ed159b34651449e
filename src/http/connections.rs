//! Tracks open connections: which are idle and since when, and which request limits the others hold. If too
//! many are idle, the longest idle one is closed, so that no client locks others out with open connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::places::{Closable, RequestPlace};

/// Connections that wait for a request or for the rest of its head.
const IDLE_MAX: usize = 512;
/// How many idle connections are closed when no file descriptor is left for a new one.
const CLOSED_AT_ONCE: usize = 16;

/// The open connections of all listeners. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Closable>>);

impl Connections {
    /// Registers a new connection, which starts idle.
    pub(super) fn take(&self) -> Connection {
        let close = CancellationToken::new();
        let since = self.idle(close.clone());
        let state = Mutex::new(ConnectionState {
            since: Some(since),
            held: 0,
            unsent: None,
            is_unread: false,
        });
        let connections = self.clone();
        Connection(Arc::new(ConnectionInner {
            connections,
            close,
            state,
        }))
    }

    /// Closes some idle connections, oldest first.
    pub(super) fn make_room(&self) {
        for _ in 0..CLOSED_AT_ONCE {
            self.0.lock().close_first(Duration::ZERO);
        }
    }

    fn idle(&self, close: CancellationToken) -> u64 {
        let mut idle = self.0.lock();
        let since = idle.add(close);
        while idle.len() > IDLE_MAX {
            idle.close_first(Duration::ZERO);
        }
        since
    }
}

/// An open connection. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<ConnectionInner>);

#[derive(Debug)]
struct ConnectionInner {
    connections: Connections,
    close: CancellationToken,
    state: Mutex<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    /// Its number among the idle connections, while it is idle.
    since: Option<u64>,
    /// The exchanges that hold a place; while there is one, the connection is not idle.
    held: usize,
    /// The place of an answer that was handed over; its last bytes may not be sent yet.
    unsent: Option<RequestPlace>,
    /// A request was answered before its whole body arrived.
    is_unread: bool,
}

impl Connection {
    /// Begins a request with its answer.
    pub(super) fn exchange(&self) -> Exchange {
        Exchange(Arc::new(ExchangeInner {
            connection: self.clone(),
            place: Mutex::default(),
        }))
    }

    /// Notes that everything handed over is sent.
    pub(super) fn sent(&self) {
        let mut state = self.state();
        if state.unsent.take().is_some() {
            self.let_go(&mut state);
        }
    }

    fn hold(&self) {
        let mut state = self.state();
        state.held += 1;
        if let Some(since) = state.since.take() {
            self.0.connections.0.lock().remove(since);
        }
    }

    fn let_go(&self, state: &mut ConnectionState) {
        state.held = state.held.saturating_sub(1);
        if state.held == 0 && state.since.is_none() {
            state.since = Some(self.0.connections.idle(self.0.close.clone()));
        }
    }

    /// Waits until the connection must close to make room for others.
    pub(super) async fn closed(&self) {
        self.0.close.cancelled().await;
    }

    /// Says whether a request was answered before its whole body arrived.
    pub(super) fn is_unread(&self) -> bool {
        self.state().is_unread
    }

    /// Wraps a request's body to report whether it was read to its end.
    pub(super) fn request(&self, body: Body) -> Body {
        let connection = self.clone();
        WatchedBody::wrap(body, move |_rest, is_whole| {
            connection.state().is_unread |= !is_whole;
        })
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.state.lock()
    }
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(since) = state.since.take() {
            self.connections.0.lock().remove(since);
        }
    }
}

/// A request and its answer. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct Exchange(Arc<ExchangeInner>);

#[derive(Debug)]
struct ExchangeInner {
    connection: Connection,
    place: Mutex<Option<RequestPlace>>,
}

impl Exchange {
    /// Holds a place until the answer is sent, instead of the place held so far. The connection is not idle
    /// until then.
    pub(super) fn hold(&self, place: RequestPlace) {
        let before = self.0.place.lock().replace(place);
        if before.is_none() {
            self.0.connection.hold();
        }
    }

    /// Notes that the answer is made: its connection may be closed for a request that finds no place.
    pub(super) fn made(&self) {
        if let Some(place) = &mut *self.0.place.lock() {
            place.made(self.0.connection.0.close.clone());
        }
    }

    /// Wraps the answer's body of an HTTP/1 connection: once it is handed over, the place is free when the connection
    /// has sent everything.
    pub(super) fn answer(self, body: Body) -> Body {
        WatchedBody::wrap(body, move |_rest, _is_whole| {
            let Some(place) = self.0.place.lock().take() else {
                return;
            };
            let connection = &self.0.connection;
            let mut state = connection.state();
            if state.unsent.replace(place).is_some() {
                connection.let_go(&mut state);
            }
        })
    }
}

impl Drop for ExchangeInner {
    fn drop(&mut self) {
        if self.place.get_mut().take().is_some() {
            self.connection.let_go(&mut self.connection.state());
        }
    }
}

/// A body that, when it is dropped, hands over its rest and reports whether it had ended.
pub(super) struct WatchedBody<F: FnMut(Body, bool)> {
    body: Body,
    end: F,
    /// The last frame arrived. [`HttpBody::is_end_stream`] does not report that for a chunked body.
    is_over: bool,
}

impl<F: FnMut(Body, bool) + Send + Unpin + 'static> WatchedBody<F> {
    pub(super) fn wrap(body: Body, end: F) -> Body {
        Body::new(Self {
            body,
            end,
            is_over: false,
        })
    }
}

impl<F: FnMut(Body, bool) + Unpin> HttpBody for WatchedBody<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.is_over |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F: FnMut(Body, bool)> Drop for WatchedBody<F> {
    fn drop(&mut self) {
        let is_whole = self.is_over || self.body.is_end_stream();
        (self.end)(std::mem::take(&mut self.body), is_whole);
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::RequestPlaces;
    use super::*;

    #[test]
    fn the_one_that_is_idle_for_longest_is_closed_first() {
        let connections = Connections::default();
        let places = RequestPlaces::new(1);
        let taken: Vec<Connection> = (0..IDLE_MAX).map(|_| connections.take()).collect();
        let is_closed = |connection: &Connection| connection.0.close.is_cancelled();
        // The first connection becomes busy and then idle again: now it is the youngest.
        let exchange = taken[0].exchange();
        exchange.hold(places.take().unwrap());
        drop(exchange.answer(Body::empty()));
        taken[0].sent();
        assert_eq!(places.free(), 1);
        let one_more = connections.take();
        assert!(is_closed(&taken[1]));
        assert!(!is_closed(&taken[0]) && !is_closed(&taken[2]) && !is_closed(&one_more));
    }

    #[test]
    fn a_connection_with_an_answer_is_never_closed_and_holds_its_place_until_all_is_sent() {
        let connections = Connections::default();
        let places = RequestPlaces::new(1);
        let busy = connections.take();
        let exchange = busy.exchange();
        exchange.hold(places.take().unwrap());
        let body = exchange.answer(Body::from("answer"));
        let _others: Vec<Connection> = (0..2 * IDLE_MAX).map(|_| connections.take()).collect();
        connections.make_room();
        busy.sent();
        assert_eq!(places.free(), 0, "its body is not handed over");
        drop(body);
        assert_eq!(places.free(), 0, "it is not sent");
        assert!(!busy.0.close.is_cancelled());
        busy.sent();
        assert_eq!(places.free(), 1);
    }

    #[test]
    fn a_connection_is_idle_when_none_of_its_exchanges_holds_a_place() {
        let connections = Connections::default();
        let places = RequestPlaces::new(3);
        let busy = connections.take();
        let (first, second) = (busy.exchange(), busy.exchange());
        first.hold(places.take().unwrap());
        second.hold(places.take().unwrap());
        // The second exchange moves to another class.
        second.hold(places.take().unwrap());
        assert_eq!(places.free(), 1);
        drop(first);
        assert_eq!(places.free(), 2);
        assert!((connections.0.lock().len() == 0));
        drop(second);
        assert_eq!(places.free(), 3);
        assert_eq!(connections.0.lock().len(), 1);
    }

    #[test]
    fn a_closed_connection_gives_its_place_back() {
        let connections = Connections::default();
        let places = RequestPlaces::new(1);
        let (idle, busy) = (connections.take(), connections.take());
        let exchange = busy.exchange();
        exchange.hold(places.take().unwrap());
        drop(exchange.answer(Body::empty()));
        drop((idle, busy));
        assert_eq!(places.free(), 1);
        assert!((connections.0.lock().len() == 0));
    }
}
