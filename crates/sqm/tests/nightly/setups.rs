//! Every change from one configuration of a set-up to another.

use crate::lab::setups::reach_each_other;

#[test]
fn every_configuration_of_a_set_up_is_reached_from_every_other() {
    reach_each_other(1);
}
