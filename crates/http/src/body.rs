//! The body of an answer: all at once, or events as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

/// The body of an answer.
pub enum Answer {
    /// All of it; `None` once it was sent.
    Whole(Option<Bytes>),
    /// Events that are sent as they come.
    Events {
        /// Where they come from.
        events: Receiver<Bytes>,
        /// Dropped when the stream ends.
        held: Vec<Box<dyn Send + Sync>>,
    },
}

impl Answer {
    /// Keeps something, such as a seat, for as long as a stream lasts. With any other answer it is dropped at once.
    pub fn hold(&mut self, something: impl Send + Sync + 'static) {
        if let Self::Events { held, .. } = self {
            held.push(Box::new(something));
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Events { events, .. } => events.poll_recv(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Events { .. } => SizeHint::default(),
        }
    }
}
