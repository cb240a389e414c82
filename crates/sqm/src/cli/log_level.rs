//! `--log-level` of the commands that run for long.

use sqm_process::logging::{self, Level};

/// The log of this process.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// The least important entries that are logged, to the journal under systemd, else to standard error
    #[arg(long, value_name = "LEVEL", env = "SQM_LOG_LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// Write the log to the system log (/dev/log) with each entry's level, as OpenWrt's logread shows it
    #[arg(long)]
    syslog: bool,
}

impl LogArgs {
    /// Starts the log of this process.
    pub(crate) fn start(&self) {
        let least = match self.log_level {
            LogLevel::Error => Level::ERROR,
            LogLevel::Warning => Level::WARN,
            LogLevel::Info => Level::INFO,
            LogLevel::Debug => Level::DEBUG,
        };
        logging::start(least, self.syslog);
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogLevel {
    /// Only what could not be done as asked
    Error,
    /// Errors, and what a person should look at
    Warning,
    /// Errors, warnings, and each change of state
    Info,
    /// All of these, each event of the kernel, and each request
    Debug,
}
