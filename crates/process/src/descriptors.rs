//! The limit of open files (`RLIMIT_NOFILE`), which must allow all connections that a server admits at once.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to `needed`, as far as the hard limit allows.
///
/// # Errors
///
/// If the hard limit is lower than `needed`: a warning for the user. The server works nevertheless; new connections wait
/// while all file descriptors are in use.
pub fn require(needed: usize) -> Result<(), String> {
    let needed = needed as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let most = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    limit.current = Some(most);
    if most == needed && setrlimit(Resource::Nofile, limit).is_ok() {
        return Ok(());
    }
    // The hard limit is lower: raise the soft limit as far as possible.
    let _ = setrlimit(Resource::Nofile, limit);
    Err(format!(
        "this process may open only {most} files, but needs {needed} when all its connections are in use: raise the \
         limit (ulimit -n, LimitNOFILE=)"
    ))
}
