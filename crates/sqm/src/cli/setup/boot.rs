//! The start at boot, and the page in a browser: they outlive the command.

use std::path::Path;

use sqm_kernel::netlink::link::Link;
use sqm_process::child::{self, PROGRAM};
use sqm_process::failure::Failure;

use super::answers::confirm;

/// The only configuration that the services read.
pub(super) const SERVED_CONFIG: &str = "/etc/config/sqm";
/// OpenWrt's script of the service, and the program that runs such scripts.
const INIT: &str = "/etc/init.d/sqm";
const PROCD: &str = "/etc/rc.common";

/// Has the service start at boot, and now. False, with the reason on standard error, if this system cannot.
pub(super) fn enable() -> bool {
    let commands: &[(&str, &[&str])] = if Path::new(INIT).exists() && Path::new(PROCD).exists() {
        &[(INIT, &["enable"]), (INIT, &["start"])]
    } else if is_on_path("systemctl") {
        &[("systemctl", &["enable", "--now", "sqm.service"])]
    } else {
        errln!(
            "warning: this system has neither systemd nor procd: have it run 'sqm daemon' at boot by its own means"
        );
        return false;
    };
    for (program, words) in commands {
        let shown = format!("{program} {}", words.join(" "));
        match child::foreground(program, words.iter()) {
            Ok((status, _)) if status.success() => outln!("{shown}: done"),
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

/// Sets a password for the page and says how to open it. `shaped` is the device of the line: the page is for the others.
pub(super) fn page(links: &[Link], shaped: &str) -> Result<(), Failure> {
    let (status, _) = child::foreground(PROGRAM, ["web", "--set-password"])?;
    if !status.success() {
        errln!("warning: no password was set: 'sqm web --set-password' asks again");
        return Ok(());
    }
    let inside = links
        .iter()
        .filter(|link| link.leads_out() && link.name != shaped && link.up);
    let devices: Vec<&str> = inside.map(|link| link.name.as_str()).collect();
    outln!(
        "the page: put SQM_WEB_OPTIONS=\"--listen ADDRESS:8443 --tls\" into /etc/default/sqm, with this machine's address on {},",
        if devices.is_empty() {
            "the home network".to_owned()
        } else {
            devices.join(" or ")
        }
    );
    outln!(
        "  run 'systemctl enable --now sqm-web', and open https://ADDRESS:8443/ in a browser of the home network"
    );
    Ok(())
}

/// Asks whether the service shall start at boot.
pub(super) fn asks_to_start() -> Result<bool, Failure> {
    confirm("Start at boot?", true, true)
}
