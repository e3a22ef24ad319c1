//! One value of a delivery, found where the declaration says.

use std::borrow::Cow;
use std::sync::Arc;

use config::scheme::ValueSource;

use super::delivery::{Occurrence, Unverified, only};
use super::fault::VerifyFault;
use super::form;
use super::json;
use super::list::List;

/// A place, and its name for faults.
#[derive(Debug, Clone)]
pub(super) struct Source {
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
}

impl Source {
    pub(super) fn compile(declared: &ValueSource) -> Self {
        let (place, what) = match declared {
            ValueSource::Header(name) => return Self::header(name),
            ValueSource::Query(name) => (Place::Query(name.as_str().into()), format!("query parameter {name}")),
            ValueSource::Form(name) => (Place::Form(name.as_str().into()), format!("form field {name}")),
            ValueSource::Field(name) => (Place::Field(name.as_str().into()), format!("field {name} of the signature")),
            ValueSource::Json(path) => {
                (Place::Json(path.iter().map(|p| p.as_str().into()).collect()), format!("body's /{}", path.join("/")))
            }
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
        list: Option<List<'a>>,
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
            Place::Field(name) => match list {
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
            return Ok(self.value(delivery, None)?.into_iter().collect());
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
