//! Names of options that sqm does not have: the option that was probably meant.

use sqm_core::nearest::nearest;

use super::{OF_SQM_SCRIPTS, all};

/// Names that other programs use, or that people expect, and the option here.
const OTHER_NAMES: [(&str, &str); 42] = [
    ("mpu", "tcMPU"),
    ("mtu", "tcMTU"),
    ("tsize", "tcTSIZE"),
    ("llam", "linklayer_adaptation_mechanism"),
    ("device", "interface"),
    ("ifname", "interface"),
    ("iface", "interface"),
    ("downlink", "download"),
    ("uplink", "upload"),
    ("diffserv", "cake_tins"),
    ("tins", "cake_tins"),
    ("rtt", "cake_rtt"),
    ("nat", "cake_nat"),
    ("wash", "cake_wash"),
    ("ack_filter", "cake_ack_filter"),
    ("isolation", "cake_isolation"),
    ("host_isolation", "cake_isolation"),
    ("split_gso", "cake_split_gso"),
    ("memlimit", "cake_memlimit"),
    ("fwmark", "cake_fwmark"),
    ("autorate_ingress", "cake_autorate_ingress"),
    ("ingress_cake_options", "iqdisc_opts"),
    ("egress_cake_options", "eqdisc_opts"),
    ("ingress_cake_opts", "iqdisc_opts"),
    ("egress_cake_opts", "eqdisc_opts"),
    // cake-autorate.
    ("adjust_dl_shaper_rate", "autorate"),
    ("adjust_ul_shaper_rate", "autorate"),
    ("min_dl_shaper_rate_kbps", "min_download"),
    ("base_dl_shaper_rate_kbps", "download"),
    ("max_dl_shaper_rate_kbps", "max_download"),
    ("min_ul_shaper_rate_kbps", "min_upload"),
    ("base_ul_shaper_rate_kbps", "upload"),
    ("max_ul_shaper_rate_kbps", "max_upload"),
    ("reflectors", "autorate_reflectors"),
    // sqm-autorate.
    ("download_interface", "interface"),
    ("upload_interface", "interface"),
    ("download_min_kbits", "min_download"),
    ("upload_min_kbits", "min_upload"),
    ("download_base_kbits", "download"),
    ("upload_base_kbits", "upload"),
    ("download_kbps", "download"),
    ("upload_kbps", "upload"),
];

/// The option that was probably meant by a name that is none: one with another name elsewhere, or a misspelt one.
///
/// If several names are equally near, the answer is the first of them, and those of sqm-scripts come first. The options that CAKE
/// has for one direction are not among them: their names are near to each other.
pub(crate) fn meant(name: &str) -> Option<&'static str> {
    let mut others = OTHER_NAMES.iter();
    if let Some((_, option)) = others.find(|(other, _)| other.eq_ignore_ascii_case(name)) {
        return Some(option);
    }
    let names = OF_SQM_SCRIPTS
        .into_iter()
        .chain(all())
        .filter(|option| option.side.is_none() || !option.is_of_cake)
        .map(|option| option.name);
    nearest(name, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::find;

    #[test]
    fn other_names_lead_to_options_that_exist() {
        for (other, option) in OTHER_NAMES {
            assert!(
                find(other).is_none() && find(option).is_some(),
                "{other} {option}"
            );
        }
    }

    #[test]
    fn the_option_that_was_meant_is_found() {
        for (name, option) in [
            ("mpu", Some("tcMPU")),
            ("TSIZE", Some("tcTSIZE")),
            (
                "linklayer_adapt_mechanism",
                Some("linklayer_adaptation_mechanism"),
            ),
            ("auto_rate", Some("autorate")),
            ("uplaod", Some("upload")),
            ("overhed", Some("overhead")),
            ("cake_rt", Some("cake_rtt")),
            ("egress_enc", Some("egress_ecn")),
            ("delay_thr_ms", None),
            ("no_pingers", None),
        ] {
            assert_eq!(meant(name), option, "{name}");
        }
    }
}
