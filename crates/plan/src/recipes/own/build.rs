//! Puts the commands of one direction together, as the kernel would take them.

use std::collections::{BTreeMap, BTreeSet};

use sqm_core::spec::command::{ClassNode, Command, FilterNode, QdiscNode};
use sqm_core::spec::{Class, Qdisc};
use sqm_core::units::shortened;

use super::filter;
use crate::own::text::Line;
use crate::own::{MOST_ERRORS, TextError};
use crate::plan::{Condition, Handle, PlannedClass, PlannedFilter, PlannedQdisc, Protocol, Tree};
use crate::recipes::ROOT;

/// The major number of the qdisc that `tc` calls `ingress`.
pub(super) const INGRESS: u16 = 0xffff;
/// Levels of classes that HTB takes below its root (`TC_HTB_MAXDEPTH`).
const DEEPEST_CLASS: usize = 8;

/// Puts the commands of one direction together, each in its turn, as the kernel would take them.
#[derive(Default)]
pub(super) struct Builder {
    root: Option<(QdiscNode, usize)>,
    leaves: Vec<(QdiscNode, usize)>,
    classes: BTreeMap<Handle, (usize, usize)>,
    planned_classes: Vec<PlannedClass>,
    filters: Vec<(FilterNode, PlannedFilter, usize)>,
    /// Major numbers of handles, each with its line.
    majors: BTreeMap<u16, usize>,
}

impl Builder {
    /// Adds a command, which needs what earlier ones have made.
    pub(super) fn add(&mut self, command: Command, line: &Line) -> Result<(), TextError> {
        let number = line.number;
        let added = match command {
            Command::Qdisc(node) => self.qdisc(node, number),
            Command::Class(node) => self.class(node, number),
            Command::Filter(node) => self.filter(node, number),
        };
        added.map_err(|(word, message)| {
            // A command may go over several lines.
            let found = line.words.iter().find(|written| written.text == word);
            let at = found.map_or(number, |written| written.line);
            TextError::at(at, format!("word '{}': {message}", shortened(&word)))
        })
    }

    /// The root's handle. A root that no line names is `1:`.
    fn root_handle(&self) -> Option<Handle> {
        let (root, _) = self.root.as_ref()?;
        Some(root.handle.unwrap_or(ROOT))
    }

    fn qdisc(&mut self, node: QdiscNode, line: usize) -> Result<(), Refused> {
        if let Some(handle) = node.handle {
            let word = handle.to_string();
            if handle.minor != 0 || handle.major == 0 || handle.major == INGRESS {
                return Err((
                    word,
                    "a qdisc's handle is a number from 1 to fffe and a colon, such as 110:".to_owned(),
                ));
            }
            if let Some(other) = self.majors.insert(handle.major, line) {
                return Err((word, format!("line {other} has this handle already")));
            }
        }
        match node.parent {
            None => self.add_root(node, line),
            Some(parent) => self.leaf(node, parent, line),
        }
    }

    fn add_root(&mut self, node: QdiscNode, line: usize) -> Result<(), Refused> {
        if let Some((_, other)) = self.root {
            return Err((
                "root".to_owned(),
                format!("line {other} has made the root of this device already"),
            ));
        }
        if node.handle.is_none() && self.majors.insert(ROOT.major, line).is_some() {
            return Err(("root".to_owned(), "give it a handle: 'handle 1:'".to_owned()));
        }
        self.root = Some((node, line));
        Ok(())
    }

    fn leaf(&mut self, mut node: QdiscNode, parent: Handle, line: usize) -> Result<(), Refused> {
        let refuse = |message: String| Err((parent.to_string(), message));
        let Some((root, _)) = &self.root else {
            return refuse("no line before this one makes that parent: begin with the root".to_owned());
        };
        let root_handle = self.root_handle().unwrap_or(ROOT);
        let kind = node.qdisc.kind();
        match &root.qdisc {
            Qdisc::Tbf(_) => {
                if parent.major != root_handle.major || parent.minor > 1 {
                    return refuse(format!("the one place below tbf is {root_handle}"));
                }
                node.parent = Some(root_handle);
            }
            Qdisc::Htb(_) | Qdisc::Hfsc(_) => {
                if parent == root_handle {
                    return refuse(format!(
                        "that is the root: a {kind} stands in one of its classes, such as {}",
                        Handle::new(root_handle.major, 0x10)
                    ));
                }
                if !self.classes.contains_key(&parent) {
                    return refuse("no line before this one makes that class".to_owned());
                }
                if self.planned_classes.iter().any(|class| class.parent == parent) {
                    return refuse("that class has classes, so that it has no queue of its own".to_owned());
                }
            }
            other => return refuse(format!("the root is {}, which has no classes", other.kind())),
        }
        if let Some((_, other)) = self.leaves.iter().find(|(leaf, _)| leaf.parent == node.parent) {
            return refuse(format!("line {other} has put a queue there already"));
        }
        if node.stab.is_some() {
            return Err((
                "stab".to_owned(),
                "a size table stands on the root, and counts for all below".to_owned(),
            ));
        }
        if matches!(node.qdisc, Qdisc::Htb(_) | Qdisc::Hfsc(_) | Qdisc::CakeMq(_)) {
            return Err((kind.to_owned(), format!("{kind} is a root")));
        }
        self.leaves.push((node, line));
        Ok(())
    }

    fn class(&mut self, node: ClassNode, line: usize) -> Result<(), Refused> {
        let ClassNode { parent, id, class } = node;
        let Some((root, _)) = &self.root else {
            return Err((
                parent.to_string(),
                "no line before this one makes that parent: begin with the root".to_owned(),
            ));
        };
        let root_handle = self.root_handle().unwrap_or(ROOT);
        if root.qdisc.kind() != class.kind() {
            let message = format!(
                "the root is {}, which has no classes of {}",
                root.qdisc.kind(),
                class.kind()
            );
            return Err((class.kind().to_owned(), message));
        }
        if id.major != root_handle.major || id.minor == 0 {
            return Err((
                id.to_string(),
                format!(
                    "a class of the root {root_handle} is {:x}:1 to {:x}:ffff",
                    root_handle.major, root_handle.major
                ),
            ));
        }
        if let Class::Htb(htb) = &class
            && htb.ceil.bits_per_sec() < htb.rate.bits_per_sec()
        {
            let message = format!(
                "the class may send {} at most and {} in any case: raise 'ceil' or lower 'rate'",
                htb.ceil, htb.rate
            );
            return Err((id.to_string(), message));
        }
        if id == parent {
            return Err((
                parent.to_string(),
                "the class would be its own parent, a cycle".to_owned(),
            ));
        }
        if let Some((other, _)) = self.classes.get(&id) {
            return Err((
                id.to_string(),
                format!("line {other} has made this class already"),
            ));
        }
        let depth = match self.classes.get(&parent) {
            Some((_, depth)) => depth + 1,
            None if parent == root_handle => 1,
            None => {
                return Err((
                    parent.to_string(),
                    "no line before this one makes that parent".to_owned(),
                ));
            }
        };
        if depth > DEEPEST_CLASS {
            return Err((
                parent.to_string(),
                format!("more than {DEEPEST_CLASS} classes within each other"),
            ));
        }
        if let Some((_, other)) = self.leaves.iter().find(|(leaf, _)| leaf.parent == Some(parent)) {
            return Err((
                parent.to_string(),
                format!("line {other} has put a queue into that class, so that it takes no classes"),
            ));
        }
        self.classes.insert(id, (line, depth));
        self.planned_classes.push(PlannedClass { parent, id, class });
        Ok(())
    }

    fn filter(&mut self, node: FilterNode, line: usize) -> Result<(), Refused> {
        let Some(root_handle) = self.root_handle() else {
            return Err((
                "filter".to_owned(),
                "no line before this one makes the root".to_owned(),
            ));
        };
        if let Some(parent) = node.parent.filter(|parent| *parent != root_handle) {
            return Err((
                parent.to_string(),
                format!("filters stand on the root, {root_handle}"),
            ));
        }
        let Some(preference) = node.preference else {
            return Err((
                "filter".to_owned(),
                "it needs 'prio' and a number, lower ones are asked first".to_owned(),
            ));
        };
        if let Some((_, _, other)) = self
            .filters
            .iter()
            .find(|(_, planned, _)| planned.preference == preference)
        {
            return Err((
                preference.to_string(),
                format!("line {other} has a filter of this prio: give each its own"),
            ));
        }
        let (protocol, condition) =
            filter::of(&node).map_err(|reason| ("filter".to_owned(), reason.to_owned()))?;
        if !self.classes.contains_key(&node.class) {
            return Err((
                node.class.to_string(),
                "no line before this one makes that class".to_owned(),
            ));
        }
        let planned = PlannedFilter {
            preference,
            protocol,
            condition,
            class: node.class,
        };
        self.filters.push((node, planned, line));
        Ok(())
    }

    /// The tree; `None` if no command makes a root.
    pub(super) fn finish(mut self) -> Result<Option<Tree>, Vec<TextError>> {
        let errors = self.whole();
        if !errors.is_empty() {
            return Err(errors);
        }
        let Some((root, _)) = self.root.take() else {
            return Ok(None);
        };
        let mut free = free_majors(&self.majors);
        let mut planned = |node: QdiscNode, handle: Option<Handle>| PlannedQdisc {
            parent: node.parent,
            handle: node
                .handle
                .or(handle)
                .unwrap_or_else(|| Handle::new(free.next().unwrap_or(1), 0)),
            stab: node.stab,
            qdisc: node.qdisc,
        };
        let mut qdiscs = vec![planned(root, Some(ROOT))];
        qdiscs.extend(self.leaves.into_iter().map(|(leaf, _)| planned(leaf, None)));
        let mut filters: Vec<PlannedFilter> =
            self.filters.into_iter().map(|(_, planned, _)| planned).collect();
        filters.sort_by_key(|filter| filter.preference);
        Ok(Some(Tree {
            qdiscs,
            classes: self.planned_classes,
            filters,
        }))
    }

    /// The errors that only all lines together show.
    fn whole(&self) -> Vec<TextError> {
        let Some((root, root_line)) = &self.root else {
            return Vec::new();
        };
        let mut errors = Vec::new();
        let parents: BTreeSet<Handle> = self.planned_classes.iter().map(|class| class.parent).collect();
        let root_handle = self.root_handle().unwrap_or(ROOT);
        let default = match &root.qdisc {
            Qdisc::Htb(htb) => Some(htb.default),
            Qdisc::Hfsc(hfsc) => Some(hfsc.default),
            _ => None,
        };
        let is_leaf = |class: Handle| self.classes.contains_key(&class) && !parents.contains(&class);
        if let Some(default) = default {
            let class = Handle::new(root_handle.major, u16::try_from(default).unwrap_or(0));
            let catches_all = self.filters.iter().any(|(_, planned, _)| {
                planned.protocol == Protocol::All && planned.condition == Condition::Always
            });
            if !(is_leaf(class) || default == 0 && catches_all) {
                let message = match default {
                    0 => "word 'default' is missing: packets that no filter sends to a class would pass by the shaper".to_owned(),
                    _ => format!("word 'default': {class} is not a class that holds packets; those without a class would pass by the shaper"),
                };
                errors.push(TextError::at(*root_line, message));
            }
        }
        for class in &self.planned_classes {
            let has_queue = self.leaves.iter().any(|(leaf, _)| leaf.parent == Some(class.id));
            if is_leaf(class.id) && !has_queue {
                let line = self.classes.get(&class.id).map_or(*root_line, |(line, _)| *line);
                let message = format!(
                    "word '{}': the class has no queue: add 'tc qdisc add dev … parent {} fq_codel'",
                    class.id, class.id
                );
                errors.push(TextError::at(line, message));
            }
        }
        if matches!(root.qdisc, Qdisc::Tbf(_)) && self.leaves.is_empty() {
            let message = format!(
                "word 'tbf': it has no queue: add 'tc qdisc add dev … parent {root_handle} fq_codel'"
            );
            errors.push(TextError::at(*root_line, message));
        }
        for (_, planned, line) in &self.filters {
            if !is_leaf(planned.class) {
                let message = format!(
                    "word '{}': that class has classes and holds no packets",
                    planned.class
                );
                errors.push(TextError::at(*line, message));
            }
        }
        errors.truncate(MOST_ERRORS);
        errors
    }
}

/// The word that an error is about, and the error.
type Refused = (String, String);

/// Numbers for the handles of qdiscs to which no line gives one.
fn free_majors(taken: &BTreeMap<u16, usize>) -> impl Iterator<Item = u16> {
    /// The first one, away from the numbers that people choose.
    const FIRST: u16 = 0x1000;
    (FIRST..INGRESS).filter(|major| !taken.contains_key(major))
}
