//! A connection whose kind does not matter.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection of any kind. A server of several kinds, such as TCP and TLS, takes each as `Box<dyn Stream>`: the program then has the
/// code of HTTP once, and not for each kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
