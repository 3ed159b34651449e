//! Pod source peers: an HTTP server that behaves as the kubelet and the API server, or badly; and the
//! kubelet's pods socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crisweep_proto::pods::pods_server::{Pods, PodsServer};
use crisweep_proto::pods::{ListPodsRequest, ListPodsResponse};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::UnixListenerStream;

use super::ca::Ca;

/// A server's answer: bytes, and whether the connection then stays open silently.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    hangs: bool,
}

impl Reply {
    /// A well-formed answer.
    pub(crate) fn of(status: &str, content_type: &str, body: &str) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        Self {
            bytes: [head.as_bytes(), body.as_bytes()].concat(),
            hangs: false,
        }
    }

    /// A JSON answer.
    pub(crate) fn json(body: &str) -> Self {
        Self::of("200 OK", "application/json", body)
    }

    /// A refusal.
    pub(crate) fn status(status: &str) -> Self {
        Self::of(status, "text/plain", status)
    }

    /// A redirect.
    pub(crate) fn redirect(to: &str) -> Self {
        let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        Self {
            bytes: head.into(),
            hangs: false,
        }
    }

    /// No answer, for ever.
    pub(crate) fn silence() -> Self {
        Self {
            bytes: Vec::new(),
            hangs: true,
        }
    }

    /// Half an answer, then the end of the connection.
    pub(crate) fn cut(body: &str) -> Self {
        let mut whole = Self::json(body);
        whole.bytes.truncate(whole.bytes.len() - body.len() / 2);
        whole
    }

    /// Half an answer, then nothing, for ever.
    pub(crate) fn stall(body: &str) -> Self {
        Self {
            hangs: true,
            ..Self::cut(body)
        }
    }

    /// More than any node has, with or without the length in front.
    pub(crate) fn flood(says_so: bool) -> Self {
        let length = usize::try_from(crisweep::pods::ANSWER_MAX_BYTES).unwrap() + 1;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        let bytes = if says_so {
            format!("{head}Content-Length: {length}\r\n\r\n").into()
        } else {
            let mut bytes = format!("{head}Connection: close\r\n\r\n").into_bytes();
            bytes.resize(bytes.len() + length, b' ');
            bytes
        };
        Self { bytes, hangs: true }
    }
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Method, path and query.
    pub(crate) line: String,
    pub(crate) authorization: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) content_type: Option<String>,
    /// The client's certificate.
    pub(crate) certificate: Option<Vec<u8>>,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Asked {
    /// Says whether the request accepts an answer from the watch cache.
    pub(crate) fn takes_cached(&self) -> bool {
        self.line.ends_with("&resourceVersion=0")
    }
}

struct State {
    reply: Reply,
    /// The answer for requests that accept the watch cache, if different.
    cached: Option<Reply>,
    /// Answers for requests whose line begins with a text.
    routed: Vec<(String, Reply)>,
    /// Objects that are read and written at their paths; each write moves `resourceVersion`.
    objects: BTreeMap<String, Value>,
    /// Whether every answer is 503.
    is_away: bool,
    /// The accepted credentials; `None`: none needed.
    authorization: Option<String>,
    tls: Option<Arc<ServerConfig>>,
    asked: Vec<Asked>,
}

/// A server that lists pods over HTTP, until it is dropped.
pub(crate) struct PodServer {
    /// Its address, `localhost:port`.
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for PodServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PodServer {
    /// Starts one with a certificate; it answers 503 until an answer is set.
    pub(crate) async fn secure(ca: &Ca, name: &str) -> Self {
        Self::start(Some(ca.server(name))).await
    }

    /// Starts one without TLS.
    pub(crate) async fn plain() -> Self {
        Self::start(None).await
    }

    async fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            reply: Reply::status("503 Service Unavailable"),
            cached: None,
            routed: Vec::new(),
            objects: BTreeMap::new(),
            is_away: false,
            authorization: None,
            tls,
            asked: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let tls = state.lock().unwrap().tls.clone();
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
                            Ok(stream) => {
                                let shown = stream.get_ref().1.peer_certificates();
                                let shown = shown.map(|chain| chain[0].to_vec());
                                talk(stream, &state, shown).await
                            }
                            // A client that does not trust this certificate, or is not trusted.
                            Err(_) => Ok(()),
                        },
                        None => talk(stream, &state, None).await,
                    }
                });
            }
        });
        Self {
            address: format!("localhost:{port}"),
            state,
            task,
        }
    }

    /// Uses the CA's own certificate from now on.
    pub(crate) fn show_itself(&self, ca: &Ca) {
        self.state.lock().unwrap().tls = Some(ca.as_server());
    }

    /// Sets the answer.
    pub(crate) fn reply(&self, reply: Reply) {
        self.state.lock().unwrap().reply = reply;
    }

    /// Sets the answer from the watch cache.
    pub(crate) fn reply_from_cache(&self, reply: Reply) {
        self.state.lock().unwrap().cached = Some(reply);
    }

    /// Sets the answer for requests whose line begins with `line`.
    pub(crate) fn reply_to(&self, line: &str, reply: Reply) {
        let mut state = self.state.lock().unwrap();
        state.routed.retain(|(known, _)| known != line);
        state.routed.push((line.to_owned(), reply));
    }

    /// Keeps an object at a path: `GET` reads it, `PUT` replaces the version that it names.
    pub(crate) fn keep(&self, path: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!("1");
        let mut state = self.state.lock().unwrap();
        state.objects.insert(path.to_owned(), object);
    }

    /// Returns a kept object.
    pub(crate) fn kept(&self, path: &str) -> Value {
        self.state.lock().unwrap().objects[path].clone()
    }

    /// Answers nothing but 503 from now on, or no longer.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.state.lock().unwrap().is_away = is_away;
    }

    /// Accepts only this token from now on.
    pub(crate) fn expect_token(&self, token: &str) {
        self.state.lock().unwrap().authorization = Some(format!("Bearer {token}"));
    }

    /// Speaks TLS in this way from now on.
    pub(crate) fn speak(&self, tls: Arc<ServerConfig>) {
        self.state.lock().unwrap().tls = Some(tls);
    }

    /// Uses another certificate from now on.
    pub(crate) fn show(&self, ca: &Ca, name: &str) {
        self.state.lock().unwrap().tls = Some(ca.server(name));
    }

    /// Returns the received requests, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }
}

/// Answers one request and closes, so that a new certificate is seen at once.
async fn talk<S>(
    mut stream: S,
    state: &Mutex<State>,
    certificate: Option<Vec<u8>>,
) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let header = |wanted: &str| {
        request.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            (name.eq_ignore_ascii_case(wanted)).then(|| value.to_owned())
        })
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let line = request.lines().next().unwrap_or_default();
    let line = line.trim_end_matches(" HTTP/1.1").to_owned();
    let reply = {
        let mut state = state.lock().unwrap();
        let expected = state.authorization.clone();
        let asked = Asked {
            line,
            authorization: header("authorization"),
            host: header("host"),
            content_type: header("content-type"),
            certificate,
            body: String::from_utf8_lossy(&body).into_owned(),
            at: Instant::now(),
        };
        let is_known = expected.is_none() || expected == asked.authorization;
        let cached = state.cached.clone().filter(|_| asked.takes_cached());
        let mut routed = state.routed.iter();
        let routed = routed.find(|(line, _)| asked.line.starts_with(line));
        let special = cached.or(routed.map(|(_, reply)| reply.clone()));
        let object = object(&mut state.objects, &asked);
        state.asked.push(asked);
        if state.is_away {
            Reply::status("503 Service Unavailable")
        } else if let Some(object) = object.filter(|_| is_known) {
            object
        } else if is_known {
            special.unwrap_or_else(|| state.reply.clone())
        } else {
            Reply::status("401 Unauthorized")
        }
    };
    stream.write_all(&reply.bytes).await?;
    if reply.hangs {
        stream.flush().await?;
        std::future::pending::<()>().await;
    }
    stream.shutdown().await
}

/// Reads or replaces a kept object, as the API server does.
fn object(objects: &mut BTreeMap<String, Value>, asked: &Asked) -> Option<Reply> {
    let (method, path) = asked.line.split_once(' ')?;
    let kept = objects.get_mut(path)?;
    if method == "PUT" {
        let mut new: Value = serde_json::from_str(&asked.body).unwrap();
        let version = kept["metadata"]["resourceVersion"].clone();
        if new["metadata"]["resourceVersion"] != version {
            return Some(Reply::status("409 Conflict"));
        }
        let next = version.as_str().unwrap().parse::<u64>().unwrap() + 1;
        new["metadata"]["resourceVersion"] = json!(next.to_string());
        *kept = new;
    }
    Some(Reply::json(&kept.to_string()))
}

type SharedAnswer = Arc<Mutex<Result<ListPodsResponse, tonic::Status>>>;

/// The kubelet's pods socket, until it is dropped. Its file stays, as after a crash.
pub(crate) struct PodsSocket {
    shared: SharedAnswer,
    task: JoinHandle<()>,
}

impl Drop for PodsSocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PodsSocket {
    /// Makes a new socket; it is not in sync until an answer is set.
    pub(crate) fn start(path: &Path) -> Self {
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
        let listener = UnixListenerStream::new(UnixListener::bind(path).unwrap());
        let shared: SharedAnswer =
            Arc::new(Mutex::new(Err(tonic::Status::failed_precondition("no"))));
        let service = PodsServer::new(Kubelet(Arc::clone(&shared)));
        let server = tonic::transport::Server::builder().add_service(service);
        let task = tokio::spawn(async move {
            server.serve_with_incoming(listener).await.unwrap();
        });
        Self { shared, task }
    }

    pub(crate) fn set_answer(&self, pods: ListPodsResponse) {
        *self.shared.lock().unwrap() = Ok(pods);
    }

    pub(crate) fn refuse(&self, status: tonic::Status) {
        *self.shared.lock().unwrap() = Err(status);
    }
}

struct Kubelet(SharedAnswer);

#[tonic::async_trait]
impl Pods for Kubelet {
    async fn list_pods(
        &self,
        _request: tonic::Request<ListPodsRequest>,
    ) -> Result<tonic::Response<ListPodsResponse>, tonic::Status> {
        let shared = self.0.lock().unwrap().clone();
        shared.map(tonic::Response::new)
    }
}

/// Listens on a socket and never answers.
pub(crate) fn silent_socket(path: &PathBuf) -> std::os::unix::net::UnixListener {
    std::os::unix::net::UnixListener::bind(path).unwrap()
}
