//! The virtual home network: a real Linux kernel with CAKE in an unprivileged process.
//!
//! User Mode Linux boots in a second or two with the host's root file system mounted read-only, and inside it
//! network namespaces stand for the hosts of a home, its router, its modem with a bloated buffer, and a server.
//!
//! ```text
//! h1, h2 ── br0[router]wan0 ── lan0[modem]wan0 ── c0[core]c1 ── eth0[server]
//!              the device          the bottleneck    the delay
//!              under test
//! ```
//!
//! Reading order: [`kernel`] finds the kernel, [`guest`] boots it and sends it requests, [`agent`] carries them out
//! inside the guest, [`mod@line`] has the models of lines, [`home`] builds the network,
//! [`homes`] builds one with many homes, [`keeper`] keeps a lab running between commands, [`program`] runs a command on a virtual host, [`forward`] connects a browser to it,
//! and [`terminal`] a shell.
#![forbid(unsafe_code)]

pub mod agent;
mod bottleneck;
pub mod error;
pub mod forward;
pub mod guest;
pub mod home;
pub mod homes;
pub mod keeper;
pub mod kernel;
mod launch;
pub mod line;
mod processor;
pub mod program;
pub mod protocol;
pub mod terminal;

pub use error::Error;
pub use guest::{Guest, Output};
pub use home::Home;
pub use homes::Homes;
pub use kernel::Clock;
pub use line::{Boost, Buffer, Direction, Line};
