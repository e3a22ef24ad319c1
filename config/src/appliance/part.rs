//! A faulty appliance's file, as far as tenants' files can be looked at by it: `tidegate check` says everything at once.

use std::collections::BTreeSet;
use std::path::Path;

use super::{FILE_BYTES_MAX, Reading, cross_check};
use crate::document::Text;
use crate::read;
use crate::settings::Appliance;
use crate::units::{MIB, TIB};

/// What of a faulty file can be used.
#[derive(Debug)]
pub struct ApplianceInPart {
    /// What bounds tenants' files and was misread bounds nothing here: whoever is within all other bounds hears nothing.
    pub appliance: Appliance,
    /// The keys that have no value of their own because they are faulty.
    pub misread: Vec<String>,
    pub names: NamesRead,
}

/// Whether all names were read that tenants' files refer to: a name may be among what was not, and then it is not
/// unknown.
#[derive(Debug, Clone, Copy)]
pub struct NamesRead {
    /// Those of `log.retention`.
    pub classes: bool,
    /// Those of `egress.pool`.
    pub pools: bool,
    /// Those of `runner.tier`.
    pub tiers: bool,
}

impl NamesRead {
    pub(crate) const ALL: Self = Self { classes: true, pools: true, tiers: true };
}

/// Of a faulty appliance's file, enough to look at the tenants' files by. None where `tenants.directory` cannot be made
/// out.
pub fn appliance_in_part(path: &Path) -> Option<ApplianceInPart> {
    let (bytes, _) = read::file(path, FILE_BYTES_MAX).ok()?;
    let text = Text::new(&bytes);
    let Reading { mut document, table, mut appliance } = Reading::of(path, &text);
    if !document.is_sound("tenants.directory") {
        return None;
    }
    let names = NamesRead {
        classes: document.is_read_in_each("log.retention", "name"),
        pools: document.is_read_in_each("egress.pool", "name") && document.is_sound("egress.enabled"),
        tiers: document.is_read_in_each("runner.tier", "name") && document.is_sound("runner.enabled"),
    };
    // What is wrong with a table, such as a key that is unknown in it, leaves its keys as they are.
    let mut misread = document.keys_with_errors();
    let of_tables: BTreeSet<String> = misread.extract_if(.., |key| document.is_sound(key)).collect();
    cross_check(&mut document, table.get_ref(), &appliance);
    misread.extend(document.keys_with_errors().into_iter().filter(|key| !of_tables.contains(key)));
    unbound(&mut appliance, |key| misread.contains(key) || !document.is_whole(key));
    Some(ApplianceInPart { appliance, misread: misread.into_iter().collect(), names })
}

/// Puts in the place of bounds that were misread some that nothing exceeds.
fn unbound(appliance: &mut Appliance, is_misread: impl Fn(&str) -> bool) {
    let Appliance { gateway, log, tenants, .. } = appliance;
    let counts = [
        ("tenants.files_max", &mut tenants.files_max),
        ("tenants.endpoints_per_tenant_max", &mut tenants.endpoints_per_tenant_max),
    ];
    for (_, count) in counts.into_iter().filter(|(key, _)| is_misread(key)) {
        *count = u32::MAX;
    }
    let sizes = [
        ("tenants.file_bytes_max", &mut tenants.file_bytes_max, 64 * MIB),
        ("gateway.bytes_in_flight_max", &mut gateway.bytes_in_flight_max, TIB),
        ("log.queue_bytes", &mut log.queue_bytes, TIB),
        ("log.segment_bytes", &mut log.segment_bytes, TIB),
        ("gateway.body_bytes_max", &mut gateway.body_bytes_max, 0),
    ];
    for (_, size, instead) in sizes.into_iter().filter(|(key, ..)| is_misread(key)) {
        *size = instead;
    }
    if is_misread("gateway.listener.header_bytes_max") {
        gateway.listener.header_bytes_max = 0;
    }
    if is_misread("tenants.allow_env") {
        tenants.allow_env = vec!["*".to_owned()];
    }
}
