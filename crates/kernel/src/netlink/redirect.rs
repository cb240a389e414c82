//! The filter that redirects all arriving packets to another device: `u32` with the action `mirred`.

use super::attribute::{Attributes, Builder, u32_at};
use super::socket::{NetlinkError, Socket};
use super::tc::{INGRESS_HANDLE, NewFilter, PROTOCOL_ALL};

const U32_CLASSID: u16 = 1;
const U32_SEL: u16 = 5;
const U32_ACT: u16 = 7;
const ACT_KIND: u16 = 1;
const ACT_OPTIONS: u16 = 2;
const MIRRED_PARMS: u16 = 2;

/// `flowid 1:1`. A terminal filter needs a class, though the ingress qdisc has none.
const CLASSID: u32 = 0x1_0001;
/// `TC_U32_TERMINAL`: no further filters are tried.
const TERMINAL: u8 = 1;
/// `TC_ACT_STOLEN`: the action has taken the packet.
const STOLEN: u32 = 4;
/// `TCA_EGRESS_REDIR`: the other device transmits the packet.
const EGRESS_REDIRECT: u32 = 1;
/// Length of `struct tc_u32_sel` before its keys.
const SELECTOR: usize = 16;
/// Length of `struct tc_u32_key`.
const KEY: usize = 16;

/// Kind of the filter.
pub const KIND: &str = "u32";
/// Preference of the filter; sqm-scripts has this one, too.
pub const PREFERENCE: u16 = 10;

/// Makes the filter on a device that has an `ingress` qdisc.
pub(crate) fn create(
    socket: &mut Socket,
    device: u32,
    preference: u16,
    target: u32,
) -> Result<(), NetlinkError> {
    let new = NewFilter {
        device,
        parent: INGRESS_HANDLE,
        preference,
        protocol: PROTOCOL_ALL,
        handle: 0,
        kind: KIND,
        options: &encode(target),
    };
    new.create(socket)
}

/// Encodes the options of the filter that redirects all packets to the device with this index.
pub fn encode(target: u32) -> Vec<u8> {
    let mut selector = [0; SELECTOR + KEY];
    selector[0] = TERMINAL;
    // One key whose mask is 0 matches everything.
    selector[2] = 1;
    // struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex.
    let mut mirred = Vec::with_capacity(28);
    for word in [0, 0, STOLEN, 0, 0, EGRESS_REDIRECT, target] {
        mirred.extend_from_slice(&word.to_ne_bytes());
    }
    let action = Builder::default()
        .text(ACT_KIND, "mirred")
        .nested(ACT_OPTIONS, Builder::default().bytes(MIRRED_PARMS, &mirred));
    Builder::default()
        .u32(U32_CLASSID, CLASSID)
        .nested(U32_ACT, Builder::default().nested(1, action))
        .bytes(U32_SEL, &selector)
        .finish()
}

/// Decodes the index of the device to which all packets are redirected; `None` if the filter does anything else, or more.
pub fn decode_redirect(bytes: &[u8]) -> Option<u32> {
    let options = Attributes(bytes);
    let selector = options.get(U32_SEL)?;
    let matches_everything = selector.len() == SELECTOR + KEY
        && selector[2] == 1
        && u32_at(selector, SELECTOR)? == 0
        && u32_at(selector, SELECTOR + 4)? == 0;
    let mut actions = options.nested(U32_ACT);
    let (Some((_, action)), None) = (actions.next(), actions.next()) else {
        return None;
    };
    let action = Attributes(action);
    let mirred = action.nested(ACT_OPTIONS).get(MIRRED_PARMS)?;
    let redirects = action.text(ACT_KIND)? == "mirred"
        && u32_at(mirred, 8)? == STOLEN
        && u32_at(mirred, 20)? == EGRESS_REDIRECT;
    (matches_everything && redirects).then(|| u32_at(mirred, 24))?
}

/// True if these are options of a filter. The kernel also lists the hash tables that hold filters.
pub fn is_filter(bytes: &[u8]) -> bool {
    Attributes(bytes).get(U32_SEL).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn target_reads_back() {
        assert_eq!(decode_redirect(&encode(7)), Some(7));
    }

    #[test]
    fn a_filter_with_a_narrower_match_is_not_ours() {
        let mut options = encode(7);
        // The selector is the last attribute and ends with its key, which begins with the mask.
        let mask_at = options.len() - KEY;
        options[mask_at] = 1;
        assert_eq!(decode_redirect(&options), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode_redirect(&bytes);
        }
    }
}
