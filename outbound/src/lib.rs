//! The one way out. Whatever the product dials, for whatever reason, it dials through this crate.
//!
//! ```text
//! text ──parse──▶ Authority ──resolve──▶ Answer ──vet──▶ Vetted ──dial──▶ connection
//!                 one strict   own DNS    addresses  every address,   happy eyeballs, from the
//!                 parser       servers               or nothing       exit address, TLS verified
//! ```
//!
//! Each arrow is the only way to the type at its end, and the types carry the rule: only [`Rules::vet`] makes a
//! [`VettedAddr`], and only a vetted address can be dialled. Read in this order:
//!
//! - `addresses.toml`: where nothing may be dialled, as data with a date
//! - [`authority`]: what a destination is
//! - `vet.rs`: the decision
//! - `resolve.rs`: where addresses come from
//! - `dial.rs`: how a connection comes about
//!
//! Policy (which tenant may go where, on which ports, by which methods), redirects, credentials and pools are for
//! those who call; nothing here knows of tenants, nor of what a service of the operator's speaks ([`OperatorDialer`]). What is given in: the table, the appliance's own addresses, NAT64
//! prefixes ([`Rules`]), and the openings of the role that asks ([`Opening`]).
//!
//! ```
//! use std::sync::Arc;
//! use outbound::{AddressTable, Authority, Own, Rules};
//!
//! let rules = Rules { table: Arc::new(AddressTable::shipped()), own: Own::default(), nat64: Vec::new() };
//! let authority = Authority::with_port("api.example.com:443").unwrap();
//! let vetted = rules.vet(&authority, &["93.184.216.34".parse().unwrap()], &[]).unwrap();
//! assert_eq!(vetted.addresses()[0].socket(), "93.184.216.34:443".parse().unwrap());
//!
//! let mixed = ["93.184.216.34".parse().unwrap(), "169.254.169.254".parse().unwrap()];
//! assert_eq!(rules.vet(&authority, &mixed, &[]).unwrap_err().reason(), "address-never");
//! ```

pub mod authority;
pub mod dial;
mod embedded;
mod exit;
mod nat64;
mod opening;
mod operator;
mod own;
mod proxy_status;
mod refused;
pub mod resolve;
pub mod table;
mod vet;

pub use authority::{Authority, Host, HostName, HostPattern, Malformed, Scheme, Target};
pub use dial::{Alpn, DialError, DialSettings, Dialer, Dialled, Roots, TlsClient};
pub use exit::{Exit, ExitAddress, Source};
pub use nat64::{Nat64Fault, Nat64Prefix};
pub use opening::{Opening, OpeningFault};
pub use operator::{NotReached, OperatorDialer};
pub use own::{Own, interface_addresses, is_on_machine};
pub use proxy_status::ErrorType;
pub use refused::Refused;
pub use resolve::{Answer, CachedResolver, DnsResolver, Resolve, ResolveError, resolve_and_vet};
pub use table::AddressTable;
pub use vet::{ADDRESSES_MAX, Admitted, Rules, Vetted, VettedAddr};
