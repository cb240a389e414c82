//! Finds out which other program manages the queues of a device, by the files that it leaves.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::observe::{Device, RootId};
use crate::scripts_state::{self, ScriptsState};
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
    let scripts_state = ScriptsState::read(interface);
    let is_ours = state::peek(records, interface).is_some_and(|record| {
        record.index == index
            && record.owns(&root)
            && !scripts_state.is_newer_than(record.scripts_state.as_ref())
    });
    Some(if is_ours {
        "sqm".to_owned()
    } else {
        find_manager(interface, index).to_string()
    })
}

/// The program that has set up the root qdisc of a device in place of sqm. Without a record, a root of the planned kind and
/// handle is taken for ours.
pub fn other_owner(device: &Device, planned: Option<&RootId>, records: &Path) -> Option<String> {
    let is_known = state::peek(records, &device.link.name).is_some();
    if !is_known && device.root_id().as_ref() == planned {
        return None;
    }
    root_owner(device, records).filter(|owner| owner != "sqm")
}

/// A message about everything that sqm-scripts leaves on the machine when sqm takes its queues over, and how to move over for
/// good.
pub(crate) fn left_by_scripts(interface: &str) -> Option<String> {
    let file = scripts_state::path(Path::new("/"), interface)?;
    Some(format!(
        "{interface}: sqm-scripts is still set up: its state file {} stays and, after simple.qos, its iptables rules \
         (chain QOS_MARK_{interface}); its next stop would remove sqm's queues. To move over for good: 'sqm stop', stop \
         and disable sqm-scripts (systemctl disable --now sqm@{interface}; on OpenWrt remove the package sqm-scripts), \
         then 'sqm start'",
        file.display()
    ))
}

/// The program that most likely manages the queues of a device, given by its name and index.
pub fn find_manager(interface: &str, index: u32) -> QdiscManager {
    find_manager_below(Path::new("/"), interface, index)
}

fn find_manager_below(root: &Path, interface: &str, index: u32) -> QdiscManager {
    let text = |path: String| fs::read_to_string(root.join(path)).unwrap_or_default();
    if scripts_state::path(root, interface).is_some() {
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
