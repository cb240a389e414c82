//! Which direction a longer round trip is attributed to, while both are busy and neither is measured by itself.
//!
//! Two observations tell the directions apart. While the line holds a queue of the download, less arrives than our shaper lets
//! pass. And a direction that sends well below the capacity that it last had is unlikely to have caused a queue.

use sqm_core::direction::PerDirection;

use super::params::Params;

/// The evidence about one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// There is, or was a moment ago, enough traffic for a queue.
    pub(super) is_busy: bool,
    /// The rate by the reference capacity.
    pub(super) rate_by_reference: f64,
}

/// The share of a longer round trip that each direction answers for, 0 to 1. Both answer for all of it if they are equally
/// suspect.
///
/// `deficit` is the share of what the download is allowed that does not arrive.
pub(super) fn shares(params: &Params, evidence: PerDirection<Evidence>, deficit: f64) -> PerDirection<f64> {
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
    let line_limits = ((deficit - params.deficit) / params.deficit_span).clamp(0.0, 1.0);
    let near_capacity = |evidence: Evidence| {
        let beyond = (evidence.rate_by_reference - params.below_reference) / params.below_reference_span;
        beyond.clamp(params.suspicion_min, 1.0)
    };
    let upload = (1.0 - line_limits) * near_capacity(evidence.upload);
    let download = line_limits + params.download_suspicion * near_capacity(evidence.download);
    let share = |suspicion: f64| (2.0 * suspicion / (upload + download)).min(1.0);
    PerDirection {
        download: share(download),
        upload: share(upload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_of(download: f64, upload: f64, deficit: f64) -> PerDirection<f64> {
        let evidence = |rate_by_reference| Evidence {
            is_busy: true,
            rate_by_reference,
        };
        let evidence = PerDirection {
            download: evidence(download),
            upload: evidence(upload),
        };
        shares(&Params::default(), evidence, deficit)
    }

    #[test]
    fn a_download_that_arrives_short_of_its_rate_answers_for_the_queue() {
        let shares = shares_of(1.0, 1.0, 0.3);
        assert!(shares.download >= 1.0 && shares.upload <= 0.0, "{shares:?}");
    }

    #[test]
    fn an_upload_well_below_its_capacity_is_hardly_suspect() {
        let near = shares_of(1.0, 1.0, 0.0);
        let below = shares_of(1.0, 0.7, 0.0);
        assert!(near.upload > near.download, "{near:?}");
        assert!(below.upload < 0.5 && below.download >= 1.0, "{below:?}");
    }

    #[test]
    fn a_direction_alone_answers_for_all() {
        let evidence = |is_busy| Evidence {
            is_busy,
            rate_by_reference: 1.0,
        };
        let alone = PerDirection {
            download: evidence(false),
            upload: evidence(true),
        };
        let shares = shares(&Params::default(), alone, 0.9);
        assert!(shares.download <= 0.0 && shares.upload >= 1.0, "{shares:?}");
    }
}
