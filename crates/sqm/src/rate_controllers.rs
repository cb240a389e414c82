//! Rates that a controller beside the daemon moves. They are no differences from the configuration, but they are named.

use std::path::Path;

use sqm_api::client;
use sqm_api::status::{RateController, Status};
use sqm_core::units::Rate;
use sqm_kernel::Difference;
use sqm_kernel::other_rates::{OtherRate, OtherRates};
use sqm_kernel::verify::{Comparison, compare};
use sqm_plan::plan::Plan;

/// The rate controllers that the daemon has recognised, each with its interface.
#[derive(Default)]
pub(crate) struct RateControllers(Vec<(String, RateController)>);

impl RateControllers {
    /// Asks the daemon. Without one, no controller is known.
    pub(crate) fn of_daemon(state_dir: &Path) -> Self {
        let status = client::wait(client::in_folder(state_dir).status_without_queues());
        status.as_ref().map(Self::of).unwrap_or_default()
    }

    pub(crate) fn of(status: &Status) -> Self {
        let interfaces = status.interfaces.iter();
        let with_controller = interfaces.filter_map(|interface| {
            let controller = interface.rate_controller.clone()?;
            Some((interface.interface.clone(), controller))
        });
        Self(with_controller.collect())
    }

    /// The differences without the rates of a controller, and a sentence about these rates if there are any.
    pub(crate) fn set_apart(&self, plan: &Plan, found: &Comparison) -> (Vec<Difference>, Option<String>) {
        let mut controllers = self.0.iter();
        let controller = controllers.find(|(interface, _)| *interface == plan.interface);
        let rates = OtherRates::find(plan, &found.observed);
        let Some((_, controller)) = controller.filter(|_| !rates.is_empty()) else {
            return (found.differences.clone(), None);
        };
        let differences = compare(&rates.kept(plan), &found.observed);
        (differences, Some(sentence(plan, &rates, controller)))
    }
}

fn sentence(plan: &Plan, rates: &OtherRates, controller: &RateController) -> String {
    let at = |device: &str, other: &Option<OtherRate>| {
        let rate = other.as_ref()?.rates.first()?;
        let rate = rate.map_or_else(|| "no limit".to_owned(), |rate: Rate| rate.to_string());
        Some(format!("{device} at {rate}"))
    };
    let rates = [
        at(&plan.interface, &rates.egress),
        at(&plan.ifb(), &rates.ingress),
    ];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    format!(
        "{}: another program, a rate controller, moves the rates, and the daemon leaves them to it: {}; the last change was {:.0} s ago",
        plan.interface,
        rates.join(", "),
        controller.silent_for_seconds
    )
}
