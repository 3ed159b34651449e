//! Standard error, written by its own thread: a full pipe blocks only that thread. Lines that find no room
//! are dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// The most bytes of lines that wait to be written.
const WAITING_MAX_BYTES: usize = 1 << 20;

/// The process's standard error.
static STDERR: OnceLock<LineWriter> = OnceLock::new();

/// Returns the writer of the process's standard error.
pub(super) fn stderr() -> LineWriter {
    let start = || LineWriter::start(descriptor());
    STDERR.get_or_init(start).clone()
}

/// Writes a line like a log line, and waits until it and earlier lines are written, at most `at_most`.
pub fn say(line: &str, at_most: Duration) {
    let writer = stderr();
    writer.put(format!("{line}\n").into_bytes());
    writer.flush(at_most);
}

/// Waits until all lines are written, at most `at_most`.
pub fn flush(at_most: Duration) {
    if let Some(writer) = STDERR.get() {
        writer.flush(at_most);
    }
}

/// Returns how many lines were dropped.
pub fn lines_dropped() -> u64 {
    let writer = STDERR.get();
    writer.map_or(0, |writer| writer.state.dropped.load(Ordering::Acquire))
}

/// A separate descriptor: a blocked write would hold the library's lock on standard error.
fn descriptor() -> Box<dyn Write + Send> {
    let stderr = io::stderr();
    match stderr.as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(File::from(descriptor)),
        Err(_no_descriptor) => Box::new(stderr),
    }
}

/// Sends lines to the writer thread. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct LineWriter {
    jobs: Sender<StderrJob>,
    state: Arc<StderrState>,
}

#[derive(Debug, Default)]
struct StderrState {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum StderrJob {
    Line(Vec<u8>),
    /// Answer when all earlier lines are written.
    Flush(Sender<()>),
}

impl LineWriter {
    fn start(output: Box<dyn Write + Send>) -> Self {
        let (jobs, receiver) = channel();
        let state = Arc::<StderrState>::default();
        let thread = std::thread::Builder::new().name("log".to_owned());
        let of_thread = Arc::clone(&state);
        // Without the thread each line counts as dropped.
        drop(thread.spawn(move || write_all(&receiver, output, &of_thread)));
        Self { jobs, state }
    }

    fn put(&self, line: Vec<u8>) {
        let bytes = line.len();
        let before = self.state.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        if before > WAITING_MAX_BYTES || self.jobs.send(StderrJob::Line(line)).is_err() {
            self.state.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.state.dropped.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn flush(&self, at_most: Duration) {
        let (to, done) = channel();
        if self.jobs.send(StderrJob::Flush(to)).is_ok() {
            // Late or never: nothing more can be done for these lines.
            let _is_late = done.recv_timeout(at_most).is_err();
        }
    }
}

/// Writes until no [`LineWriter`] is left.
fn write_all(jobs: &Receiver<StderrJob>, mut output: impl Write, state: &StderrState) {
    let mut reported = 0;
    for job in jobs {
        match job {
            StderrJob::Line(line) => {
                let written = output.write_all(&line);
                let before = state.waiting_bytes.fetch_sub(line.len(), Ordering::AcqRel);
                if written.is_err() {
                    state.dropped.fetch_add(1, Ordering::AcqRel);
                } else if before == line.len() {
                    // Everything is written, so this line finds room.
                    report_dropped(&mut reported, state);
                }
            }
            StderrJob::Flush(done) => drop(done.send(())),
        }
    }
}

fn report_dropped(reported: &mut u64, state: &StderrState) {
    let dropped = state.dropped.load(Ordering::Acquire);
    let lines = dropped.saturating_sub(*reported);
    *reported = dropped;
    if lines > 0 {
        tracing::warn!(
            lines,
            "lines of the log were dropped: standard error was not read in time"
        );
    }
}

/// Each write is one whole line, because the log writes that way.
impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// Blocks until it is released; then passes on what is written.
    struct Stuck {
        may_write: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _is_over = self.may_write.recv().is_err();
            drop(self.written.send(line.to_vec()));
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted_and_the_rest_stay_in_order() {
        let (go_on, may_write) = channel();
        let (written, lines) = channel();
        let writer = LineWriter::start(Box::new(Stuck { may_write, written }));
        let room = WAITING_MAX_BYTES / 1024 + 1;
        for number in 0..room + 7 {
            writer.put(format!("{number:>1023}\n").into_bytes());
        }
        assert_eq!(writer.state.dropped.load(Ordering::Acquire), 7);
        writer.flush(Duration::from_millis(1));
        drop(go_on);
        writer.flush(LONG);
        let lines: Vec<Vec<u8>> = lines.try_iter().collect();
        assert_eq!(lines.len(), room);
        assert!(lines.is_sorted(), "in order");
        assert_eq!(writer.state.waiting_bytes.load(Ordering::Acquire), 0);
        writer.put(vec![b'x'; 10]);
        writer.flush(LONG);
        assert_eq!(writer.state.dropped.load(Ordering::Acquire), 7);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _line: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let writer = LineWriter::start(Box::new(Closed));
        writer.put(b"lost\n".to_vec());
        writer.flush(LONG);
        assert_eq!(writer.state.dropped.load(Ordering::Acquire), 1);
    }
}
