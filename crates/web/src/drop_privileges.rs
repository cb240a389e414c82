//! Gives up root's privileges, so that a compromised server can change neither the network nor files of other users.
//!
//! A root process without capabilities still owns root's files, and services that check only the user of a peer treat it as root. So the
//! server becomes another user: the one of `--user`, else `sqm-web`, else a user number that is not in use. Two things remain: the
//! folder of `--dir`, which becomes the user's, and the connections to the daemon that [`Connector`](super::connector::Connector) makes.

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

/// The user number on a machine without the user `sqm-web`. Debian, systemd and OpenWrt do not assign it (Debian policy 9.2.2; systemd's "Users, Groups, UIDs and GIDs"; OpenWrt's begin at 65536), and it fits the 16 bits
/// that JFFS2 keeps.
const NAMELESS: u32 = 65530;

/// Beginnings of the names of the server's files; temporary files and locks have a dot before them.
const OURS: [&str; 5] = ["password", "audit", "certificate", "key", "tests"];

/// The user that the server becomes; `None` if it was not started by root and keeps its user.
pub(super) fn user(wanted: Option<&str>) -> Result<Option<User>, Failure> {
    if !rustix::process::geteuid().is_root() {
        return match wanted {
            None => Ok(None),
            Some(_) => Err(Failure::Usage(anyhow!(
                "only root can become another user: omit --user"
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
                    "there is no user {} on this machine, and user number {NAMELESS} belongs to {}: create the user, or \
                     name another one with --user",
                    user::PAGE,
                    taken.name
                )));
            }
        },
    };
    if user.uid == 0 {
        return Err(Failure::Usage(anyhow!("--user: the page must not run as root")));
    }
    Ok(Some(user))
}

/// Changes the owner of a folder of root, and of the server's files in it, to `user`. A folder of another user is an error, because its
/// owner could set the password.
pub(super) fn hand_over(dir: &Path, user: &User) -> Result<(), Failure> {
    let context = || {
        format!(
            "cannot change the owner of {} to the user {}",
            dir.display(),
            user.name
        )
    };
    let link = fs::symlink_metadata(dir).with_context(context)?;
    if link.is_symlink() && link.uid() != 0 {
        return Err(Failure::Usage(anyhow!(
            "{} is a symbolic link of user number {}, which is not followed",
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
                "the folder {} contains {}, which is not one of the page's files: use a folder of its own",
                dir.display(),
                name.display()
            )));
        }
    }
    // Until now, only root could put files into the folder.
    give_all(&folder, dir, user, true).with_context(context)?;
    Ok(())
}

/// Changes the owner of regular files, of folders in `dir` if it is the outermost, and last of the folder itself.
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

/// Permanently drops all capabilities of this process and its children, and becomes another user, if one is given. Must be called
/// before the process has threads.
pub(super) fn drop_privileges(user: Option<&User>) -> anyhow::Result<()> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    anyhow::ensure!(
        threads == 1,
        "cannot give up privileges: the process already has threads"
    );
    let context = "cannot give up privileges";
    set_no_new_privs(true).context(context)?;
    for capability in CapabilitySet::all().iter() {
        // This fails without CAP_SETPCAP. Then the process has no capabilities to lose.
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
