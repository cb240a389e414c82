//! HTTP/1.1 on one connection, with limits on the head of a request.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use crate::ResponseBody;

/// Connections that the kernel queues until they are accepted; a choice.
pub const BACKLOG: i32 = 1024;
/// The time between two attempts to accept a connection while the process is out of file descriptors; a choice.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The longest head of a request, bytes; a choice.
const MAX_HEAD: usize = 16 * 1024;

/// How a server treats a connection.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// The time a client has to send a request's head, also for the next request on a kept connection.
    pub head_timeout: Duration,
    /// Answer a client that has closed its sending side after its last request, as `nc -N` does. Otherwise the server takes
    /// that as the end of the connection, and notices a client that has gone at once.
    pub half_close: bool,
}

impl Server {
    /// Answers the requests on a connection until it ends.
    pub async fn serve<S, F>(self, stream: S, answer: impl Fn(Request<Incoming>) -> F)
    where
        S: AsyncRead + AsyncWrite + Unpin,
        F: Future<Output = Response<ResponseBody>>,
    {
        let service = service_fn(|request| {
            let asked = format!("{} {}", request.method(), request.uri().path());
            let answered = answer(request);
            async move {
                let answer = answered.await;
                debug!("{asked}: {}", answer.status().as_u16());
                Ok::<_, Infallible>(answer)
            }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .max_buf_size(MAX_HEAD)
            .half_close(self.half_close)
            .serve_connection(TokioIo::new(stream), service);
        // An error here means that the client went away.
        let _ = served.await;
    }
}
