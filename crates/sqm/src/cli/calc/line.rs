//! The framing of a line on the command line: a link preset by name, or its numbers.

use anyhow::anyhow;
use sqm_core::nearest::nearest;
use sqm_core::spec::cake::{Cells, Framing};
use sqm_plan::arithmetic::{self, Headers};
use sqm_plan::link::{PRESETS, Preset};

use crate::Suggested;
use crate::cli::setup::link_names;
use sqm_process::failure::Failure;

#[derive(clap::Args)]
pub(super) struct Line {
    /// The access technology, by its name in `sqm calc links`; the options below override its values.
    #[arg(long, value_name = "LINK", hide_possible_values = true,
          value_parser = Suggested { names: link_names, parse: parse_link })]
    link: Option<&'static Preset>,
    /// Bytes that the line adds to each IP packet [default: 38, plain Ethernet].
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = clap::value_parser!(i16).range(-64..=1500))]
    overhead: Option<i16>,
    /// Smallest frame, overhead included, bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(0..=256))]
    mpu: Option<u16>,
    /// Cells of ATM (ADSL): 48 bytes in 53.
    #[arg(long, conflicts_with = "ptm")]
    atm: bool,
    /// The coding of VDSL2: 64 bytes in 65.
    #[arg(long)]
    ptm: bool,
}

#[derive(clap::Args)]
pub(super) struct Packet {
    #[command(flatten)]
    line: Line,
    /// Size of the IP packets, bytes [default: the line's MTU, less 8 with PPPoE].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65535))]
    size: Option<u32>,
    /// TCP over IPv6.
    #[arg(long)]
    ipv6: bool,
    /// TCP with timestamps, 12 bytes more.
    #[arg(long)]
    timestamps: bool,
    /// Count whole IP packets, as a queue does, and not TCP's payload.
    #[arg(long)]
    whole: bool,
}

impl Line {
    pub(super) fn framing(&self) -> Framing {
        let base = match self.link {
            Some(preset) => arithmetic::framing(preset),
            None => Framing {
                from_ip: true,
                overhead: 38,
                mpu: 0,
                cells: Cells::None,
            },
        };
        Framing {
            overhead: self.overhead.unwrap_or(base.overhead),
            mpu: self.mpu.unwrap_or(base.mpu),
            cells: match (self.atm, self.ptm) {
                (true, _) => Cells::Atm,
                (_, true) => Cells::Ptm,
                _ => base.cells,
            },
            ..base
        }
    }

    /// The largest IP packet that fits in 1500 bytes of Ethernet payload.
    pub(super) fn mtu(&self) -> u32 {
        // Only presets that have PPPoE in their name are known to use it. The overhead of other lines may or may not
        // include PPPoE.
        let pppoe = self.link.is_some_and(|preset| preset.name.contains("pppoe"));
        if pppoe { 1492 } else { 1500 }
    }
}

impl Packet {
    pub(super) fn framing(&self) -> Framing {
        self.line.framing()
    }

    pub(super) fn size(&self) -> u32 {
        self.size.unwrap_or_else(|| self.line.mtu())
    }

    /// Headers that do not count as payload. An error if no payload is left.
    pub(super) fn uncounted(&self) -> Result<Headers, Failure> {
        if self.whole {
            return Ok(Headers::NONE);
        }
        let headers = self.headers();
        if self.size() <= headers.bytes() {
            return Err(Failure::Usage(anyhow!(
                "packets of {} bytes have no payload, because their headers take {}; --whole counts whole packets",
                self.size(),
                headers.bytes()
            )));
        }
        Ok(headers)
    }

    /// Headers of IP and TCP, as an acknowledgement carries them.
    pub(super) fn headers(&self) -> Headers {
        let headers = if self.ipv6 { Headers::IPV6 } else { Headers::IPV4 };
        if self.timestamps {
            headers.timestamps()
        } else {
            headers
        }
    }
}

/// Looks up a link preset by name.
pub(crate) fn parse_link(name: &str) -> Result<&'static Preset, String> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        match nearest(name, PRESETS.iter().map(|preset| preset.name)) {
            Some(near) => format!("no link '{name}'; did you mean '{near}'?"),
            None => format!("no link '{name}'; 'sqm calc links' lists all"),
        }
    })
}
