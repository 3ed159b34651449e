//! A connection's bytes, guarded against a peer that stops reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::super::connections::Connection;
use super::{LINGER, STALL_MAX};
use crate::system::stall::StallGuard;

/// A stream that fails if its peer reads nothing for [`STALL_MAX`], reports when everything is sent, and
/// lingers at its end.
pub(super) struct GuardedStream<S> {
    stream: StallGuard<S>,
    connection: Connection,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> GuardedStream<S> {
    pub(super) fn new(stream: S, connection: Connection) -> Self {
        Self {
            stream: StallGuard::new(stream, STALL_MAX),
            connection,
            lingering: None,
        }
    }
}

impl<S: AsyncRead + Unpin> GuardedStream<S> {
    /// Reads and drops incoming bytes until the peer closes or the time is over.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        match &mut self.lingering {
            Some(until) => until.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Hyper flushes when it has nothing left to write.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.connection.sent();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.connection.is_unread() {
                return Poll::Ready(Ok(()));
            }
            self.lingering = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        self.linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::super::Connections;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn closes_a_connection_whose_peer_reads_nothing() {
        let (server, _client) = tokio::io::duplex(8);
        let began = Instant::now();
        let error = GuardedStream::new(server, Connections::default().take())
            .write_all(&[0; 64])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_the_whole_answer() {
        let (server, mut client) = tokio::io::duplex(8);
        let reading = tokio::spawn(async move {
            let mut taken = 0;
            for _ in 0..8 {
                tokio::time::sleep(STALL_MAX * 9 / 10).await;
                taken += client.read(&mut [0; 8]).await.unwrap();
            }
            taken
        });
        GuardedStream::new(server, Connections::default().take())
            .write_all(&[0; 64])
            .await
            .unwrap();
        assert_eq!(reading.await.unwrap(), 64);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_request_is_read_for_a_while() {
        let (server, mut client) = tokio::io::duplex(8);
        let began = Instant::now();
        let sending =
            tokio::spawn(async move { client.write_all(&[0; 1_000]).await.map(|()| client) });
        let connection = Connections::default().take();
        // An unread request body.
        drop(connection.request(Body::from("longer")));
        let mut server = GuardedStream::new(server, connection);
        server.shutdown().await.unwrap();
        let client = sending.await.unwrap().unwrap();
        assert!(
            began.elapsed() <= LINGER + Duration::from_millis(1),
            "{began:?}"
        );
        drop(client);
    }
}
