//! Configuration: no text, however hostile, panics a loader; what has no settings has a fault that says why, and
//! faults show nothing that a terminal obeys.
#![no_main]

use std::path::Path;

use config::scheme::SchemeDeclaration;
use gateway::scheme::Scheme;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (appliance, faults) = config::parse_appliance(Path::new("/etc/tidegate/tidegate.toml"), data);
    assert!(appliance.is_some() != config::has_errors(&faults), "no settings and no reason, or both");
    let (tenant, tenant_faults) = config::parse_tenant(data);
    assert!(tenant.is_some() != config::has_errors(&tenant_faults), "no tenant and no reason, or both");
    for fault in faults.iter().chain(&tenant_faults) {
        let shown = fault.to_string();
        assert!(shown.chars().all(|c| !c.is_control() || c == '\n'), "{shown:?}");
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(declaration) = toml::from_str::<SchemeDeclaration>(text)
    {
        match Scheme::compile(&declaration) {
            Ok(scheme) => drop(scheme.self_test()),
            Err(faults) => assert!(!faults.is_empty()),
        }
    }
});
