//! Sends the packets of a capture through a queue.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use sqm_core::diffserv::Layout;
use sqm_core::packet::{FlowKey, Packet as _};
use sqm_core::qdisc::DropReason;
use sqm_core::tree::NodeStats;
use sqm_core::units::{Instant, Rate};

use super::engine::{Engine, Observer};
use super::output::Output;
use super::packet::{Captured, is_marked};
use super::queue::{Build, Shape};
use super::source::{Arrival, Direction, Skipped, Source, header_length};
use super::tally::Tally;
use crate::error::Error;

/// The parameters of a replay.
pub struct Request {
    /// The file; `-` is standard input.
    pub capture: PathBuf,
    /// The queue, or the tree of them.
    pub shape: Shape,
    /// The rate of the device behind the queue; `None` if the queue's own shaper sets the pace.
    pub link: Option<Rate>,
    /// The packets of the capture that go through the queue.
    pub direction: Direction,
    /// How the queue is built.
    pub build: Build,
    /// The device's MTU without its link header, bytes.
    pub mtu: u32,
}

/// The outcome of a replay.
pub struct Replay {
    pub(super) tally: Tally,
    pub(super) layout: Option<&'static Layout>,
    pub(super) skipped: Skipped,
    /// Packets whose time stamp is earlier than that of the packet before them in the file; they arrive at the later time.
    pub(super) reordered: u64,
    /// Packets in the file.
    pub(super) read: u64,
    /// The queues' own counters after the last packet.
    pub(super) statistics: Vec<NodeStats>,
    pub(super) start: Instant,
    /// Settings without effect, and properties of the capture that make the outcome doubtful.
    pub warnings: Vec<String>,
    /// The error that ended the capture early.
    pub damage: Option<String>,
}

/// One packet that left the queue or was dropped.
pub struct Event {
    /// The packet's position in the file, from 1.
    pub number: u64,
    /// The time at which the packet left or was dropped.
    pub now: Instant,
    /// The time at which the packet arrived at the queue.
    pub arrived: Instant,
    /// The packet's tin, if the queue is CAKE.
    pub tin: Option<&'static str>,
    /// True if the packet left with Congestion Experienced.
    pub is_marked: bool,
    /// The reason for the drop; `None` if the packet was sent.
    pub reason: Option<DropReason>,
}

/// Sends the capture through the queue, and the packets that leave it to `output`. `each` is called for every packet that leaves or is
/// dropped, `progress` with the bytes read so far; if `progress` answers `false`, the replay ends without an outcome.
pub fn replay<'a>(
    request: &Request,
    output: Option<Output<'a>>,
    each: &'a mut dyn FnMut(&Event) -> Result<(), Error>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Replay>, Error> {
    if request.link.is_none() && !request.shape.is_shaped() {
        let error = anyhow!(
            "the queue has no rate, so no packet would ever wait: give the device's rate with --link, such as \
             --link 20mbit"
        );
        return Err(Error::Input(error));
    }
    let file = request.capture.display();
    let mut source = Source::new(open(&request.capture)?, request.direction.clone())
        .with_context(|| format!("{file}"))
        .map_err(Error::Input)?;
    let mut damage = None;
    let mut arrival = next(&mut source, &mut damage);
    let start = arrival.as_ref().map_or(Instant(0), |first| first.time);
    let header = arrival
        .as_ref()
        .and_then(|first| first.link.link())
        .map_or(0, header_length);
    let mtu = request.mtu + header;
    let layout = request.shape.tins();
    let witness = Witness {
        tally: Tally::new(layout.map_or(0, Layout::count), start),
        layout,
        output,
        each,
    };
    let mut engine = Engine::new(
        request.shape.build(&request.build, start, mtu)?,
        request.link,
        witness,
    );
    let mut too_long = 0_u64;
    while let Some(Arrival {
        number,
        time,
        link,
        frame,
        view,
    }) = arrival
    {
        if number.is_multiple_of(1024) && !progress(source.position()) {
            return Ok(None);
        }
        too_long += u64::from(frame.len() > mtu + MOST_TAGS);
        let FlowKey::Tuple(tuple) = view.key else {
            return Err(anyhow!("a captured frame has no hashes").into());
        };
        let packet = Captured {
            frame,
            number,
            arrived: time,
            link,
            flow: engine.observer.tally.flow(&tuple),
            tin: layout.map_or(0, |layout| layout.tin_of(view.network, view.ds_field).into()),
            came_marked: is_marked(view.ds_field),
        };
        engine.observer.tally.arrived(&packet);
        engine.arrive(packet)?;
        arrival = next(&mut source, &mut damage);
    }
    engine.finish()?;
    let statistics = engine.queue.stats();
    let Witness { tally, output, .. } = engine.observer;
    if let Some(output) = output {
        output.finish()?;
    }
    if tally.total.packets == 0 && source.skipped.unknown_link_type > 0 {
        let link = source.unknown_link.map_or(0, |link| link.0);
        let error = anyhow!("{file}: frames of link type {link} are not supported");
        return Err(Error::Input(error));
    }
    let mut warnings = request.shape.warnings();
    if too_long > 0 {
        warnings.push(format!(
            "frames longer than the MTU of {mtu} bytes (number: {too_long}): the capture has them before the device \
             split them or after it joined them, and each goes through the queue as one packet"
        ));
    }
    if tally.both_ways > 0 && request.direction.is_open() {
        warnings.push(format!(
            "the capture has both directions of its flows (number: {}), but a queue sees only one: choose it with --from or --to",
            tally.both_ways
        ));
    }
    Ok(Some(Replay {
        tally,
        layout,
        skipped: source.skipped,
        reordered: source.reordered,
        read: source.read(),
        statistics,
        start,
        warnings,
        damage,
    }))
}

/// The size of VLAN tags that a device accepts beyond its MTU, in bytes.
const MOST_TAGS: u32 = 8;

fn open(file: &Path) -> Result<Box<dyn Read>, Error> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let stream = File::open(file)
        .with_context(|| format!("cannot read the capture {}", file.display()))
        .map_err(Error::Input)?;
    Ok(Box::new(BufReader::with_capacity(1 << 18, stream)))
}

/// The next packet. A record that cannot be read ends the capture; `damage` receives the error.
fn next(source: &mut Source<Box<dyn Read>>, damage: &mut Option<String>) -> Option<Arrival> {
    match source.next_arrival() {
        Ok(arrival) => arrival,
        Err(error) => {
            *damage = Some(error.to_string());
            None
        }
    }
}

/// Counts each packet, writes it to the output and reports it to the caller.
struct Witness<'a> {
    tally: Tally,
    layout: Option<&'static Layout>,
    output: Option<Output<'a>>,
    each: &'a mut dyn FnMut(&Event) -> Result<(), Error>,
}

impl Witness<'_> {
    fn tell(&mut self, packet: &Captured, now: Instant, reason: Option<DropReason>) -> Result<(), Error> {
        (self.each)(&Event {
            number: packet.number,
            now,
            arrived: packet.arrived,
            tin: self.layout.map(|layout| tin_name(layout, packet.tin)),
            is_marked: packet.is_marked(),
            reason,
        })
    }
}

impl Observer for Witness<'_> {
    fn sent(&mut self, packet: &Captured, now: Instant) -> Result<(), Error> {
        self.tally.sent(packet, now);
        if let Some(output) = &mut self.output {
            output.packet(packet, now)?;
        }
        self.tell(packet, now, None)
    }

    fn dropped(&mut self, packet: &Captured, now: Instant, reason: DropReason) -> Result<(), Error> {
        self.tally.dropped(packet, now, reason);
        self.tell(packet, now, Some(reason))
    }
}

/// The name of the tin with this internal number.
pub(super) fn tin_name(layout: &Layout, tin: usize) -> &'static str {
    let place = layout.display.iter().position(|shown| usize::from(*shown) == tin);
    place
        .and_then(|place| layout.names.get(place))
        .copied()
        .unwrap_or("")
}
