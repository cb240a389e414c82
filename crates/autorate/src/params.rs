//! The parameters of the controller. Each was chosen on the bench of `sqm-sim`, on recorded and modelled lines together.

/// All parameters. Times are in seconds unless a name says otherwise, ratios are of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Queue delay of one direction at the line to aim at, milliseconds above noise and a packet. It is below the target of CoDel (RFC
    /// 8289 section 4.3), because the shaper's own queue adds to it.
    pub target_ms: f64,
    /// Queue delay of both directions together to aim at, where only round trips are known: a little more than CoDel's target.
    pub target_both_ms: f64,
    /// A queue above the target is to drain within this time, milliseconds.
    pub drain_ms: f64,
    /// The lowest rate by the capacity during a cut, download. Its queue drains as its senders slow down, and a queue in our own
    /// shaper would delay that.
    pub least_download: f64,
    /// The lowest rate by the capacity during a cut, upload.
    pub least_upload: f64,
    /// Time constant with which the cruise rate follows the capacity while there is a queue, on a line that does not vary…
    pub follow: f64,
    /// …and by how much longer it is for each unit of variability: a short dip must not lower the cruise rate of a line that dips
    /// again and again.
    pub follow_by_variability: f64,
    /// Growth at a known capacity, per second…
    pub growth: f64,
    /// …and by how much faster it is for each unit of variability…
    pub growth_by_variability: f64,
    /// …and for each unit of distance from the nearest known capacity, below it or beyond it, as in CUBIC (RFC 9438 section 4.1).
    pub growth_by_distance: f64,
    /// The fastest growth, per second.
    pub growth_max: f64,
    /// Noise of a delay estimate by the distance between the two medians of the samples.
    pub noise: f64,
    /// A direction whose traffic is this share of its rate, or of its highest recent traffic, can have a queue.
    pub busy: f64,
    /// A queue above this is long, milliseconds: half of what cake-autorate counts as delayed.
    pub long_queue_ms: f64,
    /// Time constant with which the highest recent traffic is forgotten.
    pub highest_time: f64,
    /// How long a direction may explore before it is the other one's turn.
    pub turn: f64,
    /// While the other direction explores, the rate by the reference capacity, on a line that does not vary…
    pub wait_at: f64,
    /// …and by how much it is higher for each unit of variability. From one on, a direction does not wait.
    pub wait_at_by_variability: f64,
    /// A queue that is longer than this, milliseconds, did not come from exploring.
    pub sudden_ms: f64,
    /// A rate below this share of the capacity at the beginning of the cut is a deep cut…
    pub deep_at: f64,
    /// …and one that has not changed the queue by this share…
    pub effect: f64,
    /// …for this long, milliseconds, beyond the time that samples need, has no effect.
    pub no_effect_for_ms: f64,
    /// On a path with a high round trip, a rate below this share of the capacity or of the recent traffic…
    pub regrow_to: f64,
    /// …grows with this share of the growth on other paths.
    pub regrow: f64,
    /// Growth on a path with a high round trip, by that on other paths.
    pub high_rtt_growth: f64,
    /// The share of its rate that a download may use on a path with a high round trip until its senders have left slow start: what
    /// they send until they learn of our drops doubles in a round trip…
    pub slow_start_share: f64,
    /// …and for how many round trips that takes.
    pub slow_start_rounds: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target_ms: 1.5,
            target_both_ms: 6.5,
            drain_ms: 100.0,
            least_download: 0.7,
            least_upload: 0.3,
            follow: 0.15,
            follow_by_variability: 1.5,
            growth: 0.05,
            growth_by_variability: 0.25,
            growth_by_distance: 1.5,
            growth_max: 1.0,
            noise: 1.5,
            busy: 0.4,
            long_queue_ms: 15.0,
            highest_time: 40.0,
            turn: 4.0,
            wait_at: 0.95,
            wait_at_by_variability: 0.4,
            sudden_ms: 250.0,
            deep_at: 0.75,
            effect: 0.1,
            no_effect_for_ms: 300.0,
            regrow_to: 0.8,
            regrow: 0.03,
            high_rtt_growth: 0.0025,
            slow_start_share: 0.65,
            slow_start_rounds: 8.0,
        }
    }
}
