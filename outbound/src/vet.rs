//! Vetting: the one place where an address becomes dialable.
//!
//! [`VettedAddr`] has one constructor, private to this file, and [`Rules::vet`] is the one that calls it; the dialer
//! takes nothing else. So there is no path, on a retry, a race or a redirect, on which an address is dialled that was
//! not judged:
//!
//! ```compile_fail
//! use outbound::VettedAddr;
//! let forged = VettedAddr { socket: "127.0.0.1:80".parse().unwrap(), is_opened: false };
//! ```
//!
//! Every address of an answer is judged, and one bad one refuses the answer: whoever mixes `10.0.0.1` into the answer
//! for a public name means it to be dialled. What was judged is what is dialled; the name is not asked again.
//!
//! In order, for one address:
//!
//! 1. Is it, or does it embed, the appliance's own? No opening helps.
//! 2. Is it behind a NAT64 prefix that the operator opted into? Then the IPv4 address inside is judged in its place.
//! 3. What does the table say? `never` is no; `internal` needs an opening for this name, network and port.
//! 4. Does it embed an IPv4 address? That one has to be public too.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::authority::Authority;
use crate::embedded::embedded;
use crate::nat64::{Nat64Prefix, Translated};
use crate::opening::Opening;
use crate::own::Own;
use crate::refused::Refused;
use crate::table::{AddressTable, Row, Verdict};

/// Addresses in one answer. Real ones have up to some thirty (pools of both families); the bound keeps a hostile zone
/// from making one decision cost thousands.
pub const ADDRESSES_MAX: usize = 64;

/// An address and port that passed every rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VettedAddr {
    socket: SocketAddr,
    is_opened: bool,
}

impl VettedAddr {
    /// The only constructor.
    fn new(address: IpAddr, port: u16, admitted: &Admitted<'_>) -> Self {
        Self { socket: SocketAddr::new(address, port), is_opened: admitted.is_opened }
    }

    /// Address and port.
    pub fn socket(self) -> SocketAddr {
        self.socket
    }

    /// Whether it took an opening: the address is internal.
    pub fn is_opened(self) -> bool {
        self.is_opened
    }
}

impl fmt::Debug for VettedAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl fmt::Display for VettedAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

/// A destination that may be dialled: an authority with the vetted addresses of one answer for it. They stay together,
/// so that a certificate is never checked against another name than the one that was resolved.
///
/// It is for now. Whoever keeps it past a change of the rules asks [`Rules::still_vetted`] before dialling again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vetted {
    authority: Authority,
    /// 1 to [`ADDRESSES_MAX`], each once, in the order of the answer.
    addresses: Vec<VettedAddr>,
}

impl Vetted {
    /// What was asked for, and what a certificate has to be for.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where it may be dialled: one at least.
    pub fn addresses(&self) -> &[VettedAddr] {
        &self.addresses
    }
}

/// Why an address may be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted<'a> {
    /// The row of the table that decided.
    pub row: &'a Row,
    /// Whether it took an opening.
    pub is_opened: bool,
}

/// What is true of the whole node: the table, the appliance itself, NAT64. Openings are a role's, and given each time.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Which addresses and names are public.
    pub table: Arc<AddressTable>,
    /// The appliance itself.
    pub own: Own,
    /// NAT64 prefixes that the operator opted into.
    pub nat64: Vec<Nat64Prefix>,
}

impl Rules {
    /// The part of the decision that needs no addresses. Whoever resolves asks this first: an internal name is not even
    /// looked up.
    pub fn judge_name(&self, authority: &Authority, openings: &[Opening]) -> Result<(), Refused> {
        let Some(name) = authority.name() else { return Ok(()) };
        let why = match self.table.name_row(name) {
            Some(row) => &row.name,
            None if name.labels().nth(1).is_none() => "a single label",
            None => return Ok(()),
        };
        if openings.iter().any(|opening| opening.names(authority)) {
            return Ok(());
        }
        Err(Refused::NameInternal { name: name.clone(), why: why.to_owned() })
    }

    /// One address for one authority, judged without dialling anything.
    pub fn judge<'a>(
        &'a self,
        authority: &Authority,
        address: IpAddr,
        openings: &[Opening],
    ) -> Result<Admitted<'a>, Refused> {
        if self.own.has(address, authority.port()) {
            return Err(Refused::AddressOwn { address });
        }
        if let IpAddr::V6(v6) = address
            && let Some(translated) = self.nat64.iter().find_map(|prefix| prefix.translated(v6))
        {
            return match translated {
                Translated::To(inside) => self.judge_embedded(authority, address, inside.into()),
                Translated::Ambiguous => Err(Refused::AddressAmbiguous { address }),
            };
        }
        let row = self.table.row(address);
        let is_opened = match row.verdict {
            Verdict::Public => false,
            Verdict::Never => return Err(Refused::AddressNever { address, row: row.name.clone() }),
            Verdict::Internal => {
                if !openings.iter().any(|opening| opening.names(authority) && opening.holds(address)) {
                    return Err(Refused::AddressInternal { address, row: row.name.clone() });
                }
                true
            }
        };
        if let IpAddr::V6(v6) = address {
            for inside in embedded(v6) {
                self.judge_embedded(authority, address, inside.into())?;
            }
        }
        Ok(Admitted { row, is_opened })
    }

    /// An IPv4 address inside `address`. No opening reaches inside: an operator names what is dialled.
    fn judge_embedded<'a>(
        &'a self,
        authority: &Authority,
        address: IpAddr,
        inside: IpAddr,
    ) -> Result<Admitted<'a>, Refused> {
        self.judge(authority, inside, &[]).map_err(|why| Refused::AddressEmbeds { address, inside, why: Box::new(why) })
    }

    /// Vets the answer for an authority: all of it, or nothing.
    ///
    /// For an authority that is an address, that address is the answer.
    pub fn vet(&self, authority: &Authority, answer: &[IpAddr], openings: &[Opening]) -> Result<Vetted, Refused> {
        self.judge_name(authority, openings)?;
        if answer.is_empty() {
            return Err(Refused::NoAddresses { authority: authority.clone() });
        }
        if answer.len() > ADDRESSES_MAX {
            let (authority, count) = (authority.clone(), answer.len());
            return Err(Refused::TooManyAddresses { authority, count, max: ADDRESSES_MAX });
        }
        if authority.address().is_some_and(|address| answer != [address]) {
            return Err(Refused::NotTheAddress { authority: authority.clone() });
        }
        let mut addresses: Vec<VettedAddr> = Vec::with_capacity(answer.len());
        for address in answer {
            let admitted = self.judge(authority, *address, openings)?;
            let vetted = VettedAddr::new(*address, authority.port(), &admitted);
            if !addresses.contains(&vetted) {
                addresses.push(vetted);
            }
        }
        Ok(Vetted { authority: authority.clone(), addresses })
    }

    /// Whether a connection that was dialled earlier may still be used for this authority: name and address are judged
    /// again, by the present rules and openings. A pool asks before it hands a connection out.
    pub fn still_vetted(
        &self,
        authority: &Authority,
        address: VettedAddr,
        openings: &[Opening],
    ) -> Result<(), Refused> {
        if address.socket.port() != authority.port() {
            return Err(Refused::NotTheAddress { authority: authority.clone() });
        }
        self.vet(authority, &[address.socket.ip()], openings).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
