//! From where a call leaves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The source address of a connection. Providers allowlist the published ones, so a connection leaves from the one that
/// it was given or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Exit {
    /// The kernel chooses. Only for a node without exit pools, and for calls of the appliance's own.
    Unbound,
    /// One address of a pool, in one family or both.
    From(ExitAddress),
}

/// One exit: an address in each family that it has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExitAddress {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
    /// Bind although the address is on no interface (`IP_FREEBIND`): for prefixes that are routed to the machine as a
    /// whole, by a route of type `local`. An address that is not on the machine in either way is a fault all the same.
    pub freebind: bool,
}

/// What one connection is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub address: IpAddr,
    pub freebind: bool,
}

impl Exit {
    /// The source for this destination. `Err` if the exit has no address of that family: the kernel's choice would be
    /// an unpublished one.
    pub(crate) fn source_for(&self, destination: SocketAddr) -> Result<Option<Source>, NoSuchFamily> {
        let Self::From(exit) = self else { return Ok(None) };
        let address = match destination {
            SocketAddr::V4(_) => exit.v4.map(IpAddr::V4),
            SocketAddr::V6(_) => exit.v6.map(IpAddr::V6),
        };
        let address = address.ok_or(NoSuchFamily)?;
        Ok(Some(Source { address, freebind: exit.freebind }))
    }
}

/// The exit has no address in the destination's family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoSuchFamily;
