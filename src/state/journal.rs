//! The database as passes use it: everything goes to the thread that alone uses it, waits are short and bounded, and
//! writes that find no room in the queue are dropped and counted.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

use super::ages::ImageAges;
use super::database::{Database, DatabaseLimits, Error, Writing};
use super::filter::Question;
use super::health::{self, StateStatus, WriterHealth};
use super::hold;
use super::lines::{Lines, LinesTo};
use super::lock::LockHeld;
use super::outage::OutageWrite;
use super::passes::{self, History, RemovalEnd, RemovalIntent};
use super::store::{StateDir, Stored};
use super::writer::{PassPhase, WaitingOutcomes, WriterJob};
use crate::gc::Removal;
use crate::model::{FleetHold, Pass, RemovalOutcome, Target, Text};
use prometheus_client::metrics::counter::Counter;

/// Writes that may wait for the disk; the intents of a batch are one.
const QUEUE_MAX: usize = 1024;
/// Questions that may wait for the disk.
const READERS_MAX: usize = 16;
/// Why a write was dropped.
const TOO_SLOW: &str = "the disk is too slow";
/// Why nothing is written any more.
const NO_THREAD: &str = "its thread could not be started, or panicked";
/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a start waits for the state directory.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);

/// Where passes are written down; by default nowhere. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    inner: Option<Arc<JournalInner>>,
    lines: Option<Lines>,
}

#[derive(Debug)]
struct JournalInner {
    queue: SyncSender<WriterJob>,
    health: Arc<WriterHealth>,
    /// Places of questions: on a slow disk they must leave the queue to the records.
    readers: Arc<Semaphore>,
    /// The pending answer of the disk, if an earlier wait timed out.
    late: Mutex<Option<oneshot::Receiver<()>>>,
    /// The outcomes that came after the latest intents.
    outcomes: Mutex<WaitingOutcomes>,
}

/// The opened state directory; by default one that stores nothing.
#[derive(Debug, Default)]
pub struct Opened {
    /// For new records.
    pub journal: Journal,
    /// What earlier runs left.
    pub stored: Stored,
}

impl Journal {
    /// Returns a journal that stores nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Writes passes and removals as JSON lines too.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn with_lines(mut self, to: LinesTo, node: &str, failures: Counter) -> io::Result<Self> {
        self.lines = Some(Lines::start(to, node, failures)?);
        Ok(self)
    }

    /// Opens the state directory. If that fails, goes on without it, logged and
    /// counted.
    ///
    /// # Errors
    /// Only if another crisweep holds its lock.
    pub async fn open(
        dir: PathBuf,
        limits: DatabaseLimits,
        write_failures: Counter,
    ) -> Result<Opened, LockHeld> {
        let health = Arc::new(WriterHealth::new(write_failures, dir.clone()));
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let (to, opened) = oneshot::channel();
        let thread = std::thread::Builder::new().name("state".to_owned());
        let state = StateDir::new(dir, limits, Arc::clone(&health));
        let thread = thread.spawn(move || state.run(&jobs, to));
        let stored = match (thread, tokio::time::timeout(OPEN_PATIENCE, opened).await) {
            (Ok(_), Ok(Ok(found))) => found?,
            (Err(error), _) => without(&health, &format!("{NO_THREAD}: {error}")),
            (Ok(_), Ok(Err(_))) => without(&health, NO_THREAD),
            (Ok(_), Err(_)) => without(&health, &format!("no answer in {OPEN_PATIENCE:?}")),
        };
        let journal = Self::of(queue, health);
        Ok(Opened { journal, stored })
    }

    fn of(queue: SyncSender<WriterJob>, health: Arc<WriterHealth>) -> Self {
        let inner = JournalInner {
            queue,
            health,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            late: Mutex::default(),
            outcomes: Mutex::default(),
        };
        Self {
            inner: Some(Arc::new(inner)),
            lines: None,
        }
    }

    /// Returns the state of writing.
    pub fn status(&self) -> StateStatus {
        let Some(inner) = self.inner.as_deref() else {
            return StateStatus::default();
        };
        let mut status = inner.health.status();
        if inner.owes() {
            let error = || "the disk gives no answer; what passes write waits".to_owned();
            status.errors.entry(health::JOURNAL).or_insert_with(error);
        }
        status
    }

    /// Writes that a pass begins.
    pub fn begun(&self, pass: &Pass) {
        self.put_pass(pass, PassPhase::Begins);
    }

    /// Writes what is about to be removed, each with the number of its batch, and waits until that is on the
    /// disk: at most `at_most`, and not at all while the disk still owes an earlier answer.
    ///
    /// This is the only wait for the disk in a batch, beside evidence. Outcomes are handed to the thread, which hands all
    /// that wait to the kernel, where they survive the process (on btrfs: to the disk). A node crash loses the outcomes of
    /// a batch, and the next look shows them.
    pub async fn intended(&self, pass_id: &str, due: &[(u64, &Removal)], at_most: Duration) {
        let Some(inner) = self.inner.as_deref() else {
            return;
        };
        // A new list: an outcome of these removals must not join outcomes that are written before the intents.
        *inner.outcomes.lock() = WaitingOutcomes::default();
        let objects = due
            .iter()
            .map(|(batch, removal)| RemovalIntent::new(*batch, removal));
        let (objects, id): (Vec<RemovalIntent>, _) = (objects.collect(), pass_id.to_owned());
        self.put(objects.len(), PassPhase::Intends, move |writing| {
            passes::put_intended(writing, &id, &objects)
        });
        self.settled(at_most).await;
    }

    /// Writes the outcome of a removal.
    pub fn tried(&self, pass_id: &str, removal: &Removal, outcome: RemovalOutcome, took: Duration) {
        let ended = RemovalEnd::new(pass_id, removal, outcome, took);
        if let Some(lines) = &self.lines {
            lines.removal(&ended);
        }
        self.put_outcome(ended);
    }

    /// Lets an outcome wait with those that no transaction has taken yet, and behind the intent of its removal.
    fn put_outcome(&self, ended: RemovalEnd) {
        let Some(inner) = self.inner.as_deref() else {
            return;
        };
        let waiting = Arc::clone(&inner.outcomes.lock());
        let mut outcomes = waiting.lock();
        if outcomes.len() >= QUEUE_MAX {
            inner.health.failed(1, TOO_SLOW);
            return;
        }
        outcomes.push(ended);
        let list = Arc::clone(&waiting);
        if outcomes.len() == 1 && !self.send(1, move |writer| writer.write_outcomes(&list)) {
            outcomes.clear();
        }
    }

    /// Writes that removals of these objects, which the pass intended, have not begun.
    pub fn not_begun(&self, pass_id: &str, objects: BTreeSet<(Target, Text)>) {
        let id = pass_id.to_owned();
        self.put(objects.len(), PassPhase::Runs, move |writing| {
            passes::put_not_begun(writing, &id, &objects)
        });
    }

    /// Writes the progress of a pass.
    pub fn progress(&self, pass: &Pass) {
        self.put_pass(pass, PassPhase::Runs);
    }

    /// Writes the end of a pass.
    pub fn ended(&self, pass: &Pass) {
        self.put_pass(pass, PassPhase::Over);
    }

    fn put_pass(&self, pass: &Pass, phase: PassPhase) {
        if let Some(lines) = self.lines.as_ref().filter(|_| phase != PassPhase::Runs) {
            lines.pass(pass);
        }
        let pass = pass.clone();
        self.put(1, phase, move |writing| passes::put(writing, &pass));
    }

    /// Saves image ages, in place of ages that still wait.
    pub fn save_ages(&self, ages: &ImageAges) {
        self.put_newest(|it| &it.ages, ages.clone(), StateDir::write_ages);
    }

    /// Writes the hold of all nodes in place of the last one; `None`: nothing is held.
    pub fn held(&self, hold: Option<FleetHold>) {
        self.put(1, PassPhase::Outside, move |writing| {
            hold::put(writing, hold.as_ref())
        });
    }

    /// Writes since when a list has been over its limit (`None`: none is), in place of what still waits: each look
    /// writes it.
    pub fn outage(&self, since: Option<Timestamp>) {
        self.put_newest(|it| &it.outage, OutageWrite(since), StateDir::write_outage);
    }

    /// Takes since when an outage of an earlier run lasts: known once the database is open, which may be long after the
    /// start.
    pub fn earlier_outage(&self) -> Option<Timestamp> {
        self.inner.as_deref()?.health.earlier_outage.lock().take()
    }

    /// Takes what earlier runs left, and the hold of all nodes, if the database was opened after the start.
    pub fn found_late(&self) -> Option<(History, Option<FleetHold>)> {
        self.inner.as_deref()?.health.late.lock().take()
    }

    /// Waits until the database was opened after the start.
    pub async fn opened_late(&self) {
        match self.inner.as_deref() {
            Some(inner) => inner.health.opened_late.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Asks the database, behind what waits to be written.
    ///
    /// # Errors
    /// If there is no database, it cannot be read, or the disk is too slow.
    pub async fn ask<Q: Question>(&self, question: Q) -> Result<Q::Answer, Error> {
        self.read(PATIENCE, move |sql| question.answer(sql)).await
    }

    /// Reads from the database: at most `at_most`, behind what waits to be written.
    ///
    /// # Errors
    /// If there is no database, it cannot be read, or the disk is too slow.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        at_most: Duration,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.as_deref().ok_or(Error::Closed)?;
        let places = Arc::clone(&inner.readers).try_acquire_owned();
        let place = places.map_err(|_full| Error::TooSlow)?;
        self.answered(at_most, move |writer, to| {
            let _place = place;
            if !to.is_closed() {
                drop(to.send(writer.read(read)));
            }
        })
        .await
    }

    /// Changes evidence, and waits for that.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        at_most: Duration,
        change: impl FnOnce(&mut Database) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.answered(at_most, move |writer, to| {
            drop(to.send(writer.change(change)));
        })
        .await
    }

    async fn answered<T: Send + 'static>(
        &self,
        at_most: Duration,
        job: impl FnOnce(&mut StateDir, oneshot::Sender<Result<T, Error>>) + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.as_deref().ok_or(Error::Closed)?;
        let (to, answer) = oneshot::channel();
        let job: WriterJob = Box::new(move |writer| job(writer, to));
        let queued = inner.queue.try_send(job);
        queued.map_err(|error| match error {
            TrySendError::Full(_) => Error::TooSlow,
            TrySendError::Disconnected(_) => Error::Closed,
        })?;
        match tokio::time::timeout(at_most, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Error::TooSlow),
        }
    }

    /// Checks that no other crisweep works on this node, if the disk answers in time. Takes the lock again if
    /// it was lost and is free.
    ///
    /// # Errors
    /// If another crisweep holds the lock.
    pub async fn locked(&self, at_most: Duration) -> Result<(), LockHeld> {
        if self.owes() {
            return Ok(());
        }
        let locking = self.answered(at_most, |writer, to| drop(to.send(Ok(writer.lock()))));
        match locking.await {
            Ok(Some(held)) => Err(held),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Waits until everything is written: at most `at_most`, and not at all while the disk still owes an
    /// earlier answer.
    pub async fn settled(&self, at_most: Duration) {
        let Some(inner) = self.inner.as_deref() else {
            return;
        };
        if inner.owes() {
            return;
        }
        let (to, mut answer) = oneshot::channel();
        // The receiver is gone if the wait timed out.
        let job: WriterJob = Box::new(|_| to.send(()).unwrap_or_default());
        if inner.queue.try_send(job).is_err() {
            return;
        }
        if tokio::time::timeout(at_most, &mut answer).await.is_err() {
            *inner.late.lock() = Some(answer);
        }
    }

    /// Waits until everything is written, the JSON lines too: at most `at_most`. For the end of the process alone, because
    /// no pass waits for lines.
    pub async fn closed(&self, at_most: Duration) {
        let lines = async {
            if let Some(lines) = &self.lines {
                lines.settled(at_most).await;
            }
        };
        tokio::join!(self.settled(at_most), lines);
    }

    /// Lets a value wait for the disk in place of an older one.
    fn put_newest<T>(
        &self,
        place: fn(&WriterHealth) -> &Mutex<Option<T>>,
        value: T,
        write: fn(&mut StateDir),
    ) {
        let Some(inner) = self.inner.as_deref() else {
            return;
        };
        let place = place(&inner.health);
        let waiting = place.lock().replace(value);
        if waiting.is_none() && !self.send(1, write) {
            place.lock().take();
        }
    }

    fn put(
        &self,
        records: usize,
        phase: PassPhase,
        write: impl FnOnce(&Writing<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) {
        self.send(records, move |state| state.record(phase, records, write));
    }

    /// Says whether the disk still owes an answer.
    pub(super) fn owes(&self) -> bool {
        self.inner.as_deref().is_some_and(JournalInner::owes)
    }

    /// Queues a job that writes so many records; says whether there was room.
    pub(super) fn send(
        &self,
        records: usize,
        job: impl FnOnce(&mut StateDir) + Send + 'static,
    ) -> bool {
        let Some(inner) = self.inner.as_deref() else {
            return false;
        };
        let why = match inner.queue.try_send(Box::new(job)) {
            Ok(()) => return true,
            Err(TrySendError::Full(_)) => TOO_SLOW,
            Err(TrySendError::Disconnected(_)) => NO_THREAD,
        };
        inner.health.failed(records, why);
        false
    }
}

impl JournalInner {
    /// Says whether the disk still owes an answer.
    fn owes(&self) -> bool {
        let mut late = self.late.lock();
        let owes = late.as_mut().is_some_and(|answer| {
            matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        });
        if !owes {
            *late = None;
        }
        owes
    }
}

fn without(health: &WriterHealth, error: &str) -> Stored {
    health.failed(1, error);
    Stored::default()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    use super::*;

    /// A journal whose disk never answers.
    fn hanging() -> (Journal, Receiver<WriterJob>, Counter) {
        let failures = Counter::default();
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let health = Arc::new(WriterHealth::new(failures.clone(), "/s".into()));
        (Journal::of(queue, health), jobs, failures)
    }

    #[tokio::test]
    async fn without_its_thread_the_database_is_not_open_and_no_disk_is_slow() {
        let (journal, jobs, _) = hanging();
        drop(jobs);
        let read = journal.read(PATIENCE, |_| Ok(())).await;
        assert!(matches!(read, Err(Error::Closed)), "{read:?}");
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_waited_for_once() {
        let (journal, jobs, _) = hanging();
        let patience = Duration::from_millis(50);
        let began = Instant::now();
        journal.intended("p", &[], patience).await;
        assert!(began.elapsed() >= patience);
        assert!(journal.status().errors["journal"].contains("no answer"));
        let hour = Duration::from_secs(3600);
        for _ in 0..100 {
            journal.intended("p", &[], hour).await;
        }
        // Once the disk answers, later calls wait for it again.
        let limits = crate::state::Config::default().limits(0);
        let health = Arc::clone(&journal.inner.as_deref().unwrap().health);
        let mut writer = StateDir::new("/s".into(), limits, health);
        for job in jobs.try_iter() {
            job(&mut writer);
        }
        assert_eq!(journal.status().errors.get("journal"), None);
        let again = tokio::time::timeout(patience, journal.settled(hour)).await;
        assert!(again.is_err(), "did not wait");
    }

    #[test]
    fn entries_beyond_the_queue_are_dropped_and_counted() {
        let (journal, jobs, failures) = hanging();
        for _ in 0..QUEUE_MAX + 7 {
            journal.put(1, PassPhase::Runs, |_| Ok(()));
        }
        assert_eq!(failures.get(), 7);
        assert!(journal.status().errors.contains_key("journal"));
        journal.save_ages(&ImageAges::default());
        assert_eq!(failures.get(), 8);
        drop(jobs);
        journal.save_ages(&ImageAges::default());
        assert_eq!(failures.get(), 9);
    }

    #[test]
    fn a_disk_that_hangs_keeps_only_the_newest_image_ages() {
        let (journal, jobs, failures) = hanging();
        let mut ages = ImageAges::default();
        for n in 0..100 {
            ages.touch(&format!("sha256:{n}"), true, Timestamp::MAX);
            journal.save_ages(&ages);
        }
        assert_eq!(jobs.try_iter().count(), 1, "one that waits");
        let inner = journal.inner.as_deref().unwrap();
        assert_eq!(inner.health.ages.lock().take(), Some(ages.clone()));
        // The thread took them: the next ages are queued again.
        journal.save_ages(&ages);
        assert_eq!(jobs.try_iter().count(), 1);
        assert_eq!(failures.get(), 0);
    }

    #[test]
    fn a_disk_that_hangs_keeps_only_the_newest_word_on_an_outage() {
        let (journal, jobs, failures) = hanging();
        for second in 0..100 {
            journal.outage(Timestamp::from_second(second).ok());
        }
        journal.outage(None);
        assert_eq!(jobs.try_iter().count(), 1, "one that waits");
        let inner = journal.inner.as_deref().unwrap();
        assert_eq!(inner.health.outage.lock().take(), Some(OutageWrite(None)));
        assert_eq!(failures.get(), 0);
    }

    #[test]
    fn outcomes_that_wait_for_a_slow_disk_are_one_write_and_bounded() {
        let (journal, jobs, failures) = hanging();
        let removal = crate::state::tests::removal(1);
        let tried = || {
            let outcome = RemovalOutcome::AlreadyGone;
            journal.tried("p", &removal, outcome, Duration::ZERO);
        };
        (0..QUEUE_MAX + 7).for_each(|_| tried());
        assert_eq!(failures.get(), 7);
        assert_eq!(jobs.try_iter().count(), 1);
        let inner = journal.inner.as_deref().unwrap();
        let waiting = || inner.outcomes.lock();
        assert_eq!(std::mem::take(&mut *waiting().lock()).len(), QUEUE_MAX);
        // The thread took them: the next one is queued again.
        tried();
        assert_eq!(jobs.try_iter().count(), 1);
        drop(jobs);
        waiting().lock().clear();
        tried();
        assert_eq!(failures.get(), 8);
        assert!(waiting().lock().is_empty());
    }

    #[tokio::test]
    async fn an_outcome_on_a_slow_disk_waits_behind_the_intent_of_its_removal() {
        let (journal, jobs, _) = hanging();
        for number in [1, 2] {
            let removal = crate::state::tests::removal(number);
            let due = [(number, &removal)];
            journal.intended("p", &due, Duration::ZERO).await;
            let outcome = RemovalOutcome::AlreadyGone;
            journal.tried("p", &removal, outcome, Duration::ZERO);
        }
        let dir = tempfile::tempdir().unwrap();
        let limits = crate::state::Config::default().limits(0);
        let health = Arc::clone(&journal.inner.as_deref().unwrap().health);
        let mut writer = StateDir::new(dir.path().to_owned(), limits, health);
        writer.open().unwrap();
        for job in jobs.try_iter() {
            job(&mut writer);
        }
        let count = "SELECT count(*), count(result) FROM removals";
        let count =
            writer.read(|sql| sql.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))));
        assert_eq!(count.unwrap(), (2, 2));
    }

    #[tokio::test]
    async fn a_journal_that_is_switched_off_does_nothing() {
        let journal = Journal::none();
        journal.save_ages(&ImageAges::default());
        journal.settled(Duration::from_secs(3600)).await;
        assert_eq!(journal.status(), StateStatus::default());
    }
}
