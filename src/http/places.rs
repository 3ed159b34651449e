//! The places of one class of requests. An answer holds its place until it is sent. If all places are taken, a request
//! can wait in line for a second, and closes the connection whose answer has waited for longest to be read, if that has
//! waited for a second at least.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long an answer may be on its way to a client that reads: such a one is never cut off.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// How long a request waits in line for a place.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Most requests that wait in line: each keeps its head in memory.
const WAITING_MAX: usize = 512;

/// The places. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct RequestPlaces(Arc<RequestPlacesInner>);

#[derive(Debug)]
struct RequestPlacesInner {
    free: Arc<Semaphore>,
    /// Room in the line for a place.
    line: Semaphore,
    /// The connections whose answers are made and not sent.
    unread: Mutex<Closable>,
}

/// Connections that may be closed to make room, in the order in which they came: since when, and what closes each.
#[derive(Debug, Default)]
pub(super) struct Closable {
    next: u64,
    since: BTreeMap<u64, (Instant, CancellationToken)>,
}

impl Closable {
    /// Adds a connection; returns its number.
    pub(super) fn add(&mut self, close: CancellationToken) -> u64 {
        let number = self.next;
        self.next += 1;
        self.since.insert(number, (Instant::now(), close));
        number
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.since.remove(&number);
    }

    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    /// Closes the first one if it has been there for so long; says whether it did.
    pub(super) fn close_first(&mut self, after: Duration) -> bool {
        let first = self.since.first_entry();
        let Some(first) = first.filter(|it| it.get().0.elapsed() >= after) else {
            return false;
        };
        first.remove().1.cancel();
        true
    }
}

impl RequestPlaces {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(RequestPlacesInner {
            free: Arc::new(Semaphore::new(most)),
            line: Semaphore::new(WAITING_MAX),
            unread: Mutex::default(),
        }))
    }

    /// Takes a place; `None` if all are taken.
    pub(super) fn take(&self) -> Option<RequestPlace> {
        let permit = Arc::clone(&self.0.free).try_acquire_owned().ok()?;
        Some(self.place(permit))
    }

    /// Waits in line for a place, so that clients that ask again and again take turns with all others; `None` if it takes
    /// too long. Closes the connection whose answer was made first and is not read, if there is one.
    pub(super) async fn take_in_turn(&self) -> Option<RequestPlace> {
        let _line = self.0.line.try_acquire().ok()?;
        self.0.unread.lock().close_first(READ_WITHIN);
        let freed = Arc::clone(&self.0.free).acquire_owned();
        let permit = tokio::time::timeout(WAIT_MAX, freed).await.ok()?.ok()?;
        Some(self.place(permit))
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> RequestPlace {
        RequestPlace {
            places: self.clone(),
            unread: None,
            _permit: permit,
        }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.0.free.available_permits()
    }
}

/// A taken place.
#[derive(Debug)]
pub(super) struct RequestPlace {
    places: RequestPlaces,
    /// Its number among the answers that are made and not sent.
    unread: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

impl RequestPlace {
    /// Notes that the answer is made; `close` closes its connection.
    pub(super) fn made(&mut self, close: CancellationToken) {
        self.unread = Some(self.places.0.unread.lock().add(close));
    }
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        if let Some(number) = self.unread {
            self.places.0.unread.lock().remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_answer_that_was_made_first_makes_way() {
        let places = RequestPlaces::new(3);
        let [first, second] = [CancellationToken::new(), CancellationToken::new()];
        let mut taken: Vec<RequestPlace> = (0..3).map(|_| places.take().unwrap()).collect();
        assert!(places.take().is_none());
        taken[1].made(first.clone());
        taken[2].made(second.clone());
        // Too early: the clients may still read these answers.
        assert!(places.take_in_turn().await.is_none() && !first.is_cancelled());
        let give_back = async {
            first.cancelled().await;
            drop(taken.remove(1));
        };
        let (place, ()) = tokio::join!(places.take_in_turn(), give_back);
        assert!(place.is_some() && !second.is_cancelled());
        // The second connection does not close in time.
        assert!(places.take_in_turn().await.is_none());
        assert!(second.is_cancelled());
        // The answer of the remaining place is not made yet.
        assert!(places.take_in_turn().await.is_none());
        drop((taken, place));
        assert_eq!(places.free(), 3);
        assert!(places.0.unread.lock().since.is_empty());
    }

    #[test]
    fn a_sent_answer_makes_no_way() {
        let places = RequestPlaces::new(1);
        let close = CancellationToken::new();
        let mut place = places.take().unwrap();
        place.made(close.clone());
        drop(place);
        assert!(places.0.unread.lock().since.is_empty() && !close.is_cancelled());
    }
}
