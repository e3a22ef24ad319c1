//! What no key of `[egress]` can see alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::cross_check::Check;
use crate::egress::RuleMode;
use crate::settings::{Appliance, DEFAULT_POOL, Egress, Gateway, Issuer, PlaintextGrants, Pool};

pub(super) fn cross_check(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let egress = &appliance.egress;
    if !egress.enabled || !check.sound(&["egress.enabled"]) {
        return;
    }
    listeners(check, egress, &appliance.gateway);
    published(check, appliance);
    tls(check, egress);
    if egress.mode == RuleMode::Open {
        check.warn(
            &["egress", "mode"],
            "lets every tenant call every public address that no rule denies; where a single tenant is meant, write it into that tenant's file",
        );
    }
    dns(check, egress);
    limits(check, egress);
    issuers(check, &egress.issuer);
    pools(check, &egress.pool);
}

fn listeners(check: &mut Check<'_, '_, '_>, egress: &Egress, gateway: &Gateway) {
    if !check.sound(&["egress.listen"]) {
        return;
    }
    let takes = gateway.enabled && check.sound(&["gateway.enabled", "gateway.listen"]);
    let with_tls = if check.sound(&["egress.tls.listen"]) { egress.tls.listen.as_slice() } else { &[] };
    let mut listening = BTreeSet::new();
    for (key, addresses) in
        [(&["egress", "listen"][..], egress.listen.as_slice()), (&["egress", "tls", "listen"], with_tls)]
    {
        for address in addresses {
            if !listening.insert(*address) {
                check.fault(key, &format!("names {address} twice; write it once"));
            }
            let taken = gateway.listen.iter().find(|other| takes && is_same_place(**other, *address));
            if let Some(other) = taken {
                let message = format!("{address} is taken by gateway.listen ({other}); choose another port");
                check.fault(key, &message);
            }
        }
    }
    let shared = with_tls.iter().find_map(|address| {
        let other = egress.listen.iter().find(|other| *other != address && is_same_place(**other, *address))?;
        Some((address, other))
    });
    if let Some((address, other)) = shared {
        let message = format!("{address} is taken by egress.listen ({other}); choose another port");
        check.fault(&["egress", "tls", "listen"], &message);
    }
    if egress.listen.is_empty() && with_tls.is_empty() && check.sound(&["egress.tls.listen"]) {
        check.fault(&["egress", "listen"], "names no address, and egress.tls.listen names none: nobody can call");
    }
    let open = egress.listen.iter().find(|address| !address.ip().is_loopback());
    let Some(open) = open.filter(|_| check.sound(&["egress.plaintext_grants"])) else { return };
    let message = match egress.plaintext_grants {
        PlaintextGrants::Loopback => {
            "is reached from other machines without TLS, and plaintext_grants = \"loopback\": whoever calls here proves nothing, every grant and token is refused. Listen on a loopback address, or with TLS (egress.tls)"
        }
        PlaintextGrants::Never => {
            "has no TLS, and plaintext_grants = \"never\": whoever calls here proves nothing, every grant and token is refused"
        }
    };
    check.warn(&["egress", "listen"], &format!("{open} {message}"));
}

fn tls(check: &mut Check<'_, '_, '_>, egress: &Egress) {
    let keys = ["egress.tls.listen", "egress.tls.certificate", "egress.tls.key", "egress.tls.client_roots"];
    if !check.sound(&keys) {
        return;
    }
    let tls = &egress.tls;
    let written = [("certificate", &tls.certificate), ("key", &tls.key), ("client_roots", &tls.client_roots)];
    if tls.listen.is_empty() {
        for (key, _) in written.iter().filter(|(_, reference)| reference.is_some()) {
            check.fault(&["egress", "tls", key], "has no use: egress.tls.listen names no address to listen on with it");
        }
        return;
    }
    for (key, _) in written[..2].iter().filter(|(_, reference)| reference.is_none()) {
        let message = format!("is missing, and egress.tls.listen needs it; write `{key} = \"file:PATH\"`");
        check.fault(&["egress", "tls", key], &message);
    }
}

/// Whether two sockets cannot both be listened on.
pub(super) fn is_same_place(one: SocketAddr, other: SocketAddr) -> bool {
    let takes_all = |address: IpAddr| address.is_unspecified();
    // Port 0 is a free one each time. What listens on any IPv6 address listens on those of IPv4 too.
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip()
            || takes_all(one.ip()) && (one.is_ipv6() || other.is_ipv4())
            || takes_all(other.ip()) && (other.is_ipv6() || one.is_ipv4()))
}

/// What is served in public is served on addresses of its own.
fn published(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    if !check.sound(&["egress.ranges.listen"]) {
        return;
    }
    let Appliance { gateway, egress, admin, .. } = appliance;
    let deliveries = if gateway.enabled { gateway.listen.as_slice() } else { &[] };
    let of_others =
        [("gateway.listen", deliveries), ("egress.listen", &egress.listen), ("admin.listen", &[admin.listen])];
    let mut listening = BTreeSet::new();
    for address in &egress.ranges.listen {
        if !listening.insert(*address) {
            check.fault(&["egress", "ranges", "listen"], &format!("names {address} twice; write it once"));
        }
        for (key, addresses) in of_others {
            let taken = addresses.iter().find(|other| is_same_place(**other, *address));
            if let Some(other) = taken.filter(|_| check.sound(&[key])) {
                let message = format!("{address} is taken by {key} ({other}); choose another port");
                check.fault(&["egress", "ranges", "listen"], &message);
            }
        }
    }
}

fn dns(check: &mut Check<'_, '_, '_>, egress: &Egress) {
    let dns = &egress.dns;
    if dns.ttl_min > dns.ttl_max && check.sound(&["egress.dns.ttl_min", "egress.dns.ttl_max"]) {
        check.fault(&["egress", "dns", "ttl_min"], "is longer than ttl_max; lower it, or raise the other");
    }
    let both = ["egress.dns.timeout", "egress.dns.attempt_timeout"];
    if dns.timeout < dns.attempt_timeout && check.sound(&both) {
        check.fault(
            &["egress", "dns", "timeout"],
            "is shorter than attempt_timeout, so no attempt could take its time; raise it",
        );
    }
}

fn limits(check: &mut Check<'_, '_, '_>, egress: &Egress) {
    let limits = &egress.limits;
    let sound = |check: &Check<'_, '_, '_>, keys: [&str; 2]| {
        keys.into_iter().all(|key| check.sound(&[&format!("egress.limits.{key}")]))
    };
    if limits.calls_per_tenant_max > limits.calls_max && sound(check, ["calls_per_tenant_max", "calls_max"]) {
        check
            .fault(&["egress", "limits", "calls_per_tenant_max"], "is above calls_max, so it bounds nothing; lower it");
    }
    if limits.calls_per_caller_max > limits.calls_per_tenant_max
        && sound(check, ["calls_per_caller_max", "calls_per_tenant_max"])
    {
        check.fault(
            &["egress", "limits", "calls_per_caller_max"],
            "is above calls_per_tenant_max, so it bounds nothing; lower it",
        );
    }
    for (key, timeout) in [
        ("connect_timeout", limits.connect_timeout),
        ("tls_timeout", limits.tls_timeout),
        ("first_byte_timeout", limits.first_byte_timeout),
        ("idle_timeout", limits.idle_timeout),
    ] {
        if timeout > limits.total_timeout && sound(check, [key, "total_timeout"]) {
            check.fault(&["egress", "limits", key], "is longer than total_timeout, so it bounds nothing; lower it");
        }
    }
    if limits.tunnel_idle_timeout > limits.tunnel_lifetime && sound(check, ["tunnel_idle_timeout", "tunnel_lifetime"]) {
        check.fault(
            &["egress", "limits", "tunnel_idle_timeout"],
            "is longer than tunnel_lifetime, so it bounds nothing; lower it",
        );
    }
}

fn issuers(check: &mut Check<'_, '_, '_>, issuers: &[Issuer]) {
    let mut seen = HashMap::new();
    for (index, issuer) in check.indexes_read("issuer").zip(issuers) {
        let (name, line) = (issuer.name.value.as_str(), issuer.name.line);
        // Without a name it is one whose name was misread.
        if let Some(first) = seen.insert(name, line).filter(|_| !name.is_empty()) {
            let message = format!("\"{name}\" is the issuer in line {first} too; write its keys and tenants there");
            check.fault_within("issuer", index, "name", line, &message);
        }
    }
}

fn pools(check: &mut Check<'_, '_, '_>, pools: &[Pool]) {
    let mut seen = HashMap::new();
    let mut addresses: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for (index, pool) in check.indexes_read("pool").zip(pools) {
        let (name, line) = (pool.name.value.as_str(), pool.name.line);
        if let Some(first) = seen.insert(name, line).filter(|_| !name.is_empty()) {
            let message = format!("\"{name}\" is the pool in line {first} too; give each its own name");
            check.fault_within("pool", index, "name", line, &message);
        }
        for exit in &pool.addresses {
            let each = exit.value.v4.map(IpAddr::V4).into_iter().chain(exit.value.v6.map(IpAddr::V6));
            for address in each {
                if let Some(other) = addresses.insert(address, name) {
                    let message = if other == name {
                        format!("has {address} twice; write it once")
                    } else {
                        format!(
                            "has {address}, which is in the pool \"{other}\" too: providers could not tell their tenants apart"
                        )
                    };
                    check.fault_within("pool", index, "addresses", exit.line, &message);
                }
            }
        }
    }
    if !pools.is_empty() && !seen.contains_key(DEFAULT_POOL) && check.document.is_read_in_each("egress.pool", "name") {
        let message = "has no pool named \"default\", by which tenants leave that name none; name one so";
        check.fault(&["egress", "pool"], message);
    }
}

impl Check<'_, '_, '_> {
    /// Indexes of those elements of a list in `[egress]` that were read.
    fn indexes_read(&mut self, list: &'static str) -> impl Iterator<Item = usize> + use<> {
        self.document.within("egress", |document| document.within(list, |document| document.indexes_read()))
    }

    /// A fault at a key of an element of a list in `[egress]`.
    fn fault_within(&mut self, list: &'static str, index: usize, key: &'static str, line: u32, message: &str) {
        self.document.within("egress", |document| {
            document.within(list, |document| {
                document.within_index(index, |document| {
                    document.within(key, |document| document.fault_in_line(line, message));
                });
            });
        });
    }
}
