//! Values with `${…}` in them.

use serde_json::{Map, Value};

use super::expression::{Expression, ExpressionFailed, Names, Needs, OUTPUT_BYTES_MAX, Refused, explain, values};
use super::scope::Scope;

/// Expressions in one template.
pub const EXPRESSIONS_MAX: usize = 200;

/// A JSON value in whose strings expressions may stand.
///
/// A string that is one `${…}` and nothing else becomes the expression's value, of whatever kind. Within other text, values
/// are written out: text as it is, numbers and booleans as JSON has them, lists and objects as JSON; null is refused there,
/// since a text that silently lacks a part is worse than none. `$${` is `${`. Keys of objects are taken as they are.
#[derive(Debug)]
pub struct Template {
    part: Part,
    needs: Needs,
    expressions: usize,
}

#[derive(Debug)]
enum Part {
    Constant(Value),
    Value(Box<Expression>),
    Text(Box<[Piece]>),
    List(Box<[Self]>),
    Object(Box<[(Box<str>, Self)]>),
}

#[derive(Debug)]
enum Piece {
    Text(Box<str>),
    Value(Box<Expression>),
}

/// What is wrong with a template, and in which of its strings: a path behind the template's own, as `.items[0]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFault {
    pub path: String,
    pub why: Refused,
}

impl Template {
    /// Reads a value, and tells all that is wrong with it.
    pub fn compile(value: &Value, names: &Names<'_>) -> Result<Self, Vec<TemplateFault>> {
        super::expression::on_large_stack(|| Self::compile_here(value, names))
    }

    /// The same on this thread, which must have a stack for expressions.
    pub(crate) fn compile_here(value: &Value, names: &Names<'_>) -> Result<Self, Vec<TemplateFault>> {
        let mut reader = Reader { names, needs: Needs::default(), faults: Vec::new(), path: String::new(), count: 0 };
        let part = reader.value(value);
        if reader.faults.is_empty() {
            Ok(Self { part, needs: reader.needs, expressions: reader.count })
        } else {
            Err(reader.faults)
        }
    }

    /// How many are in it.
    pub fn expressions(&self) -> usize {
        self.expressions
    }

    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Its value, if no expression is in it.
    pub fn constant(&self) -> Option<&Value> {
        match &self.part {
            Part::Constant(value) => Some(value),
            Part::Value(_) | Part::Text(_) | Part::List(_) | Part::Object(_) => None,
        }
    }

    /// The value with every expression evaluated; at most 1 MiB.
    pub fn render(&self, scope: &Scope) -> Result<Value, ExpressionFailed> {
        let mut left = OUTPUT_BYTES_MAX;
        self.part.render(scope, &mut left)
    }
}

impl super::expression::FromLost for Result<Template, Vec<TemplateFault>> {
    fn lost(why: &str) -> Self {
        Err(vec![TemplateFault { path: String::new(), why: Refused(why.into()) }])
    }
}

impl Part {
    fn render(&self, scope: &Scope, left: &mut usize) -> Result<Value, ExpressionFailed> {
        match self {
            Self::Constant(value) => take_value(value.clone(), left),
            Self::Value(expression) => take_value(expression.evaluate(scope)?, left),
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(part) => text.push_str(part),
                        Piece::Value(expression) => write_text(&mut text, expression, scope)?,
                    }
                    if text.len() > *left {
                        return Err(too_large());
                    }
                }
                take_value(Value::String(text), left)
            }
            Self::List(parts) => parts.iter().map(|part| part.render(scope, left)).collect(),
            Self::Object(parts) => {
                let mut fields = Map::new();
                for (key, part) in parts {
                    take(left, key.len() + 3)?;
                    fields.insert(key.to_string(), part.render(scope, left)?);
                }
                Ok(Value::Object(fields))
            }
        }
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), ExpressionFailed> {
    *left = left.checked_sub(bytes).ok_or_else(too_large)?;
    Ok(())
}

fn take_value(value: Value, left: &mut usize) -> Result<Value, ExpressionFailed> {
    take(left, values::size(&value))?;
    Ok(value)
}

fn too_large() -> ExpressionFailed {
    ExpressionFailed(format!("the value is larger than {} KiB once it is put together", OUTPUT_BYTES_MAX >> 10).into())
}

fn write_text(text: &mut String, expression: &Expression, scope: &Scope) -> Result<(), ExpressionFailed> {
    match expression.evaluate(scope)? {
        Value::Null => {
            let source = explain::cut(expression.source(), 160);
            let why = format!(
                "`{source}`: it is null, which is no text: say what to write instead, as `x == null ? \"\" : x`"
            );
            return Err(ExpressionFailed(why.into()));
        }
        Value::String(part) => text.push_str(&part),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            text.push_str(&other.to_string());
        }
    }
    Ok(())
}

struct Reader<'n> {
    names: &'n Names<'n>,
    needs: Needs,
    faults: Vec<TemplateFault>,
    path: String,
    count: usize,
}

impl Reader<'_> {
    /// A part without an expression in it is a constant, as a whole.
    fn value(&mut self, value: &Value) -> Part {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Part::Constant(value.clone()),
            Value::String(text) => self.text(text),
            Value::Array(elements) => {
                let parts: Vec<Part> = elements
                    .iter()
                    .enumerate()
                    .map(|(at, element)| self.below(&format!("[{at}]"), |reader| reader.value(element)))
                    .collect();
                if parts.iter().all(Part::is_constant) {
                    return Part::Constant(parts.into_iter().filter_map(Part::into_constant).collect());
                }
                Part::List(parts.into())
            }
            Value::Object(fields) => {
                let parts: Vec<(Box<str>, Part)> = fields
                    .iter()
                    .map(|(key, value)| {
                        let path = super::document::below(key);
                        let part = self.below(&path, |reader| {
                            if key.contains("${") {
                                reader.fault(Refused("expressions stand in values, and not in keys".into()));
                            }
                            reader.value(value)
                        });
                        (key.as_str().into(), part)
                    })
                    .collect();
                if parts.iter().all(|(_, part)| part.is_constant()) {
                    let fields = parts.into_iter().filter_map(|(key, part)| Some((key.into(), part.into_constant()?)));
                    return Part::Constant(Value::Object(fields.collect()));
                }
                Part::Object(parts.into())
            }
        }
    }

    fn below<T>(&mut self, path: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(path);
        let done = work(self);
        self.path.truncate(length);
        done
    }

    fn fault(&mut self, why: Refused) {
        self.faults.push(TemplateFault { path: self.path.clone(), why });
    }

    fn text(&mut self, text: &str) -> Part {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(escaped) = before.strip_suffix('$') {
                plain.push_str(escaped);
                plain.push_str("${");
                rest = &from[2..];
                continue;
            }
            plain.push_str(before);
            let inside = &from[2..];
            let Some(end) = end_of_expression(inside) else {
                self.fault(Refused("a `${` has no `}` behind it; `$${` writes it as it is".into()));
                return Part::Constant(Value::Null);
            };
            if let Some(expression) = self.expression(inside[..end].trim()) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
                }
                pieces.push(Piece::Value(Box::new(expression)));
            }
            rest = &inside[end + 1..];
        }
        plain.push_str(rest);
        if pieces.is_empty() {
            return Part::Constant(Value::String(plain));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into()));
        }
        match pieces.as_slice() {
            [Piece::Value(_)] => match pieces.pop() {
                Some(Piece::Value(expression)) => Part::Value(expression),
                Some(Piece::Text(_)) | None => Part::Constant(Value::Null),
            },
            _ => Part::Text(pieces.into()),
        }
    }

    fn expression(&mut self, source: &str) -> Option<Expression> {
        self.count += 1;
        if self.count > EXPRESSIONS_MAX {
            if self.count == EXPRESSIONS_MAX + 1 {
                self.fault(Refused(format!("more than {EXPRESSIONS_MAX} expressions stand in one value").into()));
            }
            return None;
        }
        match Expression::compile_here(source, self.names) {
            Ok(expression) => {
                self.needs.add(expression.needs());
                Some(expression)
            }
            Err(why) => {
                self.fault(why);
                None
            }
        }
    }
}

impl Part {
    fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    fn into_constant(self) -> Option<Value> {
        match self {
            Self::Constant(value) => Some(value),
            Self::Value(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => None,
        }
    }
}

/// Where the `}` stands that ends an expression: not within its braces, nor within its strings and comments.
fn end_of_expression(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut deep) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => deep += 1,
            b'}' if deep == 0 => return Some(at),
            b'}' => deep -= 1,
            b'"' | b'\'' => {
                at = end_of_string(bytes, at)?;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n')?;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Behind a string of CEL that begins at `at`: in one quote or three, raw if an `r` stands before it.
fn end_of_string(bytes: &[u8], at: usize) -> Option<usize> {
    let quote = bytes[at];
    let before = |back: usize| at.checked_sub(back).and_then(|at| bytes.get(at)).copied();
    let is_letter = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    // `r"…"`, `br"…"`, and not the end of a name.
    let is_raw = match before(1) {
        Some(b'r' | b'R') => !is_letter(before(2)) || matches!(before(2), Some(b'b' | b'B')) && !is_letter(before(3)),
        _ => false,
    };
    let is_triple = bytes.get(at + 1) == Some(&quote) && bytes.get(at + 2) == Some(&quote);
    let width = if is_triple { 3 } else { 1 };
    let mut at = at + width;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' && !is_raw {
            at += 2;
        } else if bytes[at..].iter().take(width).filter(|byte| **byte == quote).count() == width {
            return Some(at + width);
        } else {
            at += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests;
