//! CAKE's tins: how DSCP chooses one, and what part of the rate each may use before the others come first.
//!
//! Tins are numbered as the kernel numbers them inside; `tc` shows them, and firewall marks count them, in another
//! order, from bulk to voice.

use crate::narrow::{fits_u8, fits_u16};
use crate::packet::Network;
use crate::spec::cake::Tins;

/// More tins than any mode has do not exist.
pub const MAX_TINS: usize = 8;

/// DSCP of CS7, network control, which ARP is counted as.
const NETWORK_CONTROL: usize = 56;

/// The tins of one mode.
#[derive(Debug)]
pub struct Layout {
    /// Names in the order of display.
    pub names: &'static [&'static str],
    /// Tins in the order of display.
    pub display: &'static [u8],
    /// The tin of each DSCP.
    of_dscp: [u8; 64],
    shares: Shares,
}

/// The part of the rate that a tin may use with priority, and its weight when there is no rate.
#[derive(Debug)]
enum Shares {
    /// Rate shifted right, and weight, per tin.
    Fixed(&'static [(u8, u16)]),
    /// Every tin 7/8 of the one before.
    Falling,
}

impl Layout {
    /// The tins of `mode`.
    pub const fn of(mode: Tins) -> &'static Self {
        match mode {
            Tins::Besteffort => &BESTEFFORT,
            Tins::Precedence => &PRECEDENCE,
            Tins::Diffserv3 => &DIFFSERV3,
            Tins::Diffserv4 => &DIFFSERV4,
            Tins::Diffserv8 => &DIFFSERV8,
        }
    }

    /// How many there are, 1 to 8.
    pub const fn count(&self) -> usize {
        self.display.len()
    }

    /// The tin for a packet whose Differentiated services field is `ds_field`.
    #[inline]
    pub const fn tin_of(&self, network: Network, ds_field: u8) -> u8 {
        let dscp = match network {
            Network::Ipv4 | Network::Ipv6 => ds_field >> 2,
            Network::Arp => fits_u8(NETWORK_CONTROL as u64),
            Network::Other => 0,
        };
        self.of_dscp[(dscp & 63) as usize]
    }

    /// The tin that is displayed at `place`, counted from 1.
    pub fn displayed(&self, place: u32) -> Option<u8> {
        let place = usize::try_from(place).ok()?.checked_sub(1)?;
        self.display.get(place).copied()
    }

    /// For each tin, the rate up to which it comes before others and the weight it has when there is no rate. The unit
    /// is that of `rate`.
    pub fn shares(&self, rate: u64) -> impl Iterator<Item = (u64, u16)> {
        let (mut falling_rate, mut falling_weight) = (rate, 256_u16);
        (0..self.count()).map(move |tin| match self.shares {
            Shares::Fixed(shares) => (rate >> shares[tin].0, shares[tin].1),
            Shares::Falling => {
                let share = (falling_rate, falling_weight);
                // Divided first: a rate may fill its 64 bits.
                falling_rate = falling_rate / 8 * 7 + falling_rate % 8 * 7 / 8;
                falling_weight = fits_u16((u64::from(falling_weight) * 7) >> 3);
                share
            }
        })
    }
}

static BESTEFFORT: Layout = Layout {
    names: &["Best Effort"],
    display: &[0],
    of_dscp: [0; 64],
    shares: Shares::Fixed(&[(0, 65535)]),
};

static PRECEDENCE: Layout = Layout {
    names: &[
        "Tin 0", "Tin 1", "Tin 2", "Tin 3", "Tin 4", "Tin 5", "Tin 6", "Tin 7",
    ],
    display: &[0, 1, 2, 3, 4, 5, 6, 7],
    of_dscp: by_precedence(),
    shares: Shares::Falling,
};

static DIFFSERV3: Layout = Layout {
    names: &["Bulk", "Best Effort", "Voice"],
    display: &[1, 0, 2],
    of_dscp: table(0, &[(1, &[1, 8]), (2, &[4, 44, 46, 48, 56])]),
    shares: Shares::Fixed(&[(0, 1024), (4, 64), (2, 256)]),
};

static DIFFSERV4: Layout = Layout {
    names: &["Bulk", "Best Effort", "Video", "Voice"],
    display: &[1, 0, 2, 3],
    of_dscp: table(
        0,
        &[
            (1, &[1, 8]),
            (2, &[4, 16, 18, 20, 22, 24, 26, 28, 30, 34, 36, 38]),
            (3, &[32, 40, 44, 46, 48, 56]),
        ],
    ),
    shares: Shares::Fixed(&[(0, 1024), (4, 64), (1, 512), (2, 256)]),
};

static DIFFSERV8: Layout = Layout {
    names: PRECEDENCE.names,
    display: PRECEDENCE.display,
    of_dscp: table(
        2,
        &[
            (0, &[1]),
            (1, &[2, 8, 10, 12, 14]),
            (3, &[24, 26, 28, 30, 34, 36, 38]),
            (4, &[4, 18, 20, 22]),
            (5, &[16]),
            (6, &[32, 40, 44, 46]),
            (7, &[48, 56]),
        ],
    ),
    shares: Shares::Falling,
};

const fn by_precedence() -> [u8; 64] {
    let mut of_dscp = [0; 64];
    let mut dscp = 0;
    while dscp < of_dscp.len() {
        of_dscp[dscp] = fits_u8((dscp >> 3) as u64);
        dscp += 1;
    }
    of_dscp
}

/// `default` for every code point that is not listed.
const fn table(default: u8, listed: &[(u8, &[u8])]) -> [u8; 64] {
    let mut of_dscp = [default; 64];
    let mut tin = 0;
    while tin < listed.len() {
        let (number, code_points) = listed[tin];
        let mut i = 0;
        while i < code_points.len() {
            of_dscp[code_points[i] as usize] = number;
            i += 1;
        }
        tin += 1;
    }
    of_dscp
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn code_points_choose_the_kernels_tins() {
        for (dscp, in_three, in_four, in_eight) in [
            (0, 0, 0, 2),
            (1, 1, 1, 0),
            (8, 1, 1, 1),
            (10, 0, 0, 1),
            (16, 0, 2, 5),
            (18, 0, 2, 4),
            (26, 0, 2, 3),
            (32, 0, 3, 6),
            (34, 0, 2, 3),
            (40, 0, 3, 6),
            (42, 0, 0, 2),
            (44, 2, 3, 6),
            (45, 0, 0, 2),
            (46, 2, 3, 6),
            (48, 2, 3, 7),
            (56, 2, 3, 7),
            (4, 2, 2, 4),
            (2, 0, 0, 1),
        ] {
            let tin = |mode, network| Layout::of(mode).tin_of(network, dscp << 2 | 1);
            assert_eq!(tin(Tins::Diffserv3, Network::Ipv4), in_three, "{dscp}");
            assert_eq!(tin(Tins::Diffserv4, Network::Ipv6), in_four, "{dscp}");
            assert_eq!(tin(Tins::Diffserv8, Network::Ipv4), in_eight, "{dscp}");
            assert_eq!(tin(Tins::Precedence, Network::Ipv4), dscp >> 3, "{dscp}");
            assert_eq!(tin(Tins::Diffserv4, Network::Other), 0);
            assert_eq!(tin(Tins::Diffserv4, Network::Arp), 3);
            assert_eq!(tin(Tins::Besteffort, Network::Arp), 0);
        }
    }

    #[test]
    fn shares_of_the_rate_are_the_kernels() {
        let shares = |mode, bytes_per_sec| Layout::of(mode).shares(bytes_per_sec).collect::<Vec<_>>();
        assert_eq!(
            shares(Tins::Diffserv3, 12_500_000),
            [(12_500_000, 1024), (781_250, 64), (3_125_000, 256)]
        );
        assert_eq!(
            shares(Tins::Diffserv4, 2_500_000)[1..],
            [(156_250, 64), (1_250_000, 512), (625_000, 256)]
        );
        let falling = shares(Tins::Diffserv8, 6_250_000);
        let rates = [
            6_250_000, 5_468_750, 4_785_156, 4_187_011, 3_663_634, 3_205_679, 2_804_969, 2_454_347,
        ];
        let weights = [256, 224, 196, 171, 149, 130, 113, 98];
        assert_eq!(falling, rates.into_iter().zip(weights).collect::<Vec<_>>());
    }

    #[test]
    fn marks_count_in_the_order_of_display() {
        let four = Layout::of(Tins::Diffserv4);
        let chosen = [0, 1, 2, 3, 4, 5].map(|place| four.displayed(place));
        assert_eq!(chosen, [None, Some(1), Some(0), Some(2), Some(3), None]);
    }
}
