//! Names of steps, as expressions use them: each list of nodes is a scope, and an inner one sees the ones around it.

use crate::ids::StepId;

/// The lists of nodes around a place, and what is in them.
#[derive(Debug, Default)]
pub(super) struct Lists(Vec<List>);

#[derive(Debug)]
pub(super) struct List {
    /// The list that the graph stands in, which has this one for its own.
    pub(super) around: Option<usize>,
    pub(super) entries: Vec<(Box<str>, Entry)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// By its place among all nodes.
    Node(usize),
    /// By the place of its list, and with the node that stands before all of it where it has a condition.
    Graph { list: usize, gate: Option<usize> },
}

impl Lists {
    pub(super) fn add(&mut self, around: Option<usize>) -> usize {
        self.0.push(List { around, entries: Vec::new() });
        self.0.len() - 1
    }

    pub(super) fn enter(&mut self, list: usize, name: &str, entry: Entry) {
        if let Some(list) = self.0.get_mut(list) {
            list.entries.push((name.into(), entry));
        }
    }

    pub(super) fn in_list(&self, list: usize, name: &str) -> Option<Entry> {
        self.0.get(list)?.entries.iter().find(|(known, _)| **known == *name).map(|(_, entry)| *entry)
    }

    /// The node that `name` means in this list: of the nearest list around that has its first part.
    pub(super) fn find(&self, list: usize, name: &str) -> Result<usize, String> {
        let shown = super::explain::cut(name, 64).into_owned();
        let mut parts = name.split('/');
        let first = parts.next().unwrap_or_default();
        let mut at = Some(list);
        let mut found = loop {
            let Some(list) = at else { return Err(format!("there is no step `{shown}`")) };
            match self.in_list(list, first) {
                Some(entry) => break entry,
                None => at = self.0.get(list).and_then(|list| list.around),
            }
        };
        for part in parts {
            let inner = match found {
                Entry::Graph { list, .. } => self.in_list(list, part),
                Entry::Node(_) => None,
            };
            found = inner.ok_or_else(|| format!("there is no step `{shown}`"))?;
        }
        match found {
            Entry::Node(node) => Ok(node),
            Entry::Graph { .. } => {
                Err(format!("`{shown}` is a graph: name one of its nodes, as `steps[\"{shown}/…\"]`"))
            }
        }
    }
}

/// The id of a node in graphs.
pub(super) fn join(outer: Option<&StepId>, name: &str) -> Option<StepId> {
    match outer {
        Some(outer) => StepId::parse(&format!("{outer}/{name}")),
        None => StepId::parse(name),
    }
}
