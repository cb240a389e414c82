//! The limit of open files, which must hold all connections that a server admits at once.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to what is needed, as far as the hard one allows.
///
/// # Errors
///
/// If the hard limit is lower: what to tell the user. The server works nevertheless; connections wait while all are in use.
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
    // As many as there may be.
    let _ = setrlimit(Resource::Nofile, limit);
    Err(format!(
        "only {most} files may be open at once, and with all connections {needed} are: raise the limit \
         (ulimit -n, LimitNOFILE=)"
    ))
}
