//! Options of every kind of qdisc and class that plans use.

use sqm_core::spec::{Class, Qdisc};

use super::fq_codel::Purpose;
use super::{cake, codel, fifo, fq_codel, hfsc, htb, pie, sfq, tbf};

/// Encodes the options of a qdisc, to make it or to change one.
pub fn encode(qdisc: &Qdisc, purpose: Purpose) -> Vec<u8> {
    match qdisc {
        Qdisc::Cake(c) | Qdisc::CakeMq(c) => cake::encode(c),
        Qdisc::FqCodel(c) => fq_codel::encode(c, purpose),
        Qdisc::Codel(c) => codel::encode(c),
        Qdisc::Pie(p) => pie::encode(p),
        Qdisc::Sfq(s) => sfq::encode(s),
        Qdisc::Pfifo(f) | Qdisc::Bfifo(f) | Qdisc::PfifoHeadDrop(f) => fifo::encode(*f),
        Qdisc::Tbf(t) => tbf::encode(t),
        Qdisc::Htb(h) => htb::encode_root(h),
        Qdisc::Hfsc(h) => hfsc::encode_root(h),
    }
}

/// Decodes the options of a qdisc. `None` for a kind that plans do not use.
pub fn decode(kind: &str, options: &[u8]) -> Option<Qdisc> {
    Some(match kind {
        "cake" => Qdisc::Cake(cake::decode_options(options)?),
        "cake_mq" => Qdisc::CakeMq(cake::decode_options(options)?),
        "fq_codel" => Qdisc::FqCodel(fq_codel::decode_options(options)?),
        "codel" => Qdisc::Codel(codel::decode_options(options)),
        "pie" => Qdisc::Pie(pie::decode_options(options)),
        "sfq" => Qdisc::Sfq(sfq::decode_options(options)?),
        "pfifo" => Qdisc::Pfifo(fifo::decode_options(options)),
        "bfifo" => Qdisc::Bfifo(fifo::decode_options(options)),
        "pfifo_head_drop" => Qdisc::PfifoHeadDrop(fifo::decode_options(options)),
        "tbf" => Qdisc::Tbf(tbf::decode_options(options)?),
        "htb" => Qdisc::Htb(htb::decode_root(options)?),
        "hfsc" => Qdisc::Hfsc(hfsc::decode_root(options)?),
        _ => return None,
    })
}

/// A qdisc as the kernel will report it.
///
/// The kernel keeps rates in whole bytes per second, CoDel's times in units of 1024 ns, and bursts as times. Parameters that
/// are left to the kernel stay `None`.
pub fn normalized(qdisc: &Qdisc) -> Qdisc {
    match qdisc {
        Qdisc::Cake(c) => Qdisc::Cake(cake::normalized(c)),
        Qdisc::CakeMq(c) => Qdisc::CakeMq(cake::normalized(c)),
        Qdisc::FqCodel(c) => Qdisc::FqCodel(fq_codel::normalized(c)),
        Qdisc::Codel(c) => Qdisc::Codel(codel::normalized(c)),
        Qdisc::Pie(p) => Qdisc::Pie(pie::normalized(p)),
        Qdisc::Sfq(s) => Qdisc::Sfq(s.effective()),
        Qdisc::Tbf(t) => Qdisc::Tbf(tbf::normalized(t)),
        Qdisc::Pfifo(_) | Qdisc::Bfifo(_) | Qdisc::PfifoHeadDrop(_) | Qdisc::Htb(_) | Qdisc::Hfsc(_) => {
            qdisc.clone()
        }
    }
}

/// Encodes the options of a class.
pub fn encode_class(class: &Class) -> Vec<u8> {
    match class {
        Class::Htb(c) => htb::encode_class(c),
        Class::Hfsc(c) => hfsc::encode_class(c),
    }
}

/// Decodes the options of a class. `None` for a kind that plans do not use.
pub fn decode_class(kind: &str, options: &[u8]) -> Option<Class> {
    match kind {
        "htb" => htb::decode_class(options).map(Class::Htb),
        "hfsc" => Some(Class::Hfsc(hfsc::decode_class(options))),
        _ => None,
    }
}
