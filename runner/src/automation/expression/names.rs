//! Names of a run: which there are, and where they lead in its JSON.

use serde_json::Value;

use super::super::scope::Scope;
use super::{Needs, Refused};
use crate::ids::StepId;

/// Which names an expression may use.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// Of the run: `run`, `input` and `steps`. Without it, `event` alone.
    steps: Option<FindStep<'a>>,
}

/// Which node a name in `steps` means at this place, or why none.
type FindStep<'a> = &'a (dyn Fn(&str) -> Result<StepId, String> + Sync);

impl<'a> Names<'a> {
    /// What a trigger's `when` sees: the event.
    pub fn of_event() -> Names<'static> {
        Names { steps: None }
    }

    /// What a node sees: all of the run, with the steps that `find` knows.
    pub fn of_run(find: &'a (dyn Fn(&str) -> Result<StepId, String> + Sync)) -> Self {
        Self { steps: Some(find) }
    }

    pub(super) fn root(&self, name: &str) -> Option<Root> {
        match name {
            "event" => Some(Root::Event),
            "input" if self.steps.is_some() => Some(Root::Input),
            "run" if self.steps.is_some() => Some(Root::Run),
            _ => None,
        }
    }

    pub(super) fn step(&self, name: &str) -> Result<Root, Refused> {
        let Some(find) = self.steps else { return Err(Refused::new("there are no steps yet when a trigger is asked")) };
        find(name).map(Root::Step).map_err(Refused::new)
    }

    /// For messages.
    pub(super) fn list(&self) -> &'static str {
        if self.steps.is_some() { "`event`, `steps`, `run` and `input`" } else { "`event`" }
    }
}

impl std::fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.list())
    }
}

/// Names that no variable of a comprehension may have.
pub(super) const RESERVED: [&str; 4] = ["event", "steps", "run", "input"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Root {
    Event,
    Input,
    Run,
    Step(StepId),
}

/// A place in a run's JSON: a root and fields behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// As the interpreter asks for it: with dots.
    pub(super) name: Box<str>,
    pub(super) root: Root,
    pub(super) fields: Box<[Box<str>]>,
}

impl Root {
    /// What stands in the syntax tree for it. No identifier of CEL is like that of a step, so that nothing else is meant.
    pub(super) fn ident(&self) -> String {
        match self {
            Self::Event => "event".into(),
            Self::Input => "input".into(),
            Self::Run => "run".into(),
            Self::Step(step) => format!("steps[{step}]"),
        }
    }

    fn value<'s>(&self, scope: &'s Scope) -> Result<&'s Value, String> {
        match self {
            Self::Event => Ok(scope.event()),
            Self::Input => Ok(scope.input()),
            Self::Run => Ok(scope.run()),
            Self::Step(step) => scope.step(step).ok_or_else(|| format!("step `{step}` has not been settled")),
        }
    }
}

impl Place {
    pub(super) fn new(root: Root, fields: Vec<Box<str>>) -> Self {
        let mut name = root.ident();
        for field in &fields {
            name.push('.');
            name.push_str(field);
        }
        Self { name: name.into(), root, fields: fields.into() }
    }

    pub(super) fn add_to(&self, needs: &mut Needs) {
        match &self.root {
            Root::Event => needs.event = true,
            Root::Input => needs.input = true,
            Root::Run => {}
            Root::Step(step) => drop(needs.steps.insert(step.clone())),
        }
    }

    /// The value, or what of it is not there.
    pub(super) fn find<'s>(&self, scope: &'s Scope) -> Result<&'s Value, String> {
        let mut value = self.root.value(scope)?;
        for (at, field) in self.fields.iter().enumerate() {
            let Value::Object(object) = value else {
                return Err(format!(
                    "`{}` is {}, and has no field `{field}`",
                    self.prefix(at),
                    super::values::describe(value)
                ));
            };
            value = object.get(&**field).ok_or_else(|| format!("`{}` has no field `{field}`", self.prefix(at)))?;
        }
        Ok(value)
    }

    /// As the author wrote it, with so many fields.
    fn prefix(&self, fields: usize) -> String {
        let mut text = match &self.root {
            Root::Step(step) if step.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                format!("steps.{step}")
            }
            Root::Step(step) => format!("steps[\"{step}\"]"),
            Root::Event | Root::Input | Root::Run => self.root.ident(),
        };
        for field in self.fields.iter().take(fields) {
            text.push('.');
            text.push_str(super::explain::cut(field, 64).as_ref());
        }
        text
    }
}
