//! The description of a tree, and the checks that it can be built.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::filter::Filters;
use crate::handle::Handle;
use crate::htb;
use crate::narrow::low_u16;
use crate::spec::command::{ClassNode, Command, FilterNode, QdiscNode};
use crate::spec::{self, Class, ParseError, Qdisc, Stab};

/// Most disciplines on the way from the root to a leaf.
const NESTING: usize = 8;

/// The major number of the first discipline that was given none, as the kernel has it.
const FIRST_OWN_HANDLE: u16 = 0x8001;

/// The preference of a filter that was given none where there are no others; the next goes before it.
const FIRST_OWN_PREFERENCE: u32 = 49152;

/// Disciplines, classes and filters, each naming its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// In order of creation.
    pub qdiscs: Vec<QdiscNode>,
    /// In order of creation, parents first.
    pub classes: Vec<ClassNode>,
    /// In order of creation.
    pub filters: Vec<FilterNode>,
}

/// A command that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Counted from 1.
    pub line: usize,
    /// The error.
    pub error: ParseError,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.error)
    }
}

impl core::error::Error for LineError {}

/// Why a description is no tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no root discipline.
    NoRoot,
    /// Two things have this handle.
    Twice(Handle),
    /// Two disciplines hang in the same place; `None` is the root.
    Occupied(Option<Handle>),
    /// The parent that a class or discipline names does not exist, or comes after it.
    NoParent {
        /// The child.
        child: Handle,
        /// The parent that it names.
        parent: Handle,
    },
    /// A discipline hangs in one that takes none, or directly in one that has classes.
    TakesNoQdisc {
        /// The child.
        child: Handle,
        /// Where it hangs.
        parent: Handle,
        /// The kind of the parent.
        kind: &'static str,
    },
    /// A discipline hangs in a class that has classes below it.
    NotALeaf {
        /// The child.
        child: Handle,
        /// The class.
        parent: Handle,
    },
    /// A class is of another kind than its discipline.
    WrongKind {
        /// The class.
        class: Handle,
        /// The kind of its discipline.
        kind: &'static str,
    },
    /// Classes or disciplines nest deeper than this allows.
    TooDeep(Handle),
    /// A size table stands below the root.
    SizeTableBelowRoot(Handle),
    /// A filter stands where there are no classes to choose from.
    FilterWithoutClasses(Handle),
    /// This kind is known and not built in.
    NotBuiltIn {
        /// The discipline.
        handle: Handle,
        /// Its kind.
        kind: &'static str,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoot => f.write_str("there is no root qdisc"),
            Self::Twice(handle) => write!(f, "{handle} is defined twice"),
            Self::Occupied(None) => f.write_str("there are two root qdiscs"),
            Self::Occupied(Some(parent)) => write!(f, "{parent} has two qdiscs"),
            Self::NoParent { child, parent } => {
                write!(f, "the parent {parent} of {child} is not defined before it")
            }
            Self::TakesNoQdisc { child, parent, kind } => {
                write!(f, "{kind} takes no qdisc at {parent}, the parent of {child}")
            }
            Self::NotALeaf { child, parent } => {
                write!(
                    f,
                    "qdisc {child} cannot have the parent {parent}, which is an inner class"
                )
            }
            Self::WrongKind { class, kind } => {
                write!(
                    f,
                    "class {class} is of another kind than its qdisc, which is {kind}"
                )
            }
            Self::TooDeep(handle) => write!(f, "{handle} is nested too deep"),
            Self::SizeTableBelowRoot(handle) => {
                write!(f, "qdisc {handle} has a size table; only the root may have one")
            }
            Self::FilterWithoutClasses(parent) => {
                write!(f, "a filter at {parent} cannot select a class: {parent} has none")
            }
            Self::NotBuiltIn { handle, kind } => {
                write!(
                    f,
                    "qdisc {handle} is {kind}, which sqm does not implement: only the kernel does"
                )
            }
        }
    }
}

impl core::error::Error for BuildError {}

/// Behaviour of a tree that its author may not have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Packets that no filter takes are not shaped, because the default class is not a leaf that exists (HTB).
    Unshaped {
        /// The discipline.
        qdisc: Handle,
        /// The default class that it names.
        default: Handle,
    },
    /// Packets that no filter takes are dropped, because the default class is not a leaf that exists (HFSC).
    Dropped {
        /// The discipline.
        qdisc: Handle,
        /// The default class that it names.
        default: Handle,
    },
    /// A filter sends packets to a class that does not exist, and they go to the default class.
    FilterToNowhere(Handle),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unshaped { qdisc, default } => write!(
                f,
                "htb {qdisc} sends packets that match no filter UNSHAPED: its default {default} is not a leaf class"
            ),
            Self::Dropped { qdisc, default } => write!(
                f,
                "hfsc {qdisc} drops packets that match no filter: its default {default} is not a leaf class"
            ),
            Self::FilterToNowhere(class) => {
                write!(
                    f,
                    "a filter sends packets to {class}, which is not a class of its qdisc"
                )
            }
        }
    }
}

/// A description that is a tree.
pub(super) struct Plan {
    pub(super) stab: Option<Stab>,
    pub(super) root: Planned,
}

pub(super) struct Planned {
    pub(super) handle: Handle,
    pub(super) qdisc: Qdisc,
    pub(super) below: Below,
}

pub(super) enum Below {
    Nothing,
    Queue(Box<Planned>),
    Classes(Vec<PlannedClass>, Filters),
}

pub(super) struct PlannedClass {
    pub(super) minor: u16,
    /// `None` is the discipline itself.
    pub(super) parent: Option<u16>,
    pub(super) class: Class,
    pub(super) is_leaf: bool,
    pub(super) queue: Option<Planned>,
}

impl Description {
    /// One discipline alone.
    pub fn single(qdisc: Qdisc) -> Self {
        Self {
            qdiscs: [QdiscNode {
                parent: None,
                handle: None,
                stab: None,
                qdisc,
            }]
            .into(),
            ..Self::default()
        }
    }

    /// Reads `tc` commands, one a line; empty lines and those that begin with `#` say nothing.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let mut description = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let command = Command::parse(line).map_err(|error| LineError {
                line: number + 1,
                error,
            })?;
            match command {
                Command::Qdisc(node) => description.qdiscs.push(node),
                Command::Class(node) => description.classes.push(node),
                Command::Filter(node) => description.filters.push(node),
            }
        }
        Ok(description)
    }

    /// Behaviour of the tree that its author may not have meant; nothing for a description that is no tree.
    pub fn warnings(&self) -> Vec<Warning> {
        let Ok(handles) = self.handles() else {
            return Vec::new();
        };
        let mut warnings = Vec::new();
        for (node, &handle) in self.qdiscs.iter().zip(&handles) {
            let minor = match &node.qdisc {
                Qdisc::Htb(spec) => spec.default,
                Qdisc::Hfsc(spec) => spec.default,
                _ => continue,
            };
            let default = Handle::new(handle.major, low_u16(minor.into()));
            if !self.is_leaf_class(default) {
                warnings.push(match &node.qdisc {
                    Qdisc::Htb(_) => Warning::Unshaped {
                        qdisc: handle,
                        default,
                    },
                    _ => Warning::Dropped {
                        qdisc: handle,
                        default,
                    },
                });
            }
        }
        let nowhere = self
            .filters
            .iter()
            .map(|filter| filter.class)
            .filter(|&class| class.minor != 0 && !self.classes.iter().any(|node| node.id == class));
        warnings.extend(nowhere.map(Warning::FilterToNowhere));
        warnings
    }

    /// Checks that the tree can be built.
    pub fn check(&self) -> Result<(), BuildError> {
        self.plan().map(|_| ())
    }

    pub(super) fn plan(&self) -> Result<Plan, BuildError> {
        let handles = self.handles()?;
        self.check_classes(&handles)?;
        let mut roots = self
            .qdiscs
            .iter()
            .zip(&handles)
            .filter(|(node, _)| node.parent.is_none());
        let (root, &handle) = roots.next().ok_or(BuildError::NoRoot)?;
        if roots.next().is_some() {
            return Err(BuildError::Occupied(None));
        }
        self.check_qdiscs(&handles)?;
        let filters = self.check_filters(&handles, handle)?;
        let planner = Planner {
            description: self,
            handles: &handles,
            filters: &filters,
        };
        Ok(Plan {
            stab: root.stab.clone(),
            root: planner.qdisc(root, handle, 1)?,
        })
    }

    /// Every discipline's handle, in their order.
    fn handles(&self) -> Result<Vec<Handle>, BuildError> {
        let given = |handle| {
            self.qdiscs
                .iter()
                .filter(|node| node.handle == Some(handle))
                .count()
        };
        let mut next = FIRST_OWN_HANDLE;
        let mut handles = Vec::with_capacity(self.qdiscs.len());
        for node in &self.qdiscs {
            let handle = match node.handle {
                Some(handle) if given(handle) > 1 => return Err(BuildError::Twice(handle)),
                Some(handle) => Handle::new(handle.major, 0),
                None => {
                    while given(Handle::new(next, 0)) > 0 {
                        next = next.wrapping_add(1).max(1);
                    }
                    next = next.wrapping_add(1).max(1);
                    Handle::new(next.wrapping_sub(1), 0)
                }
            };
            handles.push(handle);
        }
        Ok(handles)
    }

    fn kind_of(&self, handles: &[Handle], major: u16) -> Option<&Qdisc> {
        let found = handles.iter().position(|handle| handle.major == major)?;
        Some(&self.qdiscs[found].qdisc)
    }

    fn check_classes(&self, handles: &[Handle]) -> Result<(), BuildError> {
        for (place, node) in self.classes.iter().enumerate() {
            let before = &self.classes[..place];
            let is_class = |id| before.iter().any(|other| other.id == id);
            if is_class(node.id) || node.id.minor == 0 {
                return Err(BuildError::Twice(node.id));
            }
            let missing = BuildError::NoParent {
                child: node.id,
                parent: node.parent,
            };
            let of_same = node.parent.major == node.id.major;
            let Some(qdisc) = self.kind_of(handles, node.id.major).filter(|_| of_same) else {
                return Err(missing);
            };
            match (&node.class, qdisc) {
                (Class::Htb(_), Qdisc::Htb(_)) | (Class::Hfsc(_), Qdisc::Hfsc(_)) => {}
                _ => {
                    return Err(BuildError::WrongKind {
                        class: node.id,
                        kind: qdisc.kind(),
                    });
                }
            }
            if node.parent.minor != 0 && !is_class(node.parent) {
                return Err(missing);
            }
            if self.depth(node) > htb::LEVELS && matches!(node.class, Class::Htb(_)) {
                return Err(BuildError::TooDeep(node.id));
            }
        }
        Ok(())
    }

    /// Classes from the top down to this one.
    fn depth(&self, node: &ClassNode) -> usize {
        let above = |node: &ClassNode| self.classes.iter().find(|other| other.id == node.parent);
        core::iter::successors(Some(node), |node| above(node))
            .take(self.classes.len())
            .count()
    }

    fn is_leaf_class(&self, id: Handle) -> bool {
        self.classes.iter().any(|node| node.id == id) && self.classes.iter().all(|node| node.parent != id)
    }

    fn check_qdiscs(&self, handles: &[Handle]) -> Result<(), BuildError> {
        for (place, (node, &child)) in self.qdiscs.iter().zip(handles).enumerate() {
            let Some(parent) = node.parent else { continue };
            if node.stab.is_some() {
                return Err(BuildError::SizeTableBelowRoot(child));
            }
            if self.qdiscs[..place]
                .iter()
                .any(|other| other.parent == node.parent)
            {
                return Err(BuildError::Occupied(node.parent));
            }
            let Some(above) = self
                .kind_of(handles, parent.major)
                .filter(|_| parent.major != child.major)
            else {
                return Err(BuildError::NoParent { child, parent });
            };
            match above {
                Qdisc::Tbf(_) if parent.minor <= 1 => {}
                Qdisc::Htb(_) | Qdisc::Hfsc(_) if parent.minor != 0 => {
                    if self.is_leaf_class(parent) {
                        continue;
                    }
                    return Err(match self.classes.iter().any(|class| class.id == parent) {
                        true => BuildError::NotALeaf { child, parent },
                        false => BuildError::NoParent { child, parent },
                    });
                }
                other => {
                    let kind = other.kind();
                    return Err(BuildError::TakesNoQdisc { child, parent, kind });
                }
            }
        }
        Ok(())
    }

    /// The filters with what they leave unsaid.
    fn check_filters(
        &self,
        handles: &[Handle],
        root: Handle,
    ) -> Result<Vec<crate::filter::Filter>, BuildError> {
        let mut filters: Vec<crate::filter::Filter> = Vec::with_capacity(self.filters.len());
        for node in &self.filters {
            let parent = node.parent.unwrap_or(root);
            match self.kind_of(handles, parent.major) {
                Some(Qdisc::Htb(_) | Qdisc::Hfsc(_)) => {}
                _ => return Err(BuildError::FilterWithoutClasses(parent)),
            }
            let least = filters.iter().filter(|filter| filter.parent == parent);
            let own = least
                .map(|filter| filter.preference)
                .min()
                .map_or(FIRST_OWN_PREFERENCE, |least| least.saturating_sub(1));
            filters.push(node.resolve(parent, node.preference.map_or(own, u32::from)));
        }
        Ok(filters)
    }
}

struct Planner<'a> {
    description: &'a Description,
    handles: &'a [Handle],
    filters: &'a [crate::filter::Filter],
}

impl Planner<'_> {
    fn qdisc(&self, node: &QdiscNode, handle: Handle, depth: usize) -> Result<Planned, BuildError> {
        if depth > NESTING {
            return Err(BuildError::TooDeep(handle));
        }
        let below = match &node.qdisc {
            Qdisc::Tbf(_) => {
                let below = |parent: Handle| parent.major == handle.major;
                match self.hanging_in(below, depth)? {
                    Some(queue) => Below::Queue(Box::new(queue)),
                    None => Below::Nothing,
                }
            }
            Qdisc::Htb(_) | Qdisc::Hfsc(_) => self.classes(handle, depth)?,
            Qdisc::Pie(_) | Qdisc::Sfq(_) | Qdisc::CakeMq(_) => {
                let kind = node.qdisc.kind();
                return Err(BuildError::NotBuiltIn { handle, kind });
            }
            _ => Below::Nothing,
        };
        Ok(Planned {
            handle,
            qdisc: node.qdisc.clone(),
            below,
        })
    }

    fn hanging_in(
        &self,
        is_there: impl Fn(Handle) -> bool,
        depth: usize,
    ) -> Result<Option<Planned>, BuildError> {
        let mut nodes = self.description.qdiscs.iter().zip(self.handles);
        nodes
            .find(|(node, _)| node.parent.is_some_and(&is_there))
            .map(|(node, &handle)| self.qdisc(node, handle, depth + 1))
            .transpose()
    }

    fn classes(&self, qdisc: Handle, depth: usize) -> Result<Below, BuildError> {
        let mut classes = Vec::new();
        for node in self
            .description
            .classes
            .iter()
            .filter(|node| node.id.major == qdisc.major)
        {
            classes.push(PlannedClass {
                minor: node.id.minor,
                parent: Some(node.parent.minor).filter(|&minor| minor != 0),
                class: node.class.clone(),
                is_leaf: self.description.is_leaf_class(node.id),
                queue: self.hanging_in(|parent| parent == node.id, depth)?,
            });
        }
        let filters = self
            .filters
            .iter()
            .filter(|filter| filter.parent.major == qdisc.major);
        Ok(Below::Classes(classes, Filters::new(filters.cloned().collect())))
    }
}

impl PlannedClass {
    /// The parameters of a class of HTB.
    pub(super) fn htb(&self) -> &spec::HtbClass {
        match &self.class {
            Class::Htb(class) => class,
            Class::Hfsc(_) => unreachable!("kinds were compared"),
        }
    }

    /// The parameters of a class of HFSC.
    pub(super) fn hfsc(&self) -> &spec::HfscClass {
        match &self.class {
            Class::Hfsc(class) => class,
            Class::Htb(_) => unreachable!("kinds were compared"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    const HTB: &str = "qdisc add dev eth0 root handle 1: htb default 10
        class add dev eth0 parent 1: classid 1:1 htb rate 1mbit
        class add dev eth0 parent 1:1 classid 1:10 htb rate 1mbit\n";

    fn refusal(lines: &str) -> String {
        let text = String::from(HTB) + lines;
        match Description::parse(&text) {
            Ok(description) => description.check().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_name_the_fault_and_its_place() {
        for (lines, message) in [
            ("qdisc add root fq_codel", "there are two root qdiscs"),
            ("qdisc add parent 1:10 handle 1: pfifo", "1: is defined twice"),
            (
                "class add parent 1:1 classid 1:10 htb rate 1mbit",
                "1:10 is defined twice",
            ),
            (
                "class add parent 1:7 classid 1:11 htb rate 1mbit",
                "the parent 1:7 of 1:11 is not defined before it",
            ),
            (
                "class add parent 2: classid 2:1 htb rate 1mbit",
                "the parent 2: of 2:1 is not defined before it",
            ),
            (
                "class add parent 1: classid 1:2 hfsc sc rate 1mbit",
                "class 1:2 is of another kind than its qdisc, which is htb",
            ),
            (
                "qdisc add parent 1:1 handle 2: pfifo",
                "qdisc 2: cannot have the parent 1:1, which is an inner class",
            ),
            (
                "qdisc add parent 1: handle 2: pfifo",
                "htb takes no qdisc at 1:, the parent of 2:",
            ),
            (
                "qdisc add parent 1:10 handle 2: fq_codel\nqdisc add parent 2:1 handle 3: pfifo",
                "fq_codel takes no qdisc at 2:1, the parent of 3:",
            ),
            (
                "qdisc add parent 1:10 handle 2: stab overhead 4 pfifo",
                "qdisc 2: has a size table; only the root may have one",
            ),
            (
                "qdisc add parent 1:10 handle 2: sfq",
                "qdisc 2: is sfq, which sqm does not implement: only the kernel does",
            ),
            (
                "qdisc add parent 1:10 handle 2: pfifo\nfilter add parent 2: matchall classid 2:1",
                "a filter at 2: cannot select a class: 2: has none",
            ),
            (
                "qdisc add parent 1:10 handle 2: pfifo limmit 3",
                "line 4: unknown pfifo keyword 'limmit'; did you mean 'limit'?",
            ),
            (
                "qdisk add root pfifo",
                "line 4: unknown tc keyword 'qdisk'; did you mean 'qdisc'?",
            ),
        ] {
            assert_eq!(refusal(lines), message, "{lines}");
        }
        let nothing = Description::parse("# empty\n\n").unwrap();
        assert_eq!(nothing.check(), Err(BuildError::NoRoot));
    }

    #[test]
    fn classes_and_disciplines_nest_as_deep_as_they_may() {
        let chain = |depth: u16| {
            let mut text = String::from("qdisc add root handle 1: htb\n");
            for id in 1..=depth {
                text += &alloc::format!(
                    "class add parent 1:{:x} classid 1:{id:x} htb rate 1mbit\n",
                    id - 1
                );
            }
            Description::parse(&text).unwrap().check()
        };
        assert_eq!(chain(8), Ok(()));
        assert_eq!(chain(9), Err(BuildError::TooDeep(Handle::new(1, 9))));

        let tbfs = |depth: u16| {
            let mut text = String::from("qdisc add root handle 1: tbf rate 1mbit burst 2k limit 10k\n");
            for id in 2..=depth {
                let words = "tbf rate 1mbit burst 2k limit 10k";
                text += &alloc::format!("qdisc add parent {:x}: handle {id:x}: {words}\n", id - 1);
            }
            Description::parse(&text).unwrap().check()
        };
        assert_eq!(tbfs(8), Ok(()));
        assert_eq!(tbfs(9), Err(BuildError::TooDeep(Handle::new(9, 0))));
    }

    #[test]
    fn warnings_name_probable_mistakes() {
        let warnings = |text: &str| -> Vec<String> {
            let description = Description::parse(text).unwrap();
            assert_eq!(description.check(), Ok(()));
            description.warnings().iter().map(Warning::to_string).collect()
        };
        assert_eq!(warnings(HTB), [""; 0]);
        assert_eq!(
            warnings(&HTB.replace("default 10", "default 1")),
            ["htb 1: sends packets that match no filter UNSHAPED: its default 1:1 is not a leaf class"]
        );
        assert_eq!(
            warnings(&(String::from(HTB) + "filter add parent 1: matchall classid 1:11")),
            ["a filter sends packets to 1:11, which is not a class of its qdisc"]
        );
    }
}
