//! Ends a connection whose peer has stopped reading, which would keep what waits to be sent for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream that fails if its peer reads nothing for some time while there is something to send.
#[derive(Debug)]
pub struct StallGuard<S, F = fn()> {
    stream: S,
    at_most: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    sent: F,
}

impl<S: Unpin> StallGuard<S> {
    /// Lets a peer read nothing for at most this long.
    pub fn new(stream: S, at_most: Duration) -> Self {
        Self::watched(stream, at_most, || ())
    }
}

impl<S: Unpin, F: FnMut() + Unpin> StallGuard<S, F> {
    /// The same; `sent` is called when a flush finds everything sent.
    pub fn watched(stream: S, at_most: Duration, sent: F) -> Self {
        Self {
            stream,
            at_most,
            stalled: None,
            sent,
        }
    }

    fn or_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), cx) {
            self.stalled = None;
            return Poll::Ready(written);
        }
        let at_most = self.at_most;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(at_most)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for StallGuard<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, F: FnMut() + Unpin> AsyncWrite for StallGuard<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.or_stalled(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.or_stalled(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.or_stalled(cx, AsyncWrite::poll_flush))?;
        (self.sent)();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.or_stalled(cx, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const AT_MOST: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn closes_a_connection_whose_peer_reads_nothing() {
        let (server, _client) = tokio::io::duplex(8);
        let began = Instant::now();
        let error = StallGuard::new(server, AT_MOST)
            .write_all(&[0; 64])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= AT_MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_the_whole_answer() {
        let (server, mut client) = tokio::io::duplex(8);
        let reading = tokio::spawn(async move {
            let mut taken = 0;
            for _ in 0..8 {
                tokio::time::sleep(AT_MOST * 9 / 10).await;
                taken += client.read(&mut [0; 8]).await.unwrap();
            }
            taken
        });
        StallGuard::new(server, AT_MOST)
            .write_all(&[0; 64])
            .await
            .unwrap();
        assert_eq!(reading.await.unwrap(), 64);
    }
}
