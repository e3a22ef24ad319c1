//! What is told about the hops of a call.

use http::{HeaderValue, Method, StatusCode};
use outbound::{Authority, Scheme};

use crate::forward::Went;
use crate::{Asked, Refusal, SendState};

/// One hop, as evidence. Without queries, which may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopRecord {
    /// 0 for what was asked, then one more for each redirect.
    pub hop: u16,
    pub method: Method,
    pub scheme: Scheme,
    pub authority: Authority,
    pub path: Box<str>,
    /// Whether it had the connection's credential.
    pub has_credential: bool,
    /// What became of it.
    pub end: HopEnd,
}

/// What became of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HopEnd {
    /// The destination answered.
    Answered {
        /// What.
        status: StatusCode,
        /// How it got there.
        went: Went,
    },
    /// It did not.
    Failed {
        /// Why.
        refusal: Refusal,
        /// How far the request got.
        state: SendState,
        /// For the operator.
        detail: Box<str>,
    },
    /// It was not sent: the hop is refused, and nothing was dialled for it.
    Refused {
        /// Why.
        refusal: Refusal,
        /// For the operator.
        detail: Box<str>,
    },
}

impl HopEnd {
    /// How far the request of that hop got.
    pub fn state(&self) -> SendState {
        match self {
            Self::Answered { .. } => SendState::Response,
            Self::Failed { state, .. } => *state,
            Self::Refused { .. } => SendState::NotSent,
        }
    }
}

impl HopRecord {
    /// Of what was asked for.
    pub fn new(hop: u16, asked: &Asked, has_credential: bool, end: HopEnd) -> Self {
        let Asked { method, scheme, authority, .. } = asked.clone();
        Self { hop, method, scheme, authority, path: asked.path().into(), has_credential, end }
    }

    fn write(&self, text: &mut String) {
        text.push('"');
        let port = if self.authority.port() == self.scheme.default_port() {
            String::new()
        } else {
            format!(":{}", self.authority.port())
        };
        let url = format!("{}://{}{port}{}", self.scheme.as_str(), self.authority.host(), self.path);
        for char in url.chars().filter(|char| (' '..='~').contains(char)) {
            if matches!(char, '"' | '\\') {
                text.push('\\');
            }
            text.push(char);
        }
        text.push('"');
        match &self.end {
            HopEnd::Answered { status, .. } => {
                text.push_str(";status=");
                text.push_str(status.as_str());
            }
            HopEnd::Failed { refusal, .. } | HopEnd::Refused { refusal, .. } => {
                text.push_str(";refusal=");
                text.push_str(refusal.code());
            }
        }
    }
}

/// Bytes of the field; above what twenty URLs of usual length have.
const FIELD_BYTES_MAX: usize = 4 << 10;

/// The value of `Tidegate-Hops`: a list of strings with parameters (RFC 9651), one per hop. What does not fit is counted.
pub fn hops_field(hops: &[HopRecord]) -> HeaderValue {
    let mut text = String::new();
    for (at, hop) in hops.iter().enumerate() {
        let before = text.len();
        if at > 0 {
            text.push_str(", ");
        }
        hop.write(&mut text);
        if text.len() > FIELD_BYTES_MAX {
            text.truncate(before);
            if at > 0 {
                text.push_str(", ");
            }
            text.push_str("omitted;hops=");
            text.push_str(&(hops.len() - at).to_string());
            break;
        }
    }
    HeaderValue::try_from(text).expect("printable ASCII only")
}
