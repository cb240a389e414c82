//! Every change from one configuration of a setup script to another.

use crate::lab::setups::reach_each_other;

#[test]
fn every_configuration_of_a_setup_script_is_reached_from_every_other() {
    reach_each_other(1);
}
