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
use crate::failure::Failure;

/// What the queue shall be.
pub(crate) struct Shape(Description);

/// How it shall be built.
pub(crate) struct Build {
    pub(crate) profile: Profile,
    /// Decides hashes and lots, so that a replay can be repeated.
    pub(crate) seed: u64,
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
    pub(crate) fn one(words: &str) -> Result<Self, Failure> {
        let spec = spec::Qdisc::parse(words).map_err(|error| Failure::Usage(error.into()))?;
        Ok(Self(Description::single(spec)))
    }

    /// A tree, as a list of `tc` commands in a file of this name.
    pub(crate) fn tree(commands: &str, file: &str) -> Result<Self, Failure> {
        let description = Description::parse(commands)
            .with_context(|| file.to_owned())
            .map_err(Failure::Usage)?;
        description
            .check()
            .with_context(|| file.to_owned())
            .map_err(Failure::Usage)?;
        Ok(Self(description))
    }

    /// Whether it holds packets back by itself. A class tree may not, if it says so in its warnings.
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

    /// What will not do what its author may have meant.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.0.warnings().iter().map(ToString::to_string).collect();
        for node in &self.0.qdiscs {
            let spec::Qdisc::Cake(cake) = &node.qdisc else {
                continue;
            };
            if cake.nat {
                warnings.push(
                    "nat has no effect: a capture does not tell how addresses were translated".to_owned(),
                );
            }
            if cake.fwmark != 0 {
                warnings
                    .push("fwmark has no effect: a capture does not tell the firewall's marks".to_owned());
            }
        }
        warnings
    }

    /// Its words, one discipline a line, the others below the root with where they hang.
    pub(super) fn words(&self) -> Vec<String> {
        let words = self.0.qdiscs.iter().map(|node| match node.parent {
            None => node.qdisc.to_string(),
            Some(parent) => format!("{parent} {}", node.qdisc),
        });
        words.collect()
    }

    pub(super) fn build(&self, build: &Build, now: Instant, mtu: u32) -> Result<Tree<Captured>, Failure> {
        /// Sets the hash's half of the seed apart from the lots'.
        const OTHER_HALF: u64 = 0x9e37_79b9_7f4a_7c15;
        let environment = Environment {
            mtu,
            profile: build.profile,
            ..Environment::ethernet(now, HashKey(build.seed, build.seed ^ OTHER_HALF))
        };
        let mut seeds = Xorshift::new(build.seed);
        Tree::build(&self.0, &environment, || Xorshift::new(seeds.next_u64()))
            .map_err(|error| Failure::Unsupported(anyhow!(error)))
    }

    fn root(&self) -> Option<&spec::Qdisc> {
        let root = self.0.qdiscs.iter().find(|node| node.parent.is_none());
        root.map(|node| &node.qdisc)
    }
}
