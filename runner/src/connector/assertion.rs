//! What an author says of a node, held against what the manifest says of its action.
//!
//! The manifest decides. An author may say it too, so that a mistake about it is found when the automation is saved and
//! not when it has charged somebody twice.

use serde_json::Value;

use super::target::fault;
use super::{Action, InputFault, ReplaySafety};

/// What an author says; none of it where nothing is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Assertion {
    pub idempotent: Option<bool>,
    pub effectful: Option<bool>,
}

/// Says what contradicts. `input` is what of the node's input is known when it is saved: members that expressions fill may
/// be there as any text, or not at all. `action` is named in the reason.
///
/// # Errors
/// The reason, in words for the author.
pub fn contradiction(name: &str, action: &dyn Action, input: &Value, assertion: Assertion) -> Result<(), InputFault> {
    let safety = action.safety(input);
    let refuse = |message: String| Err(fault(message));
    match (assertion.idempotent, safety) {
        (Some(true), ReplaySafety::Unsafe) => {
            return refuse(format!(
                "`idempotent: true` contradicts {name}, which its connector declares unsafe: done twice, it happens twice. Take it out; when nobody knows whether it was done, you are asked"
            ));
        }
        (Some(true), ReplaySafety::Checkable) => {
            return refuse(format!(
                "`idempotent: true` contradicts {name}, which its connector declares checkable: the provider is asked whether it was done, and it is not simply done again. Take it out"
            ));
        }
        (Some(false), ReplaySafety::Idempotent) => {
            return refuse(format!(
                "`idempotent: false` contradicts {name}, which its connector declares idempotent: done twice, it happens once, and it is tried again by itself. Take it out"
            ));
        }
        (Some(true), ReplaySafety::Idempotent)
        | (Some(false), ReplaySafety::Unsafe | ReplaySafety::Checkable)
        | (None, _) => {}
    }
    match (assertion.effectful, action.is_effectful(input)) {
        (Some(true), false) => {
            refuse(format!("`effectful: true` contradicts {name}, which changes nothing at the provider. Take it out"))
        }
        (Some(false), true) => refuse(format!(
            "`effectful: false` contradicts {name}, which changes something at the provider. Take it out"
        )),
        (Some(true), true) | (Some(false), false) | (None, _) => Ok(()),
    }
}
