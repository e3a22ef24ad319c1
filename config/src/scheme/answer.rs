//! What the provider wants to hear, and what it does when it hears something else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::Span;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What the provider does with a delivery that was not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Redelivery {
    /// It sends again by itself after a 5xx or a time-out.
    pub automatic: bool,
    /// It sends again by itself after a 429: only then may a verified delivery be answered so.
    pub after_429: bool,
    /// How often, where that is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u16>,
    /// For how long, where that is published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Span>,
    /// How long it waits for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What it does to the endpoint that keeps failing, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gives_up: String,
    /// How to have it send again what was lost, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ask: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What the provider wants to hear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// Status of a delivery that was taken: 200, 202 or 204.
    pub status: u16,
    #[serde(skip_serializing_if = "is_default")]
    pub body: AnswerBody,
    /// The body, where `body` is `text`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The type of that text.
    #[serde(skip_serializing_if = "is_default")]
    pub content_type: AnswerType,
    /// A refusal has a status and no body.
    #[serde(skip_serializing_if = "is_default")]
    pub bare_refusals: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            status: 202,
            body: AnswerBody::default(),
            text: String::new(),
            content_type: AnswerType::default(),
            bare_refusals: false,
        }
    }
}

/// What an answer to a delivery that was taken says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerBody {
    /// The ids of the event and of its runs, as JSON.
    #[default]
    Event,
    /// Nothing.
    Empty,
    /// A text that the provider asks for.
    Text,
}

/// Media types that providers ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerType {
    /// `text/plain`
    #[default]
    Plain,
    /// `text/xml`
    Xml,
    /// `application/json`
    Json,
}

impl AnswerType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; charset=utf-8",
            Self::Xml => "text/xml; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}
