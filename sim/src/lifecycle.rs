//! The socket from start to stop. A restarted runtime has a new one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The state of the server.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    serving: Option<Serving>,
    /// Keeps the last socket file's inode open, so that the next file gets another number.
    last_inode: Option<OwnedFd>,
    closed: bool,
}

/// A server on its socket.
#[derive(Debug)]
struct Serving {
    /// Dropped to end the server and each of its connections at once.
    alive: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Lifecycle {
    /// Binds the socket and serves it until it is stopped. Does nothing if it is served already.
    pub(super) fn start<Served>(
        &mut self,
        socket: &Path,
        serve: impl FnOnce(UnixListener, watch::Receiver<()>) -> Served,
    ) -> io::Result<()>
    where
        Served: Future<Output = ()> + Send + 'static,
    {
        if self.closed {
            return Err(io::Error::other("the simulated runtime was shut down"));
        }
        if self.serving.is_some() {
            return Ok(());
        }
        remove_socket(socket)?;
        let listener = UnixListener::bind(socket)?;
        self.last_inode = None;
        let (alive, watcher) = watch::channel(());
        let task = tokio::spawn(serve(listener, watcher));
        self.serving = Some(Serving { alive, task });
        Ok(())
    }

    /// Removes the socket and breaks every connection. Returns the task that has yet to end.
    pub(super) fn stop(&mut self, socket: &Path) -> Option<JoinHandle<()>> {
        let Serving { alive, task } = self.serving.take()?;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        self.last_inode = rustix::fs::open(socket, flags, rustix::fs::Mode::empty()).ok();
        if let Err(error) = remove_socket(socket) {
            tracing::warn!(path = %socket.display(), %error, "cannot remove the simulated socket");
        }
        drop(alive);
        Some(task)
    }

    /// Stops for good.
    pub(super) fn close(&mut self, socket: &Path) -> Option<JoinHandle<()>> {
        self.closed = true;
        let task = self.stop(socket);
        self.last_inode = None;
        task
    }
}

/// Waits until a stopped server has released everything.
pub(super) async fn finished(task: Option<JoinHandle<()>>) {
    if let Some(task) = task {
        drop(task.await);
    }
}

/// Removes a socket, but no other kind of file.
fn remove_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "in the way, and not a socket",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
