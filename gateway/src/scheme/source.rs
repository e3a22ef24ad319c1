//! One value of a delivery, found where the declaration says.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::ValueSource;
use domain::json::{self as strict, Members, Value};

use super::delivery::{Occurrence, Unverified, only};
use super::fault::VerifyFault;
use super::form;
use super::json;
use super::list::List;

/// A place, and its name for faults.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(super) place: Place,
    pub(super) what: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In lower case.
    Header(Box<str>),
    Query(Box<str>),
    Form(Box<str>),
    Json(Box<[Box<str>]>),
    Field(Box<str>),
    Claim(Box<str>),
    Item(Box<[Box<str>]>),
}

/// What else than the delivery values can come from, as far as it has been read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside<'a> {
    /// The list of the signature's header.
    pub(super) list: Option<List<'a>>,
    /// The claims of a JWT that was verified.
    pub(super) claims: Option<&'a Members>,
    /// The item of the body whose signature is looked at.
    pub(super) item: Option<&'a Members>,
}

impl Source {
    pub(crate) fn compile(declared: &ValueSource) -> Self {
        let (place, what) = match declared {
            ValueSource::Header(name) => return Self::header(name),
            ValueSource::Query(name) => (Place::Query(name.as_str().into()), format!("query parameter {name}")),
            ValueSource::Form(name) => (Place::Form(name.as_str().into()), format!("form field {name}")),
            ValueSource::Field(name) => (Place::Field(name.as_str().into()), format!("field {name} of the signature")),
            ValueSource::Claim(name) => (Place::Claim(name.as_str().into()), format!("claim {name} of the token")),
            ValueSource::Json(path) => (Place::Json(steps(path)), format!("body's /{}", path.join("/"))),
            ValueSource::Item(path) => (Place::Item(steps(path)), format!("/{} of an item", path.join("/"))),
        };
        Self { place, what: what.into() }
    }

    pub(super) fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self { what: format!("header {name}").into(), place: Place::Header(name.into()) }
    }

    /// Is it in the body?
    pub(super) fn in_body(&self) -> bool {
        matches!(self.place, Place::Form(_) | Place::Json(_))
    }

    /// The value, which must not be there more than once.
    pub(super) fn value<'a>(
        &self,
        delivery: &Unverified<'a>,
        beside: Beside<'a>,
    ) -> Result<Option<Cow<'a, [u8]>>, VerifyFault> {
        let parsed = |found: Result<Option<Cow<'a, [u8]>>, form::Found>| {
            found.map_err(|found| match found {
                form::Found::Several => self.duplicate(),
                form::Found::Unreadable => self.malformed(),
            })
        };
        match &self.place {
            Place::Header(name) => match only(delivery.headers, name) {
                Occurrence::None => Ok(None),
                Occurrence::Once(value) => Ok(Some(Cow::Borrowed(value))),
                Occurrence::Several => Err(self.duplicate()),
            },
            Place::Query(name) => parsed(form::parameter(delivery.target, name.as_bytes())),
            Place::Form(name) => parsed(form::only(delivery.body, name.as_bytes())),
            Place::Claim(name) => match beside.claims.and_then(|claims| strict::member(claims, name)) {
                None => Ok(None),
                Some(value) => scalar(value).map(Some).ok_or_else(|| self.malformed()),
            },
            Place::Item(path) => match beside.item.and_then(|item| below(item, path)) {
                None => Ok(None),
                Some(value) => scalar(value).map(Some).ok_or_else(|| self.malformed()),
            },
            Place::Field(name) => match beside.list {
                None => Ok(None),
                Some(list) => list.field(name.as_bytes()).map(|v| v.map(Cow::Borrowed)).map_err(|_| self.duplicate()),
            },
            Place::Json(_) => {
                let mut values = self.values(delivery)?;
                if values.len() > 1 { Err(self.duplicate()) } else { Ok(values.pop()) }
            }
        }
    }

    /// Every value, where a path into the body can have several.
    pub(super) fn values<'a>(&self, delivery: &Unverified<'a>) -> Result<Vec<Cow<'a, [u8]>>, VerifyFault> {
        let Place::Json(path) = &self.place else {
            return Ok(self.value(delivery, Beside::default())?.into_iter().collect());
        };
        match json::all(delivery.body, path) {
            Ok(values) => Ok(values.into_iter().map(|v| Cow::Owned(v.into_vec())).collect()),
            Err(json::Found::Several) => Err(self.duplicate()),
            Err(json::Found::Unreadable) => Err(self.malformed()),
        }
    }

    pub(super) fn missing(&self) -> VerifyFault {
        VerifyFault::Missing { what: Arc::clone(&self.what) }
    }

    pub(super) fn duplicate(&self) -> VerifyFault {
        VerifyFault::Duplicate { what: Arc::clone(&self.what) }
    }

    pub(super) fn malformed(&self) -> VerifyFault {
        VerifyFault::Malformed { what: Arc::clone(&self.what) }
    }
}

fn steps(path: &[String]) -> Box<[Box<str>]> {
    path.iter().map(|step| step.as_str().into()).collect()
}

/// Text, a whole number or a flag, as text.
pub(super) fn scalar(value: &Value) -> Option<Cow<'_, [u8]>> {
    match value {
        Value::Text(text) => Some(Cow::Borrowed(text.as_bytes())),
        Value::Whole(number) => Some(Cow::Owned(number.to_string().into_bytes())),
        Value::Flag(flag) => Some(Cow::Borrowed(if *flag { b"true" } else { b"false" })),
        Value::List(_) | Value::Members(_) | Value::Other => None,
    }
}

/// The value at a path of names.
fn below<'m>(members: &'m Members, path: &[Box<str>]) -> Option<&'m Value> {
    let (name, rest) = path.split_first()?;
    let value = strict::member(members, name)?;
    match (rest, value) {
        ([], value) => Some(value),
        (rest, Value::Members(members)) => below(members, rest),
        (_, Value::Text(_) | Value::Whole(_) | Value::Flag(_) | Value::List(_) | Value::Other) => None,
    }
}

/// Every object at a path, in order; `*` stands for each element of an array. None where there is something else.
pub(super) fn objects<'v>(value: &'v Value, path: &[Box<str>]) -> Option<Vec<&'v Members>> {
    match (path.split_first(), value) {
        (None, Value::Members(members)) => Some(vec![members]),
        (Some((step, rest)), Value::List(list)) if step.as_ref() == "*" => {
            let each: Option<Vec<_>> = list.iter().map(|value| objects(value, rest)).collect();
            Some(each?.concat())
        }
        (Some((step, rest)), Value::Members(members)) => objects(strict::member(members, step)?, rest),
        (None | Some(_), _) => None,
    }
}
