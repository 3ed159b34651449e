//! A connection to one socket, made on first use and again after it broke.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response};
use tower::service_fn;

use super::framing::{Awaits, Checked, Encoding};
use super::list_ways::ListWays;
use super::{Error, Settings};
use crate::runtime::convert::{Interner, WireRow};
use crate::system::file::FileStamp;
use crate::system::stall::StallGuard;

/// How much of one answer the runtime may send ahead, which stays in memory until it is read. With the default
/// of 64 KiB an answer of 16 MiB waits 256 times.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for all answers together.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// How much is read from the socket at once. The HTTP/2 client alone reads 8 KiB at a time, a list of 2.8 MB in some
/// 220 reads.
const READ_BYTES: usize = 64 << 10;

/// A connection ends if the runtime reads nothing for this long although there is something to send: after some hundred
/// calls without an answer the socket is full, and each further call would stay in memory.
const STALL_MAX: Duration = Duration::from_secs(60);

/// The longest status that the runtime may send, with its text as HTTP/2 writes it. With the default of 16 KiB a
/// longer one, such as all that a network plugin wrote, ends the call without a word.
const STATUS_BYTES_MAX: u32 = 1 << 20;

/// How much earlier than our deadline the runtime's may pass: gRPC sends a long one in whole milliseconds.
const DEADLINE_ROUNDING: Duration = Duration::from_millis(1);

/// The longest deadline that is sent; gRPC cannot encode arbitrary ones.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A socket and what is known of the server behind it.
#[derive(Debug)]
pub(super) struct RuntimeConnection {
    endpoint: Arc<Path>,
    /// Made at a call, because making one needs a tokio runtime.
    channel: Mutex<Option<Channel>>,
    /// The file that the channel is connected to.
    socket: Arc<Mutex<Option<FileStamp>>>,
    /// Number of connections made, which identifies the present one.
    connections: Arc<AtomicU64>,
    connect_timeout: Duration,
    pub(super) max_message_bytes: usize,
    /// The state of the streaming RPCs.
    pub(super) streams: ListWays,
    /// The state of compressed answers.
    pub(super) compressed: ListWays,
    /// Values that rows share.
    pub(super) shared: Arc<Mutex<Interner>>,
}

impl RuntimeConnection {
    pub(super) fn new(endpoint: &Path, settings: &Settings) -> Self {
        Self {
            endpoint: endpoint.into(),
            channel: Mutex::default(),
            socket: Arc::default(),
            connections: Arc::default(),
            connect_timeout: settings.timeout,
            max_message_bytes: settings.max_message_bytes,
            streams: ListWays::default(),
            compressed: ListWays::default(),
            shared: Arc::default(),
        }
    }

    pub(super) fn channel(&self, awaits: Awaits, encoding: Encoding) -> Checked {
        let mut channel = self.channel.lock();
        Checked {
            channel: channel.get_or_insert_with(|| self.open()).clone(),
            limit_bytes: self.max_message_bytes,
            awaits,
            encoding,
        }
    }

    /// Returns the number of the present connection; 0 before the first.
    pub(super) fn connection(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Begins a list: forgets what no row uses any more.
    pub(super) fn begin<R: WireRow>(&self) {
        self.shared.lock().begin::<R>(self.connection());
    }

    /// Waits for an answer, at most until the deadline.
    pub(super) async fn call<T>(
        &self,
        method: &'static str,
        deadline: Duration,
        answer: impl Future<Output = Result<Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let timeout = Error::Timeout {
            method,
            after: deadline,
        };
        let error = match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => {
                let error = Error::from_status(method, &self.endpoint, deadline, status);
                // The runtime watches the deadline too, and may be first to end the call.
                let is_over = began.elapsed() + DEADLINE_ROUNDING >= deadline;
                if is_over && error.is_broken_off() {
                    timeout
                } else {
                    error
                }
            }
            Err(_elapsed) => timeout,
        };
        if matches!(error, Error::Timeout { .. }) {
            self.leave_a_replaced_socket();
        }
        Err(error)
    }

    /// Makes the next call connect anew if another file is at the path now. A runtime that was started anew makes one,
    /// while the old one may hang in its end with our connection open. Calls in flight keep the old connection.
    fn leave_a_replaced_socket(&self) {
        let mut connected = self.socket.lock();
        let there = FileStamp::at(&self.endpoint);
        if connected.is_some() && there.is_some() && *connected != there {
            let socket = self.endpoint.display();
            tracing::info!(%socket, "the runtime's socket was replaced; connecting anew");
            *connected = None;
            *self.channel.lock() = None;
        }
    }

    fn open(&self) -> Channel {
        let path = Arc::clone(&self.endpoint);
        let (connections, socket) = (Arc::clone(&self.connections), Arc::clone(&self.socket));
        let timeout = self.connect_timeout;
        let connector = service_fn(move |_: Uri| {
            let (connections, socket) = (Arc::clone(&connections), Arc::clone(&socket));
            let path = Arc::clone(&path);
            async move {
                // Before it connects: a file that is replaced in between must count as another one.
                let file = FileStamp::at(&path);
                let stream = tokio::time::timeout(timeout, UnixStream::connect(path)).await??;
                *socket.lock() = file;
                connections.fetch_add(1, Ordering::AcqRel);
                let stream = StallGuard::new(stream, STALL_MAX);
                let stream = BufReader::with_capacity(READ_BYTES, stream);
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        // Only the `:authority` header uses this address; the connector has the socket.
        Endpoint::from_static("http://localhost")
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_max_header_list_size(STATUS_BYTES_MAX)
            .connect_with_connector_lazy(connector)
    }
}

/// Makes a request that tells the server its deadline, so that the server stops working at the deadline.
pub(super) fn request<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.min(DEADLINE_MAX));
    request
}
