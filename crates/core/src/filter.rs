//! Filters: how a packet finds its class by mark, DSCP, addresses or ports.

use alloc::vec::Vec;

use crate::handle::Handle;
use crate::packet::{Addresses, FlowKey, Network, Packet, Tuple, View};

/// One filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The discipline or class where it is asked.
    pub parent: Handle,
    /// Lower ones are asked first.
    pub preference: u32,
    /// The packets it looks at; `None` is all.
    pub network: Option<Network>,
    /// The condition that a packet must meet.
    pub condition: Condition,
    /// Where a packet that fits goes.
    pub class: Handle,
}

/// The condition of a filter; all parts that are given must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Firewall mark.
    pub mark: Option<Masked<u32>>,
    /// The byte of DSCP and ECN.
    pub ds_field: Option<Masked<u8>>,
    /// Protocol above IP: 6 TCP, 17 UDP.
    pub transport: Option<u8>,
    /// Source address under a mask.
    pub source: Option<Masked<Address>>,
    /// Destination address under a mask.
    pub destination: Option<Masked<Address>>,
    /// Source port.
    pub source_port: Option<Masked<u16>>,
    /// Destination port.
    pub destination_port: Option<Masked<u16>>,
}

/// A value, and the bits of it that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masked<T> {
    /// The value of the masked field.
    pub value: T,
    /// The bits that are looked at.
    pub mask: T,
}

/// An address of either family, as a number: IPv4 has 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4.
    V4(u32),
    /// IPv6.
    V6(u128),
}

/// All filters of a discipline, in the order in which they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters(Vec<Filter>);

impl Filters {
    /// Sorted by preference; of equal preference the first comes first.
    pub fn new(mut filters: Vec<Filter>) -> Self {
        filters.sort_by_key(|filter| filter.preference);
        Self(filters)
    }

    /// Where the first filter at `parent` that fits sends the packet.
    #[inline]
    pub(crate) fn class_of<P: Packet>(&self, packet: &P, parent: Handle) -> Option<Handle> {
        if self.0.is_empty() {
            return None;
        }
        let (view, mark) = (packet.view(), packet.mark());
        let fits = |filter: &&Filter| filter.parent == parent && filter.fits(&view, mark);
        self.0.iter().find(fits).map(|filter| filter.class)
    }
}

impl Filter {
    fn fits(&self, view: &View, mark: u32) -> bool {
        let Condition {
            mark: wanted,
            ds_field,
            ..
        } = &self.condition;
        self.network.is_none_or(|network| network == view.network)
            && wanted.is_none_or(|wanted| mark & wanted.mask == wanted.value)
            && ds_field.is_none_or(|wanted| view.ds_field & wanted.mask == wanted.value)
            && self.condition.fits_tuple(&view.key)
    }
}

impl Condition {
    fn fits_tuple(&self, key: &FlowKey) -> bool {
        let Self {
            transport,
            source,
            destination,
            source_port,
            destination_port,
            ..
        } = self;
        if transport.is_none()
            && source.is_none()
            && destination.is_none()
            && source_port.is_none()
            && destination_port.is_none()
        {
            return true;
        }
        // A recorded packet that has only hashes matches no condition on addresses or ports.
        let FlowKey::Tuple(tuple) = key else { return false };
        let Tuple { addresses, .. } = tuple;
        let (from, to) = match *addresses {
            Addresses::V4 { source, destination } => {
                (Address::V4(source.into()), Address::V4(destination.into()))
            }
            Addresses::V6 { source, destination } => {
                (Address::V6(source.into()), Address::V6(destination.into()))
            }
            Addresses::None => return false,
        };
        transport.is_none_or(|wanted| tuple.protocol == wanted)
            && source.is_none_or(|wanted| wanted.fits(from))
            && destination.is_none_or(|wanted| wanted.fits(to))
            && source_port.is_none_or(|wanted| tuple.source_port & wanted.mask == wanted.value)
            && destination_port.is_none_or(|wanted| tuple.destination_port & wanted.mask == wanted.value)
    }
}

impl Masked<Address> {
    fn fits(self, address: Address) -> bool {
        match (address, self.value, self.mask) {
            (Address::V4(bits), Address::V4(value), Address::V4(mask)) => bits & mask == value,
            (Address::V6(bits), Address::V6(value), Address::V6(mask)) => bits & mask == value,
            _ => false,
        }
    }
}
