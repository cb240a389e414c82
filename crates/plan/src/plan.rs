//! The plan: which queues stand on which device. Plain data that the kernel, the user-space engine and the
//! simulator all understand.
//!
//! Qdiscs and classes are flat lists in the order of their creation, each naming its parent, as the kernel itself
//! lists them: printing, comparing and applying are then one walk.

use std::fmt;

use sqm_core::spec::{HtbClass, Qdisc, Stab};

/// Everything that shapes one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The shaped network device.
    pub interface: String,
    /// Name of the set-up that made the plan, such as `piece_of_cake.qos`.
    pub script: String,
    /// Queues on the device itself; `None` leaves what leaves the device unshaped.
    pub egress: Option<Tree>,
    /// Queues on the IFB that arriving packets are redirected to; `None` leaves them unshaped.
    pub ingress: Option<Tree>,
}

impl Plan {
    /// The intermediate functional block that carries the ingress queues: `ifb4` and the device's name, cut to the
    /// 15 bytes a device name may have. Other tools look for this name.
    pub fn ifb(&self) -> String {
        let mut name = format!("ifb4{}", self.interface);
        while name.len() > 15 {
            name.pop();
        }
        name
    }
}

/// Prints the plan for people: what stands where, in lines that belong together.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} by {}", self.interface, self.script)?;
        for (direction, device, tree) in [
            ("egress", &self.interface, &self.egress),
            ("ingress", &self.ifb(), &self.ingress),
        ] {
            match tree {
                Some(tree) => write!(f, "  {direction} on {device}\n{tree}")?,
                None => writeln!(f, "  {direction} is not shaped")?,
            }
        }
        Ok(())
    }
}

/// The queues of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Root first, then leaves, in order of creation.
    pub qdiscs: Vec<PlannedQdisc>,
    /// Parents before children. Created after the root qdisc and before the leaves.
    pub classes: Vec<PlannedClass>,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (roots, leaves): (Vec<_>, Vec<_>) = self.qdiscs.iter().partition(|qdisc| qdisc.parent.is_none());
        roots.iter().try_for_each(|root| writeln!(f, "    {root}"))?;
        self.classes
            .iter()
            .try_for_each(|class| writeln!(f, "    {class}"))?;
        leaves.iter().try_for_each(|leaf| writeln!(f, "    {leaf}"))
    }
}

/// A qdisc and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedQdisc {
    /// `None` is the root of the device.
    pub parent: Option<Handle>,
    /// Its own handle, minor number 0.
    pub handle: Handle,
    /// Size table; only on a root.
    pub stab: Option<Stab>,
    /// Kind and parameters.
    pub qdisc: Qdisc,
}

impl fmt::Display for PlannedQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.handle)?;
        match self.parent {
            Some(parent) => write!(f, " parent {parent} ")?,
            None => f.write_str(" root ")?,
        }
        if let Some(stab) = &self.stab {
            write!(f, "stab {stab} ")?;
        }
        self.qdisc.fmt(f)
    }
}

/// An HTB class and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedClass {
    /// The qdisc or class above.
    pub parent: Handle,
    /// Its own number.
    pub id: Handle,
    /// Its parameters.
    pub class: HtbClass,
}

impl fmt::Display for PlannedClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parent {} htb {}", self.id, self.parent, self.class)
    }
}

/// A `tc` handle, `major:minor`, both hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// Names the qdisc.
    pub major: u16,
    /// Names a class inside it; 0 is the qdisc itself.
    pub minor: u16,
}

impl Handle {
    /// `major:minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            0 => write!(f, "{:x}:", self.major),
            minor => write!(f, "{:x}:{minor:x}", self.major),
        }
    }
}
