//! The filters of a text as filters of a plan.

use sqm_core::filter::{Condition as Fields, Masked};
use sqm_core::packet::Network;
use sqm_core::spec::command::FilterNode;

use crate::plan::{Condition, Protocol};

/// The packets and the condition of a plan's filter, or why a plan has no such filter.
pub(super) fn of(node: &FilterNode) -> Result<(Protocol, Condition), &'static str> {
    let protocol = match node.network {
        None => Protocol::All,
        Some(Network::Ipv4) => Protocol::Ip,
        Some(Network::Ipv6) => Protocol::Ipv6,
        Some(Network::Arp) => Protocol::Arp,
        Some(Network::Other) => return Err("it is for packets that are neither IP nor ARP"),
    };
    let condition = condition(&node.condition)?;
    let is_of_ip = matches!(protocol, Protocol::Ip | Protocol::Ipv6);
    match condition {
        Condition::Always | Condition::Mark { .. } => {}
        _ if is_of_ip => {}
        _ => return Err("it compares header fields, which needs 'protocol ip' or 'protocol ipv6'"),
    }
    Ok((protocol, condition))
}

fn condition(fields: &Fields) -> Result<Condition, &'static str> {
    const DSCP: u8 = 0xfc;
    const WELL_KNOWN: Masked<u16> = Masked {
        value: 0,
        mask: 0xfc00,
    };
    if let Some(Masked { value, mask }) = fields.mark {
        let only = Fields {
            mark: fields.mark,
            ..Fields::default()
        };
        return match *fields == only {
            true => Ok(Condition::Mark { value, mask }),
            false => Err("it compares a mark and header fields: write one filter for each"),
        };
    }
    if *fields == Fields::default() {
        return Ok(Condition::Always);
    }
    if let Some(Masked { value, mask: DSCP }) = fields.ds_field
        && *fields
            == (Fields {
                ds_field: fields.ds_field,
                ..Fields::default()
            })
    {
        return Ok(Condition::Dscp(value >> 2));
    }
    if let Some(transport) = fields.transport {
        for destination in [true, false] {
            let ports = [Some(WELL_KNOWN), None];
            let [destination_port, source_port] = match destination {
                true => ports,
                false => [ports[1], ports[0]],
            };
            let well_known = Fields {
                transport: Some(transport),
                source_port,
                destination_port,
                ..Fields::default()
            };
            if *fields == well_known {
                return Ok(Condition::WellKnownPort {
                    transport,
                    destination,
                });
            }
        }
    }
    Ok(Condition::Fields(*fields))
}
