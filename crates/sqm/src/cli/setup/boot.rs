//! Services that outlive the command: at boot and now, by systemd or procd.

use std::path::Path;

use sqm_process::child;
use sqm_process::failure::Failure;

use super::answers::confirm;
use super::told::Told;

/// The only configuration that the services read.
pub(super) const SERVED_CONFIG: &str = "/etc/config/sqm";
/// The program that runs OpenWrt's scripts of services.
const PROCD: &str = "/etc/rc.common";

/// A service of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// `sqm daemon`.
    Daemon,
    /// `sqm web`.
    #[cfg_attr(
        not(feature = "full"),
        allow(dead_code, reason = "a router has the page in a package of its own")
    )]
    Page,
}

impl Service {
    /// The name of its unit and of its script.
    const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "sqm",
            Self::Page => "sqm-web",
        }
    }

    /// The command that it runs, for systems whose service manager is unknown.
    const fn command(self) -> &'static str {
        match self {
            Self::Daemon => "sqm daemon",
            Self::Page => "sqm web",
        }
    }
}

/// The program that starts services on this system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    Systemd,
    Procd,
}

impl Manager {
    /// The manager that can start this service. `None` if the system has neither.
    pub(super) fn of(service: Service) -> Option<Self> {
        if Path::new(&init(service)).exists() && Path::new(PROCD).exists() {
            return Some(Self::Procd);
        }
        is_on_path("systemctl").then_some(Self::Systemd)
    }

    /// The commands that start a service at boot and now. A service that runs already is restarted first if its options have changed.
    fn commands(self, service: Service, is_changed: bool) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let unit = format!("{}.service", service.name());
        let script = init(service);
        match self {
            Self::Systemd => {
                let restart = is_changed.then(|| words(&["systemctl", "try-restart", &unit]));
                let enable = words(&["systemctl", "enable", "--now", &unit]);
                restart.into_iter().chain([enable]).collect()
            }
            Self::Procd => {
                let start = if is_changed { "restart" } else { "start" };
                vec![words(&[&script, "enable"]), words(&[&script, start])]
            }
        }
    }
}

/// OpenWrt's script of a service.
fn init(service: Service) -> String {
    format!("/etc/init.d/{}", service.name())
}

/// Has the service start at boot, and now. False, with the reason on standard error, if this system cannot.
pub(super) fn enable(service: Service, is_changed: bool, told: Told) -> bool {
    let Some(manager) = Manager::of(service) else {
        errln!(
            "warning: this system has neither systemd nor procd: have it run '{}' at boot by its own means",
            service.command()
        );
        return false;
    };
    for command in manager.commands(service, is_changed) {
        let shown = command.join(" ");
        let Some((program, words)) = command.split_first() else {
            continue;
        };
        match child::foreground(program, words) {
            Ok((status, _)) if status.success() => told.line(format_args!("{shown}: done")),
            Ok((status, _)) => {
                errln!("warning: '{shown}' ended with {status}: is the package of sqm installed?");
                return false;
            }
            Err(error) => {
                errln!("warning: cannot run '{shown}': {error}");
                return false;
            }
        }
    }
    true
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Asks whether the service shall start at boot.
pub(super) fn asks_to_start() -> Result<bool, Failure> {
    confirm("Start at boot?", true, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_service_is_restarted_only_if_its_options_have_changed() {
        let shown = |manager: Manager, is_changed| {
            let commands = manager.commands(Service::Page, is_changed);
            commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(Manager::Systemd, false),
            ["systemctl enable --now sqm-web.service"]
        );
        assert_eq!(
            shown(Manager::Systemd, true),
            [
                "systemctl try-restart sqm-web.service",
                "systemctl enable --now sqm-web.service"
            ]
        );
        assert_eq!(
            shown(Manager::Procd, true),
            ["/etc/init.d/sqm-web enable", "/etc/init.d/sqm-web restart"]
        );
    }
}
