//! Raw bytes on a connection, for requests that no regular client sends.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wait::PATIENCE;

/// Connects and sends these bytes; the connection stays open.
pub(crate) async fn connect(address: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Returns everything until the service closes the connection.
pub(crate) async fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let patience: Duration = PATIENCE;
    let read = tokio::time::timeout(patience, stream.read_to_end(&mut bytes)).await;
    read.expect("the service closes the connection").unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a whole request and returns the status of its answer and its body's text.
pub(crate) async fn exchange(address: &str, request: &[u8]) -> (u16, String) {
    let answer = read_to_end(connect(address, request).await).await;
    split(&answer)
}

/// Splits an answer into status and body.
pub(crate) fn split(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    (
        status.unwrap_or_else(|| panic!("not an answer: {answer:?}")),
        body.to_owned(),
    )
}
