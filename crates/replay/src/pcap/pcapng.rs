//! pcapng: blocks with their own lengths, sections with their own byte order, interfaces with their own clocks
//! (draft-ietf-opsawg-pcapng).

use std::io::Read;

use sqm_core::units::Instant;

use super::bytes::{Input, Order};
use super::error::Error;
use super::reader::Found;
use super::{LinkNumber, MAX_BLOCK};

const NANOS_PER_SEC: i128 = 1_000_000_000;

/// Block types.
mod block {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    /// The obsolete packet block, which old files have.
    pub(super) const PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const ENHANCED_PACKET: u32 = 6;
}

/// The state from the blocks that have been read.
#[derive(Debug, Default)]
pub(crate) struct Pcapng {
    section: Section,
    /// The number of interfaces in earlier sections.
    earlier_interfaces: u32,
}

#[derive(Debug)]
struct Section {
    order: Order,
    interfaces: Vec<Interface>,
}

impl Default for Section {
    fn default() -> Self {
        Self {
            order: Order::Little,
            interfaces: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Interface {
    link: LinkNumber,
    snap_length: u32,
    clock: Clock,
    check_sequence: u32,
}

/// The unit and offset of an interface's time stamps.
#[derive(Debug)]
struct Clock {
    units_per_sec: u128,
    offset_sec: i64,
}

impl Clock {
    /// Times before 1970 become 1970.
    fn instant(&self, high: u32, low: u32) -> Instant {
        let units = u128::from(high) << 32 | u128::from(low);
        // The product of 64 bits and 10^9 has up to 94 bits.
        let nanos = (units * NANOS_PER_SEC as u128 / self.units_per_sec) as i128;
        let nanos = nanos + i128::from(self.offset_sec) * NANOS_PER_SEC;
        Instant(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

impl Pcapng {
    /// The type of the first block, a palindrome so that it reads alike in either byte order.
    pub(crate) const MAGIC: [u8; 4] = block::SECTION.to_le_bytes();

    /// Reads a section header after its type, and begins the section.
    pub(crate) fn section<R: Read>(
        &mut self,
        input: &mut Input<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
        const WHAT: &str = "a section's header";
        let at = input.position - 4;
        let head: [u8; 8] = input.array(WHAT)?;
        let order = [Order::Little, Order::Big]
            .into_iter()
            .find(|order| order.u32_at(&head, 4) == BYTE_ORDER_MAGIC)
            .ok_or_else(|| damaged(at, "a section without a byte order"))?;
        let length = order.u32_at(&head, 0);
        // Skip the version, the length of the section, and the second copy of the block's length.
        if !(28..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
            return Err(damaged(at, &format!("a section's header of {length} bytes")));
        }
        input.fill(buffer, length - 12, WHAT)?;
        self.earlier_interfaces = self
            .earlier_interfaces
            .saturating_add(self.section.interfaces.len() as u32);
        self.section = Section {
            order,
            interfaces: Vec::new(),
        };
        Ok(())
    }

    pub(crate) fn next_packet<R: Read>(
        &mut self,
        input: &mut Input<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Found>, Error> {
        loop {
            let at = input.position;
            let Some(kind) = input.array_or_end::<4>("a block's header")? else {
                return Ok(None);
            };
            if kind == Self::MAGIC {
                self.section(input, buffer)?;
                continue;
            }
            let order = self.section.order;
            let length_field: [u8; 4] = input.array("a block's header")?;
            let length = order.u32(length_field);
            if !(12..=MAX_BLOCK).contains(&length) || !length.is_multiple_of(4) {
                return Err(damaged(at, &format!("a block of {length} bytes")));
            }
            // The body, and the second copy of the length.
            input.fill(buffer, length - 8, "a block")?;
            let end = buffer.split_off(length as usize - 12);
            if end != length_field {
                return Err(damaged(at, "a block with two different lengths"));
            }
            let body = Body {
                section: &mut self.section,
                earlier_interfaces: self.earlier_interfaces,
                bytes: buffer,
                at,
            };
            let found = match order.u32(kind) {
                block::INTERFACE => {
                    body.interface()?;
                    continue;
                }
                block::ENHANCED_PACKET => body.enhanced_packet()?,
                block::SIMPLE_PACKET => body.simple_packet()?,
                block::PACKET => body.packet()?,
                // Names, statistics, comments, secrets and unknown types are ignored.
                _ => continue,
            };
            return Ok(Some(found));
        }
    }
}

/// A block without its type and lengths.
struct Body<'a> {
    section: &'a mut Section,
    earlier_interfaces: u32,
    bytes: &'a [u8],
    at: u64,
}

impl Body<'_> {
    fn interface(self) -> Result<(), Error> {
        let header: &[u8; 8] = self.header("an interface's description")?;
        let order = self.section.order;
        let mut interface = Interface {
            link: LinkNumber(order.u16_at(header, 0)),
            snap_length: order.u32_at(header, 4),
            clock: Clock {
                units_per_sec: 1_000_000,
                offset_sec: 0,
            },
            check_sequence: 0,
        };
        for (code, value) in options(order, &self.bytes[8..]) {
            const TIME_RESOLUTION: u16 = 9;
            const CHECK_SEQUENCE: u16 = 13;
            const TIME_OFFSET: u16 = 14;
            match (code, value) {
                (TIME_RESOLUTION, [resolution, ..]) => {
                    interface.clock.units_per_sec = units_per_sec(*resolution)
                        .ok_or_else(|| damaged(self.at, "an interface with an impossible time resolution"))?;
                }
                (CHECK_SEQUENCE, [octets, ..]) => interface.check_sequence = (*octets).into(),
                (TIME_OFFSET, [a, b, c, d, e, f, g, h]) => {
                    interface.clock.offset_sec = order.i64([*a, *b, *c, *d, *e, *f, *g, *h]);
                }
                _ => {}
            }
        }
        self.section.interfaces.push(interface);
        Ok(())
    }

    fn enhanced_packet(self) -> Result<Found, Error> {
        let header: &[u8; 20] = self.header("a packet")?;
        let order = self.section.order;
        let [interface, high, low, captured, length] = [0, 4, 8, 12, 16].map(|at| order.u32_at(header, at));
        self.found(interface, Some((high, low)), (captured, length), 20)
    }

    /// The obsolete packet block has two 16-bit numbers, interface and losses, where the enhanced one has a 32-bit interface.
    fn packet(self) -> Result<Found, Error> {
        let header: &[u8; 20] = self.header("a packet")?;
        let order = self.section.order;
        let [high, low, captured, length] = [4, 8, 12, 16].map(|at| order.u32_at(header, at));
        let interface = order.u16_at(header, 0).into();
        self.found(interface, Some((high, low)), (captured, length), 20)
    }

    /// The simple packet block belongs to the first interface and has no time. Its length is that of the captured bytes.
    fn simple_packet(self) -> Result<Found, Error> {
        let header: &[u8; 4] = self.header("a packet")?;
        let length = self.section.order.u32_at(header, 0);
        let snap_length = self
            .section
            .interfaces
            .first()
            .map_or(0, |first| first.snap_length);
        let captured = match snap_length {
            0 => length,
            limit => length.min(limit),
        };
        self.found(0, None, (captured, length), 4)
    }

    fn found(
        self,
        interface: u32,
        time: Option<(u32, u32)>,
        (captured, length): (u32, u32),
        start: usize,
    ) -> Result<Found, Error> {
        let Some(description) = self.section.interfaces.get(interface as usize) else {
            let what = format!("a packet of interface {interface}, which is not described");
            return Err(damaged(self.at, &what));
        };
        let end = start + captured as usize;
        if end > self.bytes.len() {
            let what = format!("a packet of {captured} bytes in a block of {}", self.bytes.len());
            return Err(damaged(self.at, &what));
        }
        let found = Found {
            time: time.map(|(high, low)| description.clock.instant(high, low)),
            interface: self.earlier_interfaces.saturating_add(interface),
            link: description.link,
            length,
            bytes: start..end,
        };
        Ok(found.without_check_sequence(description.check_sequence))
    }

    fn header<const N: usize>(&self, what: &str) -> Result<&[u8; N], Error> {
        self.bytes.first_chunk().ok_or_else(|| {
            damaged(
                self.at,
                &format!("{what} in a block of {} bytes", self.bytes.len()),
            )
        })
    }
}

/// The options of a block, each with code and value, up to the end marker or the first that is invalid.
fn options(order: Order, mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_first_chunk::<4>()?;
        let (code, length) = (order.u16_at(header, 0), order.u16_at(header, 2).into());
        let value = rest.get(..length)?;
        bytes = rest.get(usize::next_multiple_of(length, 4)..).unwrap_or_default();
        (code != 0).then_some((code, value))
    })
}

/// The units per second: a power of ten, or of two if the upper bit is set; `None` if 64 bits of such units are less than a nanosecond.
fn units_per_sec(resolution: u8) -> Option<u128> {
    const IS_BINARY: u8 = 0x80;
    let power = u32::from(resolution & !IS_BINARY);
    match resolution & IS_BINARY {
        0 => 10_u128.checked_pow(power).filter(|_| power <= 19),
        _ => Some(1 << power).filter(|_| power <= 63),
    }
}

fn damaged(at: u64, what: &str) -> Error {
    Error::Damaged {
        at,
        what: what.to_owned(),
    }
}
