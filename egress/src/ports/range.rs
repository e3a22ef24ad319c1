//! How many local ports there are.

use std::fs;
use std::io::{self, ErrorKind};

/// How many local ports a connection can leave from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange(u32);

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

impl PortRange {
    /// Linux's own: 32768 to 60999.
    pub const USUAL: Self = Self(60_999 - 32_768 + 1);

    /// What the kernel says now; it is the same range for IPv6. A kernel too old for reserved ports has none.
    pub fn of_the_system() -> io::Result<Self> {
        let reserved = fs::read_to_string(RESERVED).unwrap_or_default();
        Self::parse(&fs::read_to_string(RANGE)?, &reserved)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("{RANGE} holds no range of ports")))
    }

    /// So many.
    pub fn of(count: u16) -> Self {
        Self(count.into())
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.0
    }

    /// The range as two numbers, less what of it is reserved: numbers and ranges between commas.
    pub(super) fn parse(range: &str, reserved: &str) -> Option<Self> {
        let (first, last) = range.trim().split_once(|between: char| between.is_ascii_whitespace())?;
        let (first, last): (u16, u16) = (first.parse().ok()?, last.trim().parse().ok()?);
        let mut count = (u32::from(last) + 1).checked_sub(first.into())?;
        for part in reserved.trim().split(',').filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
            // What the kernel writes neither overlaps nor runs backwards.
            let (from, to) = (from.max(first), to.min(last));
            count = count.saturating_sub((u32::from(to) + 1).saturating_sub(from.into()));
        }
        (count > 0).then_some(Self(count))
    }
}
