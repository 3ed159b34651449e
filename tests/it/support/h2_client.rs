//! HTTP/2 over TLS: a regular client, and frames that no regular client sends.

use std::sync::Arc;

use axum::body::Bytes;
use h2::client::SendRequest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::wait::PATIENCE;

/// A connection's beginning: the preface and empty settings.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM_AND_HEADERS: u8 = 5;

/// Shakes hands with a server of this CA. `own`: a PEM text with a certificate and its key.
pub(crate) async fn connect(
    address: &str,
    ca: &str,
    own: Option<&str>,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let chain = CertificateDer::pem_slice_iter(pem.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
            config
                .with_client_auth_cert(chain.collect::<Result<_, _>>().unwrap(), key)
                .unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// A regular client, whose windows are of this size.
pub(crate) async fn client(stream: TlsStream<TcpStream>, window: u32) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(async { drop(connection.await) });
    client
}

/// Sends a request without a body; returns the answer's head, and its whole text unless `window` is 0.
pub(crate) async fn ask(
    client: &SendRequest<Bytes>,
    request: axum::http::request::Builder,
) -> (axum::http::response::Parts, String) {
    let asked = async {
        let mut client = client.clone().ready().await.unwrap();
        let (answer, _) = client
            .send_request(request.body(()).unwrap(), true)
            .unwrap();
        let (head, mut body) = answer.await.unwrap().into_parts();
        let mut bytes = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            bytes.extend(piece);
        }
        (head, String::from_utf8_lossy(&bytes).into_owned())
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .expect("an answer")
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The header block of `GET https://localhost` and a path.
pub(crate) fn get(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x01, 9];
    block.extend(b"localhost");
    block.extend([0x04, u8::try_from(path.len()).unwrap()]);
    block.extend(path.bytes());
    block
}

/// Sends until the server closes, at most these bytes; returns the kinds and payloads of its frames.
pub(crate) async fn attack(stream: TlsStream<TcpStream>, bytes: Vec<u8>) -> Vec<(u8, Vec<u8>)> {
    let (mut read, mut write) = tokio::io::split(stream);
    let sending = tokio::spawn(async move {
        // The server may close before all is sent.
        drop(write.write_all(&bytes).await);
        write
    });
    let reading = async {
        let mut frames = Vec::new();
        let mut head = [0; 9];
        while read.read_exact(&mut head).await.is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            if read.read_exact(&mut payload).await.is_err() {
                break;
            }
            frames.push((head[3], payload));
        }
        frames
    };
    let frames = tokio::time::timeout(PATIENCE, reading).await;
    let frames = frames.expect("the service closes the connection");
    sending.abort();
    frames
}
