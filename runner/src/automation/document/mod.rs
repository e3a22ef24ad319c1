//! The document in which an author says what is wanted: JSON, or YAML of the same shape.
//!
//! It is read in three steps, each of which goes on behind a fault, so that an author is told everything at once: the text
//! becomes a value ([`text`]); the value is held against the schema that is published ([`schema`], made of the types in
//! [`form`]); and its nodes are laid out in an order and compiled ([`layout`], [`compile`]). What a connector has to say of
//! it comes last, when it is saved ([`Draft::check`]).

pub mod bounds;
mod canonical;
mod check;
mod compile;
mod fault;
mod form;
mod layout;
mod order;
mod schema;
mod steps;
mod text;

use domain::{EndpointId, TenantId};
use serde_json::Value;

use super::expression::{explain, on_large_stack};
use super::graph::Automation;
use super::store::Stored;
use crate::ids::{AutomationId, Version};

pub use fault::{Fault, Faults};
pub use schema::published_schema;
pub use text::Format;

/// A document that is sound by itself, and no version of anything yet.
#[derive(Debug)]
pub struct Draft {
    value: Value,
    json: Box<str>,
    digest: [u8; 32],
    compiled: compile::Compiled,
    places: text::Places,
}

impl Draft {
    /// Reads a document and compiles it; all that is wrong is told at once. It takes a thread for a moment, and up to half
    /// a second of a processor for the largest documents.
    pub fn read(text: &str, format: Format) -> Result<Self, Faults> {
        on_large_stack(|| Self::read_here(text, format))
    }

    fn read_here(text: &str, format: Format) -> Result<Self, Faults> {
        let (mut value, places) = text::read(text, format)?;
        if let Value::Object(members) = &mut value {
            // It is there for editors: the same automation with it and without it is the same.
            members.remove("$schema");
        }
        let compiled = compile::compile(&value).map_err(|faults| placed(faults, &places))?;
        let json = canonical::canonical(&value).into_boxed_str();
        if json.len() > bounds::DOCUMENT_BYTES_MAX {
            let most = bounds::DOCUMENT_BYTES_MAX >> 10;
            return Err(Faults::one(format!(
                "it has more than {most} KiB once its aliases and escapes are written out"
            )));
        }
        let digest = *blake3::hash(json.as_bytes()).as_bytes();
        Ok(Self { value, json, digest, compiled, places })
    }

    pub fn name(&self) -> &str {
        &self.compiled.name
    }

    /// Whose events begin runs of it.
    pub fn endpoints(&self) -> &[EndpointId] {
        &self.compiled.trigger.endpoints
    }

    /// BLAKE3 of the canonical JSON: the same for the same content, however it was written.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Canonical JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// As a version of an automation. `by` is who saved it.
    pub fn into_stored(
        self,
        tenant: TenantId,
        id: AutomationId,
        version: Version,
        at_unix_ms: u64,
        by: &str,
    ) -> Stored {
        Stored {
            tenant,
            id,
            version,
            name: self.compiled.name,
            json: self.json,
            digest: self.digest,
            endpoints: self.compiled.trigger.endpoints,
            is_enabled: self.compiled.is_enabled,
            is_deleted: false,
            at_unix_ms,
            by: by.into(),
        }
    }
}

impl Automation {
    /// A stored version, compiled. It was sound when it was saved: a fault means that it was damaged since, or that this
    /// version of the program no longer takes what an older one did.
    pub fn compile(stored: &Stored) -> Result<Self, Faults> {
        let compiled = on_large_stack(|| {
            let (value, _) = text::read(&stored.json, Format::Json)?;
            compile::compile(&value)
        })?;
        Ok(Self {
            tenant: stored.tenant.clone(),
            id: stored.id,
            version: stored.version,
            digest: stored.digest,
            name: compiled.name,
            trigger: compiled.trigger,
            nodes: compiled.nodes,
            deadline: compiled.deadline,
            class: compiled.class,
        })
    }
}

/// With lines and columns, where they are known: of the nearest thing around that stands somewhere.
fn placed(mut faults: Faults, places: &text::Places) -> Faults {
    for fault in faults.0.iter_mut().filter(|fault| fault.place.is_none()) {
        let mut path = &*fault.path;
        fault.place = loop {
            if let Some(place) = places.get(path) {
                break Some(*place);
            }
            match path.rfind(['.', '[']) {
                Some(at) => path = &path[..at],
                None => break places.get("").copied(),
            }
        };
    }
    faults
}

/// A key as a step of a path: `.name`, or `["na me"]`.
pub(super) fn below(key: &str) -> String {
    let is_plain =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'));
    let shown = explain::cut(key, 64);
    if is_plain { format!(".{shown}") } else { format!("[{shown:?}]") }
}

#[cfg(test)]
mod tests;
