//! What a caller asks for: one hop, parsed once.

use std::fmt;

use http::Method;
use outbound::{Authority, Scheme};
use serde::{Deserialize, Serialize};

/// By which door a call comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// `CONNECT host:port`: an opaque tunnel.
    Connect,
    /// `GET http://host/…`: a request that is forwarded.
    Absolute,
    /// `/c/{connection}/…`: a call of a connection, with its credential.
    Governed,
}

impl Way {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Connect, Self::Absolute, Self::Governed];

    /// For configuration, metrics and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Absolute => "absolute",
            Self::Governed => "governed",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One hop that is asked for. A redirect is the next one, and is judged as the first was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// How it came in.
    pub way: Way,
    /// Its method; CONNECT for tunnels.
    pub method: Method,
    /// What is spoken behind the door. A tunnel is taken for TLS.
    pub scheme: Scheme,
    /// Where to.
    pub authority: Authority,
    /// Path and query in origin-form; empty for tunnels, whose paths nobody sees.
    pub path_and_query: Box<str>,
}

impl Asked {
    /// The path without the query.
    pub fn path(&self) -> &str {
        self.path_and_query.split('?').next().unwrap_or_default()
    }
}
