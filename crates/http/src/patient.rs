//! A connection whose other end must take what is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Fails to write after the other end has taken nothing for so long, though there was something to take.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs out while nothing is taken.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// Wraps a stream: a write fails when the peer reads nothing for `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            waiting: None,
        }
    }

    /// The outcome of a write, or that nothing was taken for too long.
    fn bounded<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waiting
            .as_mut()
            .poll(context)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.bounded(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn who_takes_nothing_is_given_up_on() {
        run(async {
            let (ours, _theirs) = tokio::io::duplex(10);
            let mut ours = Patient::new(ours, Duration::from_millis(20));
            let error = ours.write_all(&[0; 200]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn whoever_takes_something_has_as_long_again_for_the_rest() {
        run(async {
            let (ours, mut theirs) = tokio::io::duplex(10);
            let mut ours = Patient::new(ours, Duration::from_secs(3600));
            ours.write_all(&[0; 10]).await.unwrap();
            poll_fn(|context| {
                assert!(Pin::new(&mut ours).poll_write(context, &[0]).is_pending());
                Poll::Ready(())
            })
            .await;
            assert!(ours.waiting.is_some());
            theirs.read_exact(&mut [0; 1]).await.unwrap();
            ours.write_all(&[0]).await.unwrap();
            assert!(ours.waiting.is_none());
        });
    }
}
