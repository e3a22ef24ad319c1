//! `[[egress.pool]]`: the addresses that calls leave from.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::{Egress, class_name};
use crate::document::Document;
use crate::form::{AtLine, Flag, Form, Lined, List, Maybe, Table, Text, needed, settings, text};

settings! {
    /// Addresses that calls leave from.
    pub struct Pool {
        /// Its name; tenants that name no pool leave by the one named `default`.
        name: AtLine<String> = AtLine::default(), needed(Lined(class_name())), live, "Tenants' files refer to it.";
        /// Its addresses, each `{ v4 = "192.0.2.1", v6 = "2001:db8::1" }` or one of both. A tenant keeps to one of them for as long as it is there.
        addresses: Vec<AtLine<PoolAddress>> = Vec::new(), needed(List(Lined(PoolAddressForm), 1..=256)), live,
            "Providers allowlist them, so nobody else can choose them.";
        /// Whether addresses count that are on no interface (`IP_FREEBIND`).
        freebind: bool = false, Flag, live,
            "An address that is not on the machine is a mistake, unless its whole prefix is routed to it.";
        /// Whether no provider on the internet sees these addresses: loopback, private and documentation ones, for tests and for destinations inside. They need not be published, and a public one is refused.
        private: bool = false, Flag, live,
            "Where a translator stands between, providers see its address, and that is what has to be published.";
    }

    /// One exit: an address in one family or in both.
    struct PoolAddressTable {
        /// IPv4 address.
        v4: Option<Ipv4Addr> = None, Maybe(v4()), live, "Without one, IPv4 destinations cannot be called from here.";
        /// IPv6 address.
        v6: Option<Ipv6Addr> = None, Maybe(v6()), live, "Without one, IPv6 destinations cannot be called from here.";
    }
}

/// Tenants that name no pool leave by the one of this name. Where there are no pools it stands for what the kernel
/// chooses.
pub(crate) const DEFAULT_POOL: &str = "default";

impl Egress {
    /// Names that a tenant can leave by.
    pub(crate) fn pool_names(&self) -> BTreeSet<Box<str>> {
        self.pool.iter().map(|pool| pool.name.value.as_str()).chain([DEFAULT_POOL]).map(Box::from).collect()
    }
}

/// An address of a pool, in one family or both: never in none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolAddress {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

const fn v4() -> Text<Ipv4Addr> {
    text(
        "IPv4 address",
        "192.0.2.1",
        |text| match text.parse::<Ipv4Addr>() {
            Ok(address) if address.is_unspecified() || address.is_multicast() || address.is_broadcast() => {
                Err(format!("{text:?} is no address that a call can leave from"))
            }
            Ok(address) => Ok(address),
            Err(_) => Err(format!("{text:?} is no IPv4 address; write such as \"192.0.2.1\"")),
        },
        Ipv4Addr::to_string,
    )
}

const fn v6() -> Text<Ipv6Addr> {
    text(
        "IPv6 address",
        "2001:db8::1",
        |text| match text.parse::<Ipv6Addr>() {
            Ok(address) if address.is_unspecified() || address.is_multicast() || address.to_ipv4_mapped().is_some() => {
                Err(format!("{text:?} is no address that a call can leave from"))
            }
            Ok(address) => Ok(address),
            Err(_) => Err(format!("{text:?} is no IPv6 address; write such as \"2001:db8::1\"")),
        },
        Ipv6Addr::to_string,
    )
}

/// A table of addresses that has at least one.
struct PoolAddressForm;

impl Form<PoolAddress> for PoolAddressForm {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<PoolAddress> {
        let PoolAddressTable { v4, v6 } = Table.read(document, at)?;
        if v4.is_none() && v6.is_none() && document.is_clean() && document.is_whole("") {
            document.fault(at.span(), "has neither v4 nor v6; write { v4 = \"192.0.2.1\" }");
        }
        (v4.is_some() || v6.is_some()).then_some(PoolAddress { v4, v6 })
    }

    fn show(&self, _: &PoolAddress) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "{ v4, v6 }".into()
    }

    fn schema(&self) -> Value {
        Form::<PoolAddressTable>::schema(&Table)
    }
}
