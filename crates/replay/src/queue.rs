//! The queue that a capture goes through.

use anyhow::{Context, anyhow};
use sqm_core::diffserv::Layout;
use sqm_core::flow_hash::HashKey;
use sqm_core::profile::Profile;
use sqm_core::qdisc::Environment;
use sqm_core::rng::Xorshift;
use sqm_core::spec;
use sqm_core::tree::{Description, Tree};
use sqm_core::units::Instant;

use super::packet::Captured;
use crate::error::Error;

/// A queue, or a tree of classes and queues.
pub struct Shape(Description);

/// The properties of a queue besides its parameters.
pub struct Build {
    /// The defects of the kernel that the queue reproduces.
    pub profile: Profile,
    /// Seed of the hash keys and of CAKE's random numbers: the same seed gives the same outcome.
    pub seed: u64,
}

impl Build {
    pub(super) fn profile_name(&self) -> &'static str {
        match self.profile {
            Profile::KERNEL => "kernel",
            _ => "fixed",
        }
    }
}

impl Shape {
    /// One queue, in `tc`'s words.
    pub fn one(words: &str) -> Result<Self, Error> {
        let spec = spec::Qdisc::parse(words).map_err(|error| Error::Input(error.into()))?;
        Ok(Self(Description::single(spec)))
    }

    /// A tree, as a list of `tc` commands in a file of this name.
    pub fn tree(commands: &str, file: &str) -> Result<Self, Error> {
        let description = Description::parse(commands)
            .with_context(|| file.to_owned())
            .map_err(Error::Input)?;
        description
            .check()
            .with_context(|| file.to_owned())
            .map_err(Error::Input)?;
        Ok(Self(description))
    }

    /// True if the queue delays packets by itself. HTB and HFSC count as shapers even where a class has no rate; their
    /// warnings say so.
    pub(super) fn is_shaped(&self) -> bool {
        match self.root() {
            Some(spec::Qdisc::Cake(cake)) => cake.bandwidth.is_some() || cake.autorate_ingress,
            Some(spec::Qdisc::Tbf(_) | spec::Qdisc::Htb(_) | spec::Qdisc::Hfsc(_)) => true,
            _ => false,
        }
    }

    /// The tins, if it is CAKE.
    pub(super) fn tins(&self) -> Option<&'static Layout> {
        match self.root() {
            Some(spec::Qdisc::Cake(cake)) => Some(Layout::of(cake.tins)),
            _ => None,
        }
    }

    /// Warnings: parameters that have no effect in a replay, and doubtful ones.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.0.warnings().iter().map(ToString::to_string).collect();
        for node in &self.0.qdiscs {
            let spec::Qdisc::Cake(cake) = &node.qdisc else {
                continue;
            };
            if cake.nat {
                warnings.push(
                    "nat has no effect: a capture does not show how addresses were translated".to_owned(),
                );
            }
            if cake.fwmark != 0 {
                warnings
                    .push("fwmark has no effect: a capture does not contain the firewall's marks".to_owned());
            }
        }
        warnings
    }

    /// The words of each qdisc, root first; the others begin with their parent.
    pub(super) fn words(&self) -> Vec<String> {
        let words = self.0.qdiscs.iter().map(|node| match node.parent {
            None => node.qdisc.to_string(),
            Some(parent) => format!("{parent} {}", node.qdisc),
        });
        words.collect()
    }

    pub(super) fn build(&self, build: &Build, now: Instant, mtu: u32) -> Result<Tree<Captured>, Error> {
        /// 2^64 divided by the golden ratio. It makes the two halves of the hash key differ.
        const OTHER_HALF: u64 = 0x9e37_79b9_7f4a_7c15;
        let environment = Environment {
            mtu,
            profile: build.profile,
            ..Environment::ethernet(now, HashKey(build.seed, build.seed ^ OTHER_HALF))
        };
        let mut seeds = Xorshift::new(build.seed);
        Tree::build(&self.0, &environment, || Xorshift::new(seeds.next_u64()))
            .map_err(|error| Error::Unsupported(anyhow!(error)))
    }

    fn root(&self) -> Option<&spec::Qdisc> {
        let root = self.0.qdiscs.iter().find(|node| node.parent.is_none());
        root.map(|node| &node.qdisc)
    }
}
