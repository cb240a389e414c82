//! The users of this machine, from `/etc/passwd`.

use std::path::Path;

use anyhow::Context;

/// The name of the user as which `sqm web` runs, if the machine has this user.
pub const PAGE: &str = "sqm-web";
/// The longest `/etc/passwd` that is read, bytes; a choice.
const MAX_BYTES: u64 = 16 << 20;

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The log-in name.
    pub name: String,
    /// The user ID.
    pub uid: u32,
    /// The ID of the user's primary group.
    pub gid: u32,
}

/// All users in `/etc/passwd`. Users of a directory service are missing: a system service runs as a local user.
pub fn all() -> anyhow::Result<Vec<User>> {
    let bytes = sqm_files::read(Path::new("/etc/passwd"), MAX_BYTES)
        .context("cannot read the users of this machine")?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// The user `name` in `/etc/passwd`.
pub fn find(name: &str) -> anyhow::Result<Option<User>> {
    Ok(all()?.into_iter().find(|user| user.name == name))
}

fn parse(text: &str) -> Vec<User> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        Some(User {
            name: name.to_owned(),
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
        })
    };
    text.lines().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_and_malformed_lines_are_skipped() {
        let users =
            parse("root:x:0:0:root:/root:/bin/sh\n\nbroken\nx:x:-1:0::/:\nsqm-web:x:107:112::/:/bin/false\n");
        let found: Vec<(&str, u32, u32)> = users.iter().map(|u| (u.name.as_str(), u.uid, u.gid)).collect();
        assert_eq!(found, [("root", 0, 0), ("sqm-web", 107, 112)]);
    }
}
