//! Who we say we are, to destinations and to ourselves.

use http::header::{HeaderName, USER_AGENT, VIA};
use http::{HeaderMap, HeaderValue, Version};
use thiserror::Error;

use crate::CorrelationId;

/// `Tidegate-Correlation-Id`.
pub const CORRELATION_ID: HeaderName = HeaderName::from_static("tidegate-correlation-id");

/// Our names: the pseudonym in `Via`, and the product in `User-Agent`.
#[derive(Debug, Clone)]
pub struct Names {
    pseudonym: Box<str>,
    contact: Option<Box<str>>,
}

/// Why something is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NamesFault {
    #[error("the name in Via is no token (RFC 9110, 7.6.3): letters, digits and !#$%&'*+-.^_`|~")]
    Pseudonym,
    #[error("the contact in User-Agent is printable ASCII without spaces, parentheses, semicolons and backslashes")]
    Contact,
}

impl Names {
    /// `pseudonym` is a token that no other proxy on the way has: whoever has it has sent us a loop. `contact` is where
    /// providers find us, a URL or an address.
    pub fn new(pseudonym: &str, contact: Option<&str>) -> Result<Self, NamesFault> {
        if pseudonym.is_empty() || !pseudonym.bytes().all(is_token_byte) {
            return Err(NamesFault::Pseudonym);
        }
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b';' | b'\\');
        if contact.is_some_and(|contact| contact.is_empty() || !contact.bytes().all(is_plain)) {
            return Err(NamesFault::Contact);
        }
        Ok(Self { pseudonym: pseudonym.into(), contact: contact.map(Into::into) })
    }

    /// Whether `Via` has our name. Comments are passed over; where they are not closed, nothing is.
    pub(crate) fn came_through_here(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VIA).iter().any(|value| {
            let text = without_comments(value.as_bytes());
            text.split(|byte| matches!(byte, b',' | b' ' | b'\t'))
                .any(|word| word.eq_ignore_ascii_case(self.pseudonym.as_bytes()))
        })
    }

    /// Adds us to those whom a message came through, in the version in which we got it.
    pub fn add_via(&self, headers: &mut HeaderMap, received: Version) {
        let version = match received {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            Version::HTTP_3 => "3",
            _ => "1.1",
        };
        let via = format!("{version} {}", self.pseudonym);
        headers.append(VIA, HeaderValue::try_from(via).expect("a token and a number"));
    }

    /// What a provider reads about a request: whom it came through, its id, and which program sent it. Forwarded
    /// requests keep the caller's `User-Agent`; those of a connector name us and the connector behind it.
    pub fn introduce(
        &self,
        headers: &mut HeaderMap,
        received: Version,
        correlation: &CorrelationId,
        connector: Option<&str>,
    ) {
        self.add_via(headers, received);
        let id = HeaderValue::try_from(correlation.to_string()).expect("letters, digits and an underscore");
        headers.insert(CORRELATION_ID, id);
        let callers = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        if connector.is_none() && !callers.is_empty() {
            return;
        }
        let mut agent = callers.to_vec();
        if !agent.is_empty() {
            agent.push(b' ');
        }
        agent.extend_from_slice(b"Tidegate");
        let contact = self.contact.as_ref().map(|contact| format!("+{contact}"));
        let comment: Vec<&str> = connector.into_iter().chain(contact.as_deref()).collect();
        if !comment.is_empty() {
            agent.extend_from_slice(format!(" ({})", comment.join("; ")).as_bytes());
        }
        let agent = HeaderValue::from_bytes(&agent).expect("a field's value, a token and a plain comment");
        headers.insert(USER_AGENT, agent);
    }
}

/// RFC 9110, 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 9110, 5.6.5: in parentheses, nested, with quoted pairs. An unclosed one is not taken for a comment, so that nobody
/// hides a name behind it.
fn without_comments(value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    let mut depth = 0_u32;
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if depth > 0 => drop(bytes.next()),
            b'(' => depth += 1,
            b')' if depth > 0 => {
                depth -= 1;
                text.push(b' ');
            }
            _ if depth > 0 => {}
            byte => text.push(*byte),
        }
    }
    if depth > 0 { value.iter().map(|byte| if b"()".contains(byte) { b' ' } else { *byte }).collect() } else { text }
}
