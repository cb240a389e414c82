//! New parameters for a tree that runs, as `tc qdisc change` brings them.

use core::error::Error;
use core::fmt;

use super::any::{AnyQdisc, Node};
use super::{Root, Tree, Unsized};
use crate::fifo::Limit;
use crate::packet::Packet;
use crate::qdisc::{Drops, Environment};
use crate::rng::Random;
use crate::spec::{self, ParseError};
use crate::units::Instant;

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The words are not those of the kind.
    Words(ParseError),
    /// It is laid down when a discipline of this kind is made; the kernel refuses the change, too.
    Fixed {
        /// The kind.
        kind: &'static str,
        /// The parameter; none is all of them.
        parameter: Option<&'static str>,
    },
}

impl<P: Packet, R: Random> Tree<P, R> {
    /// Changes the discipline at the root as `tc qdisc change` does with these words after its kind: what they do not
    /// mention stays, except of `tbf` and the FIFOs, which are described anew. Packets beyond a lower limit of `codel` and
    /// `fq_codel`, and those of CAKE's tins that go away, are dropped; all others stay. On an error nothing changes.
    pub fn change(&mut self, words: &str, now: Instant, drops: &mut dyn Drops<P>) -> Result<(), ChangeError> {
        let environment = &self.environment;
        match &mut self.root {
            Root::Plain(root) => root.change(words, environment, now, drops),
            Root::Sized(_, root) => root.change(words, environment, now, &mut Unsized(drops)),
        }
    }
}

impl<P: Packet, R: Random> Node<P, R> {
    fn change(
        &mut self,
        words: &str,
        environment: &Environment,
        now: Instant,
        drops: &mut dyn Drops<P>,
    ) -> Result<(), ChangeError> {
        let environment = Environment {
            handle: self.handle().major,
            ..*environment
        };
        self.queue_mut().change(words, &environment, now, drops)
    }
}

impl<P: Packet, R: Random> AnyQdisc<P, R> {
    fn change(
        &mut self,
        words: &str,
        environment: &Environment,
        now: Instant,
        drops: &mut dyn Drops<P>,
    ) -> Result<(), ChangeError> {
        match self {
            Self::Fifo(fifo) => fifo.set_limit(new_limit(fifo.limit(), words, environment)?),
            Self::Codel(codel) => {
                let mut spec = codel.spec().clone();
                spec.apply(words)?;
                codel.reconfigure(&spec, environment, drops);
            }
            Self::FqCodel(fq_codel) => {
                let mut spec = fq_codel.spec().clone();
                spec.apply(words)?;
                if words.split_whitespace().any(|word| word == "flows") {
                    return Err(fixed(spec::fq_codel::KIND, Some("flows")));
                }
                fq_codel.reconfigure(&spec, environment, now, drops);
            }
            Self::Cake(cake) => cake.change(words, drops)?,
            Self::Tbf(tbf) => {
                let spec = spec::tbf::Tbf::parse(words)?;
                let tbf = tbf.queue_mut();
                tbf.reconfigure(&spec);
                if let Self::Fifo(fifo) = tbf.child_mut().queue_mut()
                    && let Limit::Bytes(_) = fifo.limit()
                {
                    fifo.set_limit(Limit::of_tbf(&spec));
                }
            }
            Self::Hfsc(hfsc) => hfsc.queue_mut().set_default(&spec::Hfsc::parse(words)?),
            Self::Htb(_) => return Err(fixed(spec::htb::KIND, None)),
        }
        Ok(())
    }
}

/// The limit of a FIFO of the same kind that is described anew.
fn new_limit(limit: Limit, words: &str, environment: &Environment) -> Result<Limit, ParseError> {
    let unlimited = spec::fifo::Fifo::default();
    let mut spec = match limit {
        Limit::Packets(_) => spec::Qdisc::Pfifo(unlimited),
        Limit::PacketsHeadDrop(_) => spec::Qdisc::PfifoHeadDrop(unlimited),
        Limit::Bytes(_) => spec::Qdisc::Bfifo(unlimited),
    };
    spec.apply(words)?;
    Ok(match spec {
        spec::Qdisc::Pfifo(spec) => Limit::packets(spec, environment),
        spec::Qdisc::PfifoHeadDrop(spec) => Limit::packets_head_drop(spec, environment),
        spec::Qdisc::Bfifo(spec) => Limit::bytes(spec, environment),
        _ => limit,
    })
}

const fn fixed(kind: &'static str, parameter: Option<&'static str>) -> ChangeError {
    ChangeError::Fixed { kind, parameter }
}

impl From<ParseError> for ChangeError {
    fn from(error: ParseError) -> Self {
        Self::Words(error)
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(error) => error.fmt(f),
            Self::Fixed {
                kind,
                parameter: None,
            } => {
                write!(f, "{kind} cannot be changed while it runs; its classes can")
            }
            Self::Fixed {
                kind,
                parameter: Some(parameter),
            } => write!(f, "'{parameter}' of {kind} cannot be changed while it runs"),
        }
    }
}

impl Error for ChangeError {}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;
    use crate::qdisc::{Backlog, DropReason, Qdisc};
    use crate::rng::Xorshift;
    use crate::test_packet::{TestPacket, at_micros, drain, ethernet};
    use crate::tree::{Description, Details};

    fn tree(words: &str) -> Tree<TestPacket> {
        let description = Description::parse(&format!("qdisc add root handle 1: {words}")).unwrap();
        let environment = ethernet(crate::profile::Profile::KERNEL);
        Tree::build(&description, &environment, || Xorshift::new(1)).unwrap()
    }

    /// Changes a queue that holds ten packets of 1000 bytes. Returns the packets that it drops, and those that pass at once afterwards.
    fn changed(words: &str, change: &str) -> (Vec<u32>, Vec<u32>) {
        let mut tree = tree(words);
        for id in 0..10 {
            tree.enqueue(TestPacket::new(id, 1000), at_micros(0), &mut ());
        }
        let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
        tree.change(change, at_micros(0), &mut drops).unwrap();
        assert!(drops.iter().all(|(_, reason)| *reason == DropReason::Reconfigure));
        let passed = drain(&mut tree, at_micros(0), &mut ());
        assert_eq!(passed.len() + drops.len() + tree.backlog().packets as usize, 10);
        (drops.iter().map(|(packet, _)| packet.id).collect(), passed)
    }

    #[test]
    fn queued_packets_stay_unless_a_lower_limit_drops_them() {
        let all: Vec<u32> = (0..10).collect();
        for (words, change, dropped) in [
            ("pfifo limit 20", "limit 3", 0),
            ("bfifo limit 20000", "limit 3k", 0),
            ("pfifo_head_drop limit 20", "limit 3", 0),
            ("codel limit 20", "limit 4 ecn", 6),
            ("codel limit 20", "target 1ms", 0),
            ("fq_codel", "limit 4", 6),
            ("fq_codel", "memory_limit 9500", 6),
            ("fq_codel", "quantum 300 noecn", 0),
            ("cake unlimited", "besteffort", 0),
        ] {
            let (drops, passed) = changed(words, change);
            assert_eq!(
                (&drops[..], &passed[..]),
                all.split_at(dropped),
                "{words}: {change}"
            );
        }
    }

    #[test]
    fn a_changed_bucket_is_full() {
        let (_, passed) = changed(
            "tbf rate 1mbit burst 2000 limit 20000",
            "rate 1mbit burst 5000 limit 20000",
        );
        assert_eq!(passed, [0, 1, 2, 3, 4]);
        let mut tree = tree("tbf rate 1mbit burst 2000 limit 20000");
        tree.change("rate 1mbit burst 2000 limit 1000", at_micros(0), &mut ())
            .unwrap();
        for id in 0..2 {
            tree.enqueue(TestPacket::new(id, 1000), at_micros(0), &mut ());
        }
        assert_eq!(tree.backlog().packets, 1);
    }

    /// Linux holds such a packet for ever, and all behind it.
    #[test]
    fn a_packet_larger_than_a_reduced_bucket_is_dropped() {
        let mut tree = tree("tbf rate 1mbit burst 2000 limit 20000");
        for (id, len) in [(0, 1500), (1, 500)] {
            tree.enqueue(TestPacket::new(id, len), at_micros(0), &mut ());
        }
        tree.change("rate 1mbit burst 1000 limit 20000", at_micros(0), &mut ())
            .unwrap();
        let mut drops: Vec<(TestPacket, DropReason)> = Vec::new();
        assert_eq!(drain(&mut tree, at_micros(0), &mut drops), [1]);
        assert_eq!(drops[0].1, DropReason::Oversize);
        assert_eq!(tree.backlog(), Backlog::default());
    }

    #[test]
    fn a_changed_limit_takes_effect_and_other_parameters_stay() {
        let mut tree = tree("fq_codel limit 5 quantum 300");
        tree.change("limit 2", at_micros(0), &mut ()).unwrap();
        let Details::FqCodel { params, .. } = &tree.stats()[0].details else {
            panic!("{:?}", tree.stats());
        };
        assert_eq!((params.limit, params.quantum), (2, 300));
    }

    #[test]
    fn an_unchangeable_parameter_is_refused_and_nothing_changes() {
        let mut hierarchy = tree("htb default 10\nclass add parent 1: classid 1:10 htb rate 1mbit");
        let error = hierarchy.change("default 20", at_micros(0), &mut ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "htb cannot be changed while it runs; its classes can"
        );
        let mut queue = tree("fq_codel");
        let error = queue
            .change("limit 5 flows 16", at_micros(0), &mut ())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "'flows' of fq_codel cannot be changed while it runs"
        );
        assert!(queue.change("limti 5", at_micros(0), &mut ()).is_err());
        let Details::FqCodel { params, .. } = &queue.stats()[0].details else {
            panic!("{:?}", queue.stats());
        };
        assert_eq!(params.limit, 10240);
    }

    #[test]
    fn a_changed_default_class_takes_packets_that_match_no_filter() {
        let mut tree = tree(
            "hfsc default 10\nclass add parent 1: classid 1:10 hfsc ls m2 1mbit\n\
             class add parent 1: classid 1:20 hfsc ls m2 1mbit",
        );
        tree.change("default 20", at_micros(0), &mut ()).unwrap();
        tree.enqueue(TestPacket::new(1, 1000), at_micros(0), &mut ());
        let queued: Vec<_> = tree.stats().iter().map(|node| node.backlog.packets).collect();
        assert_eq!(queued, [1, 0, 0, 1, 1]);
    }
}
