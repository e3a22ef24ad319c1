//! The abuse protection of web hooks for `CloudEvents` (HTTP 1.1 Web Hooks for Event Delivery, §4): may this origin deliver here,
//! and how often? The sender asks by OPTIONS before its first delivery.

use super::Handshake;
use super::answer::HandshakeFault;
use super::reply::Reply;
use crate::scheme::{Occurrence, Unverified, only};

impl Handshake {
    /// Permission for an origin that the row lists. `per_minute`: what the endpoint's limit of events comes to; none where it
    /// has no limit.
    pub(super) fn permit(&self, asked: &Unverified<'_>, per_minute: Option<u64>) -> Result<Reply, HandshakeFault> {
        let Occurrence::Once(origin) = only(asked.headers, "webhook-request-origin") else {
            return Err(HandshakeFault::Challenge);
        };
        let origin = self
            .origins
            .iter()
            .find(|listed| origin.eq_ignore_ascii_case(listed.as_bytes()))
            .ok_or(HandshakeFault::Origin)?;
        let mut headers = vec![("allow", "POST".to_owned()), ("webhook-allowed-origin", origin.to_string())];
        // §4.2.2: it must be there where a rate was asked for, and may be where none was.
        if only(asked.headers, "webhook-request-rate") != Occurrence::None {
            headers.push(("webhook-allowed-rate", per_minute.map_or_else(|| "*".to_owned(), |rate| rate.to_string())));
        }
        Ok(Reply { status: self.form.status, content_type: None, headers, body: bytes::Bytes::new() })
    }
}
