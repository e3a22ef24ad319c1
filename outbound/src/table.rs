//! The address table: which addresses are public, as data with a date.
//!
//! `addresses.toml` is the table, and is meant to be read. The longest prefix that holds an address decides. Nothing is
//! public by being forgotten: IPv6 outside of global unicast is closed, and a table in which an embedding prefix
//! (IPv4-mapped and its like) is anything but closed does not load.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use thiserror::Error;

use crate::authority::HostName;
use crate::embedded::EMBEDDING_PREFIXES;

/// What the table says of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// May be dialled.
    Public,
    /// May be dialled through an [`Opening`](crate::Opening).
    Internal,
    /// Is never dialled.
    Never,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub prefix: IpNet,
    pub verdict: Verdict,
    /// What these addresses are, for the log and for `explain`.
    pub name: String,
    /// The document behind the row.
    pub source: String,
    /// Whether it restates a row of the IANA special-purpose registries.
    pub is_registered: bool,
}

/// A zone whose names are internal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRow {
    pub zone: String,
    pub name: String,
    pub source: String,
}

/// The whole table, ready to be asked.
#[derive(Debug)]
pub struct AddressTable {
    registry_date: String,
    /// Longest prefix first. Some forty rows: a scan is tens of nanoseconds and needs no explanation.
    ipv4: Vec<Entry>,
    ipv6: Vec<Entry>,
    names: Vec<NameRow>,
}

/// A row, with its prefix as it is compared.
#[derive(Debug)]
struct Entry {
    network: u128,
    mask: u128,
    row: Row,
}

/// Why a text is no table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableFault {
    #[error("{0}")]
    Syntax(String),
    #[error("{0:?} is no date")]
    Date(String),
    #[error("{0} has bits set behind its length; the prefix is {1}")]
    HostBits(IpNet, IpNet),
    #[error("{0} is of the other family")]
    Family(IpNet),
    #[error("{0} stands there twice")]
    Twice(IpNet),
    #[error("{0} needs either `registry` or `from`, and not both")]
    Source(String),
    #[error("there is no row for the whole family, such as {0}")]
    NoDefault(IpNet),
    #[error("{0} embeds IPv4 addresses and must be `never`")]
    Embedding(IpNet),
    #[error("{0:?} is no zone")]
    Zone(String),
}

impl AddressTable {
    /// The table that this build comes with.
    pub fn shipped() -> Self {
        Self::parse(include_str!("../addresses.toml")).expect("a test loads the table that is compiled in")
    }

    /// Reads a table. Unknown keys, doubled prefixes and gaps are faults.
    pub fn parse(text: &str) -> Result<Self, TableFault> {
        let file: File = toml::from_str(text).map_err(|fault| TableFault::Syntax(fault.to_string()))?;
        if !is_date(&file.registry_date) {
            return Err(TableFault::Date(file.registry_date));
        }
        let table = Self {
            registry_date: file.registry_date,
            ipv4: rows(file.ipv4, Ipv4Net::default().into())?,
            ipv6: rows(file.ipv6, Ipv6Net::default().into())?,
            names: file.names.into_iter().map(zone).collect::<Result<_, _>>()?,
        };
        for prefix in EMBEDDING_PREFIXES {
            // Rows inside it count as well as the one around it.
            let is_inside = |row: &&Row| matches!(row.prefix, IpNet::V6(inner) if prefix.contains(&inner));
            let inside = table.rows().filter(is_inside);
            let may_be_open = |row: &Row| row.verdict != Verdict::Never && row.prefix != IpNet::from(LOOPBACK);
            if may_be_open(table.row(prefix.network().into())) || inside.into_iter().any(may_be_open) {
                return Err(TableFault::Embedding(prefix.into()));
            }
        }
        Ok(table)
    }

    /// The date of the registries that the table restates, `YYYY-MM-DD`.
    pub fn registry_date(&self) -> &str {
        &self.registry_date
    }

    /// The row that decides over an address: the one with the longest prefix that holds it.
    pub fn row(&self, address: IpAddr) -> &Row {
        let bits = bits(address);
        let entry = self.family(address).iter().find(|entry| bits & entry.mask == entry.network);
        &entry.expect("a table has a row for the whole of each family").row
    }

    /// The row that a whole network lies in. Rows inside the network are narrower, and not looked at.
    pub fn row_around(&self, network: IpNet) -> &Row {
        let entry = self.family(network.addr()).iter().find(|entry| entry.row.prefix.contains(&network));
        &entry.expect("a table has a row for the whole of each family").row
    }

    fn family(&self, address: IpAddr) -> &[Entry] {
        if address.is_ipv4() { &self.ipv4 } else { &self.ipv6 }
    }

    /// Every row, of both families.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.ipv4.iter().chain(&self.ipv6).map(|entry| &entry.row)
    }

    /// The zone that makes a name internal, if one does.
    pub fn name_row(&self, name: &HostName) -> Option<&NameRow> {
        self.names.iter().find(|row| name.is_within(&row.zone))
    }
}

/// `::1` lies in the IPv4-compatible prefix and is not one: it is the loopback address, and may be opened.
const LOOPBACK: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    registry_date: String,
    ipv4: Vec<FileRow>,
    ipv6: Vec<FileRow>,
    names: Vec<FileZone>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    prefix: IpNet,
    verdict: Verdict,
    name: String,
    registry: Option<String>,
    from: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileZone {
    zone: String,
    name: String,
    from: String,
}

/// The rows of one family, longest prefix first.
fn rows(file: Vec<FileRow>, whole: IpNet) -> Result<Vec<Entry>, TableFault> {
    let mut rows: Vec<Entry> = Vec::with_capacity(file.len());
    for FileRow { prefix, verdict, name, registry, from } in file {
        if prefix.addr().is_ipv4() != whole.addr().is_ipv4() {
            return Err(TableFault::Family(prefix));
        }
        if prefix.trunc() != prefix {
            return Err(TableFault::HostBits(prefix, prefix.trunc()));
        }
        if rows.iter().any(|entry| entry.row.prefix == prefix) {
            return Err(TableFault::Twice(prefix));
        }
        let is_registered = registry.is_some();
        let source = match (registry, from) {
            (Some(source), None) | (None, Some(source)) => source,
            // The whole of IPv4 is what is left, and nobody's row.
            (None, None) if prefix == whole => String::new(),
            (None, None) | (Some(_), Some(_)) => return Err(TableFault::Source(prefix.to_string())),
        };
        let (network, mask) = (bits(prefix.network()), bits(prefix.netmask()));
        rows.push(Entry { network, mask, row: Row { prefix, verdict, name, source, is_registered } });
    }
    rows.sort_by_key(|entry| std::cmp::Reverse(entry.row.prefix.prefix_len()));
    match rows.last() {
        Some(last) if last.row.prefix == whole => Ok(rows),
        Some(_) | None => Err(TableFault::NoDefault(whole)),
    }
}

fn zone(row: FileZone) -> Result<NameRow, TableFault> {
    match HostName::parse(&row.zone) {
        Ok(name) if name.as_str() == row.zone => Ok(NameRow { zone: row.zone, name: row.name, source: row.from }),
        Ok(_) | Err(_) => Err(TableFault::Zone(row.zone)),
    }
}

/// Families are never compared with each other, so each may have its own places.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn is_date(text: &str) -> bool {
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.split('-');
    let shape = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(shape, (Some(year), Some(month), Some(day), None)
        if digits(year, 4) && digits(month, 2) && digits(day, 2) && ("01"..="12").contains(&month) && ("01"..="31").contains(&day))
}

#[cfg(test)]
mod tests;
