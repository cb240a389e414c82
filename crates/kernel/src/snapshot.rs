//! Snapshots of the queues of a device, as the kernel reported them, and how they are restored.
//!
//! A snapshot is taken before the first change. It fails if something could not be restored later, and then nothing is
//! changed. The kernel's default queues are not recorded: when the root qdisc is removed, the kernel makes them again.

mod hexadecimal;
mod ingress;
mod qdisc_tree;

use serde::{Deserialize, Serialize};

use crate::error::{Difference, Error};
use crate::netlink::link::Link;
use crate::netlink::socket::Socket;
use crate::observe::{self, Entries, Observed};

pub use ingress::IngressState;
pub(crate) use ingress::set_redirect;
pub use qdisc_tree::QdiscTree;

/// The state of the directions that a change touches; `None` is a direction it does not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The queues of the device.
    pub egress: Option<QdiscTree>,
    /// The handling of arriving packets.
    pub ingress: Option<IngressState>,
}

impl Snapshot {
    /// Takes a snapshot of the directions asked for. Fails if something there could not be restored.
    pub(crate) fn take(
        socket: &mut Socket,
        observed: &Observed,
        ifb: &str,
        egress: bool,
        ingress: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            egress: if egress {
                Some(QdiscTree::of(socket, &observed.device)?)
            } else {
                None
            },
            ingress: if ingress {
                Some(IngressState::of(socket, observed, ifb)?)
            } else {
                None
            },
        })
    }

    /// Restores the snapshot, and compares the result with it. If one direction fails, the other is restored all the same, and
    /// the first error is returned.
    pub(crate) fn restore(&self, socket: &mut Socket, interface: &str, ifb: &str) -> Result<(), Error> {
        let (link, entries) = observe::entries_of(socket, interface)?;
        self.restore_from(socket, &link, &entries, ifb)
    }

    /// Like [`Self::restore`], from entries that were just read.
    pub(crate) fn restore_from(
        &self,
        socket: &mut Socket,
        link: &Link,
        entries: &Entries,
        ifb: &str,
    ) -> Result<(), Error> {
        let interface = &link.name;
        let ingress = self
            .ingress
            .as_ref()
            .map_or(Ok(()), |ingress| ingress.restore_from(socket, link, entries, ifb));
        let queues = self
            .egress
            .as_ref()
            .map_or(Ok(()), |queues| queues.restore_from(socket, link, entries));
        ingress.and(queues)?;
        let observed = Observed::queues(socket, interface, ifb)?;
        let now = Self::take(
            socket,
            &observed,
            ifb,
            self.egress.is_some(),
            self.ingress.is_some(),
        )?;
        let is_ingress_restored = match (&self.ingress, &now.ingress) {
            (Some(before), Some(now)) => before.is_restored_by(now),
            (before, now) => before == now,
        };
        if now.egress == self.egress && is_ingress_restored {
            return Ok(());
        }
        let difference = Difference {
            at: interface.clone(),
            planned: format!("as before: {}", self.words()),
            found: now.words(),
        };
        Err(Error::Differs {
            interface: interface.clone(),
            differences: vec![difference],
        })
    }

    fn words(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records outlive the program that has written them: a newer one reads them when it stops shaping.
    #[test]
    fn the_stored_form_stays_the_same() {
        let text = concat!(
            r#"{"egress":{"qdiscs":[{"handle":65536,"parent":4294967295,"kind":"tbf","options":"00ff07","stab":""}],"#,
            r#""classes":[],"filters":[{"preference":1,"protocol":8,"parent":65536,"handle":2,"kind":"fw","options":""}]},"#,
            r#""ingress":{"hook":{"kind":"ingress","redirect":{"preference":10,"target":"ifb4eth0"}},"#,
            r#""ifb":{"up":true,"queues":{"qdiscs":[],"classes":[],"filters":[]}}}}"#
        );
        let snapshot: Snapshot = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&snapshot).unwrap(), text);
        assert!(serde_json::from_str::<Snapshot>(&text.replace("00ff07", "00ff0")).is_err());
    }
}
