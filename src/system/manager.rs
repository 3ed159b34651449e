//! What the service tells the service manager (systemd), by the protocol of `sd_notify`: one datagram for each
//! message. No message ever holds up the service: a manager that reads nothing is waited for briefly.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The environment variable that names the manager's socket: a path, or `@` and an abstract name.
pub const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// The environment variable that says within how many microseconds the manager wants a sign of life.
pub const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// The process that the watchdog's variable is meant for.
pub const WATCHDOG_PID_VARIABLE: &str = "WATCHDOG_PID";

/// How long a message waits for room in the manager's socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager, if there is one. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    socket: Option<Arc<SocketAddr>>,
}

impl Manager {
    /// Returns the manager with this socket; an empty value is none.
    ///
    /// # Errors
    /// If the value is no path and no abstract name.
    pub fn at(socket: &OsStr) -> io::Result<Self> {
        let socket = match socket.as_bytes() {
            [] => return Ok(Self::default()),
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(socket)?,
            _ => return Err(io::Error::other("it is no path and no abstract name")),
        };
        Ok(Self {
            socket: Some(Arc::new(socket)),
        })
    }

    /// Says whether there is a manager.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// The listeners are bound and the runtime is known.
    pub async fn ready(&self) {
        self.tell("READY=1").await;
    }

    /// The configuration is read again; [`Self::ready`] follows, whatever becomes of it.
    pub async fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(
            now.tv_sec.unsigned_abs(),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        );
        let text = format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros());
        self.tell(&text).await;
    }

    /// The service ends.
    pub async fn stopping(&self) {
        self.tell("STOPPING=1").await;
    }

    /// The service is well.
    pub async fn alive(&self) {
        self.tell("WATCHDOG=1").await;
    }

    async fn tell(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        let sent = tokio::time::timeout(SEND_TIMEOUT, send(socket, message)).await;
        let sent = sent.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        if let Err(error) = sent {
            tracing::debug!(%error, message, "the service manager did not take a message");
        }
    }
}

/// With a new socket for each message, because the manager may have restarted.
async fn send(to: &SocketAddr, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(to)?;
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixDatagram::from_std(socket)?;
    socket.send(message.as_bytes()).await.map(drop)
}

/// Returns within what time the manager wants a sign of life of the process `pid`.
pub fn watchdog(micros: Option<&str>, meant_for: Option<&str>, pid: u32) -> Option<Duration> {
    let is_meant = meant_for.is_none_or(|it| it.parse() == Ok(pid));
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    is_meant.then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_meant_for_this_process_or_for_none() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), None, 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("1000000"), Some(""), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(Some("soon"), None, 7), None);
        assert_eq!(watchdog(None, None, 7), None);
    }

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        for socket in ["/run/systemd/notify", "@name"] {
            assert!(Manager::at(OsStr::new(socket)).unwrap().is_there());
        }
        assert!(!Manager::at(OsStr::new("")).unwrap().is_there());
        let long = format!("/{}", "x".repeat(200));
        for socket in ["vsock:2:1234", "notify", &long] {
            assert!(Manager::at(OsStr::new(socket)).is_err(), "{socket}");
        }
    }
}
