//! The typed options of CAKE (`cake_rtt`, `egress_cake_nat` and their like), each a change of one parameter.

use sqm_core::spec::cake::{AckFilter, Cake, Isolation, Tins};
use sqm_core::units::{Bytes, Nanos};

/// A typed option of CAKE that a section gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CakeOption {
    /// The option's name, with its direction if it has one.
    pub name: &'static str,
    /// The parameter that it sets.
    pub value: CakeValue,
}

/// One parameter of CAKE and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CakeValue {
    /// `rtt`.
    Rtt(Nanos),
    /// `besteffort`, `diffserv4` and their like.
    Tins(Tins),
    /// `dual-srchost`, `triple-isolate` and their like.
    Isolation(Isolation),
    /// `nat` and `nonat`.
    Nat(bool),
    /// `wash` and `nowash`.
    Wash(bool),
    /// `ack-filter`, `no-ack-filter`, `ack-filter-aggressive`.
    AckFilter(AckFilter),
    /// `ingress` and `egress`.
    Ingress(bool),
    /// `split-gso` and `no-split-gso`.
    SplitGso(bool),
    /// `memlimit`; `None` lets the kernel compute one.
    MemLimit(Option<Bytes>),
    /// `fwmark`.
    FwMark(u32),
    /// `autorate-ingress`. `tc` has no word for "off", so that `false` changes nothing.
    AutorateIngress(bool),
}

impl CakeValue {
    /// Sets the parameter.
    pub const fn apply_to(self, cake: &mut Cake) {
        match self {
            Self::Rtt(rtt) => cake.rtt = rtt,
            Self::Tins(tins) => cake.tins = tins,
            Self::Isolation(isolation) => cake.isolation = isolation,
            Self::Nat(is_on) => cake.nat = is_on,
            Self::Wash(is_on) => cake.wash = is_on,
            Self::AckFilter(filter) => cake.ack_filter = filter,
            Self::Ingress(is_on) => cake.ingress = is_on,
            Self::SplitGso(is_on) => cake.split_gso = is_on,
            Self::MemLimit(limit) => cake.memlimit = limit,
            Self::FwMark(mask) => cake.fwmark = mask,
            Self::AutorateIngress(is_on) => cake.autorate_ingress |= is_on,
        }
    }
}
