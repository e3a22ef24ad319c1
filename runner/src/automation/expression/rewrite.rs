//! The syntax tree, checked and rewritten so that names lead into the run's JSON and work is counted.

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapEntryExpr, SelectExpr, operators,
};

use super::budget::{COPY, LOOK, MATCH, RANGE, SCAN, TURN};
use super::names::{Names, Place, RESERVED, Root};
use super::{COMPREHENSIONS_DEEP_MAX, Refused, Tree, explain, parse};

/// Patterns of `matches` in one expression.
const PATTERNS_MAX: usize = 8;
/// Of one pattern compiled: about 10,000 instructions.
const PATTERN_COMPILED_BYTES_MAX: usize = 256 << 10;

/// Functions of CEL's standard library and of optional values. What is not here is not called.
pub(super) const FUNCTIONS: [&str; 32] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "type",
    "dyn",
    "duration",
    "timestamp",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "of",
    "none",
    "ofNonZeroValue",
    "hasValue",
    "value",
    "or",
    "orValue",
];

const MACROS: [&str; 6] = ["has", "map", "filter", "all", "exists", "exists_one"];

/// What `type(x)` may be compared with, and the namespaces of names with dots.
const TYPES: [&str; 12] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional", "google"];

pub(super) struct Rewritten {
    expr: IdedExpr,
    /// Set where the whole expression is a name of the run.
    whole: Option<Place>,
    pub(super) places: Box<[Place]>,
    patterns: Vec<regex::Regex>,
}

impl Rewritten {
    pub(super) fn only_place(&self) -> Option<Place> {
        self.whole.clone()
    }

    pub(super) fn into_tree(self, depth: usize) -> Tree {
        Tree { expr: self.expr, depth, places: self.places, patterns: self.patterns.into() }
    }
}

pub(super) fn rewrite(expr: IdedExpr, names: &Names<'_>) -> Result<Rewritten, Refused> {
    let mut rewriter =
        Rewriter { names, places: BTreeMap::new(), patterns: Vec::new(), variables: Vec::new(), loops_deep: 0 };
    let whole = rewriter.place(&expr)?.map(|(root, fields)| Place::new(root, fields));
    let expr = rewriter.node(expr)?;
    Ok(Rewritten {
        expr,
        whole,
        // A map of names is sorted as `Resolver` needs it.
        places: rewriter.places.into_values().collect(),
        patterns: rewriter.patterns,
    })
}

/// A root, and the fields behind it.
type Found = (Root, Vec<Box<str>>);

struct Rewriter<'n> {
    names: &'n Names<'n>,
    places: BTreeMap<Box<str>, Place>,
    patterns: Vec<regex::Regex>,
    /// Of the comprehensions around.
    variables: Vec<String>,
    loops_deep: usize,
}

impl Rewriter<'_> {
    fn node(&mut self, expr: IdedExpr) -> Result<IdedExpr, Refused> {
        if let Some((root, fields)) = self.place(&expr)? {
            return Ok(self.named(&root, fields));
        }
        let IdedExpr { id, expr } = expr;
        let expr = match expr {
            Expr::Unspecified => return Err(Refused::new("a part of it is empty")),
            Expr::Literal(literal) => Expr::Literal(literal),
            Expr::Ident(name) => Expr::Ident(self.ident(name)?),
            Expr::Select(select) => Expr::Select(SelectExpr {
                operand: Box::new(self.node(*select.operand)?),
                field: select.field,
                test: select.test,
            }),
            Expr::Call(call) => self.call(call)?,
            Expr::List(list) => Expr::List(self.list(list)?),
            Expr::Map(mut map) => {
                for entry in &mut map.entries {
                    let EntryExpr::MapEntry(MapEntryExpr { key, value, .. }) = &mut entry.expr else {
                        return Err(Refused::new("an entry of a map has a key and a value"));
                    };
                    *key = counted(LOOK, self.node(std::mem::take(key))?);
                    *value = counted(COPY, self.node(std::mem::take(value))?);
                }
                Expr::Map(map)
            }
            Expr::Struct(made) => {
                let name = explain::cut(&made.type_name, 64);
                return Err(Refused(
                    format!("there is no message type `{name}`: a map is `{{\"key\": value}}`").into(),
                ));
            }
            Expr::Comprehension(loops) => self.comprehension(*loops)?,
        };
        Ok(IdedExpr { id, expr })
    }

    fn ident(&self, name: String) -> Result<String, Refused> {
        let known = self.variables.contains(&name) || TYPES.contains(&name.as_str());
        if known {
            return Ok(name);
        }
        let shown = explain::cut(&name, 64);
        Err(Refused(format!("nothing is called `{shown}`: there are {}", self.names.list()).into()))
    }

    /// The place in the run that a name with its fields means, if it is one.
    fn place(&self, expr: &IdedExpr) -> Result<Option<Found>, Refused> {
        match &expr.expr {
            Expr::Ident(name) => {
                let name = name.strip_prefix('.').unwrap_or(name);
                if self.variables.iter().any(|variable| variable == name) || !RESERVED.contains(&name) {
                    return Ok(None);
                }
                if name == "steps" {
                    return Err(Refused::new("name the step that is meant: `steps.charge` or `steps[\"send-mail\"]`"));
                }
                match self.names.root(name) {
                    Some(root) => Ok(Some((root, Vec::new()))),
                    None => Err(Refused(format!("there is no `{name}` here: there is {}", self.names.list()).into())),
                }
            }
            Expr::Select(select) if !select.test => {
                if is_steps(&select.operand) {
                    return Ok(Some((self.names.step(&select.field)?, Vec::new())));
                }
                let Some((root, mut fields)) = self.place(&select.operand)? else { return Ok(None) };
                if matches!(root, Root::Step(_)) && fields.is_empty() && !["output", "status"].contains(&&*select.field)
                {
                    let field = explain::cut(&select.field, 64);
                    return Err(Refused(format!("a step has `output` and `status`, and no `{field}`").into()));
                }
                fields.push(select.field.as_str().into());
                Ok(Some((root, fields)))
            }
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let [of, index] = call.args.as_slice() else { return Ok(None) };
                if !is_steps(of) {
                    return Ok(None);
                }
                let Expr::Literal(LiteralValue::String(name)) = &index.expr else {
                    return Err(Refused::new("a step is named, and not computed: `steps[\"send-mail\"]`"));
                };
                Ok(Some((self.names.step(name.inner())?, Vec::new())))
            }
            Expr::Unspecified
            | Expr::Call(_)
            | Expr::Select(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Literal(_)
            | Expr::Map(_)
            | Expr::Struct(_) => Ok(None),
        }
    }

    /// The place as the interpreter will ask for it; each of its beginnings is known too, so that a field which is
    /// missing is told as missing.
    fn named(&mut self, root: &Root, fields: Vec<Box<str>>) -> IdedExpr {
        let mut expr = plain(Expr::Ident(root.ident()));
        for until in 0..=fields.len() {
            let place = Place::new(root.clone(), fields.iter().take(until).cloned().collect());
            self.places.entry(place.name.clone()).or_insert(place);
        }
        for field in fields {
            expr = plain(Expr::Select(SelectExpr { operand: Box::new(expr), field: field.into(), test: false }));
        }
        expr
    }

    fn call(&mut self, call: CallExpr) -> Result<Expr, Refused> {
        let CallExpr { func_name, target, args } = call;
        let is_operator = func_name.starts_with(|c: char| !c.is_ascii_alphabetic());
        if !is_operator && !FUNCTIONS.contains(&func_name.as_str()) {
            return Err(no_function(&func_name));
        }
        if func_name == "matches" {
            return self.pattern(target, args);
        }
        let is_namespace =
            target.as_ref().is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if name == "optional"));
        let scalar = args.iter().any(is_scalar);
        let mut made = Vec::with_capacity(args.len());
        for (at, arg) in args.into_iter().enumerate() {
            let arg = self.node(arg)?;
            made.push(match func_name.as_str() {
                operators::CONDITIONAL
                | operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE
                | operators::INDEX
                | operators::OPT_INDEX
                | operators::OPT_SELECT => arg,
                // To compare with a short thing is quick, however large the other is.
                operators::EQUALS | operators::NOT_EQUALS if scalar || at == 1 => arg,
                operators::EQUALS | operators::NOT_EQUALS | operators::ADD => counted(COPY, arg),
                operators::IN if at == 1 => counted(SCAN, arg),
                _ => counted(LOOK, arg),
            });
        }
        let target = match target {
            None => None,
            Some(target) if is_namespace => Some(target),
            Some(target) => Some(Box::new(counted(LOOK, self.node(*target)?))),
        };
        Ok(Expr::Call(CallExpr { func_name, target, args: made }))
    }

    fn list(&mut self, mut list: ListExpr) -> Result<ListExpr, Refused> {
        for element in &mut list.elements {
            *element = counted(COPY, self.node(std::mem::take(element))?);
        }
        Ok(list)
    }

    /// `text.matches("pattern")`: the pattern is compiled now, and the call names it by its number.
    fn pattern(&mut self, target: Option<Box<IdedExpr>>, args: Vec<IdedExpr>) -> Result<Expr, Refused> {
        let mut all: Vec<IdedExpr> = target.map(|target| *target).into_iter().chain(args).collect();
        let (Some(pattern), Some(text), None) = (all.pop(), all.pop(), all.pop()) else {
            return Err(Refused::new("`matches` takes one pattern: `text.matches(\"^[a-z]+$\")`"));
        };
        let Expr::Literal(LiteralValue::String(pattern)) = &pattern.expr else {
            return Err(Refused::new("the pattern of `matches` stands in the expression itself, as a string"));
        };
        if self.patterns.len() >= PATTERNS_MAX {
            return Err(Refused(format!("an expression has at most {PATTERNS_MAX} patterns").into()));
        }
        let compiled = regex::RegexBuilder::new(pattern.inner())
            .size_limit(PATTERN_COMPILED_BYTES_MAX)
            .dfa_size_limit(PATTERN_COMPILED_BYTES_MAX)
            .nest_limit(32)
            .build()
            .map_err(|error| {
                let is_large = matches!(error, regex::Error::CompiledTooBig(_));
                let said = || explain::last_line(&error.to_string());
                let why = if is_large { "it is too large once it is compiled".to_owned() } else { said() };
                Refused(format!("`{}` is no pattern: {why}", explain::cut(pattern.inner(), 64)).into())
            })?;
        let number = i64::try_from(self.patterns.len()).unwrap_or(i64::MAX);
        self.patterns.push(compiled);
        let text = self.node(text)?;
        Ok(global(MATCH, vec![text, plain(Expr::Literal(LiteralValue::Int(number.into())))]))
    }

    fn comprehension(&mut self, loops: ComprehensionExpr) -> Result<Expr, Refused> {
        if loops.iter_var2.is_some() {
            return Err(Refused::new("comprehensions have one variable here"));
        }
        if RESERVED.contains(&loops.iter_var.as_str()) {
            return Err(Refused(format!("`{}` is taken: call the variable something else", loops.iter_var).into()));
        }
        if self.loops_deep >= COMPREHENSIONS_DEEP_MAX {
            return Err(Refused(
                format!(
                    "at most {COMPREHENSIONS_DEEP_MAX} of `map`, `filter`, `all` and `exists` go inside one another"
                )
                .into(),
            ));
        }
        let turn = count(&loops.loop_step) + count(&loops.loop_cond);
        let iter_range = global_node(RANGE, vec![self.node(loops.iter_range)?]);
        let accu_init = self.node(loops.accu_init)?;
        self.loops_deep += 1;
        self.variables.push(loops.iter_var.clone());
        self.variables.push(loops.accu_var.clone());
        let (loop_cond, loop_step) = match appended(&loops.accu_var, &loops.loop_cond, &loops.result) {
            Some(()) => match self.append_step(&loops.accu_var, loops.loop_step, turn)? {
                Step::Appends(step) => (loops.loop_cond, step),
                Step::Other(step) => (turned(self.node(loops.loop_cond)?, turn), self.node(step)?),
            },
            None => (turned(self.node(loops.loop_cond)?, turn), self.node(loops.loop_step)?),
        };
        let result = self.node(loops.result)?;
        self.variables.truncate(self.variables.len() - 2);
        self.loops_deep -= 1;
        Ok(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range,
            iter_var: loops.iter_var,
            iter_var2: None,
            accu_var: loops.accu_var,
            accu_init,
            loop_cond,
            loop_step,
            result,
        })))
    }

    /// `map` and `filter` append to their result. The interpreter knows that by the step's form and copies nothing then,
    /// so the form has to stay: what counts goes inside.
    fn append_step(&mut self, accu: &str, step: IdedExpr, turn: u64) -> Result<Step, Refused> {
        let Expr::Call(mut call) = step.expr else { return Ok(Step::Other(step)) };
        let is_append = |call: &CallExpr| {
            call.func_name == operators::ADD
                && matches!(call.args.as_slice(), [first, second]
                    if is_ident(first, accu) && matches!(second.expr, Expr::List(_)))
        };
        if is_append(&call) {
            self.append(&mut call, Some(turn))?;
            return Ok(Step::Appends(IdedExpr { id: step.id, expr: Expr::Call(call) }));
        }
        if call.func_name == operators::CONDITIONAL
            && let [guard, appending, otherwise] = call.args.as_mut_slice()
            && is_ident(otherwise, accu)
            && let Expr::Call(inner) = &mut appending.expr
            && is_append(inner)
        {
            self.append(inner, None)?;
            *guard = turned(self.node(std::mem::take(guard))?, turn);
            return Ok(Step::Appends(IdedExpr { id: step.id, expr: Expr::Call(call) }));
        }
        Ok(Step::Other(IdedExpr { id: step.id, expr: Expr::Call(call) }))
    }

    fn append(&mut self, call: &mut CallExpr, turn: Option<u64>) -> Result<(), Refused> {
        let Some(Expr::List(list)) = call.args.get_mut(1).map(|list| &mut list.expr) else { return Ok(()) };
        *list = self.list(std::mem::take(list))?;
        if let (Some(turn), Some(first)) = (turn, list.elements.first_mut()) {
            *first = turned(std::mem::take(first), turn);
        }
        Ok(())
    }
}

enum Step {
    Appends(IdedExpr),
    Other(IdedExpr),
}

/// The rest of the form by which the interpreter knows a comprehension that appends.
fn appended(accu: &str, cond: &IdedExpr, result: &IdedExpr) -> Option<()> {
    (is_ident(result, accu) && matches!(cond.expr, Expr::Literal(_))).then_some(())
}

fn is_ident(expr: &IdedExpr, wanted: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name == wanted)
}

fn is_steps(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name.strip_prefix('.').unwrap_or(name) == "steps")
}

fn is_scalar(expr: &IdedExpr) -> bool {
    matches!(expr.expr, Expr::Literal(_))
}

fn plain(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn global(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
}

fn global_node(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    plain(global(name, args))
}

/// A literal is short, since the source is.
fn counted(by: &str, expr: IdedExpr) -> IdedExpr {
    if is_scalar(&expr) { expr } else { global_node(by, vec![expr]) }
}

fn turned(expr: IdedExpr, nodes: u64) -> IdedExpr {
    let nodes = plain(Expr::Literal(LiteralValue::Int(i64::try_from(nodes).unwrap_or(i64::MAX).into())));
    global_node(TURN, vec![expr, nodes])
}

/// Nodes of a tree whose depth is bounded.
fn count(expr: &IdedExpr) -> u64 {
    let mut nodes = 1;
    parse::children(expr, |child| nodes += count(child));
    nodes
}

fn no_function(name: &str) -> Refused {
    let shown = explain::cut(name, 64);
    if MACROS.contains(&name) {
        let form = if name == "has" { "has(event.body.field)" } else { "list.map(x, x.field)" };
        return Refused(format!("`{shown}` is not used like this: write it as `{form}`").into());
    }
    Refused(format!("there is no function `{shown}`").into())
}
