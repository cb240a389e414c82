//! Giving up root: what a browser makes this process do must be able to touch neither the network nor anybody's files.
//!
//! A process of root without capabilities still owns root's files, and every service that asks only for a peer's user takes it
//! for root. So the server becomes another user: the one of `--user`, else `sqm-web`, else a number that no user has. It keeps
//! two things of what it was: the folder of `--dir`, which it is given and works in, and the connections to the daemon that
//! [`Connector`](super::connector::Connector) makes for it.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat, fchown, fstat, openat, statat};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use sqm_process::failure::Failure;
use sqm_process::user::{self, User};

/// Stands in for the user `sqm-web` on a machine that has none. Neither Debian, systemd nor OpenWrt gives this number to
/// anybody (Debian policy 9.2.2; systemd's "Users, Groups, UIDs and GIDs"; OpenWrt's begin at 65536), and it fits the 16 bits
/// that JFFS2 keeps.
const NAMELESS: u32 = 65530;

/// Names of what the server keeps in its folder; temporary files and locks begin with a dot before them.
const OURS: [&str; 5] = ["password", "audit", "certificate", "key", "tests"];

/// Whom the server becomes; `None` if it was not started by root and stays who it is.
pub(super) fn user(wanted: Option<&str>) -> Result<Option<User>, Failure> {
    if !rustix::process::geteuid().is_root() {
        return match wanted {
            None => Ok(None),
            Some(_) => Err(Failure::Usage(anyhow!(
                "only root can become another user: leave --user away"
            ))),
        };
    }
    let users = user::all()?;
    let find = |name: &str| users.iter().find(|user| user.name == name).cloned();
    let user = match wanted {
        Some(name) => {
            find(name).ok_or_else(|| Failure::Usage(anyhow!("there is no user {name} on this machine")))?
        }
        None => match (find(user::PAGE), users.iter().find(|user| user.uid == NAMELESS)) {
            (Some(user), _) => user,
            (None, None) => User {
                name: format!("of number {NAMELESS}"),
                uid: NAMELESS,
                gid: NAMELESS,
            },
            (None, Some(taken)) => {
                return Err(Failure::Usage(anyhow!(
                    "there is no user {} on this machine, and the number {NAMELESS} belongs to {}: make that user, or \
                     name another one with --user",
                    user::PAGE,
                    taken.name
                )));
            }
        },
    };
    if user.uid == 0 {
        return Err(Failure::Usage(anyhow!("--user: the page is not served by root")));
    }
    Ok(Some(user))
}

/// Makes a folder of root the user's, with what the server keeps in it. One that is somebody else's is an error: its owner could
/// set the password.
pub(super) fn hand_over(dir: &Path, user: &User) -> Result<(), Failure> {
    let context = || format!("cannot hand {} over to the user {}", dir.display(), user.name);
    let link = fs::symlink_metadata(dir).with_context(context)?;
    if link.is_symlink() && link.uid() != 0 {
        return Err(Failure::Usage(anyhow!(
            "{} is a symbolic link that user number {} made, which is not followed",
            dir.display(),
            link.uid()
        )));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(rustix::fs::CWD, dir, flags, Mode::empty()).with_context(context)?;
    let found = fstat(&folder).with_context(context)?;
    if found.st_uid == user.uid {
        return Ok(());
    }
    if found.st_uid != 0 {
        return Err(Failure::Usage(anyhow!(
            "the folder {} belongs to user number {}: it must belong to root or to the user {}",
            dir.display(),
            found.st_uid,
            user.name
        )));
    }
    let is_ours = |name: &str| {
        OURS.iter()
            .any(|ours| name.trim_start_matches('.').starts_with(ours))
    };
    for entry in fs::read_dir(dir).with_context(context)? {
        let name = entry.with_context(context)?.file_name();
        if !name.to_str().is_some_and(is_ours) {
            return Err(Failure::Usage(anyhow!(
                "the folder {} holds {}, which is none of the page's files: give it a folder of its own",
                dir.display(),
                name.display()
            )));
        }
    }
    // Nobody but root can have put anything into it so far.
    give_all(&folder, dir, user, true).with_context(context)?;
    Ok(())
}

/// Gives away regular files, folders in `dir` if it is the outermost, and last the folder itself.
fn give_all(folder: &impl AsFd, dir: &Path, user: &User, is_outermost: bool) -> anyhow::Result<()> {
    let owner = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let found = statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile if found.st_nlink == 1 => {
                chownat(folder, &name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            FileType::Directory if is_outermost => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = openat(folder, &name, flags, Mode::empty())?;
                give_all(&inner, &dir.join(&name), user, false)?;
            }
            _ => {}
        }
    }
    fchown(folder, owner.0, owner.1)?;
    Ok(())
}

/// For this process and all its children, for good: another user, if one is given, and no capability. To be called before there
/// are threads.
pub(super) fn become_unprivileged(user: Option<&User>) -> anyhow::Result<()> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    anyhow::ensure!(
        threads == 1,
        "cannot give up privileges: there are threads already"
    );
    let context = "cannot give up privileges";
    set_no_new_privs(true).context(context)?;
    for capability in CapabilitySet::all().iter() {
        // Only who may change the set has anything to take out of it.
        let _ = remove_capability_from_bounding_set(capability);
    }
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        set_thread_groups(&[]).context(context)?;
        set_thread_res_gid(gid, gid, gid).context(context)?;
        set_thread_res_uid(uid, uid, uid).context(context)?;
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).context(context)
}
