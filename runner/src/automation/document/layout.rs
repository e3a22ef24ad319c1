//! Nodes of a document in one list, each with what it waits for.

use std::collections::BTreeSet;

use serde_json::Value;

use super::bounds::{GRAPHS_DEEP_MAX, NODES_MAX};
use super::fault::Gathered;
use super::form::{Action, After, Branch, Delay, Effect, Graph, HttpRequest, Transform};
use super::steps::{Entry, Lists, join};
use super::{explain, schema};
use crate::ids::StepId;

/// A node of any kind but a graph.
#[derive(Debug)]
pub(super) enum Form {
    HttpRequest(Box<HttpRequest>),
    /// With its action's name.
    Action(Box<Action>, Box<str>),
    Effect(Box<Effect>),
    Branch(Branch),
    Delay(Box<Delay>),
    Transform(Transform),
    /// What stands before a graph with a condition: a step of the graph's own name, which is skipped where it is false.
    Gate(Option<String>),
}

#[derive(Debug)]
pub(super) struct Laid {
    pub(super) id: StepId,
    pub(super) path: String,
    /// In which its names are looked up.
    pub(super) list: usize,
    pub(super) form: Form,
    pub(super) after: Vec<Dependency>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dependency {
    pub(super) node: usize,
    pub(super) case: Option<Box<str>>,
}

#[derive(Debug)]
struct Item {
    path: String,
    entry: Entry,
    after: Option<Vec<(String, Option<String>)>>,
}

#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) nodes: Vec<Laid>,
    pub(super) lists: Lists,
    /// By list.
    items: Vec<Vec<Item>>,
}

/// What a node in a list has around it.
#[derive(Clone, Copy)]
struct Around<'a> {
    list: usize,
    outer: Option<&'a StepId>,
    deep: usize,
}

impl Layout {
    pub(super) fn of(nodes: &[Value], faults: &mut Gathered) -> Self {
        let mut layout = Self::default();
        let list = layout.new_list(None);
        layout.lay(nodes, "nodes", Around { list, outer: None, deep: 0 }, faults);
        layout.connect(list, &[], faults);
        layout
    }

    fn new_list(&mut self, around: Option<usize>) -> usize {
        self.items.push(Vec::new());
        self.lists.add(around)
    }

    fn lay(&mut self, nodes: &[Value], path: &str, around: Around<'_>, faults: &mut Gathered) {
        for (at, node) in nodes.iter().enumerate() {
            let path = format!("{path}[{at}]");
            if self.nodes.len() >= NODES_MAX {
                return faults
                    .add(path, format!("an automation has at most {NODES_MAX} nodes, with those of its graphs"));
            }
            self.lay_one(node, path, around, faults);
        }
    }

    fn lay_one(&mut self, node: &Value, path: String, around: Around<'_>, faults: &mut Gathered) {
        let Some(raw) = node.as_object() else { return faults.add(path, "a node is an object") };
        let id = raw.get("id").and_then(Value::as_str).and_then(|name| self.id(name, &path, around, faults));
        let Some(kind) = raw.get("type").and_then(Value::as_str) else {
            return faults.add(path, format!("`type` is missing: {}", types()));
        };
        let read = read(kind, node, &path, faults);
        // What has no name of its own was told; what is in it is still looked at.
        let (name, id) = match (id, StepId::parse("unnamed")) {
            (Some(found), _) => found,
            (None, Some(unnamed)) => (String::new(), unnamed),
            (None, None) => return,
        };
        let Some((form, after)) = read else {
            // Others may name it, and are not wrong in that.
            let entry = self.push(id, path.clone(), around.list, Form::Gate(None));
            self.lists.enter(around.list, &name, entry);
            return self.item(around.list, Item { path, entry, after: Some(Vec::new()) });
        };
        let after = after.map(|after| after.into_iter().map(named).collect());
        let entry = match form {
            Read::Node(form) => self.push(id, path.clone(), around.list, form),
            Read::Graph(graph) => {
                if around.deep >= GRAPHS_DEEP_MAX {
                    return faults.add(path, format!("graphs go at most {GRAPHS_DEEP_MAX} deep"));
                }
                let list = self.new_list(Some(around.list));
                let gate =
                    graph.when.map(|when| self.push(id.clone(), path.clone(), around.list, Form::Gate(Some(when))));
                let gate = gate.and_then(|gate| match gate {
                    Entry::Node(node) => Some(node),
                    Entry::Graph { .. } => None,
                });
                let inner = Around { list, outer: Some(&id), deep: around.deep + 1 };
                self.lay(&graph.nodes, &format!("{path}.nodes"), inner, faults);
                Entry::Graph { list, gate }
            }
        };
        self.lists.enter(around.list, &name, entry);
        self.item(around.list, Item { path, entry, after });
    }

    fn item(&mut self, list: usize, item: Item) {
        if let Some(items) = self.items.get_mut(list) {
            items.push(item);
        }
    }

    fn push(&mut self, id: StepId, path: String, list: usize, form: Form) -> Entry {
        self.nodes.push(Laid { id, path, list, form, after: Vec::new() });
        Entry::Node(self.nodes.len() - 1)
    }

    fn id(&self, name: &str, path: &str, around: Around<'_>, faults: &mut Gathered) -> Option<(String, StepId)> {
        let path = format!("{path}.id");
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !is_name {
            faults.add(path, "is 1 to 64 letters, digits, `-` and `_`");
            return None;
        }
        if self.lists.in_list(around.list, name).is_some() {
            faults.add(path, format!("`{name}` is there already: ids are unique in their list"));
            return None;
        }
        let id = join(around.outer, name);
        if id.is_none() {
            faults.add(path, "is too long with the names of the graphs around it: 200 characters in all");
        }
        id.map(|id| (name.to_owned(), id))
    }

    /// Gives each node of a list what it waits for. What waits for nothing in its list waits for what its graph waits for.
    fn connect(&mut self, list: usize, inherited: &[Dependency], faults: &mut Gathered) {
        let items = self.items.get_mut(list).map(std::mem::take).unwrap_or_default();
        let mut before: Option<Entry> = None;
        // The last of them are asked for while others are connected, so they stay where they can be seen.
        let ends: Vec<Vec<Dependency>> = items.iter().map(|item| self.ends(item.entry)).collect();
        for (at, item) in items.iter().enumerate() {
            let mut after = match &item.after {
                None => match (before, at.checked_sub(1).and_then(|at| ends.get(at))) {
                    (Some(_), Some(ends)) => ends.clone(),
                    _ => Vec::new(),
                },
                Some(named) => named
                    .iter()
                    .enumerate()
                    .flat_map(|(place, (name, case))| {
                        let path = format!("{}.after[{place}]", item.path);
                        self.named(list, &path, name, case.as_deref(), faults)
                    })
                    .collect(),
            };
            after.sort();
            after.dedup();
            if after.is_empty() {
                after = inherited.to_vec();
            }
            match item.entry {
                Entry::Node(node) => self.set(node, after),
                Entry::Graph { list, gate: None } => self.connect(list, &after, faults),
                Entry::Graph { list, gate: Some(gate) } => {
                    self.set(gate, after);
                    self.connect(list, &[Dependency { node: gate, case: None }], faults);
                }
            }
            before = Some(item.entry);
        }
        if let Some(place) = self.items.get_mut(list) {
            *place = items;
        }
    }

    fn set(&mut self, node: usize, after: Vec<Dependency>) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.after = after;
        }
    }

    fn named(&self, list: usize, path: &str, name: &str, case: Option<&str>, faults: &mut Gathered) -> Vec<Dependency> {
        let shown = explain::cut(name, 64);
        let Some(entry) = self.lists.in_list(list, name) else {
            faults.add(path, format!("there is no node `{shown}` in this list"));
            return Vec::new();
        };
        let Some(case) = case else { return self.ends(entry) };
        let cases = match entry {
            Entry::Node(node) => self.nodes.get(node).and_then(|node| match &node.form {
                Form::Branch(branch) => Some(branch),
                Form::HttpRequest(_)
                | Form::Action(..)
                | Form::Effect(_)
                | Form::Delay(_)
                | Form::Transform(_)
                | Form::Gate(_) => None,
            }),
            Entry::Graph { .. } => None,
        };
        match (entry, cases) {
            (Entry::Node(node), Some(branch))
                if case == OTHERWISE || branch.cases.iter().any(|known| known.case == case) =>
            {
                return vec![Dependency { node, case: Some(case.into()) }];
            }
            (_, Some(_)) => faults.add(path, format!("`{shown}` has no case `{}`", explain::cut(case, 64))),
            // One that could not be read has been told already.
            (Entry::Node(node), None)
                if self.nodes.get(node).is_some_and(|node| matches!(node.form, Form::Gate(None))) => {}
            (_, None) => faults.add(path, format!("`{shown}` is no branch, and has no cases")),
        }
        Vec::new()
    }

    /// What is after an entry waits for these: the node, or those of a graph that nothing in it waits for.
    fn ends(&self, entry: Entry) -> Vec<Dependency> {
        match entry {
            Entry::Node(node) => vec![Dependency { node, case: None }],
            Entry::Graph { list, .. } => {
                let items = self.items.get(list).map_or(&[] as &[Item], Vec::as_slice);
                let mut waited_for = BTreeSet::new();
                for (at, item) in items.iter().enumerate() {
                    match &item.after {
                        None => drop(at.checked_sub(1).map(|before| waited_for.insert(before))),
                        Some(named) => {
                            for (name, _) in named {
                                let entry = self.lists.in_list(list, name);
                                waited_for.extend(items.iter().position(|item| Some(item.entry) == entry));
                            }
                        }
                    }
                }
                let last = items.iter().enumerate().filter(|(at, _)| !waited_for.contains(at));
                last.flat_map(|(_, item)| self.ends(item.entry)).collect()
            }
        }
    }
}

/// The case of a branch where none of its conditions holds.
pub(super) const OTHERWISE: &str = "otherwise";

enum Read {
    Node(Form),
    Graph(Box<Graph>),
}

type Told = Option<(Read, Option<Vec<After>>)>;

fn read(kind: &str, node: &Value, path: &str, faults: &mut Gathered) -> Told {
    let name = schema::TYPES.iter().find(|(word, _)| *word == kind).map(|(_, name)| *name);
    match name {
        Some("httpRequest") => schema::read::<HttpRequest>("httpRequest", node, path, faults)
            .map(|mut form| (form.after.take(), Form::HttpRequest(Box::new(form)))),
        Some("effect") => schema::read::<Effect>("effect", node, path, faults)
            .map(|mut form| (form.after.take(), Form::Effect(Box::new(form)))),
        Some("branch") => {
            schema::read::<Branch>("branch", node, path, faults).map(|mut form| (form.after.take(), Form::Branch(form)))
        }
        Some("delay") => schema::read::<Delay>("delay", node, path, faults)
            .map(|mut form| (form.after.take(), Form::Delay(Box::new(form)))),
        Some("transform") => schema::read::<Transform>("transform", node, path, faults)
            .map(|mut form| (form.after.take(), Form::Transform(form))),
        Some("graph") => {
            let mut graph = schema::read::<Graph>("graph", node, path, faults)?;
            let after = graph.after.take();
            return Some((Read::Graph(Box::new(graph)), after));
        }
        _ if schema::is_action(kind) => schema::read::<Action>("action", node, path, faults)
            .map(|mut form| (form.after.take(), Form::Action(Box::new(form), kind.into()))),
        _ => {
            faults.add(format!("{path}.type"), format!("is `{}` and has to be {}", explain::cut(kind, 64), types()));
            None
        }
    }
    .map(|(after, form)| (Read::Node(form), after))
}

fn types() -> String {
    let own: Vec<String> = schema::TYPES.iter().map(|(word, _)| format!("`{word}`")).collect();
    format!("{} or a connector's action, as `stripe.create_charge`", own.join(", "))
}

fn named(after: After) -> (String, Option<String>) {
    match after {
        After::Named(named) => (named.node, named.case),
        After::Text(text) => match text.split_once('.') {
            Some((node, case)) => (node.to_owned(), Some(case.to_owned())),
            None => (text, None),
        },
    }
}
