//! Decision records: one per hop, refused ones too. What was asked, by whom, what decided, where it led, what became
//! of it. A record never holds a credential, a query string or a body.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use domain::{ConnectionId, ConnectorId, TenantId};
use serde::{Deserialize, Serialize};

use crate::correlation::CorrelationId;

/// How far a request got out of the appliance: whether it can have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendState {
    /// Not one byte of it.
    NotSent,
    /// Some of it; the destination cannot have had the whole.
    PartiallySent,
    /// All of it, and no answer came.
    SentNoResponse,
    /// An answer came.
    Response,
}

impl SendState {
    /// As it stands in `Tidegate-Send-State`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::PartiallySent => "partially-sent",
            Self::SentNoResponse => "sent-no-response",
            Self::Response => "response",
        }
    }
}

/// What a destination speaks. An answer in HTTP/1.0 is one of HTTP/1.1's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HttpVersion {
    #[serde(rename = "1.1")]
    Http11,
    #[serde(rename = "2")]
    Http2,
}

impl HttpVersion {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Http11, Self::Http2];

    /// As it stands in `Via`, in records and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http11 => "1.1",
            Self::Http2 => "2",
        }
    }
}

/// How long the stages took, in microseconds; 0 where there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Times {
    /// From the name to its addresses.
    pub resolve_us: u64,
    /// To a TCP connection; 0 for a pooled one.
    pub connect_us: u64,
    /// The TLS handshake.
    pub tls_us: u64,
    /// From the request to the head of its answer.
    pub first_byte_us: u64,
    /// From the first byte asked to the last one given.
    pub total_us: u64,
}

/// One hop, when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Of the call; its hops share it.
    #[serde(with = "text")]
    pub correlation: CorrelationId,
    /// 0 for what the caller asked, then one more for each redirect that was followed.
    pub hop: u16,
    /// When the hop ended, in milliseconds since the Unix epoch.
    pub ended_unix_ms: u64,
    /// Who the caller is; none where that is what was refused.
    pub tenant: Option<TenantId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Box<str>>,
    /// `grant:ISSUER/JTI`, `token:NAME`, `certificate:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automation: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<ConnectorId>,
    /// The caller's end of its connection.
    pub peer: SocketAddr,
    /// `connect`, `absolute`, `governed`; empty where what came was no request, and so are method and destination.
    pub way: Box<str>,
    /// Escaped and bounded where it was never understood.
    pub method: Box<str>,
    /// `host:port`; where that could not be read, the target as it came, escaped and bounded.
    pub destination: Box<str>,
    /// Without the query, which may hold secrets; bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<str>>,
    /// The rule that decided, and where it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Box<str>>,
    /// Rules in report mode that would have refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_refuse: Vec<Box<str>>,
    /// Every address of the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer: Vec<IpAddr>,
    /// The vetted one that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The address that it left from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<IpAddr>,
    /// Whether the connection had been used before, or is used by others too.
    pub pooled: bool,
    /// The version of HTTP that was spoken with the destination; none where none was, or no answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpVersion>,
    /// Bytes towards the destination: of a request's body, or through the tunnel.
    pub sent_bytes: u64,
    /// Bytes back.
    pub received_bytes: u64,
    pub times: Times,
    /// The destination's own status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// By what names the provider's own logs know the request: the connector's `correlation_headers` that the answer had, by
    /// their names in lower case; bounded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provider_ids: BTreeMap<Box<str>, Box<str>>,
    /// `done`, or the code of the refusal or fault that ended it.
    pub outcome: Box<str>,
    /// What only the operator is told.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub detail: Box<str>,
    pub send_state: SendState,
}

/// Where records go. Called on the path: it hands over and returns.
pub trait Recorder: Send + Sync + std::fmt::Debug {
    /// Takes one record.
    fn record(&self, record: Record);
}

mod text {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::CorrelationId;

    pub(super) fn serialize<S: Serializer>(id: &CorrelationId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CorrelationId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
