//! The body of a response: complete bytes, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

/// The body of a response.
pub enum ResponseBody {
    /// All bytes at once; `None` after they have been sent.
    Full(Option<Bytes>),
    /// Server-sent events, each sent as soon as the server produces it.
    Events {
        /// The encoded events. The stream ends when the sender is dropped.
        events: Receiver<Bytes>,
        /// Guards that are dropped when the stream ends.
        held: Vec<Box<dyn Send + Sync>>,
    },
}

impl ResponseBody {
    /// Keeps a guard, such as a stream permit, until an event stream ends. A full body drops it at once.
    pub fn hold(&mut self, guard: impl Send + Sync + 'static) {
        if let Self::Events { held, .. } = self {
            held.push(Box::new(guard));
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Events { events, .. } => events.poll_recv(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Events { .. } => SizeHint::default(),
        }
    }
}
