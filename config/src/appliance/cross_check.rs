//! What no key of the appliance's file can see alone. A check runs where everything that it looks at was read: what was
//! misread has its default here, and judged against other keys it would say things that are not so.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::{egress, find, quota, runner};
use crate::document::Document;
use crate::settings::Appliance;
use crate::units::format_bytes;

/// Longest path that a Unix socket can have.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Says what a cross check found, at the key and the place of it.
pub(super) struct Check<'d, 's, 't> {
    pub(super) document: &'d mut Document<'s>,
    table: &'t DeTable<'t>,
}

impl Check<'_, '_, '_> {
    /// Place of a key, or of the nearest table around it that is written.
    fn span(&self, path: &[&'static str]) -> Range<usize> {
        (1..=path.len()).rev().find_map(|length| find(self.table, &path[..length])).map_or(0..0, Spanned::span)
    }

    /// Whether every one of these keys was read, or left out on purpose.
    pub(super) fn sound(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| self.document.is_sound(key))
    }

    pub(super) fn fault(&mut self, path: &[&'static str], message: &str) {
        let span = self.span(path);
        descend(self.document, path, &mut |document| document.fault(span.clone(), message));
    }

    pub(super) fn warn(&mut self, path: &[&'static str], message: &str) {
        let span = self.span(path);
        descend(self.document, path, &mut |document| document.warn(span.clone(), message));
    }
}

fn descend(document: &mut Document<'_>, path: &[&'static str], then: &mut dyn FnMut(&mut Document<'_>)) {
    match path.split_first() {
        Some((first, rest)) => document.within(first, |document| descend(document, rest, then)),
        None => then(document),
    }
}

pub(super) fn cross_check(document: &mut Document<'_>, table: &DeTable<'_>, appliance: &Appliance) {
    let mut check = Check { document, table };
    let enabled = appliance.gateway.enabled || appliance.egress.enabled || appliance.runner.enabled;
    if !enabled && check.sound(&["gateway.enabled", "egress.enabled", "runner.enabled"]) {
        let message = "no role is enabled; add a `[gateway]` table with its public_url, an `[egress]` table, or a `[runner]` table";
        check.fault(&["gateway"], message);
    }
    room(&mut check, appliance);
    listeners(&mut check, appliance);
    egress::cross_check(&mut check, appliance);
    quota::cross_check(&mut check, appliance);
    runner::cross_check(&mut check, appliance);
    directories(&mut check, appliance);
    names(&mut check, appliance);
    limits(&mut check, appliance);
}

/// A delivery with the largest body must fit everywhere.
fn room(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    if !check.sound(&["gateway.body_bytes_max", "gateway.listener.header_bytes_max"]) {
        return;
    }
    let Appliance { gateway, log, .. } = appliance;
    let record = gateway.body_bytes_max + appliance.delivery_overhead();
    let room = [
        (
            &["gateway", "bytes_in_flight_max"],
            gateway.bytes_in_flight_max / 8,
            "an eighth of it, one endpoint's share,",
        ),
        (&["log", "queue_bytes"], log.queue_bytes, "it"),
        (&["log", "segment_bytes"], log.segment_bytes, "it"),
    ];
    for (path, bytes, what) in room {
        if bytes < record && check.sound(&[&path.join(".")]) {
            check.fault(
                path,
                &format!(
                    "{what} is {} and must hold a delivery with the largest body, {}; raise it, or lower gateway.body_bytes_max",
                    format_bytes(bytes),
                    format_bytes(record)
                ),
            );
        }
    }
}

fn listeners(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let Appliance { gateway, admin, .. } = appliance;
    let mut listening = BTreeSet::new();
    // Of a list in part, what was read is there.
    let read = if check.sound(&["gateway.listen"]) { gateway.listen.as_slice() } else { &[] };
    for address in read {
        if !listening.insert(*address) {
            check.fault(&["gateway", "listen"], &format!("names {address} twice; write it once"));
        }
    }
    let (is_sound, listen) = (check.sound(&["admin.listen"]), admin.listen);
    let way_out = &appliance.egress;
    for (role, key, enabled, addresses) in [
        ("gateway", "gateway.listen", gateway.enabled, &gateway.listen),
        ("egress", "egress.listen", way_out.enabled, &way_out.listen),
        ("egress", "egress.tls.listen", way_out.enabled, &way_out.tls.listen),
    ] {
        let keys = [&*format!("{role}.enabled"), key];
        let is_taken = || addresses.iter().any(|address| egress::is_same_place(*address, listen));
        if enabled && is_sound && check.sound(&keys) && is_taken() {
            let message = format!("{listen} is taken by {key}; choose another port");
            check.fault(&["admin", "listen"], &message);
        }
    }
    if is_sound && !listen.ip().is_loopback() {
        check.warn(
            &["admin", "listen"],
            "is reachable from other machines, and metrics tell how much comes in and what is refused; see that only monitoring gets there",
        );
    }
    if gateway.trusted_proxies.iter().any(|net| net.prefix_len() == 0) {
        check.warn(
            &["gateway", "trusted_proxies"],
            "trusts everybody: any sender can then claim any address; name your load balancers",
        );
    }
    let socket = admin.socket.as_os_str().len();
    let follows = find(check.table, &["admin", "socket"]).is_none();
    if socket > SOCKET_PATH_BYTES_MAX && check.sound(&["admin.socket"]) && (!follows || check.sound(&["log.directory"]))
    {
        check.fault(
            &["admin", "socket"],
            &format!("is {socket} bytes long and a Unix socket takes {SOCKET_PATH_BYTES_MAX}; write a shorter path"),
        );
    }
}

fn directories(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let Appliance { egress, log, .. } = appliance;
    let keys = ["egress.enabled", "egress.records.directory", "log.directory"];
    if egress.enabled && egress.records.directory.starts_with(&log.directory) && check.sound(&keys) {
        check.fault(
            &["egress", "records", "directory"],
            "is the event log's directory, or in it; records have one of their own, best beside it",
        );
    }
}

fn names(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let mut classes = BTreeSet::new();
    // A class without a name is one whose name was misread.
    for name in appliance.log.retention.iter().map(|class| class.name.as_str()).filter(|name| !name.is_empty()) {
        if !classes.insert(name) {
            check.fault(&["log", "retention"], &format!("names the class \"{name}\" twice; write it once"));
        }
    }
}

fn limits(check: &mut Check<'_, '_, '_>, appliance: &Appliance) {
    let limits = &appliance.limits;
    if limits.endpoint.stored_bytes_max.is_some() {
        check.fault(
            &["limits", "endpoint", "stored_bytes_max"],
            "endpoints have no storage of their own; write it under [limits.tenant]",
        );
    }
    let body = appliance.gateway.body_bytes_max;
    for (path, bytes) in [
        (&["limits", "tenant", "bytes"], limits.tenant.bytes),
        (&["limits", "endpoint", "bytes"], limits.endpoint.bytes),
    ] {
        let is_low = |burst: u32| u64::from(burst) < body && check.document.is_sound("gateway.body_bytes_max");
        if let Some(rate) = bytes.filter(|rate| is_low(rate.burst)) {
            let burst = format_bytes(u64::from(rate.burst));
            check.warn(path, &format!("a body above the burst of {burst} passes only when nothing has been spent, and gateway.body_bytes_max is {}; raise the burst", format_bytes(body)));
        }
    }
}
