//! Loads the appliance's file and checks what no key can see alone.

mod egress;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::Document;
use crate::fault::Fault;
use crate::form::{Row, Settings};
use crate::read;
use crate::settings::Appliance;
use crate::units::{MIB, format_bytes};

/// Far above any appliance's file; what is larger is another file.
const FILE_BYTES_MAX: u64 = 4 * MIB;

/// Longest path that a Unix socket can have.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Reads the appliance's file. The settings are there unless a fault is an error; warnings may be there either way.
pub fn load_appliance(path: &Path) -> (Option<Appliance>, Vec<Fault>) {
    let (appliance, faults, _) = reload_appliance(path);
    (appliance, faults)
}

/// The same, and whether the file could not be read for a reason that passes: then it is worth reading again, though
/// nobody changes it.
pub fn reload_appliance(path: &Path) -> (Option<Appliance>, Vec<Fault>, bool) {
    let fault = match read::file(path, FILE_BYTES_MAX) {
        Ok((bytes, _)) => {
            let (appliance, faults) = parse_appliance(path, &bytes);
            return (appliance, faults, false);
        }
        Err(fault) => fault,
    };
    let message = if matches!(fault, read::Unreadable::Missing) {
        "is not there; name the configuration with --config".into()
    } else {
        fault.to_string()
    };
    (None, vec![Fault::error(path, "", message)], fault.is_passing())
}

/// The same from bytes; `path` names the file in faults, and its directory is where relative paths start.
pub fn parse_appliance(path: &Path, bytes: &[u8]) -> (Option<Appliance>, Vec<Fault>) {
    let source = match text(path, bytes) {
        Ok(source) => source,
        Err(fault) => return (None, vec![fault]),
    };
    let (mut document, mut table) = Document::parse(path, source);
    warn_later(&mut document, table.get_mut(), &["runner"]);
    let mut appliance = Appliance::read(&mut document, table.get_ref(), 0..0);
    let table = table.get_ref();
    derive(&mut appliance, table);
    appliance.resolve_paths(&directory_of(path));
    if document.has_errors() {
        // What was misread has its default here: judging it against other keys would say things that are not so.
        return (None, document.into_faults());
    }
    cross_check(&mut document, table, &appliance);
    read_keys(&mut document, &mut appliance);
    let good = !document.has_errors();
    (good.then_some(appliance), document.into_faults())
}

/// Of a faulty appliance's file, enough to look at the tenants' files by, and which keys have their defaults in it
/// because they are faulty. None where `tenants.directory` cannot be made out. For `tidegate check`, so that one look
/// says everything.
pub fn appliance_in_part(path: &Path) -> Option<(Appliance, Vec<String>)> {
    let (bytes, _) = read::file(path, FILE_BYTES_MAX).ok()?;
    let (mut document, mut table) = Document::parse(path, text(path, &bytes).ok()?);
    let whole = !document.has_errors();
    warn_later(&mut document, table.get_mut(), &["runner"]);
    let mut appliance = Appliance::read(&mut document, table.get_ref(), 0..0);
    let table = table.get_ref();
    derive(&mut appliance, table);
    appliance.resolve_paths(&directory_of(path));
    let keys: BTreeSet<String> =
        document.into_faults().into_iter().filter(Fault::is_error).map(|fault| fault.key).collect();
    let written = find(table, &["tenants", "directory"]).is_some();
    let misread = (keys.contains("tenants") && !written) || keys.contains("tenants.directory");
    let rows = Appliance::rows();
    // A key that is unknown is said of its table, and has no default.
    let is_table = |key: &str| {
        find(table, &key.split('.').collect::<Vec<_>>()).is_some_and(|value| value.get_ref().as_table().is_some())
    };
    let defaults = keys.into_iter().filter(|key| is_known(&rows, key) && !is_table(key)).collect();
    ((whole || written) && !misread).then_some((appliance, defaults))
}

fn is_known(rows: &[Row], key: &str) -> bool {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let name = first.split('[').next().unwrap_or_default();
    let row = rows.iter().find(|row| row.name == name);
    row.is_some_and(|row| rest.is_none_or(|rest| is_known(&row.rows, rest)))
}

/// The text of a file, or the place of the first byte that is none.
pub(crate) fn text<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, Fault> {
    std::str::from_utf8(bytes).map_err(|fault| {
        let line = bytes[..fault.valid_up_to()].split(|byte| *byte == b'\n').count();
        let message = "is not UTF-8 here; save the file as UTF-8";
        Fault::error(path, "", message).at(u32::try_from(line).unwrap_or(u32::MAX))
    })
}

/// Tables of roles that this build does not have say nothing wrong, but nothing happens because of them either.
pub(crate) fn warn_later(document: &mut Document<'_>, table: &mut DeTable<'_>, names: &[&'static str]) {
    for name in names {
        if let Some(value) = table.remove(*name) {
            let message = "belongs to a role that this version does not have: it has no effect";
            document.within(name, |document| document.warn(value.span(), message));
        }
    }
}

fn directory_of(path: &Path) -> std::path::PathBuf {
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    std::path::absolute(parent).unwrap_or_else(|_| match parent {
        // `absolute` refuses the empty path: it means here.
        empty if empty.as_os_str().is_empty() => std::env::current_dir().unwrap_or_else(|_| ".".into()),
        other => other.into(),
    })
}

/// Defaults that follow from other keys.
fn derive(appliance: &mut Appliance, table: &DeTable<'_>) {
    appliance.gateway.enabled &= table.contains_key("gateway");
    appliance.egress.enabled &= table.contains_key("egress");
    let beside = appliance.log.directory.parent().unwrap_or_else(|| Path::new("/"));
    if find(table, &["admin", "socket"]).is_none() {
        appliance.admin.socket = beside.join("tidegate.sock");
    }
    if find(table, &["tenants", "state_directory"]).is_none() {
        appliance.tenants.state_directory = beside.join("state");
    }
    if find(table, &["egress", "records", "directory"]).is_none() {
        appliance.egress.records.directory = beside.join("egress");
    }
}

/// Public keys that are in files of their own.
fn read_keys(document: &mut Document<'_>, appliance: &mut Appliance) {
    document.within("egress", |document| {
        document.within("issuer", |document| {
            for (index, issuer) in appliance.egress.issuer.iter_mut().enumerate() {
                document.within_index(index, |document| issuer.read_keys(document));
            }
        });
    });
}

fn find<'t>(table: &'t DeTable<'_>, path: &[&str]) -> Option<&'t Spanned<DeValue<'t>>> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?;
    if rest.is_empty() { Some(value) } else { find(value.get_ref().as_table()?, rest) }
}

/// Says what a cross check found, at the key and the place of it.
struct Check<'d, 's, 't> {
    document: &'d mut Document<'s>,
    table: &'t DeTable<'t>,
}

impl Check<'_, '_, '_> {
    /// Place of a key, or of the nearest table around it that is written.
    fn span(&self, path: &[&'static str]) -> Range<usize> {
        (1..=path.len()).rev().find_map(|length| find(self.table, &path[..length])).map_or(0..0, Spanned::span)
    }

    fn fault(&mut self, path: &[&'static str], message: &str) {
        let span = self.span(path);
        descend(self.document, path, &mut |document| document.fault(span.clone(), message));
    }

    fn warn(&mut self, path: &[&'static str], message: &str) {
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

fn cross_check(document: &mut Document<'_>, table: &DeTable<'_>, appliance: &Appliance) {
    let mut check = Check { document, table };
    let Appliance { gateway, log, limits, admin, .. } = appliance;
    if !gateway.enabled && !appliance.egress.enabled {
        let message = "no role is enabled; add a `[gateway]` table with its public_url, or an `[egress]` table";
        check.fault(&["gateway"], message);
    }
    let body = gateway.body_bytes_max;
    let record = body + appliance.delivery_overhead();
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
        if bytes < record {
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
    let mut listening = BTreeSet::new();
    for address in &gateway.listen {
        if !listening.insert(*address) {
            check.fault(&["gateway", "listen"], &format!("names {address} twice; write it once"));
        }
    }
    for (role, enabled, addresses) in
        [("gateway", gateway.enabled, &gateway.listen), ("egress", appliance.egress.enabled, &appliance.egress.listen)]
    {
        if addresses.iter().any(|address| enabled && egress::is_same_place(*address, admin.listen)) {
            let message = format!("{} is taken by {role}.listen; choose another port", admin.listen);
            check.fault(&["admin", "listen"], &message);
        }
    }
    egress::cross_check(&mut check, appliance);
    if !admin.listen.ip().is_loopback() {
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
    if socket > SOCKET_PATH_BYTES_MAX {
        check.fault(
            &["admin", "socket"],
            &format!("is {socket} bytes long and a Unix socket takes {SOCKET_PATH_BYTES_MAX}; write a shorter path"),
        );
    }
    if appliance.egress.enabled && appliance.egress.records.directory.starts_with(&log.directory) {
        check.fault(
            &["egress", "records", "directory"],
            "is the event log's directory, or in it; records have one of their own, best beside it",
        );
    }
    let mut classes = BTreeSet::new();
    for class in &log.retention {
        if !classes.insert(class.name.as_str()) {
            check.fault(&["log", "retention"], &format!("names the class \"{}\" twice; write it once", class.name));
        }
    }
    if limits.endpoint.stored_bytes_max.is_some() {
        check.fault(
            &["limits", "endpoint", "stored_bytes_max"],
            "endpoints have no storage of their own; write it under [limits.tenant]",
        );
    }
    for (path, bytes) in [
        (&["limits", "tenant", "bytes"], limits.tenant.bytes),
        (&["limits", "endpoint", "bytes"], limits.endpoint.bytes),
    ] {
        if let Some(rate) = bytes.filter(|rate| u64::from(rate.burst) < body) {
            let burst = format_bytes(u64::from(rate.burst));
            check.warn(path, &format!("a body above the burst of {burst} passes only when nothing has been spent, and gateway.body_bytes_max is {}; raise the burst", format_bytes(body)));
        }
    }
}
