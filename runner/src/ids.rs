//! Names of runs, automations, steps and effects.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use domain::event_id::{read_base32, write_base32};
use domain::{EventId, TenantId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is no id of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an id: {prefix} and 26 characters of 0-9 a-z without i, l, o, u")]
pub struct ParseIdError {
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            pub fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                write_base32(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let rest = text.strip_prefix($prefix).ok_or(ParseIdError { prefix: $prefix })?;
                read_base32(rest).map(Self).ok_or(ParseIdError { prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id! {
    /// One automation of a tenant, `aut_…`; minted when it is first stored.
    AutomationId, "aut_"
}

id! {
    /// One run, `run_…`: a hash of what it is a run of, so that a second one of the same cannot be.
    RunId, "run_"
}

id! {
    /// What a provider is given to tell a repeated request by, `eff_…`. A retry has the same one; a replay and a re-run
    /// have another.
    EffectKey, "eff_"
}

/// Versions of an automation count from 1, and none is ever given twice.
pub type Version = NonZeroU32;

/// How often an author asked for a step: 1, and one more for each re-run. Tries of the same asking share it.
pub type LogicalAttempt = NonZeroU32;

impl RunId {
    /// The run of this event under this version: always the same one.
    pub fn of_event(tenant: &TenantId, automation: AutomationId, version: Version, event: EventId) -> Self {
        Self::hashed("tidegate 2026 run of an event", tenant, automation, version, event.as_bytes())
    }

    /// A run that somebody asked for: a replay, or one by hand. `nonce` names the asking; the same one asks for the same run.
    pub fn of_request(tenant: &TenantId, automation: AutomationId, version: Version, nonce: &[u8]) -> Self {
        Self::hashed("tidegate 2026 run of a request", tenant, automation, version, nonce)
    }

    fn hashed(
        context: &'static str,
        tenant: &TenantId,
        automation: AutomationId,
        version: Version,
        cause: &[u8],
    ) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        part(&mut hasher, tenant.as_bytes());
        part(&mut hasher, automation.as_bytes());
        part(&mut hasher, &version.get().to_be_bytes());
        part(&mut hasher, cause);
        Self(first_16(&hasher))
    }
}

impl EffectKey {
    /// hash(run, step, logical attempt).
    pub fn new(run: RunId, step: &StepId, logical: LogicalAttempt) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tidegate 2026 effect key");
        part(&mut hasher, run.as_bytes());
        part(&mut hasher, step.as_str().as_bytes());
        part(&mut hasher, &logical.get().to_be_bytes());
        Self(first_16(&hasher))
    }
}

/// With its length in front, so that no two lists of parts hash alike.
fn part(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_be_bytes());
    hasher.update(bytes);
}

fn first_16(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// A node of an automation, by its author's name for it, and the step of a run that performs it. A node of a sub-graph has
/// the names of those that it is in before its own, with `/` between them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(Arc<str>);

/// Longest step id, in bytes.
pub const STEP_ID_BYTES_MAX: usize = 200;

impl StepId {
    /// 1 to 200 bytes: names of letters, digits, `-` and `_`, with `/` between them.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        (text.len() <= STEP_ID_BYTES_MAX && text.split('/').all(is_name)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{NodeId, Slot};

    fn one() -> Version {
        Version::MIN
    }

    #[test]
    fn a_run_is_named_by_what_it_is_a_run_of() {
        let tenant = |name| TenantId::parse(name).unwrap();
        let (a, b) = (AutomationId::from_bytes([1; 16]), AutomationId::from_bytes([2; 16]));
        let event = EventId::new(7, Slot(1), NodeId(1), [0; 6]);
        let run = RunId::of_event(&tenant("acme"), a, one(), event);
        assert_eq!(run, RunId::of_event(&tenant("acme"), a, one(), event));
        assert_ne!(run, RunId::of_event(&tenant("acme2"), a, one(), event));
        assert_ne!(run, RunId::of_event(&tenant("acme"), b, one(), event));
        assert_ne!(run, RunId::of_event(&tenant("acme"), a, Version::new(2).unwrap(), event));
        assert_ne!(run, RunId::of_request(&tenant("acme"), a, one(), event.as_bytes()));
        assert_eq!(run.to_string().parse::<RunId>().unwrap(), run);
        assert!(run.to_string().parse::<AutomationId>().is_err());
    }

    /// What providers were given once is what they are given for ever.
    #[test]
    fn an_effect_key_is_that_of_run_step_and_asking() {
        let (run, other) = (RunId::from_bytes([1; 16]), RunId::from_bytes([2; 16]));
        let step = StepId::parse("charge").unwrap();
        let key = EffectKey::new(run, &step, LogicalAttempt::MIN);
        assert_eq!(key, EffectKey::new(run, &step, LogicalAttempt::MIN));
        assert_ne!(key, EffectKey::new(run, &step, LogicalAttempt::new(2).unwrap()));
        assert_ne!(key, EffectKey::new(other, &step, LogicalAttempt::MIN));
        assert_ne!(key, EffectKey::new(run, &StepId::parse("refund").unwrap(), LogicalAttempt::MIN));
    }

    #[test]
    fn step_ids_are_names_and_paths_of_names() {
        for good in ["a", "send-mail_2", "each/inner", &"a".repeat(200)] {
            assert!(StepId::parse(good).is_some(), "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a//b", "a b", "a.b", "ä", &"a".repeat(201)] {
            assert!(StepId::parse(bad).is_none(), "{bad}");
        }
    }
}
