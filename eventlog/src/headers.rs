//! Headers as they arrived: ordered, duplicates kept, one buffer, and that buffer is what the record stores.
//!
//! Each field is `name length u16 LE, value length u32 LE, name, value`. Names and values are bytes: providers
//! send what is no UTF-8, and a signature may cover it.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes in front of each field's own.
const FIELD_HEAD: usize = 2 + 4;

/// Ordered header fields in their stored form.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct HeaderBlock {
    bytes: Bytes,
}

/// Collects the fields of one delivery; `finish` freezes the buffer without copying it.
#[derive(Debug, Default)]
pub struct HeaderBlockBuilder {
    bytes: BytesMut,
}

/// A field that no listener lets through: a name of 64 KiB or more, or a value of 4 GiB or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header field is too large to store: a name of {name_bytes} bytes, a value of {value_bytes}")]
pub struct FieldTooLarge {
    pub name_bytes: usize,
    pub value_bytes: usize,
}

/// A field is not whole: these bytes are no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes end within headers")]
pub struct BrokenBlock;

impl HeaderBlock {
    /// `bytes` is about what names and values take together: a good guess saves growing the buffer.
    pub fn with_capacity(bytes: usize) -> HeaderBlockBuilder {
        HeaderBlockBuilder { bytes: BytesMut::with_capacity(bytes) }
    }

    /// Takes bytes in the stored form, checked once here so that `iter` cannot meet a broken field.
    pub fn from_encoded(bytes: Bytes) -> Result<Self, BrokenBlock> {
        check(&bytes)?;
        Ok(Self { bytes })
    }

    /// The stored form.
    pub fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// Every field in the order of arrival.
    pub fn iter(&self) -> Fields<'_> {
        Fields { rest: &self.bytes }
    }

    /// Every value of a name, in order. Names compare without regard to ASCII case.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many fields there are; counts them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }
}

impl HeaderBlockBuilder {
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldTooLarge> {
        let fault = |_| FieldTooLarge { name_bytes: name.len(), value_bytes: value.len() };
        let name_bytes = u16::try_from(name.len()).map_err(fault)?;
        let value_bytes = u32::try_from(value.len()).map_err(fault)?;
        self.bytes.reserve(FIELD_HEAD + name.len() + value.len());
        self.bytes.put_u16_le(name_bytes);
        self.bytes.put_u32_le(value_bytes);
        self.bytes.put_slice(name);
        self.bytes.put_slice(value);
        Ok(())
    }

    pub fn finish(self) -> HeaderBlock {
        HeaderBlock { bytes: self.bytes.freeze() }
    }
}

impl<'a> IntoIterator for &'a HeaderBlock {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = Fields<'a>;

    fn into_iter(self) -> Fields<'a> {
        self.iter()
    }
}

/// Shows names only: values carry what providers and tenants would not want in a log.
impl fmt::Debug for HeaderBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| domain::text::Untrusted::new(name))).finish()
    }
}

/// Fields of a block, in order.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // Only checked bytes get here, so a broken field means the end and never a panic.
        let (name, value, rest) = split(self.rest)?;
        self.rest = rest;
        Some((name, value))
    }
}

/// Are these bytes a block in its stored form?
pub(crate) fn check(mut bytes: &[u8]) -> Result<(), BrokenBlock> {
    while !bytes.is_empty() {
        let (_, _, rest) = split(bytes).ok_or(BrokenBlock)?;
        bytes = rest;
    }
    Ok(())
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name_bytes, rest) = bytes.split_first_chunk::<2>()?;
    let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*name_bytes)))?;
    let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*value_bytes)).ok()?)?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_duplicates_and_odd_bytes_are_kept() {
        let mut builder = HeaderBlock::with_capacity(64);
        let fields: [(&[u8], &[u8]); 4] =
            [(b"Host", b"a"), (b"X-Sig", b"one"), (b"x-sig", b"\xff\x00two"), (b"Empty", b"")];
        for (name, value) in fields {
            builder.push(name, value).unwrap();
        }
        let block = builder.finish();
        assert_eq!(block.iter().collect::<Vec<_>>(), fields);
        assert_eq!(block.values("X-SIG").collect::<Vec<_>>(), [&b"one"[..], b"\xff\x00two"]);
        assert_eq!(HeaderBlock::from_encoded(Bytes::copy_from_slice(block.encoded())).unwrap(), block);
        assert_eq!(block.len(), 4);
    }

    #[test]
    fn a_name_that_cannot_be_stored_is_refused() {
        let mut builder = HeaderBlock::with_capacity(0);
        assert!(builder.push(&vec![b'a'; 65_535], b"").is_ok());
        assert!(builder.push(&vec![b'a'; 65_536], b"").is_err());
    }

    #[test]
    fn broken_blocks_are_refused() {
        for bytes in [&b"\x01"[..], b"\x01\0\0\0\0\0", b"\0\0\xff\xff\xff\xffx"] {
            assert!(HeaderBlock::from_encoded(Bytes::copy_from_slice(bytes)).is_err());
        }
    }

    #[test]
    fn debug_shows_no_value() {
        let mut builder = HeaderBlock::with_capacity(0);
        builder.push(b"authorization", b"hunter2").unwrap();
        assert!(!format!("{:?}", builder.finish()).contains("hunter2"));
    }
}
