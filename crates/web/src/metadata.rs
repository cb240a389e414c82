//! Metadata for forms: the options, the link presets, and the devices of this machine.

use hyper::StatusCode;
use serde::Serialize;
use sqm_kernel::netlink::link::Link as KernelLink;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::routes::Routes;
use sqm_kernel::uplink::uplinks;
use sqm_kernel::{observe, stack};
use sqm_plan::arithmetic;
use sqm_plan::link::{LinkLayer, PRESETS};
use sqm_plan::options::{self, OptionInfo};
use sqm_plan::side::Side;

use super::problem::{ApiResult, Problem};
use sqm_http::json;

/// A full-size packet on Ethernet, in bytes.
const FULL_PACKET: u32 = 1500;

#[derive(Serialize)]
struct Options {
    options: Vec<Option_>,
}

#[derive(Serialize)]
struct Option_ {
    name: &'static str,
    tab: &'static str,
    level: &'static str,
    r#type: &'static str,
    title: &'static str,
    about: &'static str,
    unit: Option<&'static str>,
    default: Option<&'static str>,
    least: Option<i64>,
    most: Option<i64>,
    choices: Option<Vec<Choice>>,
    direction: Option<&'static str>,
}

#[derive(Serialize)]
struct Choice {
    value: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct Links {
    links: Vec<Link>,
}

#[derive(Serialize)]
struct Link {
    name: &'static str,
    about: &'static str,
    linklayer: &'static str,
    overhead_bytes: i32,
    mpu_bytes: u32,
    counts_vlan: bool,
    counts_pppoe: bool,
    source: &'static str,
    on_the_line_bytes: u32,
}

#[derive(Serialize)]
struct Interfaces {
    suggested: Option<String>,
    how: Option<String>,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    kind: Option<String>,
    up: bool,
    carrier: bool,
    mtu_bytes: u32,
    default_route: bool,
    encapsulations: Vec<String>,
    encapsulation_bytes: i32,
    speed_mbit: Option<u32>,
}

pub(super) fn options() -> ApiResult {
    let options = options::all()
        .filter_map(|option| Some((option, option.tab?)))
        .map(|(option, tab)| Option_ {
            name: option.name,
            tab: tab.name(),
            level: option.level.name(),
            r#type: option.kind.name(),
            title: option.title,
            about: option.about,
            unit: option.unit,
            default: option.default,
            least: option.range.map(|range| range.0),
            most: option.range.map(|range| range.1),
            choices: choices(option),
            direction: option.side.map(Side::name),
        })
        .collect();
    Ok(json(StatusCode::OK, &Options { options }))
}

/// The words that an option takes; none if it is not one of a few.
fn choices(option: &OptionInfo) -> Option<Vec<Choice>> {
    let choices: Vec<Choice> = option
        .choices()
        .into_iter()
        .map(|(value, about)| Choice { value, about })
        .collect();
    (!choices.is_empty()).then_some(choices)
}

pub(super) fn links() -> ApiResult {
    let links = PRESETS
        .iter()
        .map(|preset| Link {
            name: preset.name,
            about: preset.about,
            linklayer: match preset.layer {
                LinkLayer::None => "none",
                LinkLayer::Ethernet => "ethernet",
                LinkLayer::Atm => "atm",
                LinkLayer::Ptm => "ptm",
            },
            overhead_bytes: preset.overhead,
            mpu_bytes: preset.mpu,
            counts_vlan: preset.vlan,
            counts_pppoe: preset.pppoe,
            source: preset.source,
            on_the_line_bytes: arithmetic::framing(preset).line_len(FULL_PACKET),
        })
        .collect();
    Ok(json(StatusCode::OK, &Links { links }))
}

pub(super) fn interfaces() -> ApiResult {
    let silent = |error: &dyn std::fmt::Display| {
        Problem::unavailable(format!("cannot read the devices from the kernel: {error}"))
    };
    let mut socket = Socket::open().map_err(|error| silent(&error))?;
    let links = observe::links(&mut socket).map_err(|error| silent(&error))?;
    let defaults = Routes::read().default_devices();
    let uplinks = uplinks(&mut socket, &links);
    let uplink = uplinks.first().filter(|uplink| uplink.is_known);
    let suggested = uplink.map(|uplink| uplink.device.clone());
    let how = uplink.map(|uplink| match uplinks.len() {
        1 => uplink.reason(),
        n => format!(
            "{}; it is preferred among {n} devices that lead there",
            uplink.reason()
        ),
    });
    let devices = links
        .iter()
        .filter(|link| link.leads_out())
        .map(|link| {
            let stack = stack::device(&links, &link.name).stack;
            Device {
                name: link.name.clone(),
                kind: link.kind.clone(),
                up: link.up,
                carrier: link.carrier,
                mtu_bytes: link.mtu,
                default_route: defaults.contains(&link.name),
                encapsulations: stack.iter().map(ToString::to_string).collect(),
                encapsulation_bytes: stack.iter().map(|layer| layer.bytes()).sum(),
                speed_mbit: speed_mbit(link),
            }
        })
        .collect();
    let answer = Interfaces {
        suggested,
        how,
        devices,
    };
    Ok(json(StatusCode::OK, &answer))
}

/// The speed of the port of a device, or of the port below it, Mbit/s. Other virtual devices report made-up speeds (tun: 10).
fn speed_mbit(link: &KernelLink) -> Option<u32> {
    match link.kind.as_deref() {
        None | Some("vlan" | "macvlan" | "ipvlan") => speed_of_port(&link.name),
        // The sessions' devices are known, but not which of them carries this one: the fastest is the upper bound.
        Some("ppp") => stack::pppoe_devices()
            .iter()
            .filter_map(|name| speed_of_port(name))
            .max(),
        Some(_) => None,
    }
}

/// The kernel reports -1, or refuses to answer, if a port has no speed or no carrier.
fn speed_of_port(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    text.trim().parse().ok().filter(|speed| *speed > 0)
}
