//! The log of a process that runs for long: events with levels and fields, written with the macros of `tracing`.
//!
//! Under systemd an event goes to the journal with its priority and its fields (`SQM_INTERFACE=wan0`, `SQM_KIND=state`), so
//! that `journalctl -p warning SQM_INTERFACE=wan0` finds it. On OpenWrt it goes to the system log with its priority. Elsewhere it is
//! a line on standard error.

mod syslog;

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

pub use tracing::Level;

use crate::errln;

/// Starts the log of this process: to the journal if standard error is connected to it, else to standard error. Before this
/// call, events are lost. `least` is the least important level that is written. With `to_syslog` it is the system log, if there is
/// one.
pub fn start(least: Level, to_syslog: bool) {
    let registry = tracing_subscriber::registry().with(LevelFilter::from_level(least));
    #[cfg(feature = "full")]
    if let Some(Ok(journal)) = is_journal().then(tracing_journald::layer) {
        // Fails if this process has a log already.
        let _ = registry
            .with(journal.with_field_prefix(Some("SQM".to_owned())))
            .try_init();
        return;
    }
    if let Some(syslog) = to_syslog.then(syslog::Syslog::connect).and_then(Result::ok) {
        // Fails if this process has a log already.
        let _ = registry.with(syslog).try_init();
        return;
    }
    let registry = registry.with(StandardError);
    // Fails if this process has a log already.
    let _ = registry.try_init();
}

/// `true` if standard error is a stream of the journal. `JOURNAL_STREAM` has its device and inode (systemd.exec(5)).
#[cfg(feature = "full")]
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(rustix::stdio::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Writes the message of each event as a line on standard error, which begins with the level if it is not `info`.
struct StandardError;

impl<S: Subscriber> Layer<S> for StandardError {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        errln!("{}{}", prefix(*event.metadata().level()), message.0);
    }
}

/// The beginning of an entry's text where its level is not shown otherwise: nothing for `info`.
pub fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        Level::INFO => "",
        _ => "debug: ",
    }
}

/// The text of an event, without its other fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
