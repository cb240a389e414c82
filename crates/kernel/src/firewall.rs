//! The firewall table of an interface: which rules it holds, and how it is set, removed and restored.

use serde::{Deserialize, Serialize};
use sqm_plan::plan::Firewall;

use crate::error::Error;
use crate::netlink::nftables;
use crate::netlink::socket::Socket;

/// How a start changes the firewall: the table that our record names from before, and the planned one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableChange {
    pub(crate) before: Option<Firewall>,
    pub(crate) after: Option<Firewall>,
}

impl TableChange {
    /// Name of the old table, if the plan does not have it any more.
    pub(crate) fn stale_table(&self) -> Option<&str> {
        let before = &self.before.as_ref()?.table;
        let is_kept = self.after.as_ref().is_some_and(|after| after.table == *before);
        (!is_kept).then_some(before)
    }

    /// Undoes the change: the old table is there again, or there is none.
    pub(crate) fn undo(&self, interface: &str) -> Result<(), Error> {
        match (&self.before, &self.after) {
            (None, None) => Ok(()),
            (Some(before), _) => restore(before),
            (None, Some(after)) => remove(interface, &after.table),
        }
    }
}

/// True if the table holds the planned rules and no others.
pub(crate) fn holds(firewall: &Firewall) -> Result<bool, Error> {
    nftables::holds(&mut socket(&firewall.interface)?, firewall)
        .map_err(Error::firewall(&firewall.interface, "list the firewall rules"))
}

/// Makes the table hold the planned rules, in one transaction of nftables.
pub(crate) fn set(firewall: &Firewall) -> Result<(), Error> {
    nftables::set(&mut socket(&firewall.interface)?, firewall).map_err(Error::firewall(
        &firewall.interface,
        format!("set the firewall table {}", firewall.table),
    ))
}

fn restore(firewall: &Firewall) -> Result<(), Error> {
    if holds(firewall)? {
        return Ok(());
    }
    set(firewall)
}

/// Fails if there is a table of this name: its rules are another program's, and we could not restore them.
pub(crate) fn refuse_foreign_table(interface: &str, table: &str) -> Result<(), Error> {
    let exists = nftables::exists(&mut socket(interface)?, table);
    if exists.map_err(Error::firewall(interface, "list the firewall tables"))? {
        return Err(Error::InTheWay {
            interface: interface.to_owned(),
            what: format!("the firewall table inet {table}"),
            remedy: "Stop the program that made it (sqm-scripts does), or remove it with nft.",
        });
    }
    Ok(())
}

/// Removes the table if there is one.
pub(crate) fn remove(interface: &str, table: &str) -> Result<(), Error> {
    let mut socket = socket(interface)?;
    let operation = || format!("remove the firewall table {table}");
    if nftables::exists(&mut socket, table).map_err(Error::firewall(interface, operation()))? {
        nftables::remove(&mut socket, table).map_err(Error::firewall(interface, operation()))?;
    }
    Ok(())
}

fn socket(interface: &str) -> Result<Socket, Error> {
    Socket::of_firewall().map_err(|error| Error::firewall(interface, "reach the firewall")(error.into()))
}
