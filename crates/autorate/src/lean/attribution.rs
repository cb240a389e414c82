//! Which direction a longer round trip is attributed to, while both are busy and neither is measured by itself.
//!
//! Two observations tell the directions apart. While the line holds a queue of the download, less arrives than our shaper lets
//! pass. And a direction whose rate is well below its recent traffic is unlikely to have caused a queue.

use sqm_core::direction::PerDirection;

use super::params::Params;

/// The evidence about one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// There is, or was a moment ago, enough traffic for a queue.
    pub(super) is_busy: bool,
    /// The rate by the highest recent traffic.
    pub(super) rate_by_highest: f64,
}

/// The share of a longer round trip that each direction answers for, 0 to 1. Both answer for all of it if they are equally
/// suspect.
///
/// `deficit` is the share of what the download is allowed that does not arrive, and `queue_by_rtt` the queue delay by the round
/// trip without a queue.
pub(super) fn shares(
    params: &Params,
    evidence: PerDirection<Evidence>,
    deficit: f64,
    queue_by_rtt: f64,
) -> PerDirection<f64> {
    let whole = |is_ours| if is_ours { 1.0 } else { 0.0 };
    match (evidence.download.is_busy, evidence.upload.is_busy) {
        (true, true) => {}
        (false, false) => return PerDirection::from_fn(|_| 1.0),
        (download, upload) => {
            return PerDirection {
                download: whole(download),
                upload: whole(upload),
            };
        }
    }
    let near_capacity = |evidence: Evidence| {
        let beyond = (evidence.rate_by_highest - params.below_highest) / params.below_highest_span;
        beyond.clamp(params.suspicion_min, 1.0)
    };
    let line_limits = line_limits(params, deficit, queue_by_rtt);
    let download = (line_limits + params.download_suspicion) * near_capacity(evidence.download);
    let upload = (1.0 - params.acquittal * line_limits) * near_capacity(evidence.upload);
    let share = |suspicion: f64| (2.0 * suspicion / (upload + download)).min(1.0);
    PerDirection {
        download: share(download),
        upload: share(upload),
    }
}

/// How certain it is that the line holds the download back, 0 to 1. If the capacity has dropped to what arrives, the senders have
/// gone on for a round trip, and the excess is in the queue. If the queue is shorter than that, the senders have stopped instead,
/// because no acknowledgements reach them.
fn line_limits(params: &Params, deficit: f64, queue_by_rtt: f64) -> f64 {
    let is_short = ((deficit - params.deficit) / params.deficit_span).clamp(0.0, 1.0);
    let excess = deficit / (1.0 - deficit).max(0.01);
    is_short * (params.excess_factor * queue_by_rtt / excess.max(0.01)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_of(download: f64, upload: f64, deficit: f64, queue_by_rtt: f64) -> PerDirection<f64> {
        let evidence = |rate_by_highest| Evidence {
            is_busy: true,
            rate_by_highest,
        };
        let evidence = PerDirection {
            download: evidence(download),
            upload: evidence(upload),
        };
        shares(&Params::default(), evidence, deficit, queue_by_rtt)
    }

    #[test]
    fn a_download_that_arrives_short_of_its_rate_answers_for_the_queue() {
        let shares = shares_of(1.0, 1.0, 0.3, 1.0);
        assert!(shares.download >= 1.0 && shares.upload < 0.5, "{shares:?}");
    }

    /// The senders of the download wait for acknowledgements, which wait in the upload's queue.
    #[test]
    fn a_short_queue_does_not_explain_a_large_deficit_of_the_download() {
        let shares = shares_of(1.0, 1.0, 0.9, 0.2);
        assert!(shares.upload >= 1.0 && shares.download < 1.0, "{shares:?}");
    }

    #[test]
    fn a_direction_well_below_its_recent_traffic_is_hardly_suspect() {
        let near = shares_of(1.0, 1.0, 0.0, 1.0);
        assert!(near.upload > near.download, "{near:?}");
        let upload = shares_of(1.0, 0.5, 0.0, 1.0);
        assert!(upload.upload < 0.5 && upload.download >= 1.0, "{upload:?}");
        let download = shares_of(0.5, 1.0, 0.3, 1.0);
        assert!(download.download < 0.5 && download.upload >= 1.0, "{download:?}");
    }

    #[test]
    fn a_direction_alone_answers_for_all() {
        let evidence = |is_busy| Evidence {
            is_busy,
            rate_by_highest: 1.0,
        };
        let alone = PerDirection {
            download: evidence(false),
            upload: evidence(true),
        };
        let shares = shares(&Params::default(), alone, 0.9, 1.0);
        assert!(shares.download <= 0.0 && shares.upload >= 1.0, "{shares:?}");
    }
}
