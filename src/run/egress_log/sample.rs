//! A record to test with.

use domain::{NodeId, TenantId};
use egress::{CorrelationId, Record, SendState, Times};

pub(crate) const NOW: u64 = 1_764_424_000_000;

/// The record of a call that went well, named by a number.
pub(crate) fn record(nth: u64) -> Record {
    Record {
        correlation: CorrelationId::new(NOW + nth, NodeId(1), nth.to_be_bytes()),
        hop: 0,
        ended_unix_ms: NOW + nth,
        tenant: Some(TenantId::parse("acme").unwrap()),
        role: None,
        identity: Some("grant:platform/j1".into()),
        run: Some("run_1".into()),
        automation: None,
        class: None,
        connection: None,
        connector: None,
        peer: "127.0.0.1:50000".parse().unwrap(),
        way: "absolute".into(),
        method: "GET".into(),
        destination: "api.example.com:443".into(),
        path: Some("/v1/things".into()),
        rule: Some("tenants/acme.toml:7".into()),
        would_refuse: Vec::new(),
        provider_ids: std::collections::BTreeMap::new(),
        answer: vec!["192.0.2.7".parse().unwrap()],
        address: Some("192.0.2.7:443".parse().unwrap()),
        exit: Some("198.51.100.1".parse().unwrap()),
        pooled: false,
        http: Some(egress::HttpVersion::Http11),
        sent_bytes: 10,
        received_bytes: 2000,
        times: Times { resolve_us: 1, connect_us: 2, tls_us: 3, first_byte_us: 4, total_us: 12_345 },
        status: Some(200),
        outcome: "done".into(),
        detail: "".into(),
        send_state: SendState::Response,
    }
}
