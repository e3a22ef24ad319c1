//! What can be done at a provider, as data: how each action is asked for, and whether it may be done again.
//!
//! An action's class is the manifest's word and nobody else's. It is what decides, after a crash, between doing a thing
//! again, asking the provider whether it was done, and asking a person. So it must be there, and one that contradicts
//! the method of its request (RFC 9110, section 9.2.2) must give its reason.

mod build;
mod input;
mod schema;
mod tables;
mod template;

use serde_json::Value;

use super::quota::JsonPath;

pub(super) use build::{Around, build};
pub use input::INPUT_BYTES_MAX;
pub(super) use tables::{ActionTable, status};
pub use template::{EffectForm, Part, PathPart, PathTemplate, Template};

/// The action that every connection has, whatever its connector declares.
pub const HTTP_REQUEST: &str = "http.request";

/// One action.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionSpec {
    /// Unique in the manifest: letters, digits and `_`.
    pub name: Box<str>,
    pub title: Box<str>,
    pub class: ReplayClass,
    /// Why the class is another than that of its method; may be empty where it is the same.
    pub reason: Box<str>,
    /// It changes nothing at the provider.
    pub reads: bool,
    pub request: RequestSpec,
    /// JSON Schema of the input, an object; of the keywords that `docs/connectors.md` lists.
    pub input: Value,
    /// Of a checkable action, and of no other.
    pub check: Option<Box<ReadBackSpec>>,
    /// Where in the answer its output is; none: all of it.
    pub output: Option<JsonPath>,
    /// URL where it was read; none: recalled.
    pub source: Option<Box<str>>,
}

/// How something is asked of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestSpec {
    pub method: Method,
    /// Behind the connection's base URL.
    pub path: PathTemplate,
    pub query: Box<[(Box<str>, Part)]>,
    /// Names in lower case.
    pub headers: Box<[(Box<str>, Part)]>,
    /// None: the request has no body.
    pub body: Option<(Encoding, Template)>,
}

/// Whether an action may be done again when nobody knows if it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayClass {
    /// Doing it twice is doing it once.
    Idempotent,
    /// The provider can be asked whether it was done.
    Checkable,
    Unsafe,
}

impl ReplayClass {
    /// As it is written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idempotent => "idempotent",
            Self::Checkable => "checkable",
            Self::Unsafe => "unsafe",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Options,
    Put,
    Delete,
    Post,
    Patch,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Post => "POST",
            Self::Patch => "PATCH",
        }
    }

    /// The method of this name, in capitals as it travels.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Get, Self::Head, Self::Options, Self::Put, Self::Delete, Self::Post, Self::Patch]
            .into_iter()
            .find(|method| method.as_str() == text)
    }

    /// RFC 9110, section 9.2.1: it asks for no change.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options)
    }

    /// RFC 9110, section 9.2.2.
    pub fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    /// `application/x-www-form-urlencoded`; what is nested as `a[b]=c`, elements of lists as `a[0]=c`.
    Form,
    /// The same; elements of lists by repeating the name, and nothing is nested.
    FormRepeated,
}

/// How a provider is asked whether an action was done, and how its answer says so.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadBackSpec {
    pub request: RequestSpec,
    pub happened: AnswerTest,
    pub not_happened: AnswerTest,
    /// Where in the answer to the read-back the action's output is; none: all of it.
    pub output: Option<JsonPath>,
}

/// What an answer must have: all of it.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerTest {
    /// Its status is one of these; never empty.
    pub statuses: Box<[StatusRange]>,
    pub body: Option<(JsonPath, Found)>,
}

/// What is at a place of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// Something other than `null`.
    Something,
    Nothing,
    /// This text, number or truth value.
    Equal(Part),
}

/// Statuses, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    pub first: u16,
    pub last: u16,
}

impl StatusRange {
    pub fn holds(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let faulty = || format!("{text:?} is no status; write \"404\", or \"500-599\"");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| {
            text.parse::<u16>().ok().filter(|status| text.len() == 3 && (200..=599).contains(status)).ok_or_else(faulty)
        };
        let (first, last) = (number(first)?, number(last)?);
        if first <= last { Ok(Self { first, last }) } else { Err(faulty()) }
    }

    pub(in crate::connector) fn show(self) -> String {
        if self.first == self.last { self.first.to_string() } else { format!("{}-{}", self.first, self.last) }
    }
}
