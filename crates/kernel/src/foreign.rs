//! Finds out which other program manages the queues of a device, by the files that it leaves.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::observe::Device;
use crate::state;

/// A program that sets up queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QdiscManager {
    /// OpenWrt's shell scripts: they keep a state file for each device.
    SqmScripts,
    /// NetworkManager manages the device; its connection profile may set queues.
    NetworkManager,
    /// systemd-networkd has a configuration for the device, which may set queues.
    Networkd,
    /// No program that leaves a file.
    Unknown,
}

impl fmt::Display for QdiscManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SqmScripts => "sqm-scripts, whose state file names this device",
            Self::NetworkManager => {
                "NetworkManager, which manages this device: see 'tc' in its connection profile"
            }
            Self::Networkd => "systemd-networkd, which manages this device: see its .network file",
            Self::Unknown => "tc or another program that cannot be identified",
        })
    }
}

/// Which program set up the root qdisc of a device: `sqm` if the record in `records` names that root, or a description of
/// the most likely other one. `None` is the kernel's default.
pub fn root_owner(device: &Device, records: &Path) -> Option<String> {
    let root = device.root_id()?;
    let (interface, index) = (&device.link.name, device.link.index);
    let is_ours =
        state::peek(records, interface).is_some_and(|record| record.index == index && record.owns(&root));
    Some(if is_ours {
        "sqm".to_owned()
    } else {
        find_manager(interface, index).to_string()
    })
}

/// The program that most likely manages the queues of a device, given by its name and index.
pub fn find_manager(interface: &str, index: u32) -> QdiscManager {
    find_manager_below(Path::new("/"), interface, index)
}

fn find_manager_below(root: &Path, interface: &str, index: u32) -> QdiscManager {
    let text = |path: String| fs::read_to_string(root.join(path)).unwrap_or_default();
    let state_file = |folder: &str| root.join(folder).join(format!("{interface}.state")).exists();
    if state_file("run/sqm") || state_file("var/run/sqm") {
        return QdiscManager::SqmScripts;
    }
    if text(format!("run/NetworkManager/devices/{index}")).contains("managed=true") {
        return QdiscManager::NetworkManager;
    }
    if text(format!("run/systemd/netif/links/{index}")).contains("NETWORK_FILE=/") {
        return QdiscManager::Networkd;
    }
    QdiscManager::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_identified_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(find_manager_below(root, "eth0", 2), QdiscManager::Unknown);
        fs::create_dir_all(root.join("run/systemd/netif/links")).unwrap();
        fs::write(
            root.join("run/systemd/netif/links/2"),
            "NETWORK_FILE=/etc/systemd/network/a.network\n",
        )
        .unwrap();
        assert_eq!(find_manager_below(root, "eth0", 2), QdiscManager::Networkd);
        fs::create_dir_all(root.join("run/NetworkManager/devices")).unwrap();
        fs::write(
            root.join("run/NetworkManager/devices/2"),
            "[device]\nmanaged=true\n",
        )
        .unwrap();
        assert_eq!(find_manager_below(root, "eth0", 2), QdiscManager::NetworkManager);
        fs::create_dir_all(root.join("run/sqm")).unwrap();
        fs::write(root.join("run/sqm/eth0.state"), "").unwrap();
        assert_eq!(find_manager_below(root, "eth0", 2), QdiscManager::SqmScripts);
        assert_eq!(find_manager_below(root, "eth1", 3), QdiscManager::Unknown);
    }
}
