//! CEL expressions, bounded.
//!
//! The language is the Common Expression Language by the `cel` crate, which has no bound on what an expression may cost
//! beyond that it ends. So what is compiled here is rewritten first:
//!
//! - every turn of a comprehension, and every value that is copied, added, compared or searched goes through a function
//!   of ours that counts ([`budget`]). Who is through with [`COST_MAX`] fails, and so memory is bounded as well;
//! - names of the run (`event.body.id`, `steps.charge.output`) become look-ups in the run's JSON, of which only what is
//!   named is converted; an expression that is nothing but such a name never comes to the interpreter;
//! - patterns of `matches` stand in the expression itself and are compiled once, with bounds on their size;
//! - a map is gone through in the order of its keys, so that the same expression always gives the same value.
//!
//! The crate's parser recurses, so compiling runs on a thread with a stack that the longest source cannot use up, and what
//! nests too deeply to be evaluated on any thread is refused. A panic of the crate is a failure of the expression.

mod budget;
pub(in crate::automation) mod explain;
mod names;
mod parse;
mod resolve;
mod rewrite;
pub(in crate::automation) mod values;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, IdedExpr};
use serde_json::Value;

use self::budget::Budget;
use self::names::Place;
use self::resolve::Resolver;
use super::scope::Scope;
use crate::ids::StepId;

pub use self::names::Names;
pub(in crate::automation) use self::parse::{FromLost, on_large_stack};

/// Longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 4 << 10;
/// What one evaluation may cost, in units: a byte of text that is copied or looked at is one, a node of the expression that
/// is evaluated again [`budget::STEP`], a value that is copied [`budget::VALUE`]. At worst about 200 ms of one core and
/// 64 MiB, for both of which a thousand elements with ten conditions each need a hundredth.
pub const COST_MAX: u64 = 32 << 20;
/// Most bytes of a value that comes out, as JSON.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of the syntax tree.
pub const DEPTH_MAX: usize = 32;
/// Deepest nesting that is evaluated on the caller's stack: what needs less than 1 MiB of it without optimisation. Deeper
/// ones, which hardly anybody writes, get a thread.
const DEPTH_SHALLOW: usize = 12;
/// Most comprehensions (`map`, `filter`, `all`, `exists`, `exists_one`) inside one another.
pub const COMPREHENSIONS_DEEP_MAX: usize = 2;
/// Most nodes of the syntax tree, with those that macros make.
pub const NODES_MAX: usize = 1000;

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    source: Box<str>,
    program: Program,
    needs: Needs,
}

#[derive(Debug)]
enum Program {
    /// Nothing but a name of the run.
    Place(Place),
    Tree(Tree),
}

#[derive(Debug)]
struct Tree {
    expr: IdedExpr,
    depth: usize,
    /// Sorted by name.
    places: Box<[Place]>,
    patterns: Arc<[regex::Regex]>,
}

/// What of a run an expression looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub event: bool,
    pub input: bool,
    pub steps: BTreeSet<StepId>,
}

impl Needs {
    pub fn add(&mut self, other: &Self) {
        self.event |= other.event;
        self.input |= other.input;
        self.steps.extend(other.steps.iter().cloned());
    }
}

/// Why a source is no expression, in words for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub Box<str>);

impl Refused {
    fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }
}

/// What went wrong when an expression was evaluated, in words for its author: with the expression, and with values only as
/// far as they are short. At most 1 KiB.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExpressionFailed(pub Box<str>);

/// The functions of CEL: a table that never changes, and takes longer to make than most expressions to evaluate.
static FUNCTIONS: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

impl Expression {
    /// Reads a source, checks its bounds and that it uses only `names`.
    pub fn compile(source: &str, names: &Names<'_>) -> Result<Self, Refused> {
        on_large_stack(|| Self::compile_here(source, names))
    }

    /// The same on this thread, which must have the stack for it.
    pub(crate) fn compile_here(source: &str, names: &Names<'_>) -> Result<Self, Refused> {
        let (expr, depth) = parse::parse(&FUNCTIONS, source)?;
        let rewritten = rewrite::rewrite(expr, names)?;
        let needs = Needs::of(&rewritten.places);
        let program = match rewritten.only_place() {
            Some(place) => Program::Place(place),
            None => Program::Tree(rewritten.into_tree(depth)),
        };
        Ok(Self { source: source.into(), program, needs })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Its value as JSON. May take as long as [`COST_MAX`] allows; never panics.
    pub fn evaluate(&self, scope: &Scope) -> Result<Value, ExpressionFailed> {
        match &self.program {
            Program::Place(place) => match place.find(scope) {
                Ok(found) if values::fits(found, OUTPUT_BYTES_MAX) => Ok(found.clone()),
                Ok(_) => Err(self.failed(&values::too_large())),
                Err(missing) => Err(self.failed(&missing)),
            },
            Program::Tree(tree) => {
                let evaluated = if tree.depth <= DEPTH_SHALLOW {
                    catch_unwind(AssertUnwindSafe(|| tree.evaluate(scope)))
                        .unwrap_or_else(|_| Err("the interpreter failed on it".into()))
                } else {
                    on_large_stack(|| tree.evaluate(scope))
                };
                evaluated.map_err(|why| self.failed(&why))
            }
        }
    }

    /// Whether it holds: it has to be `true` or `false`.
    pub fn holds(&self, scope: &Scope) -> Result<bool, ExpressionFailed> {
        match self.evaluate(scope)? {
            Value::Bool(holds) => Ok(holds),
            other @ (Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                let why = format!("a condition is true or false, and this is {}", values::describe(&other));
                Err(self.failed(&why))
            }
        }
    }

    fn failed(&self, why: &str) -> ExpressionFailed {
        let source = explain::cut(&self.source, 160);
        ExpressionFailed(explain::cut(&format!("`{source}`: {why}"), 1000).into())
    }
}

impl Tree {
    fn evaluate(&self, scope: &Scope) -> Result<Value, String> {
        let budget = Arc::new(Budget::new(COST_MAX));
        let resolver = Resolver::new(&self.places, scope, &budget);
        let mut context = Context::with_env(Arc::clone(&FUNCTIONS));
        budget::add_functions(&mut context, &budget, &self.patterns).map_err(|error| error.to_string())?;
        context.set_variable_resolver(&resolver);
        let value = cel::Value::resolve_val(&self.expr, &context);
        // An error may have been passed over on the way (`false && …`): nothing counts once the budget is spent.
        if budget.is_spent() {
            return Err("it would do too much work: look at fewer elements, or at smaller ones".into());
        }
        match value {
            Ok(value) => values::to_json(value.as_ref(), OUTPUT_BYTES_MAX),
            Err(error) => Err(explain::explain(&error, &self.places, scope)),
        }
    }
}

impl Needs {
    fn of(places: &[Place]) -> Self {
        let mut needs = Self::default();
        for place in places {
            place.add_to(&mut needs);
        }
        needs
    }
}

#[cfg(test)]
mod tests;
