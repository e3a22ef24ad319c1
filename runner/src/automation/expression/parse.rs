//! From text to a syntax tree whose size is known.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::common::ast::{EntryExpr, Expr};
use cel::{Env, IdedExpr};

use super::{DEPTH_MAX, NODES_MAX, Refused, SOURCE_BYTES_MAX, explain};

/// Enough for the parser on the worst source of [`SOURCE_BYTES_MAX`]: 4 KiB of operators that nest by one each. Only what
/// is touched costs memory.
const STACK_BYTES: usize = 256 << 20;
/// Brackets inside one another that are looked at by the parser at all: its time grows with them faster than linearly.
const BRACKETS_DEEP_MAX: usize = 24;

/// Runs something that recurses as deep as a source is long.
pub(in crate::automation) fn on_large_stack<T: Send + FromLost>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("expressions".into()).stack_size(STACK_BYTES);
        match builder.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|_| T::lost("the interpreter failed on it")),
            Err(error) => T::lost(&format!("no thread to read it on: {error}")),
        }
    })
}

/// What is answered where there was no thread to work on, or it panicked.
pub(in crate::automation) trait FromLost {
    fn lost(why: &str) -> Self;
}

impl<T> FromLost for Result<T, Refused> {
    fn lost(why: &str) -> Self {
        Err(Refused::new(why))
    }
}

impl<T> FromLost for Result<T, String> {
    fn lost(why: &str) -> Self {
        Err(why.into())
    }
}

/// The syntax tree and its depth, both bounded.
pub(super) fn parse(env: &Env, source: &str) -> Result<(IdedExpr, usize), Refused> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(Refused(
            format!("an expression has at most {SOURCE_BYTES_MAX} bytes, not {}", source.len()).into(),
        ));
    }
    if source.trim().is_empty() {
        return Err(Refused::new("an expression is missing"));
    }
    if brackets_deep(source) > BRACKETS_DEEP_MAX {
        return Err(Refused(format!("brackets nest more than {BRACKETS_DEEP_MAX} deep").into()));
    }
    let parsed = catch_unwind(AssertUnwindSafe(|| env.compile(source)))
        .map_err(|_| Refused::new("it cannot be read as CEL"))?
        .map_err(|errors| Refused(explain::parse_errors(&errors).into()))?;
    let expr = parsed.expression();
    let depth = measure(expr)?;
    Ok((expr.clone(), depth))
}

/// The deepest nesting of brackets, wherever they stand; those in strings count too, which is no harm.
fn brackets_deep(source: &str) -> usize {
    let (mut deep, mut deepest) = (0_usize, 0);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => deep += 1,
            b')' | b']' | b'}' => deep = deep.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(deep);
    }
    deepest
}

/// The depth. Refuses what is too deep or too much, without recursion.
fn measure(expr: &IdedExpr) -> Result<usize, Refused> {
    let mut waiting = vec![(expr, 1_usize)];
    let (mut nodes, mut deepest) = (0_usize, 0);
    while let Some((expr, depth)) = waiting.pop() {
        nodes += 1;
        deepest = deepest.max(depth);
        if depth > DEPTH_MAX {
            return Err(Refused(format!("it nests more than {DEPTH_MAX} deep: split it over several nodes").into()));
        }
        if nodes > NODES_MAX {
            return Err(Refused(format!("it has more than {NODES_MAX} parts: split it over several nodes").into()));
        }
        children(expr, |child| waiting.push((child, depth + 1)));
    }
    Ok(deepest)
}

/// Hands out each node right below.
pub(super) fn children<'e>(expr: &'e IdedExpr, mut each: impl FnMut(&'e IdedExpr)) {
    match &expr.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Call(call) => {
            call.target.iter().for_each(|target| each(target));
            call.args.iter().for_each(each);
        }
        Expr::Comprehension(loops) => {
            [&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result]
                .into_iter()
                .for_each(each);
        }
        Expr::List(list) => list.elements.iter().for_each(each),
        Expr::Select(select) => each(&select.operand),
        Expr::Map(map) => map.entries.iter().for_each(|entry| entry_children(&entry.expr, &mut each)),
        Expr::Struct(made) => made.entries.iter().for_each(|entry| entry_children(&entry.expr, &mut each)),
    }
}

fn entry_children<'e>(entry: &'e EntryExpr, each: &mut impl FnMut(&'e IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => each(&field.value),
        EntryExpr::MapEntry(entry) => {
            each(&entry.key);
            each(&entry.value);
        }
    }
}
