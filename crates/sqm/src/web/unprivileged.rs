//! Giving up every privilege, though started by root: what a browser makes this process do must not be able to touch the
//! network, nor anybody's files.

use anyhow::Context;
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// For this process and all its children, for good. To be called before there are threads.
pub(super) fn become_unprivileged() -> anyhow::Result<()> {
    set_no_new_privs(true).context("cannot give up privileges")?;
    for capability in CapabilitySet::all().iter() {
        // Only who may change the set has anything to take out of it.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).context("cannot give up privileges")
}
