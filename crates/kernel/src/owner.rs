//! Who else shapes a device: what other programs leave on the file system tells.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::observe::{Device, number};
use crate::state;

/// Somebody who sets up queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// OpenWrt's shell scripts: they keep a state file for each device.
    SqmScripts,
    /// NetworkManager looks after the device; a connection profile can name its queues.
    NetworkManager,
    /// systemd-networkd has a configuration for the device; it can name queues.
    Networkd,
    /// Nobody who leaves a trace.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SqmScripts => "sqm-scripts: its state file says that it shapes this device",
            Self::NetworkManager => {
                "NetworkManager looks after this device: see 'tc' in its connection profile"
            }
            Self::Networkd => "systemd-networkd looks after this device: see its .network file",
            Self::Unknown => "by tc, or by a program that leaves no trace",
        })
    }
}

/// Whose root stands on a device: ours by the record in that folder, or somebody else's; `None` is the kernel's default.
pub fn of(device: &Device, records: &Path) -> Option<String> {
    let root = device.root()?;
    let (interface, index) = (&device.link.name, device.link.index);
    let is_ours = state::peek(records, interface).is_some_and(|record| {
        record.index == index && record.owns(&(root.kind.clone(), number(root.handle)))
    });
    Some(if is_ours {
        "sqm".to_owned()
    } else {
        find(interface, index).to_string()
    })
}

/// The most likely one for a device, by its name and number.
pub fn find(interface: &str, index: u32) -> Owner {
    find_below(Path::new("/"), interface, index)
}

fn find_below(root: &Path, interface: &str, index: u32) -> Owner {
    let text = |path: String| fs::read_to_string(root.join(path)).unwrap_or_default();
    let state_file = |folder: &str| root.join(folder).join(format!("{interface}.state")).exists();
    if state_file("run/sqm") || state_file("var/run/sqm") {
        return Owner::SqmScripts;
    }
    if text(format!("run/NetworkManager/devices/{index}")).contains("managed=true") {
        return Owner::NetworkManager;
    }
    if text(format!("run/systemd/netif/links/{index}")).contains("NETWORK_FILE=/") {
        return Owner::Networkd;
    }
    Owner::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(find_below(root, "eth0", 2), Owner::Unknown);
        fs::create_dir_all(root.join("run/systemd/netif/links")).unwrap();
        fs::write(
            root.join("run/systemd/netif/links/2"),
            "NETWORK_FILE=/etc/systemd/network/a.network\n",
        )
        .unwrap();
        assert_eq!(find_below(root, "eth0", 2), Owner::Networkd);
        fs::create_dir_all(root.join("run/NetworkManager/devices")).unwrap();
        fs::write(
            root.join("run/NetworkManager/devices/2"),
            "[device]\nmanaged=true\n",
        )
        .unwrap();
        assert_eq!(find_below(root, "eth0", 2), Owner::NetworkManager);
        fs::create_dir_all(root.join("run/sqm")).unwrap();
        fs::write(root.join("run/sqm/eth0.state"), "").unwrap();
        assert_eq!(find_below(root, "eth0", 2), Owner::SqmScripts);
        assert_eq!(find_below(root, "eth1", 3), Owner::Unknown);
    }
}
