//! Decision records: how they lie in their store, and how they are asked for. The same for the control socket and for a
//! directory that is read without a node.

use std::net::Ipv6Addr;

use domain::TenantId;
use domain::text::Untrusted;
use egress::{CorrelationId, Record};
use eventlog::records::{self, Key, NewRecord, RecordStore};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::walk::Remarks;
use super::wire::{Aside, Whose};

/// Most records that are asked for at a time.
pub(crate) const LIMIT_MAX: u32 = 10_000;
/// Longer than any outcome or destination there is.
const TEXT_BYTES_MAX: usize = 512;

/// Which records. The newest come first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EgressQuery {
    pub(crate) whose: Whose,
    #[serde(default, with = "correlation", skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<CorrelationId>,
    /// Ended at or after this, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(crate) since: Option<u64>,
    /// Ended before this.
    #[serde(default)]
    pub(crate) until: Option<u64>,
    /// `done`, or a code.
    #[serde(default, deserialize_with = "short")]
    pub(crate) outcome: Option<String>,
    #[serde(default, deserialize_with = "short")]
    pub(crate) destination: Option<String>,
    /// At most [`LIMIT_MAX`].
    #[serde(deserialize_with = "few")]
    pub(crate) limit: u32,
}

mod correlation {
    use super::{CorrelationId, Deserialize, Deserializer, Error, Serializer};

    #[expect(clippy::ref_option, reason = "the shape that serde wants")]
    pub(super) fn serialize<S: Serializer>(id: &Option<CorrelationId>, to: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => to.collect_str(id),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CorrelationId>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse()).transpose().map_err(D::Error::custom)
    }
}

fn few<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let limit = u32::deserialize(from)?;
    let told = || D::Error::custom(format!("{limit} records are more than {LIMIT_MAX}"));
    if limit <= LIMIT_MAX { Ok(limit) } else { Err(told()) }
}

fn short<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let told = || D::Error::custom(format!("a text is longer than {TEXT_BYTES_MAX} bytes"));
    if text.as_ref().is_none_or(|text| text.len() <= TEXT_BYTES_MAX) { Ok(text) } else { Err(told()) }
}

/// What a read comes upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Record(Box<Record>),
    /// A remark on the answer.
    Aside(Aside),
    /// Nothing for a while: is somebody still there who wants to know?
    NothingYet,
}

/// Records that are passed over before whoever asked is looked at: some milliseconds.
const LOOK_EVERY: u32 = 4_096;

/// A record as it is kept: JSON, and what it can be asked by.
pub(crate) fn kept(record: &Record) -> Result<NewRecord, serde_json::Error> {
    Ok(kept_as(record, serde_json::to_vec(record)?))
}

/// The same, of a record whose JSON is there already.
pub(crate) fn kept_as(record: &Record, json: Vec<u8>) -> NewRecord {
    let mut keys = vec![correlation_key(&record.correlation), outcome_key(&record.outcome)];
    keys.push(host_key(host_of(&record.destination)));
    keys.extend(record.tenant.as_ref().map(tenant_key));
    NewRecord { time_unix_ms: record.ended_unix_ms, keys, bytes: json }
}

fn correlation_key(id: &CorrelationId) -> Key {
    Key::new("correlation", id.as_bytes())
}

fn tenant_key(tenant: &TenantId) -> Key {
    Key::new("tenant", tenant.as_str().as_bytes())
}

fn outcome_key(outcome: &str) -> Key {
    Key::new("outcome", outcome.as_bytes())
}

fn host_key(host: &str) -> Key {
    Key::new("host", host.to_ascii_lowercase().as_bytes())
}

/// Of `host:port` the host; of what was never understood all of it.
fn host_of(destination: &str) -> &str {
    split(destination).0
}

fn split(destination: &str) -> (&str, Option<&str>) {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match destination.rsplit_once(':') {
        // An address of IPv6 has its brackets, or it is no host and port.
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.ends_with(']')) => (host, Some(port)),
        Some(_) | None => (destination, None),
    }
}

/// A destination as somebody writes it: a host, with a port or without.
#[derive(Debug)]
struct Wanted {
    host: String,
    port: Option<String>,
}

impl Wanted {
    fn of(text: &str) -> Self {
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Self { host: format!("[{address}]"), port: None };
        }
        let (host, port) = split(text);
        let host = host.strip_suffix('.').unwrap_or(host);
        Self { host: host.to_ascii_lowercase(), port: port.map(str::to_owned) }
    }

    fn takes(&self, destination: &str) -> bool {
        let (host, port) = split(destination);
        host.eq_ignore_ascii_case(&self.host) && self.port.as_deref().is_none_or(|wanted| port == Some(wanted))
    }
}

impl EgressQuery {
    fn keys(&self, destination: Option<&Wanted>) -> Vec<Key> {
        let tenant = match &self.whose {
            Whose::Tenant(tenant) => Some(tenant_key(tenant)),
            Whose::AllTenants => None,
        };
        let keys = [
            self.correlation.as_ref().map(correlation_key),
            tenant,
            self.outcome.as_deref().map(outcome_key),
            destination.map(|wanted| host_key(&wanted.host)),
        ];
        keys.into_iter().flatten().collect()
    }

    /// Is the record one of whom it is asked for? Nothing is given out that is not.
    pub(crate) fn is_theirs(&self, record: &Record) -> bool {
        match &self.whose {
            Whose::Tenant(tenant) => record.tenant.as_ref() == Some(tenant),
            Whose::AllTenants => true,
        }
    }

    fn takes(&self, record: &Record, destination: Option<&Wanted>) -> bool {
        self.is_theirs(record)
            && self.correlation.is_none_or(|id| id == record.correlation)
            && self.outcome.as_deref().is_none_or(|outcome| *outcome == *record.outcome)
            && destination.is_none_or(|wanted| wanted.takes(&record.destination))
    }
}

/// Gives the newest records that the query asks for, and remarks on what could not be read. Blocks on the disk.
/// Ends early with what `take` ends it with.
pub(crate) fn records<S>(
    store: &RecordStore,
    query: &EgressQuery,
    take: &mut dyn FnMut(Found) -> Result<(), S>,
) -> Result<(), S> {
    let destination = query.destination.as_deref().map(Wanted::of);
    let asked = records::Query {
        keys: query.keys(destination.as_ref()),
        from_unix_ms: query.since,
        until_unix_ms: query.until,
        order: records::Order::NewestFirst,
    };
    let mut remarks = Remarks::default();
    let (mut given, mut passed) = (0, 0_u32);
    for found in store.walk(asked) {
        if given == query.limit {
            break;
        }
        let aside = match found.map(|kept| serde_json::from_slice::<Record>(&kept.bytes)) {
            Ok(Ok(record)) if query.takes(&record, destination.as_ref()) => {
                given += 1;
                take(Found::Record(Box::new(record)))?;
                None
            }
            Ok(Ok(_)) => {
                passed += 1;
                if passed.is_multiple_of(LOOK_EVERY) {
                    take(Found::NothingYet)?;
                }
                None
            }
            Ok(Err(_)) => remarks.on("a record that this version does not read", true),
            Err(fault) => remarks.on(&Untrusted::with_limit(fault.to_string().as_bytes(), 1024).to_string(), true),
        };
        aside.map_or(Ok(()), |aside| take(Found::Aside(aside)))?;
    }
    remarks.rest().map_or(Ok(()), |aside| take(Found::Aside(aside)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use domain::ManualClock;
    use eventlog::records::Settings;
    use eventlog::segment::storage::MemoryStorage;
    use proptest::prelude::*;

    use super::*;
    use crate::run::egress_log::sample::record;

    #[test]
    fn a_destination_is_a_host_with_a_port_or_without() {
        for (destination, host) in [
            ("api.stripe.com:443", "api.stripe.com"),
            ("[2001:db8::1]:443", "[2001:db8::1]"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("not understood", "not understood"),
            ("a:b:1", "a:b:1"),
            ("a:", "a:"),
        ] {
            assert_eq!(host_of(destination), host, "{destination}");
        }
        for (wanted, takes, not) in [
            ("API.stripe.com.", "api.stripe.com:443", "stripe.com:443"),
            ("api.stripe.com:443", "api.stripe.com:443", "api.stripe.com:8443"),
            ("2001:DB8::1", "[2001:db8::1]:443", "[2001:db8::2]:443"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443", "[2001:db8::1]:80"),
        ] {
            let wanted = Wanted::of(wanted);
            assert!(wanted.takes(takes) && !wanted.takes(not), "{wanted:?}");
            assert_eq!(host_key(&wanted.host), host_key(host_of(takes)));
        }
    }

    /// A record and what could be asked of it, out of few of each, so that much of it meets.
    fn any_record() -> impl Strategy<Value = Record> {
        let tenant = prop_oneof![Just(None), Just(Some("acme")), Just(Some("other"))];
        let outcome = prop_oneof![Just("done"), Just("dns-failed")];
        let destination =
            prop_oneof![Just("a.example.com:443"), Just("a.example.com:80"), Just("[::1]:443"), Just("odd")];
        (0_u64..6, 0_u16..3, 0_u64..20, tenant, outcome, destination).prop_map(
            |(nth, hop, ended, tenant, outcome, destination)| Record {
                hop,
                ended_unix_ms: ended,
                tenant: tenant.map(|tenant| TenantId::parse(tenant).unwrap()),
                outcome: outcome.into(),
                destination: destination.into(),
                ..record(nth)
            },
        )
    }

    fn any_query() -> impl Strategy<Value = EgressQuery> {
        let whose = prop_oneof![
            Just(Whose::AllTenants),
            Just(Whose::Tenant(TenantId::parse("acme").unwrap())),
            Just(Whose::Tenant(TenantId::parse("nobody").unwrap())),
        ];
        let correlation = prop::option::of((0_u64..7).prop_map(|nth| record(nth).correlation));
        let outcome = prop::option::of(Just("done".to_owned()));
        let destination =
            prop_oneof![Just(None), Just(Some("A.example.com")), Just(Some("a.example.com:80")), Just(Some("::1"))];
        let times = (prop::option::of(0_u64..20), prop::option::of(0_u64..20));
        (whose, correlation, times, outcome, destination, 0_u32..12).prop_map(
            |(whose, correlation, (since, until), outcome, destination, limit)| EgressQuery {
                whose,
                correlation,
                since,
                until,
                outcome,
                destination: destination.map(str::to_owned),
                limit,
            },
        )
    }

    /// What a person who reads all records would pick.
    fn naive(all: &[Record], query: &EgressQuery) -> Vec<Record> {
        let picked = all.iter().rev().filter(|record| {
            let host = match query.destination.as_deref() {
                None => true,
                Some("A.example.com") => record.destination.starts_with("a.example.com:"),
                Some("::1") => record.destination.starts_with("[::1]:"),
                Some(exact) => *exact == *record.destination,
            };
            host && match &query.whose {
                Whose::AllTenants => true,
                Whose::Tenant(tenant) => record.tenant.as_ref() == Some(tenant),
            } && query.correlation.is_none_or(|id| id == record.correlation)
                && query.since.is_none_or(|since| record.ended_unix_ms >= since)
                && query.until.is_none_or(|until| record.ended_unix_ms < until)
                && query.outcome.as_deref().is_none_or(|outcome| outcome == &*record.outcome)
        });
        picked.take(query.limit as usize).cloned().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_query_finds_what_somebody_would_who_read_them_all(
            chunks in prop::collection::vec(prop::collection::vec(any_record(), 1..12), 1..6),
            queries in prop::collection::vec(any_query(), 12),
        ) {
            let settings = Settings {
                segment_bytes: 32 << 10,
                reserve_bytes: 0,
                storage: Arc::new(MemoryStorage::new()),
                ..Settings::new("/egress", Duration::from_hours(24), 1 << 30)
            };
            let (store, _) = RecordStore::open(&settings, ManualClock::at_unix_ms(1)).unwrap();
            for chunk in &chunks {
                let kept = chunk.iter().map(|record| kept(record).unwrap()).collect();
                prop_assert_eq!(store.append(kept).wait().lost, 0);
            }
            let all: Vec<Record> = chunks.into_iter().flatten().collect();
            for query in queries {
                let mut found = Vec::new();
                let mut take = |what| {
                    let Found::Record(record) = what else { return Err(()) };
                    found.push(*record);
                    Ok(())
                };
                records(&store, &query, &mut take).unwrap();
                prop_assert_eq!(found, naive(&all, &query), "{:?}", query);
            }
        }
    }

    #[test]
    fn a_query_says_whose_and_is_bounded() {
        let asked = |json: &str| serde_json::from_str::<EgressQuery>(json);
        let good = asked(
            r#"{"whose":{"tenant":"acme"},"correlation":"call_00000000000000000000000000","limit":10,"outcome":"done"}"#,
        );
        let good = good.unwrap();
        assert_eq!(asked(&serde_json::to_string(&good).unwrap()).unwrap(), good);
        let long = format!(r#"{{"whose":"allTenants","limit":1,"outcome":"{}"}}"#, "x".repeat(513));
        for bad in [
            r#"{"limit":1}"#,
            r#"{"whose":"allTenants"}"#,
            r#"{"whose":"allTenants","limit":10001}"#,
            r#"{"whose":"allTenants","limit":1,"correlation":"evt_1"}"#,
            r#"{"whose":"allTenants","limit":1,"tenant":"acme"}"#,
            &long,
        ] {
            assert!(asked(bad).is_err(), "{bad}");
        }
    }
}
