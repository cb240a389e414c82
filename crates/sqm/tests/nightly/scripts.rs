//! Configurations of sqm-scripts, drawn at random from all of its options.

use crate::lab::drawn::Draw;
use crate::lab::scripts::require_equal;

#[test]
fn drawn_configurations_build_what_sqm_scripts_builds() {
    for seed in [2, 3, 4] {
        let mut draw = Draw::seeded(seed);
        let configurations: Vec<String> = std::iter::repeat_with(|| draw.configuration())
            .take(200)
            .collect();
        require_equal(&configurations);
    }
}
