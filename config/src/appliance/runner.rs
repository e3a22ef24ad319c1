//! What no key of `[runner]` can see alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use super::cross_check::Check;
use super::egress::is_same_place;
use crate::settings::{Appliance, Issuer, RUNNER_SHARED_PAYLOAD_BYTES_MAX, Runner, RunnerStore};

pub(super) fn cross_check(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let runner = &appliance.runner;
    if !runner.enabled || !check.sound(&["runner.enabled"]) {
        return;
    }
    let is_alone = runner.store == RunnerStore::Embedded;
    if is_alone && !appliance.gateway.enabled && check.sound(&["gateway.enabled", "runner.store"]) {
        let message = "has no `[gateway]` beside it, whose events it could read: runs are started by hand here, and by nothing else";
        check.warn(&["runner"], message);
    }
    listeners(check, appliance);
    tls(check, runner);
    way_out(check, appliance);
    issuer(check, appliance);
    directories(check, appliance);
    times(check, runner);
    tiers(check, runner);
    postgres(check, runner);
}

/// What is reserved is nobody else's, so that something has to be left.
fn tiers(check: &mut Check<'_, '_, '_>, runner: &Runner) {
    let indexes =
        check.document.within("runner", |document| document.within("tier", |document| document.indexes_read()));
    let mut named: BTreeMap<&str, u32> = BTreeMap::new();
    for (index, tier) in indexes.zip(&runner.tier) {
        let name = &tier.name;
        if let Some(first) = named.insert(&name.value, name.line).filter(|_| !name.value.is_empty()) {
            let message = format!("\"{}\" is the tier of line {first} too; give each its own name", name.value);
            check.document.within("runner", |document| {
                document.within("tier", |document| {
                    document.within_index(index, |document| {
                        document.within("name", |document| document.fault_in_line(name.line, message));
                    });
                });
            });
        }
    }
    let percent: u32 = runner.tier.iter().map(|tier| u32::from(tier.reserve_percent)).sum();
    if percent >= 100 && check.sound(&["runner.tier"]) {
        let message = format!(
            "reserves {percent} % of the slots in all, and tenants of no tier, or beyond what is reserved for theirs, would never run; leave some"
        );
        check.fault(&["runner", "tier"], &message);
    }
    let unheard = runner
        .tier
        .iter()
        .find(|tier| tier.reserve_percent > 0 && Runner::reserved_slots(runner.slots, tier.reserve_percent) == 0);
    if let Some(tier) = unheard.filter(|_| check.sound(&["runner.tier", "runner.slots"])) {
        let message = format!(
            "reserves {} % for \"{}\", which of {} slots is less than one: nothing is reserved; raise it, or runner.slots",
            tier.reserve_percent, tier.name.value, runner.slots
        );
        check.warn(&["runner", "tier"], &message);
    }
}

fn listeners(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let Appliance { gateway, egress, runner, admin, .. } = appliance;
    let plain: &[_] = if check.sound(&["runner.api.listen"]) { &runner.api.listen } else { &[] };
    let with_tls: &[_] = if check.sound(&["runner.api.tls.listen"]) { &runner.api.tls.listen } else { &[] };
    let admin = [admin.listen];
    let others: [(&str, bool, &[_]); 5] = [
        ("gateway.listen", gateway.enabled, &gateway.listen),
        ("egress.listen", egress.enabled, &egress.listen),
        ("egress.tls.listen", egress.enabled, &egress.tls.listen),
        ("egress.ranges.listen", egress.enabled, &egress.ranges.listen),
        ("admin.listen", true, &admin),
    ];
    let mut listening = BTreeSet::new();
    for (key, addresses) in [(&["runner", "api", "listen"][..], plain), (&["runner", "api", "tls", "listen"], with_tls)]
    {
        for address in addresses {
            if !listening.insert(*address) {
                check.fault(key, &format!("names {address} twice; write it once"));
            }
            for (of, enabled, taken) in others {
                let taken = taken.iter().find(|other| enabled && is_same_place(**other, *address));
                if let Some(other) = taken.filter(|_| check.sound(&[of])) {
                    let message = format!("{address} is taken by {of} ({other}); choose another port");
                    check.fault(key, &message);
                }
            }
        }
    }
    let shared = with_tls.iter().find_map(|address| {
        let other = plain.iter().find(|other| *other != address && is_same_place(**other, *address))?;
        Some((address, other))
    });
    if let Some((address, other)) = shared {
        let message = format!("{address} is taken by runner.api.listen ({other}); choose another port");
        check.fault(&["runner", "api", "tls", "listen"], &message);
    }
    if let Some(open) = plain.iter().find(|address| !address.ip().is_loopback()) {
        let message = format!(
            "{open} is reached from other machines without TLS, and a token is only taken where both ends are loopback addresses: everybody who asks there is refused. Listen with TLS (runner.api.tls)"
        );
        check.warn(&["runner", "api", "listen"], &message);
    }
}

fn tls(check: &mut Check<'_, '_, '_>, runner: &Runner) {
    if !check.sound(&["runner.api.tls.listen", "runner.api.tls.certificate", "runner.api.tls.key"]) {
        return;
    }
    let tls = &runner.api.tls;
    for (key, reference) in [("certificate", &tls.certificate), ("key", &tls.key)] {
        match (tls.listen.is_empty(), reference.is_some()) {
            (true, true) => {
                let message = "has no use: runner.api.tls.listen names no address to listen on with it";
                check.fault(&["runner", "api", "tls", key], message);
            }
            (false, false) => {
                let message = format!("is missing, and runner.api.tls.listen needs it; write `{key} = \"file:PATH\"`");
                check.fault(&["runner", "api", "tls", key], &message);
            }
            (true, false) | (false, true) => {}
        }
    }
}

/// Grants go to the way out: in the clear only to this machine.
fn way_out(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let Appliance { egress, runner, .. } = appliance;
    if !check.sound(&["runner.egress", "runner.egress_roots"]) {
        return;
    }
    let Some(url) = &runner.egress else {
        if !egress.enabled && check.sound(&["egress.enabled"]) {
            let message = "is missing, and this file has no `[egress]` that calls could leave by; write its URL";
            check.fault(&["runner", "egress"], message);
        } else if egress.enabled && egress.listen.is_empty() && check.sound(&["egress.listen"]) {
            let message = "is missing, and `egress.listen` names no address without TLS; write `https://` and a name that the certificate of egress.tls has";
            check.fault(&["runner", "egress"], message);
        }
        return;
    };
    let Some(authority) = url.value.strip_prefix("http://") else { return };
    let host = authority.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
    let is_near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !is_near {
        let message =
            "is another machine without TLS, where no grant is taken: every call would be refused. Write `https://`";
        check.fault(&["runner", "egress"], message);
    }
    if runner.egress_roots.is_some() {
        check.fault(&["runner", "egress_roots"], "has no use: runner.egress is without TLS");
    }
}

/// Somebody has to vouch for calls, and the way out has to believe it.
fn issuer(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let Appliance { egress, runner, .. } = appliance;
    // An issuer that was misread may be the one.
    if !check.sound(&["runner.issuer.name", "runner.issuer.signing_key", "egress.issuer", "egress.enabled"]) {
        return;
    }
    let own = &runner.issuer;
    match appliance.runner_issuer() {
        Some(issuer) if own.signing_key.is_none() && issuer.signing_key.is_none() => {
            let message = format!(
                "is missing, and so is the signing_key of the issuer \"{}\": no call could be signed; `tidegate grant keygen` makes one",
                issuer.name.value
            );
            check.fault(&["runner", "issuer", "signing_key"], &message);
        }
        Some(_) => {}
        None => match &own.name {
            Some(name) if egress.enabled && runner.egress.is_none() => {
                let message =
                    format!("\"{}\" is no [[egress.issuer]] of this file: every call would be refused", name.value);
                check.fault(&["runner", "issuer", "name"], &message);
            }
            Some(_) if own.signing_key.is_none() => {
                let message = "is missing: no call could be signed; `tidegate grant keygen` makes one";
                check.fault(&["runner", "issuer", "signing_key"], message);
            }
            Some(_) => {}
            None => {
                let with_keys = egress.issuer.iter().filter(|issuer| issuer.signing_key.is_some()).count();
                let message = if with_keys > 1 {
                    "is missing, and several [[egress.issuer]] have a signing_key; write the name of the one that vouches for runs"
                } else {
                    "is missing, and no [[egress.issuer]] of this file has a signing_key: calls need one who vouches for them; `tidegate grant keygen` makes one"
                };
                check.fault(&["runner", "issuer", "name"], message);
            }
        },
    }
}

impl Appliance {
    /// The issuer of this file that vouches for runs; none where that is another file's.
    pub fn runner_issuer(&self) -> Option<&Issuer> {
        if let Some(name) = &self.runner.issuer.name {
            return self.egress.issuer.iter().find(|issuer| issuer.name.value == name.value);
        }
        let mut with_keys = self.egress.issuer.iter().filter(|issuer| issuer.signing_key.is_some());
        with_keys.next().filter(|_| with_keys.next().is_none())
    }
}

fn directories(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let Appliance { egress, log, runner, tenants, .. } = appliance;
    if !check.sound(&["runner.directory"]) {
        return;
    }
    let is_within = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    let others = [
        ("log.directory", true, &log.directory),
        ("egress.records.directory", egress.enabled, &egress.records.directory),
        ("tenants.directory", true, &tenants.directory),
        ("tenants.state_directory", true, &tenants.state_directory),
    ];
    for (key, enabled, other) in others {
        if enabled && is_within(&runner.directory, other) && check.sound(&[key, "log.directory", "egress.enabled"]) {
            let message =
                format!("is {key}, or in it, or around it; the runner has a directory of its own, best beside it");
            check.fault(&["runner", "directory"], &message);
        }
    }
}

fn times(check: &mut Check<'_, '_, '_>, runner: &Runner) {
    let retention = &runner.retention;
    if retention.metadata < retention.detail && check.sound(&["runner.retention.metadata", "runner.retention.detail"]) {
        let message = "is shorter than detail, which has it too; raise it";
        check.fault(&["runner", "retention", "metadata"], message);
    }
    let payloads = &runner.payloads;
    if u64::from(payloads.inline_bytes_max) > payloads.bytes_max
        && check.sound(&["runner.payloads.inline_bytes_max", "runner.payloads.bytes_max"])
    {
        check.fault(&["runner", "payloads", "inline_bytes_max"], "is above bytes_max; lower it");
    }
}

fn postgres(check: &mut Check<'_, '_, '_>, runner: &Runner) {
    let file = &runner.postgres;
    if !check.sound(&["runner.store", "runner.postgres.address"]) {
        return;
    }
    match (runner.store, &file.address) {
        (RunnerStore::Embedded, Some(_)) => {
            let message = "is not asked with store = \"embedded\"; write store = \"postgres\", or take the table out";
            return check.warn(&["runner", "postgres", "address"], message);
        }
        (RunnerStore::Embedded, None) => return,
        (RunnerStore::Postgres, None) => {
            let message = "is missing, and runner.store = \"postgres\" needs it; write \"postgres.internal:5432\"";
            return check.fault(&["runner", "postgres", "address"], message);
        }
        (RunnerStore::Postgres, Some(_)) => {}
    }
    if runner.payloads.bytes_max > RUNNER_SHARED_PAYLOAD_BYTES_MAX && check.sound(&["runner.payloads.bytes_max"]) {
        let message = "is above 64MiB, which is the most that is kept of a payload in PostgreSQL; lower it";
        check.fault(&["runner", "payloads", "bytes_max"], message);
    }
    let keys = ["runner.postgres.tls.enabled", "runner.postgres.tls.certificate", "runner.postgres.tls.key"];
    if !check.sound(&keys) {
        return;
    }
    match (&file.tls.certificate, &file.tls.key) {
        (Some(_), None) => {
            check.fault(&["runner", "postgres", "tls", "key"], "is missing, and the certificate needs it");
        }
        (None, Some(_)) => {
            let message = "is missing, and the key is of no use without it";
            check.fault(&["runner", "postgres", "tls", "certificate"], message);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let host = file.address.as_deref().and_then(|address| address.rsplit_once(':')).map_or("", |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let is_near = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if !file.tls.enabled && !is_near {
        let message =
            "goes over the network in the clear, with what tenants' runs send and receive; add [runner.postgres.tls]";
        check.warn(&["runner", "postgres", "address"], message);
    }
}
