//! `best_of_cake.qos`: CAKE as its authors and users advise it, each direction in its own way.
//!
//! * Four tins, so that calls and games pass downloads, and backups wait, if packets say what they are.
//! * Hosts of the home get equal shares, whatever number of flows each has: upload by source, download by destination,
//!   looked up before NAT. On a device that faces the home there is no NAT to look through.
//! * The download counts dropped packets against its rate (`ingress`), because they have crossed the line already.
//! * The upload of a line at least ten times as fast downwards drops acknowledgements that later ones make redundant.
//! * The DSCP of packets stays as it is.

use sqm_core::spec::ParseError;

use super::{Line, cake_tree};
use crate::plan::Tree;
use crate::settings::{Facing, Script, Settings};

/// From this ratio of download to upload on, acknowledgements fill so much of the upload that thinning them pays.
const ASYMMETRIC: u64 = 10;

/// The queues of one direction.
pub fn tree(line: Line<'_>) -> Result<Tree, ParseError> {
    let Settings {
        facing,
        squash_dscp,
        squash_ingress,
        ..
    } = line.settings;
    let mut words = vec!["diffserv4"];
    if *facing == Facing::Internet {
        words.push("nat");
    }
    if line.is_download() {
        words.extend(["dual-dsthost", "ingress"]);
        if *squash_ingress == Some(true) {
            words.push("besteffort");
        }
        if *squash_dscp == Some(true) {
            words.push("wash");
        }
    } else {
        words.push("dual-srchost");
        if is_asymmetric(line) {
            words.push("ack-filter");
        }
    }
    cake_tree(line, &words.join(" "))
}

/// Why acknowledgements are thinned.
pub(super) fn note(line: Line<'_>) -> Option<String> {
    let says_otherwise = line
        .direction()
        .cake
        .iter()
        .any(|option| option.words.contains("ack-filter"));
    let thins = line.direction().script == Script::BestOfCake
        && !line.is_download()
        && !says_otherwise
        && is_asymmetric(line);
    thins.then(|| "ack-filter, because the download is at least ten times the upload".to_owned())
}

fn is_asymmetric(line: Line<'_>) -> bool {
    let Settings { egress, ingress, .. } = line.settings;
    let (upload, download) = match line.settings.facing {
        Facing::Internet => (egress.rate, ingress.rate),
        Facing::Lan => (ingress.rate, egress.rate),
    };
    match (upload, download) {
        (Some(upload), Some(download)) => {
            download.bits_per_sec() >= upload.bits_per_sec().saturating_mul(ASYMMETRIC)
        }
        _ => false,
    }
}
