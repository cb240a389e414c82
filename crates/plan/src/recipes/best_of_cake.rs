//! `best_of_cake.qos`: CAKE as its authors and users advise it, each direction in its own way.
//!
//! * Four tins, so that calls and games pass downloads, and backups wait, if packets say what they are.
//! * Hosts of the home get equal shares, whatever number of flows each has: upload by source, download by destination,
//!   looked up before NAT. On a device that faces the home there is no NAT to look through.
//! * The download counts dropped packets against its rate (`ingress`), because they have crossed the line already.
//! * The upload of a line at least nine times as fast downwards drops acknowledgements that later ones make redundant.
//! * On a slow line CoDel is more patient than CAKE's 5 ms, so that one flow fills the half that is its host's.
//! * The DSCP of packets stays as it is.

use sqm_core::spec::cake::{AckFilter, Cake, Isolation, Tins};
use sqm_core::spec::{ParseError, Qdisc};
use sqm_core::units::{Nanos, Rate};

use super::cake_tree;
use crate::plan::Tree;
use crate::settings::{Facing, Script, Settings};
use crate::side::DirectionContext;

/// From this ratio of download to upload on, acknowledgements fill a large part of the upload, and thinning them pays. A line sold as ten
/// to one is above it with either rate a little lower, too.
const ASYMMETRIC: u64 = 9;

/// The queues of one direction.
pub fn tree(context: DirectionContext<'_>) -> Result<Tree, ParseError> {
    let Settings {
        facing,
        squash_dscp,
        squash_ingress,
        ..
    } = context.settings;
    let cake = Cake {
        tins: Tins::Diffserv4,
        rtt: rtt(context),
        nat: *facing == Facing::Internet,
        ..Cake::default()
    };
    let cake = if context.is_download() {
        Cake {
            isolation: Isolation::DualDsthost,
            ingress: true,
            tins: match squash_ingress {
                Some(true) => Tins::Besteffort,
                _ => cake.tins,
            },
            wash: *squash_dscp == Some(true),
            ..cake
        }
    } else {
        Cake {
            isolation: Isolation::DualSrchost,
            ack_filter: match is_asymmetric(context) {
                true => AckFilter::Filter,
                false => AckFilter::Off,
            },
            ..cake
        }
    };
    cake_tree(context, cake)
}

/// CAKE's `rtt`, which is twenty times CoDel's target: up to 600 ms on a line of 2.4 to 48 Mbit/s, else CAKE's own 100 ms.
///
/// A flow of CUBIC, which answers a drop by sending three tenths less (RFC 9438), keeps its share of the line full only if
/// its own queue held more than that. Where few packets take 5 ms it does not, and the flows of other hosts take what it
/// leaves: a host with one flow against one with eight got 36 to 44 % of 4.4 Mbit/s, and gets half of it with this. The
/// price is that flow's own delay; others have queues of their own (docs/design/best-of-cake.md). Where `autorate` follows a line that
/// varies, flows must give way soon: with this, what a fall of the line's rate leaves in its buffer stays a quarter longer.
fn rtt(context: DirectionContext<'_>) -> Nanos {
    /// The shortest target, in full packets.
    const PATIENCE: u64 = 20;
    /// The longest target, microseconds: three sevenths of a round trip of 70 ms.
    const LONGEST: u64 = 30_000;
    /// Where a packet takes so long, microseconds, CAKE lets as many wait as are needed, whatever its target is: four. And
    /// the acknowledgements of a download that leaves nothing free are in everybody's way.
    const SLOW: u64 = 5000;
    const TARGETS: u64 = 20;
    let own = Cake::default().rtt;
    let Settings { egress, ingress, .. } = context.settings;
    let packet_micros = |rate: Rate| 1500 * 8 * 1000 / rate.kbits_per_sec().max(1);
    let is_slow = [egress.rate, ingress.rate]
        .into_iter()
        .flatten()
        .any(|rate| packet_micros(rate) >= SLOW);
    if is_slow || context.settings.autorate.is_some() {
        return own;
    }
    let target_micros = (PATIENCE * packet_micros(context.rate())).min(LONGEST);
    // Whole milliseconds, as one would write it.
    Nanos::from_millis(TARGETS * target_micros / 1000).max(own)
}

/// The choices for this line, with their reasons; none that the user's own words undo.
pub(super) fn notes(context: DirectionContext<'_>) -> Vec<String> {
    let tree = (context.direction().script == Script::BestOfCake)
        .then(|| tree(context).ok())
        .flatten();
    let root = tree.as_ref().and_then(Tree::root);
    let Some(Qdisc::Cake(cake) | Qdisc::CakeMq(cake)) = root.map(|root| &root.qdisc) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    if cake.ack_filter == AckFilter::Filter && !context.is_download() && is_asymmetric(context) {
        notes.push("ack-filter, because the download is at least nine times the upload".to_owned());
    }
    let own = rtt(context);
    if cake.rtt == own && own > Cake::default().rtt {
        notes.push(format!(
            "rtt {own} at {}: with 100 ms a single flow could not use all of its host's share",
            context.rate()
        ));
    }
    notes
}

fn is_asymmetric(context: DirectionContext<'_>) -> bool {
    let Settings { egress, ingress, .. } = context.settings;
    let (upload, download) = match context.settings.facing {
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
