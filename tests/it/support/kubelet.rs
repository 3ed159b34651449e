//! Pod source peers: an HTTP server that behaves as the kubelet and the API server, or badly; and the
//! kubelet's pods socket.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crisweep_proto::pods::pods_server::{Pods, PodsServer};
use crisweep_proto::pods::{ListPodsRequest, ListPodsResponse};
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::UnixListenerStream;

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
    /// The accepted token; `None`: no token needed.
    token: Option<String>,
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
            token: None,
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
                            Ok(stream) => talk(stream, &state).await,
                            // A client that does not trust this certificate.
                            Err(_) => Ok(()),
                        },
                        None => talk(stream, &state).await,
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
        let certificate = ca.params.self_signed(&ca.key).unwrap();
        self.state.lock().unwrap().tls = Some(serving(&certificate, &ca.key));
    }

    /// Sets the answer.
    pub(crate) fn reply(&self, reply: Reply) {
        self.state.lock().unwrap().reply = reply;
    }

    /// Sets the answer from the watch cache.
    pub(crate) fn reply_from_cache(&self, reply: Reply) {
        self.state.lock().unwrap().cached = Some(reply);
    }

    /// Accepts only this token from now on.
    pub(crate) fn expect_token(&self, token: &str) {
        self.state.lock().unwrap().token = Some(token.to_owned());
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
async fn talk<S>(mut stream: S, state: &Mutex<State>) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let authorization = request.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        (name.eq_ignore_ascii_case("authorization")).then(|| value.to_owned())
    });
    let line = request.lines().next().unwrap_or_default();
    let line = line.trim_end_matches(" HTTP/1.1").to_owned();
    let reply = {
        let mut state = state.lock().unwrap();
        let bearer = state.token.as_ref().map(|token| format!("Bearer {token}"));
        let is_known = bearer.is_none() || bearer == authorization;
        let asked = Asked {
            line,
            authorization,
            at: Instant::now(),
        };
        let cached = state.cached.clone().filter(|_| asked.takes_cached());
        state.asked.push(asked);
        if is_known {
            cached.unwrap_or_else(|| state.reply.clone())
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

/// A certificate authority, made for one test.
pub(crate) struct Ca {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// Writes its certificate to a file.
    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, &self.pem).unwrap();
    }

    fn server(&self, name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        serving(&params.signed_by(&key, &issuer).unwrap(), &key)
    }
}

fn serving(certificate: &Certificate, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    Arc::new(config)
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
