//! Users of this machine, by name.

use std::path::Path;

use anyhow::Context;

/// The user of `sqm web`, where the machine has it.
pub(crate) const PAGE: &str = "sqm-web";
/// Of the file of users, bytes.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Everybody in `/etc/passwd`. Users of a directory service are not asked for: what runs as a service is a user of the machine.
pub(crate) fn all() -> anyhow::Result<Vec<User>> {
    let bytes = sqm_files::read(Path::new("/etc/passwd"), MOST_BYTES)
        .context("cannot read the users of this machine")?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

pub(crate) fn find(name: &str) -> anyhow::Result<Option<User>> {
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
    fn users_are_read_and_broken_lines_are_left_out() {
        let users =
            parse("root:x:0:0:root:/root:/bin/sh\n\nbroken\nx:x:-1:0::/:\nsqm-web:x:107:112::/:/bin/false\n");
        let found: Vec<(&str, u32, u32)> = users.iter().map(|u| (u.name.as_str(), u.uid, u.gid)).collect();
        assert_eq!(found, [("root", 0, 0), ("sqm-web", 107, 112)]);
    }
}
