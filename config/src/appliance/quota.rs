//! What no key of `[quota]` can see alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::cross_check::Check;
use crate::settings::{Appliance, IssuerTenants, Quota, QuotaRedis, QuotaShare, QuotaStore, RedisMode};
use crate::units::format_duration;

pub(super) fn cross_check(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let quota = &appliance.quota;
    degraded(check, quota);
    guards(check, quota);
    shares(check, &quota.share);
    if quota.store == QuotaStore::Redis && check.sound(&["quota.store"]) {
        slots(check, appliance);
        redis(check, &quota.redis);
    } else if !quota.redis.addresses.is_empty() && check.sound(&["quota.store", "quota.redis.addresses"]) {
        let message = "is not asked with store = \"in-process\": each node counts for itself, and a fleet uses every limit as often as it has nodes; write store = \"redis\", or take the table out";
        check.warn(&["quota", "redis", "addresses"], message);
    }
}

fn degraded(check: &mut Check<'_, '_, '_>, quota: &Quota) {
    let degraded = &quota.degraded;
    if degraded.percent == 0 || !check.sound(&["quota.store", "quota.degraded.percent", "quota.degraded.nodes"]) {
        return;
    }
    if quota.store == QuotaStore::InProcess {
        let message = "has no use with store = \"in-process\", from which no node is cut off: it would only make every limit smaller; take it out";
        check.fault(&["quota", "degraded", "percent"], message);
    } else if degraded.nodes == 0 {
        let message = "is missing, and quota.degraded.percent needs it; write how many nodes there may be";
        check.fault(&["quota", "degraded", "nodes"], message);
    }
}

fn guards(check: &mut Check<'_, '_, '_>, quota: &Quota) {
    let (breaker, runaway) = (&quota.breaker, &quota.runaway);
    let sound = |check: &Check<'_, '_, '_>, keys: &[&str]| {
        keys.iter().all(|key| check.sound(&[&format!("quota.breaker.{key}")]))
    };
    if breaker.open_max < breaker.open && sound(check, &["open", "open_max"]) {
        check.fault(&["quota", "breaker", "open_max"], "is shorter than open, the first time; raise it");
    }
    let least: Duration = breaker.window.max(breaker.open_max);
    if breaker.memory < least && sound(check, &["memory", "window", "open_max"]) {
        let least = format_duration(least);
        check.fault(
            &["quota", "breaker", "memory"],
            &format!("is shorter than the window or the longest time that it is open; write at least \"{least}\""),
        );
    }
    let both = ["quota.runaway.trigger_factor", "quota.runaway.throttle_factor"];
    if runaway.throttle_factor >= runaway.trigger_factor && check.sound(&both) {
        let message = "is not below trigger_factor, so that a throttle would slow nobody down; lower it";
        check.fault(&["quota", "runaway", "throttle_factor"], message);
    }
    if quota.retry.most < quota.retry.per_minute && check.sound(&["quota.retry.most", "quota.retry.per_minute"]) {
        check.fault(&["quota", "retry", "most"], "is less than per_minute, with which a tenant begins; raise it");
    }
}

fn shares(check: &mut Check<'_, '_, '_>, shares: &[QuotaShare]) {
    let mut named: BTreeMap<Option<&str>, u32> = BTreeMap::new();
    let mut promised = 0_u64;
    let indexes =
        check.document.within("quota", |document| document.within("share", |document| document.indexes_read()));
    for (index, share) in indexes.zip(shares) {
        let line = share.tenants.line;
        if share.floor_permille > share.ceiling_permille {
            let message = format!("is above ceiling_permille, {}; lower it", share.ceiling_permille);
            fault_within(check, index, "floor_permille", line, &message);
        }
        let tenants: Vec<_> = match &share.tenants.value {
            IssuerTenants::Every => vec![None],
            IssuerTenants::Only(tenants) => tenants.iter().map(|tenant| Some(tenant.as_str())).collect(),
        };
        for tenant in tenants {
            promised += tenant.map_or(0, |_| u64::from(share.floor_permille));
            // Without a line it is one whose tenants were misread.
            if let Some(first) = named.insert(tenant, line).filter(|first| *first != 0 && line != 0) {
                let whom = tenant.unwrap_or("*");
                let message = format!("\"{whom}\" is among those of line {first} too; name each tenant once");
                fault_within(check, index, "tenants", line, &message);
            }
        }
    }
    if promised > 1000 && check.sound(&["quota.share"]) {
        let message = format!(
            "promises {promised} thousandths in all: where all of these tenants share one application, not everybody can have its floor"
        );
        check.warn(&["quota", "share"], &message);
    }
}

fn fault_within(check: &mut Check<'_, '_, '_>, index: usize, key: &'static str, line: u32, message: &str) {
    check.document.within("quota", |document| {
        document.within("share", |document| {
            document.within_index(index, |document| {
                document.within(key, |document| document.fault_in_line(line, message));
            });
        });
    });
}

/// Places of a node that has lost the store come back while calls of it go on.
fn slots(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let (lease, total) = (appliance.quota.slot_lease, appliance.egress.limits.total_timeout);
    let keys = ["quota.slot_lease", "egress.limits.total_timeout", "egress.enabled"];
    if appliance.egress.enabled && lease < total && check.sound(&keys) {
        let (lease, total) = (format_duration(lease), format_duration(total));
        let message = format!(
            "is {lease}, and a call may take {total} (egress.limits.total_timeout): should a node lose Redis for longer than that, what it has under way counts no more towards limits on concurrent calls, and others may exceed these by as much"
        );
        check.warn(&["quota", "slot_lease"], &message);
    }
}

fn redis(check: &mut Check<'_, '_, '_>, redis: &QuotaRedis) {
    if check.sound(&["quota.redis.mode", "quota.redis.addresses"]) {
        let message = match (redis.mode, redis.addresses.len()) {
            (_, 0) => Some("names no server, and quota.store = \"redis\" needs one; write [\"redis.internal:6379\"]"),
            (RedisMode::Standalone, 2..) => Some(
                "names several servers, and mode = \"standalone\" has one; write that one, or mode = \"cluster\" or \"sentinel\"",
            ),
            _ => None,
        };
        if let Some(message) = message {
            check.fault(&["quota", "redis", "addresses"], message);
        }
    }
    sentinel(check, redis);
    for (key, user, password) in
        [("user", &redis.user, &redis.password), ("sentinel_user", &redis.sentinel_user, &redis.sentinel_password)]
    {
        let keys =
            ["quota.redis.user", "quota.redis.password", "quota.redis.sentinel_user", "quota.redis.sentinel_password"];
        if user.is_some() && password.is_none() && check.sound(&keys) {
            check.fault(
                &["quota", "redis", key],
                "has no password, without which nobody is logged in; write its reference",
            );
        }
    }
    tls(check, redis);
}

fn sentinel(check: &mut Check<'_, '_, '_>, redis: &QuotaRedis) {
    let keys =
        ["quota.redis.mode", "quota.redis.sentinel_name", "quota.redis.sentinel_user", "quota.redis.sentinel_password"];
    if !check.sound(&keys) {
        return;
    }
    if redis.mode == RedisMode::Sentinel {
        if redis.sentinel_name.is_none() {
            let message =
                "is missing, and mode = \"sentinel\" needs it; write the name by which sentinels know the primary";
            check.fault(&["quota", "redis", "sentinel_name"], message);
        }
        return;
    }
    for (key, is_written) in [
        ("sentinel_name", redis.sentinel_name.is_some()),
        ("sentinel_user", redis.sentinel_user.is_some()),
        ("sentinel_password", redis.sentinel_password.is_some()),
    ] {
        if is_written {
            check.fault(&["quota", "redis", key], "has no use: quota.redis.mode is not \"sentinel\"");
        }
    }
}

fn tls(check: &mut Check<'_, '_, '_>, redis: &QuotaRedis) {
    let tls = &redis.tls;
    let keys = ["quota.redis.tls.enabled", "quota.redis.tls.certificate", "quota.redis.tls.key"];
    if !check.sound(&keys) {
        return;
    }
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => check.fault(&["quota", "redis", "tls", "key"], "is missing, and the certificate needs it"),
        (None, Some(_)) => {
            check.fault(&["quota", "redis", "tls", "certificate"], "is missing, and the key is of no use without it");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let is_afar = |address: &String| {
        let host = address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let is_secret = redis.password.is_some() || redis.sentinel_password.is_some();
    if !tls.enabled
        && is_secret
        && redis.addresses.iter().any(is_afar)
        && check.sound(&["quota.redis.password", "quota.redis.addresses"])
    {
        let message = "goes over the network in the clear, and so does every tenant's name; add [quota.redis.tls]";
        let key = if redis.password.is_some() { "password" } else { "sentinel_password" };
        check.warn(&["quota", "redis", key], message);
    }
}
