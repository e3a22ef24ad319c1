//! What goes over the control socket and out of `--json`: one stable form for both.
//!
//! Names are camelCase and never change their meaning; new ones may appear.

use data_encoding::BASE64;
use domain::text::Untrusted;
use domain::{EndpointId, EventId, ExecutionId, TenantId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

#[cfg(test)]
pub(crate) use super::stat::DiskFault;
pub(crate) use super::stat::{LaneStat, LogStat, Stat};

/// Bytes that are nearly always text: a JSON string where they are, else `{"base64": "…"}`, so that no byte is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Plain(String),
    Raw { base64: String },
}

impl Text {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Plain(text.to_owned()),
            Err(_) => Self::Raw { base64: BASE64.encode(bytes) },
        }
    }

    fn as_written(&self) -> &str {
        let (Self::Plain(text) | Self::Raw { base64: text }) = self;
        text
    }

    /// The bytes again. A base64 that is none came from no server of ours and reads as nothing.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text.as_bytes().to_vec(),
            Self::Raw { base64 } => BASE64.decode(base64.as_bytes()).unwrap_or_default(),
        }
    }

    /// Safe to print on a terminal, up to `bytes_max` bytes of it.
    pub(crate) fn shown(&self, bytes_max: usize) -> String {
        Untrusted::with_limit(&self.bytes(), bytes_max).to_string()
    }
}

/// The provider's own id of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryId {
    pub(crate) value: Text,
    /// Duplicates can be told by it only if the signature covers it.
    pub(crate) signed: bool,
}

/// One event, or one delivery that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventLine {
    pub(crate) id: EventId,
    pub(crate) execution_id: ExecutionId,
    pub(crate) tenant: TenantId,
    pub(crate) endpoint: EndpointId,
    pub(crate) received_at: String,
    /// Where it lies; absent while it is held.
    #[serde(flatten)]
    pub(crate) place: Option<PlaceLine>,
    /// Why it is held; absent once it is an event.
    #[serde(flatten)]
    pub(crate) held: Option<HeldLine>,
    pub(crate) method: String,
    pub(crate) target: Text,
    pub(crate) peer: String,
    pub(crate) scheme: String,
    /// Name of the secret that verified.
    pub(crate) secret: Option<String>,
    pub(crate) delivery_id: Option<DeliveryId>,
    /// When the provider says that it signed.
    pub(crate) signed_at: Option<String>,
    /// The URL that the provider saw, up to the target.
    pub(crate) public_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) headers: Option<Vec<(Text, Text)>>,
    pub(crate) body_bytes: u64,
    /// Base64, whatever is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
}

impl EventLine {
    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self
            .headers
            .iter()
            .flatten()
            .map(|(name, value)| size_of::<(Text, Text)>() + name.as_written().len() + value.as_written().len());
        let body = self.body.as_ref().map_or(0, String::len);
        let delivery = self.delivery_id.as_ref().map_or(0, |id| id.value.as_written().len());
        let texts = self.target.as_written().len() + self.public_url.len() + delivery;
        size_of::<Self>() + headers.sum::<usize>() + body + texts
    }

    /// The body's bytes, where the line has them.
    pub(crate) fn body(&self) -> Option<Vec<u8>> {
        self.body.as_ref().and_then(|body| BASE64.decode(body.as_bytes()).ok())
    }
}

/// The place of an event in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlaceLine {
    pub(crate) node: u16,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) position: String,
    /// When it was committed: long after it was received if it was held first.
    pub(crate) appended_at: String,
    /// `normal`, or `bulk` for what came over a limit and was kept all the same.
    pub(crate) class: String,
}

/// Why a delivery is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldLine {
    /// `quarantined` or `pending`.
    pub(crate) status: String,
    /// The label of what was wrong.
    pub(crate) reason: String,
}

/// Whose events. There is no default: somebody says it, or nothing is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Whose {
    Tenant(TenantId),
    /// Every tenant's: the operator's own view.
    AllTenants,
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Query {
    pub(crate) whose: Whose,
    #[serde(default)]
    pub(crate) endpoint: Option<EndpointId>,
    /// Received at or after this, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(crate) since: Option<u64>,
    /// Received before this.
    #[serde(default)]
    pub(crate) until: Option<u64>,
    #[serde(default)]
    pub(crate) which: Which,
    /// Held deliveries instead of events.
    #[serde(default)]
    pub(crate) held: bool,
    /// With headers and body.
    #[serde(default)]
    pub(crate) whole: bool,
    /// Go on behind damage, and say so; else it ends the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skip_damage: bool,
}

/// Most of the newest that are asked for at a time: they are gathered in memory, and nobody reads more of them at once.
pub(crate) const NEWEST_MAX: u32 = 10_000;

fn few<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(from)?;
    let told = || D::Error::custom(format!("{count} of the newest are more than {NEWEST_MAX}"));
    if count <= NEWEST_MAX { Ok(count) } else { Err(told()) }
}

/// Which of those that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Which {
    #[default]
    All,
    /// The first so many.
    First(u64),
    /// The last so many, oldest of them first: at most [`NEWEST_MAX`].
    Newest(#[serde(deserialize_with = "few")] u32),
    /// All, and what is committed from then on, until the asker goes away.
    Follow,
    /// Only what is committed from now on, until the asker goes away.
    FollowFromNow,
}

/// One event by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Find {
    pub(crate) whose: Whose,
    pub(crate) id: EventId,
    #[serde(default)]
    pub(crate) held: bool,
}

/// Which held deliveries to judge again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Reverify {
    pub(crate) whose: Whose,
    #[serde(default)]
    pub(crate) endpoint: Option<EndpointId>,
    /// Only these; empty: all of the scope.
    #[serde(default)]
    pub(crate) ids: Vec<EventId>,
    /// Judge, and promote nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What became of one held delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Judged {
    pub(crate) id: EventId,
    pub(crate) tenant: TenantId,
    pub(crate) endpoint: EndpointId,
    pub(crate) received_at: String,
    pub(crate) outcome: JudgedOutcome,
    /// What is wrong with it, or why it was not promoted: for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JudgedOutcome {
    /// It verifies now and is an event.
    Promoted,
    /// It verifies now, and is an event already: somebody else promoted it, at the same time or before.
    AlreadyPromoted,
    /// It verifies now; this was a dry run.
    WouldPromote,
    /// It still does not verify.
    Refused,
    /// It verifies, and could not be committed: ask again.
    Failed,
}

/// What came of reading the configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reloaded {
    /// Tenants that were rebuilt.
    pub(crate) changed: usize,
    /// Keys of the appliance's file that take effect at the next start.
    #[serde(default)]
    pub(crate) restart_needed: Vec<String>,
    pub(crate) faults: Vec<FaultLine>,
}

/// One fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FaultLine {
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) key: String,
    pub(crate) message: String,
    /// `error` or `warning`.
    pub(crate) severity: String,
}

/// A remark on an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Aside {
    pub(crate) text: String,
    /// Something that was asked for may not be in the answer although it should be in the log.
    pub(crate) missing: bool,
}

/// An item of an answer, or a remark between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said<T> {
    Item(T),
    Aside(Aside),
}

/// One line of a streamed answer. A stream without an `end` or a `fault` was cut off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Line<T> {
    Item(T),
    /// Something about the answer, for people.
    Aside(Aside),
    /// Everything was said.
    End,
    /// The rest could not be read.
    Fault(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_lost() {
        for bytes in [&b"plain"[..], b"", b"\xff\x00", "größe".as_bytes()] {
            let text = Text::of(bytes);
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap().bytes(), bytes, "{json}");
        }
        assert_eq!(serde_json::to_string(&Text::of(b"\xff")).unwrap(), r#"{"base64":"/w=="}"#);
    }

    #[test]
    fn no_more_of_the_newest_are_asked_for_than_are_gathered() {
        let asked = |count: u64| serde_json::from_str::<Which>(&format!(r#"{{"newest":{count}}}"#));
        assert_eq!(asked(10_000).unwrap(), Which::Newest(10_000));
        for many in [10_001, u64::from(u32::MAX), u64::MAX] {
            assert!(asked(many).is_err(), "{many}");
        }
    }

    #[test]
    fn nothing_is_read_without_saying_whose() {
        assert!(serde_json::from_str::<Query>("{}").is_err());
        assert!(serde_json::from_str::<Query>(r#"{"whose":"allTenants"}"#).is_ok());
        assert!(serde_json::from_str::<Query>(r#"{"whose":{"tenant":"acme"}}"#).is_ok());
        assert!(serde_json::from_str::<Query>(r#"{"whose":{"tenant":"a/b"}}"#).is_err());
        assert!(serde_json::from_str::<Query>(r#"{"whose":"allTenants","wich":"all"}"#).is_err());
    }
}
