//! The API of `sqm daemon` (docs/reference/api.md): its routes, the types of its requests and answers, and its client.
//!
//! The daemon answers with the types that its clients read: the command line, and the server of the page, which passes some
//! of them on to browsers (docs/openapi.yaml).
#![forbid(unsafe_code)]

pub mod client;
pub mod configuration;
pub mod doctor;
pub mod error;
pub mod held_pause;
pub mod journal;
pub mod pause;
pub mod route;
pub mod status;
pub mod tune;

pub use client::Client;
pub use route::Route;

/// The name of the API's socket in the state folder.
pub const SOCKET: &str = "api.sock";
/// The version of the answers. It increases with each incompatible change.
pub const VERSION: u32 = 1;
