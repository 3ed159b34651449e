//! Passes and removals as JSON lines, on standard output or in a file, for shipping. Written by a thread of its own: a
//! hung disk or a reader that does not read costs lines, never a pass.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use rustix::fs::OFlags;
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use super::files::FileIdentity;
use super::passes::RemovalEnd;
use crate::model::{Pass, escape};
use crate::system::clock;
use crate::system::file::regular;

/// Lines that may wait.
const QUEUE_MAX: usize = 4096;

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum LinesTo {
    /// Standard output.
    #[serde(serialize_with = "stdout")]
    Stdout,
    /// A file, which another program may move: the next line goes to a new one.
    File(PathBuf),
}

fn stdout<S: Serializer>(to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str("stdout")
}

/// The queue of lines. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    node: Arc<str>,
    queue: SyncSender<String>,
    health: LineHealth,
}

/// What becomes of lines; shared with the thread.
#[derive(Clone, Debug)]
struct LineHealth {
    /// Number of lines in the queue and in the thread's hands.
    waiting: watch::Sender<u64>,
    /// Lost lines.
    failures: Counter,
    /// The last line was lost; each change is logged once.
    failing: Arc<AtomicBool>,
}

#[derive(Serialize)]
struct JsonLine<'a, T> {
    event: &'static str,
    time: Timestamp,
    node: &'a str,
    #[serde(flatten)]
    content: T,
}

impl Lines {
    pub(super) fn start(to: LinesTo, node: &str, failures: Counter) -> io::Result<Self> {
        let (queue, lines) = sync_channel(QUEUE_MAX);
        let health = LineHealth {
            waiting: watch::Sender::default(),
            failures,
            failing: Arc::default(),
        };
        let thread = std::thread::Builder::new().name("json lines".to_owned());
        let of_thread = health.clone();
        thread.spawn(move || run(&to, &lines, &of_thread))?;
        Ok(Self {
            node: node.into(),
            queue,
            health,
        })
    }

    /// Waits until every line is written: at most `at_most`. The others are lost when the process ends.
    pub(super) async fn settled(&self, at_most: Duration) {
        let mut waiting = self.health.waiting.subscribe();
        let written = waiting.wait_for(|waiting| *waiting == 0);
        if tokio::time::timeout(at_most, written).await.is_err() {
            let lines = *self.health.waiting.borrow();
            self.health.failures.inc_by(lines);
            tracing::warn!(
                lines,
                "JSON lines of passes and removals are lost at the end"
            );
        }
    }

    /// Writes a pass that begins or ended.
    pub(super) fn pass(&self, pass: &Pass) {
        self.put("pass", pass);
    }

    /// Writes a removal that ended. Its pass has a line before it, which says what asked for it.
    pub(super) fn removal(&self, ended: &RemovalEnd) {
        self.put("removal", ended);
    }

    fn put(&self, event: &'static str, content: impl Serialize) {
        let line = JsonLine {
            event,
            time: clock(),
            node: &self.node,
            content,
        };
        let text = serde_json::to_string(&line).map_err(|error| error.to_string());
        let queued = text.and_then(|text| {
            self.health.waiting.send_modify(|waiting| *waiting += 1);
            let line = format!("{}\n", escape::json(&text));
            self.queue.try_send(line).map_err(|_full| {
                self.health.waiting.send_modify(|waiting| *waiting -= 1);
                "too many lines wait".to_owned()
            })
        });
        if let Err(error) = queued {
            self.health.lost(&error);
        }
    }
}

impl LineHealth {
    fn lost(&self, error: &str) {
        self.failures.inc();
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(error, "JSON lines of passes and removals are lost");
        }
    }

    fn worked(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("JSON lines can be written again");
        }
    }
}

fn run(to: &LinesTo, lines: &Receiver<String>, health: &LineHealth) {
    let mut file = None;
    while let Ok(line) = lines.recv() {
        let written = match to {
            LinesTo::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line.as_bytes()).and_then(|()| out.flush())
            }
            LinesTo::File(path) => append(&mut file, path, &line),
        };
        match written {
            Ok(()) => health.worked(),
            Err(error) => health.lost(&error.to_string()),
        }
        health.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

/// Appends a line; opens the file anew if its path leads to another one by now.
fn append(open: &mut Option<File>, path: &Path, line: &str) -> io::Result<()> {
    if let Some(file) = open
        && !FileIdentity::of(&file.metadata()?).is_at(path)
    {
        *open = None;
    }
    let file = match open {
        Some(file) => file,
        None => open.insert(open_lines(path)?),
    };
    let before = file.metadata()?.len();
    file.write_all(line.as_bytes()).inspect_err(|_full| {
        // Half a line would spoil the next one. What another program wrote or cut meanwhile stays.
        let now = file.metadata().map_or(0, |it| it.len());
        if (before..before + line.len() as u64).contains(&now) {
            drop(file.set_len(before));
        }
    })
}

fn open_lines(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(flags);
    regular(options.open(path)?)
}
