//! What the appliance's file says about calls, in the terms of the parts that keep to it.

use std::net::SocketAddr;

use config::{Egress as File, EgressDns, PoolAddress};
use outbound::ExitAddress;
use outbound::dial::DialSettings;
use outbound::resolve::{CacheSettings, DnsSettings};

use crate::forward::{Bounds, ForwardSettings, Waits};
use crate::pool::PoolSettings;
use crate::{CallsMax, tunnel};

/// Bounds and names that hold for every call; a reload can change them.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// In `Via` and `Proxy-Status`.
    pub name: Box<str>,
    /// How many at a time.
    pub calls_max: CallsMax,
    /// How long a request may take.
    pub waits: Waits,
    /// How large its bodies may be.
    pub bounds: Bounds,
    /// How long a tunnel may last.
    pub tunnel: tunnel::Bounds,
    /// How many redirects of one call are followed.
    pub redirects_max: u8,
}

impl Settings {
    /// Those of the file.
    pub fn of(file: &File) -> Self {
        let limits = &file.limits;
        Self {
            name: file.name.as_str().into(),
            calls_max: CallsMax {
                node: limits.calls_max,
                tenant: limits.calls_per_tenant_max,
                caller: limits.calls_per_caller_max,
            },
            waits: Waits {
                first_byte: limits.first_byte_timeout,
                idle: limits.idle_timeout,
                total: Some(limits.total_timeout),
            },
            bounds: Bounds {
                request_bytes_max: limits.request_bytes_max,
                response_bytes_max: limits.response_bytes_max,
            },
            tunnel: tunnel::Bounds {
                hello_timeout: limits.tunnel_hello_timeout,
                idle_timeout: limits.tunnel_idle_timeout,
                lifetime: limits.tunnel_lifetime,
                ..tunnel::Bounds::default()
            },
            redirects_max: limits.redirects_max,
        }
    }
}

/// How connections to destinations come about. Read once, at start.
pub fn dial(file: &File) -> DialSettings {
    let connect_timeout = file.limits.connect_timeout;
    let usual = DialSettings::default();
    DialSettings {
        attempt_timeout: usual.attempt_timeout.min(connect_timeout),
        connect_timeout,
        tls_timeout: file.limits.tls_timeout,
        ..usual
    }
}

/// This part of all idle connections one site may have: who has hundreds of calls under way to one place would otherwise
/// make a connection for each, and a handshake costs more than a call.
const SITE_SHARE: usize = 8;

/// How requests are sent, and which connections are kept. Read once, at start.
pub fn forward(file: &File) -> ForwardSettings {
    let limits = &file.limits;
    ForwardSettings {
        dial: dial(file),
        pool: PoolSettings {
            per_site_max: (limits.reuse_connections_max as usize / SITE_SHARE)
                .max(PoolSettings::default().per_site_max),
            total_max: limits.reuse_connections_max as usize,
            idle_max: limits.reuse_timeout,
            ..PoolSettings::default()
        },
        head_bytes_max: limits.header_bytes_max as usize,
        head_fields_max: usize::from(limits.header_count_max),
    }
}

/// This part of the look-ups is one tenant's share: enough for 2,500 new names a second with the usual settings. Whoever
/// is alone may have more, but leaves a share free.
const LOOKUPS_SHARE: u32 = 4;

/// Where names are looked up, and for how long answers are kept. `system` is what the machine uses, for a file that names
/// no servers.
pub fn dns(file: &EgressDns, system: &[SocketAddr]) -> (DnsSettings, CacheSettings) {
    let servers = if file.servers.is_empty() { system } else { &file.servers };
    let settings = DnsSettings {
        servers: servers.iter().take(8).copied().collect(),
        attempt_timeout: file.attempt_timeout,
        retries: usize::from(file.attempts).saturating_sub(1),
        timeout: file.timeout,
        lookups_max: file.lookups_max as usize,
    };
    let cache = CacheSettings {
        names_max: u64::from(file.cache_names_max),
        ttl_min: file.ttl_min,
        ttl_max: file.ttl_max,
        negative_ttl_max: file.negative_ttl_max,
        lookups_max: file.lookups_max as usize,
        lookups_per_tenant_max: (file.lookups_max / LOOKUPS_SHARE).max(1) as usize,
        ..CacheSettings::default()
    };
    (settings, cache)
}

/// The servers that a text of the form of `/etc/resolv.conf` names.
pub fn servers_of_resolv_conf(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let addresses = addresses.filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim);
    // An address with a zone is a router's on this link; its name says nothing that a socket could use here.
    addresses.filter_map(|address| address.parse().ok()).map(|address| SocketAddr::new(address, 53)).collect()
}

/// A pool's addresses, as the dialer takes them.
pub fn exit(address: &PoolAddress, freebind: bool) -> ExitAddress {
    ExitAddress { v4: address.v4, v6: address.v6, freebind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_for_its_servers_and_nothing_else() {
        let text = "# nameserver 192.0.2.1\nsearch example.com\nnameserver 192.0.2.53\n  nameserver\t2001:db8::53 \n\
                    nameserver fe80::1%eth0\nnameservers 192.0.2.54\noptions ndots:5\n";
        let servers = servers_of_resolv_conf(text);
        assert_eq!(servers, ["192.0.2.53:53".parse().unwrap(), "[2001:db8::53]:53".parse().unwrap()]);
    }

    #[test]
    fn an_attempt_is_never_longer_than_all_of_them() {
        let mut file = File::default();
        assert!(dial(&file).attempt_timeout < dial(&file).connect_timeout);
        file.limits.connect_timeout = std::time::Duration::from_secs(1);
        assert_eq!(dial(&file).attempt_timeout, dial(&file).connect_timeout);
    }
}
