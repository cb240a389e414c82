//! The filter that redirects all arriving packets to another device: `u32` with the action `mirred`.

use super::attribute::{Attributes, Builder, u32_at};
use super::socket::{NetlinkError, Socket};
use super::tc::{NewFilter, PROTOCOL_ALL};

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

/// Kinds of filter that can have actions, and the number of that attribute (`TCA_U32_ACT` and so on).
const ACTIONS: [(&str, u16); 7] = [
    ("basic", 3),
    ("bpf", 1),
    ("cgroup", 1),
    ("flower", 3),
    ("fw", 4),
    ("matchall", 2),
    ("u32", U32_ACT),
];

/// Kind of the filter.
pub const KIND: &str = "u32";
/// Preference of the filter; sqm-scripts has this one, too.
pub const PREFERENCE: u16 = 10;

/// Makes the filter on a device that has a qdisc at the ingress hook; `parent` is that qdisc's parent of filters.
pub(crate) fn create(
    socket: &mut Socket,
    device: u32,
    parent: u32,
    preference: u16,
    target: u32,
) -> Result<(), NetlinkError> {
    let new = NewFilter {
        device,
        parent,
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
    target_of(Attributes(action)).filter(|_| matches_everything)
}

/// The index of the device to which a filter of another program redirects packets, whatever packets it matches and
/// whatever else it does with them; `None` if it does not, or if this kind of filter is unknown.
pub fn decode_any_redirect(kind: &str, bytes: &[u8]) -> Option<u32> {
    let actions = ACTIONS.iter().find(|(known, _)| *known == kind)?.1;
    let mut actions = Attributes(bytes).nested(actions);
    actions.find_map(|(_, action)| target_of(Attributes(action)))
}

/// The device to which an action redirects packets.
fn target_of(action: Attributes<'_>) -> Option<u32> {
    let mirred = action.nested(ACT_OPTIONS).get(MIRRED_PARMS)?;
    let redirects = action.text(ACT_KIND)? == "mirred"
        && u32_at(mirred, 8)? == STOLEN
        && u32_at(mirred, 20)? == EGRESS_REDIRECT;
    redirects.then(|| u32_at(mirred, 24))?
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

    #[test]
    fn a_redirect_is_found_behind_a_narrower_match_and_in_other_kinds_of_filter() {
        let mut narrower = encode(7);
        let mask_at = narrower.len() - KEY;
        narrower[mask_at] = 1;
        assert_eq!(decode_any_redirect("u32", &narrower), Some(7));
        let actions = Attributes(&encode(9)).get(U32_ACT).unwrap().to_vec();
        let matchall = Builder::default().bytes(2, &actions).finish();
        assert_eq!(decode_any_redirect("matchall", &matchall), Some(9));
        assert_eq!(decode_any_redirect("flower", &matchall), None);
        assert_eq!(decode_any_redirect("unknown", &matchall), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode_any_redirect("matchall", &bytes);
            let _ = decode_redirect(&bytes);
        }
    }
}
