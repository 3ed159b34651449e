//! A pipe that a process writes to, and that a test reads as long as it wants.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Both ends.
pub(crate) struct Pipe {
    reader: BufReader<PipeReader>,
    writer: PipeWriter,
}

/// The output of a pipe that is read to its end.
pub(crate) struct Reading {
    text: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Pipe {
    pub(crate) fn new() -> Self {
        let (reader, writer) = pipe().unwrap();
        let reader = BufReader::new(reader);
        Self { reader, writer }
    }

    /// Returns a writing end.
    pub(crate) fn writer(&self) -> PipeWriter {
        self.writer.try_clone().unwrap()
    }

    /// Reads a line; blocks until there is one.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line
    }

    /// Fills it, so that the next write blocks.
    pub(crate) fn fill(&self) {
        // A separate open file: its blocking mode must not change for the writing process.
        let path = format!("/proc/self/fd/{}", self.writer.as_raw_fd());
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut filler = OpenOptions::new();
        let mut filler = filler.write(true).custom_flags(flags).open(path).unwrap();
        for size in [4096, 1] {
            loop {
                match filler.write(&vec![b'\n'; size]) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Reads everything from now on.
    pub(crate) fn read_on(self) -> Reading {
        let Self { mut reader, writer } = self;
        drop(writer);
        let text = Arc::default();
        let thread = std::thread::spawn({
            let text: Arc<Mutex<Vec<u8>>> = Arc::clone(&text);
            move || {
                let mut part = vec![0; 1 << 16];
                loop {
                    let read = reader.read(&mut part).unwrap_or(0);
                    if read == 0 {
                        return;
                    }
                    text.lock().unwrap().extend_from_slice(&part[..read]);
                }
            }
        });
        Reading { text, thread }
    }
}

impl Reading {
    /// Returns the output so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    /// Returns all output, after every writer has closed.
    pub(crate) fn all(self) -> String {
        self.thread.join().unwrap();
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }
}
