//! Integers and short texts as bytes: seven bits at a time, the lowest first.

use crate::quota::name::Name;

#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    /// What [`Self::near`] counts from.
    pub(super) near: u64,
}

impl Writer {
    pub(super) fn int(&mut self, mut value: u64) {
        loop {
            let bits = value.to_le_bytes()[0] & 0x7f;
            value >>= 7;
            if value == 0 {
                self.bytes.push(bits);
                return;
            }
            self.bytes.push(bits | 0x80);
        }
    }

    /// An integer that is likely to be near to that one, above or below.
    pub(super) fn near(&mut self, value: u64) {
        // The lowest bit says which way. Times are of 53 bits, so that there is room for it.
        let (up, down) = (value.wrapping_sub(self.near), self.near.wrapping_sub(value));
        self.int(if up <= down { up << 1 } else { (down << 1) | 1 });
    }

    pub(super) fn wide(&mut self, value: u128) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn name(&mut self, name: &Name) {
        self.int(name.as_str().len() as u64);
        self.bytes.extend_from_slice(name.as_str().as_bytes());
    }
}

/// Reads what a [`Writer`] wrote. `None` is bytes that no writer writes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// As the writer's.
    pub(super) near: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, near: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn near(&mut self) -> Option<u64> {
        let value = self.int()?;
        let difference = value >> 1;
        Some(if value & 1 == 0 { self.near.wrapping_add(difference) } else { self.near.wrapping_sub(difference) })
    }

    pub(super) fn int(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.int()?).ok()
    }

    pub(super) fn wide(&mut self) -> Option<u128> {
        let (bytes, rest) = self.bytes.split_first_chunk::<16>()?;
        self.bytes = rest;
        Some(u128::from_le_bytes(*bytes))
    }

    pub(super) fn name(&mut self) -> Option<Name> {
        let length = usize::try_from(self.int()?).ok()?;
        let (bytes, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Name::parse(str::from_utf8(bytes).ok()?).ok()
    }
}
