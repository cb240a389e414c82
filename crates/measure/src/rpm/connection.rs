//! HTTP/2 connections of the client, with the times of their handshakes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ProtocolVersion;

use crate::Error;
use crate::http::{Place, Upload, request, tls_config};

/// Longest time to connect, with the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time for the answer to a small request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) type Sender = SendRequest<Upload>;

/// A connection, with the time that it took to establish.
pub(super) struct Connected {
    pub(super) sender: Sender,
    /// A second handle, for `TCP_INFO`.
    pub(super) socket: std::net::TcpStream,
    pub(super) tcp: Duration,
    pub(super) tls: Duration,
}

pub(super) fn tls(verify: bool) -> Result<TlsConnector, Error> {
    Ok(TlsConnector::from(Arc::new(tls_config(verify, b"h2")?)))
}

/// Connects. Measures the time of the TCP handshake, and that of a round trip of the TLS handshake.
pub(super) async fn connect(tls: &TlsConnector, place: &Place, window: u32) -> io::Result<Connected> {
    tokio::time::timeout(CONNECT_TIMEOUT, async {
        let began = Instant::now();
        let stream = TcpStream::connect(place.address).await?;
        let tcp = began.elapsed();
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let socket = stream.try_clone()?;
        let stream = TcpStream::from_std(stream)?;
        let began = Instant::now();
        let name = place
            .name
            .clone()
            .ok_or_else(|| io::Error::other("it is not https"))?;
        let stream = tls.connect(name, stream).await?;
        // TLS 1.3 takes one round trip (RFC 8446, section 2), earlier versions two.
        let round_trips = match stream.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => 1,
            _ => 2,
        };
        let tls = began.elapsed() / round_trips;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("it does not speak HTTP/2"));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(window)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Connected {
            sender,
            socket,
            tcp,
            tls,
        })
    })
    .await?
}

/// Gets a small body, at most `limit` bytes.
pub(super) async fn fetch(sender: &mut Sender, place: &Place, limit: usize) -> io::Result<Vec<u8>> {
    let request = request(Method::GET, place, Empty::new().boxed())?;
    tokio::time::timeout(ANSWER_TIMEOUT, async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(io::Error::other(format!("{} answers {status}", place.uri)));
        }
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame.map_err(io::Error::other)?.data_ref() {
                bytes.extend_from_slice(data);
            }
            if bytes.len() > limit {
                return Err(io::Error::other("its answer is too long"));
            }
        }
        Ok(bytes)
    })
    .await?
}
