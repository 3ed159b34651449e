//! A request's body, whose rest is read for a while after an early answer (413): some clients lose the answer when
//! their upload is cut off.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::rt::Executor;

use super::super::LINGER;
use super::StreamTasks;

pub(super) struct DrainedBody {
    body: Option<Incoming>,
    tasks: StreamTasks,
}

impl DrainedBody {
    pub(super) fn new(body: Incoming, tasks: StreamTasks) -> Self {
        let body = Some(body);
        Self { body, tasks }
    }
}

impl HttpBody for DrainedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) else {
            return;
        };
        self.tasks.execute(async move {
            let read = async { while let Some(Ok(_)) = body.frame().await {} };
            // What comes later is refused by the stream's reset.
            let _ = tokio::time::timeout(LINGER, read).await;
        });
    }
}
