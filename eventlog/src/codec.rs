//! Bytes of an event record. `docs/eventlog-format.md` has the same table; change both or neither.
//!
//! A record is a head and a body. The head is built here and the body is passed on as it is, so that it is
//! copied once, into the segment. All integers are little-endian.
//!
//! | offset | bytes | holds |
//! |---|---|---|
//! | 0 | 1 | format version, 1 |
//! | 1 | 1 | flags: 1 bulk, 2 delivery id present, 4 delivery id signed, 8 signing time present, 16 peer is IPv6 |
//! | 2 | 4 | key id of the sealed body; 0: the body is in the clear |
//! | 6 | 16 | event id |
//! | 22 | 8 | receive time, Unix ms |
//! | 30 | 8 | signing time, Unix ms; 0 without flag 8 |
//! | 38 | 2 | accepting node |
//! | 40 | 2 | peer's port |
//! | 42 | 16 | peer's address; IPv4 in the first four bytes, the rest 0 |
//! | 58 | 4 | length of the head, from offset 0 to the body |
//! | 62 | 4 | length of the body |
//! | 66 | 1+n, 1+n | tenant, endpoint: length u8, bytes |
//! | | 1+n, 1+n, 1+n | method, scheme, secret's name |
//! | | 2+n, 2+n | public URL, delivery id: length u16, bytes |
//! | | 4+n, 4+n | target, headers: length u32, bytes |
//! | head's length | body's length | body |
//!
//! Decoding borrows from its input, allocates nothing, and takes exactly one form: lengths must add up, flags
//! that this version does not know are refused, and unused fields are zero.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use domain::{EventId, NodeId};

use crate::event::{Class, NewEvent};
use crate::headers::{self, BrokenBlock};

pub const FORMAT_VERSION: u8 = 1;

const BULK: u8 = 1;
const DELIVERY_ID: u8 = 1 << 1;
const DELIVERY_ID_SIGNED: u8 = 1 << 2;
const SIGNED_AT: u8 = 1 << 3;
const PEER_IPV6: u8 = 1 << 4;
const FLAGS_KNOWN: u8 = BULK | DELIVERY_ID | DELIVERY_ID_SIGNED | SIGNED_AT | PEER_IPV6;

/// Bytes in front of the first text.
const FIXED_BYTES: usize = 66;
const HEAD_BYTES_AT: usize = 58;

/// Why bytes are no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the format version is {0}, this program reads {FORMAT_VERSION}")]
    Version(u8),
    #[error("the flags {0:#04x} are not all known")]
    Flags(u8),
    #[error("the body is sealed with key {0}, which this program cannot open")]
    Sealed(u32),
    #[error("the bytes end within {field}")]
    Truncated { field: &'static str },
    #[error("{field} is not valid")]
    Invalid { field: &'static str },
    #[error("there are bytes behind the end")]
    Trailing,
}

impl From<BrokenBlock> for DecodeError {
    fn from(BrokenBlock: BrokenBlock) -> Self {
        Self::Truncated { field: "headers" }
    }
}

/// A field that is longer than its length can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} is too long to store: {bytes} bytes of at most {bytes_max}")]
pub struct FieldTooLong {
    pub field: &'static str,
    pub bytes: usize,
    pub bytes_max: usize,
}

/// An event as its bytes have it, borrowed from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventView<'a> {
    pub key_id: u32,
    pub class: Class,
    pub id: EventId,
    pub received_unix_ms: u64,
    pub signed_at_unix_ms: Option<u64>,
    pub node: NodeId,
    pub peer: SocketAddr,
    pub tenant: &'a str,
    pub endpoint: &'a str,
    pub method: &'a str,
    pub scheme: &'a str,
    pub secret: &'a str,
    pub public_url: &'a str,
    /// Value, and whether the signature covers it.
    pub delivery_id: Option<(&'a [u8], bool)>,
    pub target: &'a [u8],
    /// In the stored form of a `HeaderBlock`, checked.
    pub headers: &'a [u8],
    pub body: &'a [u8],
}

/// The head of an event's record; the body goes behind it.
pub fn encode_head(event: &NewEvent, node: NodeId) -> Result<Vec<u8>, FieldTooLong> {
    let delivery_id = event.delivery_id.as_ref();
    let mut flags = 0;
    if event.class == Class::Bulk {
        flags |= BULK;
    }
    if let Some(id) = delivery_id {
        flags |= DELIVERY_ID | if id.signed { DELIVERY_ID_SIGNED } else { 0 };
    }
    if event.signed_at_unix_ms.is_some() {
        flags |= SIGNED_AT;
    }
    let mut address = [0; 16];
    match event.peer.ip() {
        IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => {
            flags |= PEER_IPV6;
            address = ip.octets();
        }
    }
    let body_bytes = length::<u32>("body", event.body.len())?;

    let mut head = Vec::with_capacity(capacity(event));
    head.push(FORMAT_VERSION);
    head.push(flags);
    head.extend_from_slice(&0_u32.to_le_bytes());
    head.extend_from_slice(event.id.as_bytes());
    head.extend_from_slice(&event.received_unix_ms.to_le_bytes());
    head.extend_from_slice(&event.signed_at_unix_ms.unwrap_or(0).to_le_bytes());
    head.extend_from_slice(&node.0.to_le_bytes());
    head.extend_from_slice(&event.peer.port().to_le_bytes());
    head.extend_from_slice(&address);
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&body_bytes.to_le_bytes());
    put_u8(&mut head, "tenant", event.tenant.as_str().as_bytes())?;
    put_u8(&mut head, "endpoint", event.endpoint.as_str().as_bytes())?;
    put_u8(&mut head, "method", event.method.as_bytes())?;
    put_u8(&mut head, "scheme", event.scheme.as_bytes())?;
    put_u8(&mut head, "secret", event.secret.as_bytes())?;
    put_u16(&mut head, "public URL", event.public_url.as_bytes())?;
    put_u16(&mut head, "delivery id", delivery_id.map_or(&[][..], |id| &id.value))?;
    put_u32(&mut head, "target", &event.target)?;
    put_u32(&mut head, "headers", event.headers.encoded())?;
    let head_bytes = length::<u32>("head", head.len())?;
    head[HEAD_BYTES_AT..HEAD_BYTES_AT + 4].copy_from_slice(&head_bytes.to_le_bytes());
    Ok(head)
}

/// Exactly what the head takes, so that building it allocates once.
fn capacity(event: &NewEvent) -> usize {
    FIXED_BYTES
        + 5
        + event.tenant.as_str().len()
        + event.endpoint.as_str().len()
        + event.method.len()
        + event.scheme.len()
        + event.secret.len()
        + 4
        + event.public_url.len()
        + event.delivery_id.as_ref().map_or(0, |id| id.value.len())
        + 8
        + event.target.len()
        + event.headers.encoded().len()
}

fn length<T: TryFrom<usize> + Bounded>(field: &'static str, bytes: usize) -> Result<T, FieldTooLong> {
    T::try_from(bytes).map_err(|_| FieldTooLong { field, bytes, bytes_max: T::MAX })
}

/// The largest length that an integer can say.
trait Bounded {
    const MAX: usize;
}
impl Bounded for u8 {
    const MAX: usize = 0xff;
}
impl Bounded for u16 {
    const MAX: usize = 0xffff;
}
impl Bounded for u32 {
    const MAX: usize = 0xffff_ffff;
}

fn put_u8(head: &mut Vec<u8>, field: &'static str, bytes: &[u8]) -> Result<(), FieldTooLong> {
    head.push(length::<u8>(field, bytes.len())?);
    head.extend_from_slice(bytes);
    Ok(())
}

fn put_u16(head: &mut Vec<u8>, field: &'static str, bytes: &[u8]) -> Result<(), FieldTooLong> {
    head.extend_from_slice(&length::<u16>(field, bytes.len())?.to_le_bytes());
    head.extend_from_slice(bytes);
    Ok(())
}

fn put_u32(head: &mut Vec<u8>, field: &'static str, bytes: &[u8]) -> Result<(), FieldTooLong> {
    head.extend_from_slice(&length::<u32>(field, bytes.len())?.to_le_bytes());
    head.extend_from_slice(bytes);
    Ok(())
}

/// Reads one event. Never panics, allocates nothing.
pub fn decode_event(bytes: &[u8]) -> Result<EventView<'_>, DecodeError> {
    let mut input = Input(bytes);
    let version = input.array::<1>("format version")?[0];
    if version != FORMAT_VERSION {
        return Err(DecodeError::Version(version));
    }
    let flags = input.array::<1>("flags")?[0];
    let signed_without_id = flags & (DELIVERY_ID | DELIVERY_ID_SIGNED) == DELIVERY_ID_SIGNED;
    if flags & !FLAGS_KNOWN != 0 || signed_without_id {
        return Err(DecodeError::Flags(flags));
    }
    let key_id = u32::from_le_bytes(input.array("key id")?);
    if key_id != 0 {
        return Err(DecodeError::Sealed(key_id));
    }
    let id = EventId::from_bytes(input.array("event id")?);
    let received_unix_ms = u64::from_le_bytes(input.array("receive time")?);
    let signed_at = u64::from_le_bytes(input.array("signing time")?);
    let node = NodeId(u16::from_le_bytes(input.array("node")?));
    let port = u16::from_le_bytes(input.array("peer's port")?);
    let address = input.array::<16>("peer's address")?;
    let head_bytes = u32::from_le_bytes(input.array("length of the head")?);
    let body_bytes = u32::from_le_bytes(input.array("length of the body")?);
    let tenant = input.name("tenant")?;
    let endpoint = input.name("endpoint")?;
    let method = input.text("method")?;
    let scheme = input.text("scheme")?;
    let secret = input.text("secret")?;
    let public_url =
        std::str::from_utf8(input.long("public URL")?).map_err(|_| DecodeError::Invalid { field: "public URL" })?;
    let delivery_id = input.long("delivery id")?;
    let target = input.longest("target")?;
    let headers = input.longest("headers")?;
    headers::check(headers)?;

    let body = input.0;
    if bytes.len() - body.len() != head_bytes as usize {
        return Err(DecodeError::Invalid { field: "length of the head" });
    }
    match body.len().cmp(&(body_bytes as usize)) {
        std::cmp::Ordering::Less => return Err(DecodeError::Truncated { field: "body" }),
        std::cmp::Ordering::Greater => return Err(DecodeError::Trailing),
        std::cmp::Ordering::Equal => {}
    }
    let has = |flag| flags & flag != 0;
    if !has(SIGNED_AT) && signed_at != 0 {
        return Err(DecodeError::Invalid { field: "signing time" });
    }
    if !has(DELIVERY_ID) && !delivery_id.is_empty() {
        return Err(DecodeError::Invalid { field: "delivery id" });
    }
    Ok(EventView {
        key_id,
        class: if has(BULK) { Class::Bulk } else { Class::Normal },
        id,
        received_unix_ms,
        signed_at_unix_ms: has(SIGNED_AT).then_some(signed_at),
        node,
        peer: SocketAddr::new(peer_address(address, has(PEER_IPV6))?, port),
        tenant,
        endpoint,
        method,
        scheme,
        secret,
        public_url,
        delivery_id: has(DELIVERY_ID).then_some((delivery_id, has(DELIVERY_ID_SIGNED))),
        target,
        headers,
        body,
    })
}

/// What an index needs of an event, without reading the rest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKey<'a> {
    pub id: EventId,
    pub received_unix_ms: u64,
    pub tenant: &'a str,
    pub endpoint: &'a str,
}

/// Reads the front of an event. What it takes from an event is what [`decode_event`] takes.
pub fn decode_key(bytes: &[u8]) -> Result<EventKey<'_>, DecodeError> {
    let mut input = Input(bytes);
    let version = input.array::<1>("format version")?[0];
    if version != FORMAT_VERSION {
        return Err(DecodeError::Version(version));
    }
    // Flags and key id: the front of a sealed event reads like any other's.
    input.array::<5>("flags")?;
    let id = EventId::from_bytes(input.array("event id")?);
    let received_unix_ms = u64::from_le_bytes(input.array("receive time")?);
    input.array::<{ FIXED_BYTES - 30 }>("fixed fields")?;
    let (tenant, endpoint) = (input.name("tenant")?, input.name("endpoint")?);
    Ok(EventKey { id, received_unix_ms, tenant, endpoint })
}

fn peer_address(bytes: [u8; 16], ipv6: bool) -> Result<IpAddr, DecodeError> {
    if ipv6 {
        return Ok(IpAddr::V6(Ipv6Addr::from(bytes)));
    }
    let (ipv4, rest) = bytes.split_at(4);
    if rest.iter().any(|byte| *byte != 0) {
        return Err(DecodeError::Invalid { field: "peer's address" });
    }
    Ok(IpAddr::V4(Ipv4Addr::new(ipv4[0], ipv4[1], ipv4[2], ipv4[3])))
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Truncated { field })?;
        self.0 = rest;
        Ok(*array)
    }

    fn take(&mut self, field: &'static str, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(DecodeError::Truncated { field })?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let bytes = usize::from(self.array::<1>(field)?[0]);
        std::str::from_utf8(self.take(field, bytes)?).map_err(|_| DecodeError::Invalid { field })
    }

    /// A text by the rules of `domain::id`.
    fn name(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let text = self.text(field)?;
        if crate::position::is_class_name(text) { Ok(text) } else { Err(DecodeError::Invalid { field }) }
    }

    fn long(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let bytes = usize::from(u16::from_le_bytes(self.array(field)?));
        self.take(field, bytes)
    }

    fn longest(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let bytes = u32::from_le_bytes(self.array(field)?);
        self.take(field, bytes as usize)
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
