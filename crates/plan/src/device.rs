//! The shaped network device, as far as a plan depends on it.

use crate::link::Encapsulation;

/// The facts about a device that change a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Bytes of link header that the kernel counts in a packet's length: 14 on Ethernet, none on PPP and tunnels.
    pub header: u32,
    /// Encapsulations between the device and the line that the machine can see.
    pub stack: Vec<Encapsulation>,
    /// Hardware queues for leaving and for arriving packets.
    pub queues: (u32, u32),
}

impl Device {
    /// Bytes of an Ethernet header.
    pub const ETHERNET_HEADER: u32 = 14;

    /// A device that this machine does not have (yet): plain Ethernet, unless its name says otherwise by convention
    /// (`ppp0`, `eth0.2`).
    pub fn absent(name: &str) -> Self {
        let ppp = name.starts_with("ppp");
        let vlan = name
            .rsplit_once('.')
            .is_some_and(|(_, id)| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()));
        let stack = [(ppp, Encapsulation::Pppoe), (vlan, Encapsulation::Vlan)];
        Self {
            name: name.to_owned(),
            mtu: 1500,
            header: if ppp { 0 } else { Self::ETHERNET_HEADER },
            stack: stack
                .into_iter()
                .filter(|(is, _)| *is)
                .map(|(_, layer)| layer)
                .collect(),
            queues: (1, 1),
        }
    }
}
