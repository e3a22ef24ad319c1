//! What an evaluation has cost so far, and the functions in the syntax tree that count it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::common::types::{CelBool, CelInt, CelList, CelMapKey, CelString};
use cel::common::value::{BuiltinRef, CowVal, Val};
use cel::{Context, DeclarationError, ExecutionError, FunctionContext};

/// One node of the syntax tree, evaluated in a comprehension.
pub(super) const STEP: u64 = 16;
/// One value in memory, besides the bytes of its text: a boxed value and its place in a list or a map.
pub(super) const VALUE: u64 = 128;

/// Names that no author can write.
pub(super) const COPY: &str = "@copy";
pub(super) const LOOK: &str = "@look";
pub(super) const SCAN: &str = "@scan";
pub(super) const RANGE: &str = "@range";
pub(super) const TURN: &str = "@turn";
pub(super) const MATCH: &str = "@match";

#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicU64,
}

impl Budget {
    pub(super) fn new(units: u64) -> Self {
        Self { left: AtomicU64::new(units) }
    }

    /// Takes units; all that is left, and an error, where there are too few.
    pub(super) fn spend(&self, units: u64) -> Result<(), ExecutionError> {
        let left = self.left();
        self.left.store(left.saturating_sub(units), Ordering::Relaxed);
        if units >= left { Err(spent()) } else { Ok(()) }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    pub(super) fn left(&self) -> u64 {
        // One evaluation is one thread's.
        self.left.load(Ordering::Relaxed)
    }
}

fn spent() -> ExecutionError {
    ExecutionError::InternalError("too much work".into())
}

type Function =
    Box<dyn for<'c, 'v> Fn(&mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError> + Send + Sync>;

pub(super) fn add_functions(
    context: &mut Context<'_, '_>,
    budget: &Arc<Budget>,
    patterns: &Arc<[regex::Regex]>,
) -> Result<(), DeclarationError> {
    let with = |of: fn(&Budget, &dyn Val) -> u64| -> Function {
        let budget = Arc::clone(budget);
        Box::new(move |call| {
            let value = first(call)?;
            budget.spend(of(&budget, value.as_ref()))?;
            Ok(value)
        })
    };
    context.add_function(COPY, with(|budget, value| deep(value, budget.left())))?;
    context.add_function(LOOK, with(|_, value| flat(value)))?;
    context.add_function(
        SCAN,
        with(
            |budget, value| {
                if matches!(value.as_builtin(), BuiltinRef::List(_)) { deep(value, budget.left()) } else { flat(value) }
            },
        ),
    )?;
    context.add_function(RANGE, ranges(Arc::clone(budget)))?;
    context.add_function(TURN, turns(Arc::clone(budget)))?;
    context.add_function(MATCH, matches(Arc::clone(budget), Arc::clone(patterns)))
}

fn first<'c, 'v>(call: &mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError> {
    if call.args.is_empty() {
        return Err(ExecutionError::missing_argument_or_target());
    }
    Ok(call.args.swap_remove(0))
}

/// What is gone through: each element is copied once. A map gives its keys, and in their order: the interpreter's own order
/// is another each time, and a retry would send something else under the same effect key.
fn ranges(budget: Arc<Budget>) -> Function {
    Box::new(move |call| {
        let value = first(call)?;
        budget.spend(deep(value.as_ref(), budget.left()))?;
        let BuiltinRef::Map(map) = value.as_builtin() else { return Ok(value) };
        let mut keys: Vec<&CelMapKey<'_>> = map.inner().keys().collect();
        keys.sort();
        let keys = keys.into_iter().map(|key| key.inner().clone_as_boxed()).collect::<Vec<_>>();
        Ok(CowVal::owned(CelList::from(keys)))
    })
}

fn turns(budget: Arc<Budget>) -> Function {
    Box::new(move |call| {
        let nodes = call.args.get(1).and_then(|nodes| nodes.downcast_ref::<CelInt>()).map_or(1, |nodes| *nodes.inner());
        budget.spend(u64::try_from(nodes).unwrap_or(1).saturating_mul(STEP))?;
        first(call)
    })
}

fn matches(budget: Arc<Budget>, patterns: Arc<[regex::Regex]>) -> Function {
    Box::new(move |call| {
        let number = call.args.get(1).and_then(|number| number.downcast_ref::<CelInt>()).map(|number| *number.inner());
        let pattern = number.and_then(|number| patterns.get(usize::try_from(number).ok()?));
        let text = first(call)?;
        let (Some(pattern), Some(text)) = (pattern, text.downcast_ref::<CelString<'_>>()) else {
            let of = text.get_type().name().to_owned();
            return Err(ExecutionError::no_such_member_overload("matches", vec![of, "string".into()]));
        };
        // Linear in the text, and some times dearer per byte than looking.
        budget.spend(flat(text).saturating_mul(8))?;
        Ok(CowVal::owned(CelBool::from(pattern.is_match(text.inner()))))
    })
}

/// Of a value without what is in it, but with all of its text.
#[expect(clippy::wildcard_enum_match_arm, reason = "the crate's enumeration is open")]
fn flat(value: &dyn Val) -> u64 {
    match value.as_builtin() {
        BuiltinRef::String(text) => STEP + text.inner().len() as u64,
        BuiltinRef::Bytes(bytes) => STEP + bytes.inner().len() as u64,
        _ => STEP,
    }
}

/// Of a value and all that is in it. Stops looking at what is more than `most`. Values nest as deep as JSON does and as
/// deep as a source of 4 KiB can make them.
#[expect(clippy::wildcard_enum_match_arm, reason = "the crate's enumeration is open")]
fn deep(value: &dyn Val, most: u64) -> u64 {
    let mut cost = VALUE;
    match value.as_builtin() {
        BuiltinRef::String(text) => cost += text.inner().len() as u64,
        BuiltinRef::Bytes(bytes) => cost += bytes.inner().len() as u64,
        BuiltinRef::List(list) => {
            for element in list.inner() {
                if cost > most {
                    break;
                }
                cost += deep(element.as_ref(), most - cost);
            }
        }
        BuiltinRef::Map(map) => {
            for (key, value) in map.inner() {
                if cost > most {
                    break;
                }
                cost += flat(key.inner());
                cost += deep(value.as_ref(), most.saturating_sub(cost));
            }
        }
        BuiltinRef::Optional(optional) => {
            if let Some(inner) = optional.inner() {
                cost += deep(inner, most);
            }
        }
        _ => {}
    }
    cost
}
