//! Why nothing is dialled: the closed set of noes of this crate.

use std::net::IpAddr;

use thiserror::Error;

use crate::authority::{Authority, HostName};
use crate::proxy_status::ErrorType;

/// A destination that is not dialled. The text is for the log and for `explain`; a caller learns no more than that the
/// destination is not allowed, since what a name resolves to inside is not for everybody.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("{name} is an internal name: {why}")]
    NameInternal { name: HostName, why: String },
    #[error("{authority} has no addresses")]
    NoAddresses { authority: Authority },
    #[error("{authority} has {count} addresses, more than {max}")]
    TooManyAddresses { authority: Authority, count: usize, max: usize },
    #[error("{authority} is an address, and what is to be dialled is another one")]
    NotTheAddress { authority: Authority },
    #[error("{address} is {row}, which is never dialled")]
    AddressNever { address: IpAddr, row: String },
    #[error("{address} is {row}, which is internal, and no opening covers it")]
    AddressInternal { address: IpAddr, row: String },
    #[error("{address} is the appliance's own")]
    AddressOwn { address: IpAddr },
    #[error("{address} has {inside} in it: {why}")]
    AddressEmbeds { address: IpAddr, inside: IpAddr, why: Box<Self> },
    #[error("{address} is behind a NAT64 prefix, with bits set that should be zero")]
    AddressAmbiguous { address: IpAddr },
}

impl Refused {
    /// A stable word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NameInternal { .. } => "name-internal",
            Self::NoAddresses { .. } => "no-addresses",
            Self::TooManyAddresses { .. } => "too-many-addresses",
            Self::NotTheAddress { .. } => "not-the-address",
            Self::AddressNever { .. } => "address-never",
            Self::AddressInternal { .. } => "address-internal",
            Self::AddressOwn { .. } => "address-own",
            Self::AddressEmbeds { .. } => "address-embeds",
            Self::AddressAmbiguous { .. } => "address-ambiguous",
        }
    }

    /// How `Proxy-Status` names it.
    pub fn error_type(&self) -> ErrorType {
        match self {
            Self::NameInternal { .. } => ErrorType::HttpRequestDenied,
            Self::NoAddresses { .. } | Self::TooManyAddresses { .. } => ErrorType::DnsError,
            Self::NotTheAddress { .. }
            | Self::AddressNever { .. }
            | Self::AddressInternal { .. }
            | Self::AddressOwn { .. }
            | Self::AddressEmbeds { .. }
            | Self::AddressAmbiguous { .. } => ErrorType::DestinationIpProhibited,
        }
    }
}
