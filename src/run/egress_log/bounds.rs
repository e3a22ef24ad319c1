//! No record is larger than a bound, whatever came from outside: each text of it is cut to what somebody recognises it by.

use egress::Record;

/// Bytes of a record as JSON.
#[cfg(test)]
pub(super) const RECORD_BYTES_MAX: usize = 10 << 10;

/// Bytes of each text, counted as JSON writes them. Together with lists, numbers and names they stay below the bound.
const SHORT: usize = 96;
const NAME: usize = 256;
const IDENTITY: usize = 384;
const DESTINATION: usize = 384;
const PATH: usize = 1024;
const DETAIL: usize = 768;
const RULES: usize = 8;
/// Of a provider's name for a request, which is a UUID or somewhat more; and as many as a connector may list.
const PROVIDER_ID: usize = 96;
const PROVIDER_IDS: usize = 8;
/// Addresses of an answer: more than any name has that is not an attack.
const ADDRESSES: usize = 32;

/// Cuts what is too long, and marks where it did.
pub(super) fn bounded(mut record: Record) -> Record {
    for (text, bytes_max) in [
        (&mut record.role, SHORT),
        (&mut record.identity, IDENTITY),
        (&mut record.run, NAME),
        (&mut record.automation, NAME),
        (&mut record.class, SHORT),
        (&mut record.path, PATH),
        (&mut record.rule, NAME),
    ] {
        if let Some(text) = text {
            cut(text, bytes_max);
        }
    }
    cut(&mut record.way, SHORT);
    cut(&mut record.method, SHORT);
    cut(&mut record.destination, DESTINATION);
    cut(&mut record.outcome, SHORT);
    cut(&mut record.detail, DETAIL);
    record.would_refuse.truncate(RULES);
    record.would_refuse.iter_mut().for_each(|rule| cut(rule, NAME));
    let ids = std::mem::take(&mut record.provider_ids).into_iter().take(PROVIDER_IDS);
    record.provider_ids = ids
        .map(|(mut name, mut id)| {
            cut(&mut name, SHORT);
            cut(&mut id, PROVIDER_ID);
            (name, id)
        })
        .collect();
    record.answer.truncate(ADDRESSES);
    record
}

fn cut(text: &mut Box<str>, bytes_max: usize) {
    // Nearly always: nothing in JSON is longer than six times what it says.
    if text.len() <= bytes_max / 6 {
        return;
    }
    let mut bytes = 0;
    let long = text.char_indices().find(|(_, c)| {
        bytes += json_bytes(*c);
        bytes > bytes_max
    });
    if let Some((at, _)) = long {
        *text = format!("{}…", &text[..at]).into();
    }
}

/// What a character takes at most in JSON.
fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' => 2,
        c if c.is_control() => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::record;
    use super::*;
    use domain::{ConnectionId, ConnectorId, TenantId};

    #[test]
    fn no_record_is_larger_than_the_bound() {
        let name = "n".repeat(64);
        for text in ["\u{1}", "\"", "ü", "\u{10ffff}", "x"] {
            let long = || Box::<str>::from(text.repeat(20_000));
            let record = bounded(Record {
                tenant: Some(TenantId::parse(&name).unwrap()),
                connection: Some(ConnectionId::parse(&name).unwrap()),
                connector: Some(ConnectorId::parse(&name).unwrap()),
                role: Some(long()),
                identity: Some(long()),
                run: Some(long()),
                automation: Some(long()),
                class: Some(long()),
                way: long(),
                method: long(),
                destination: long(),
                path: Some(long()),
                rule: Some(long()),
                would_refuse: vec![long(); 100],
                provider_ids: (0..9).map(|nth| (format!("{nth}{}", long()).into(), long())).collect(),
                answer: vec!["2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(); 1000],
                address: Some("[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap()),
                exit: Some("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()),
                sent_bytes: u64::MAX,
                received_bytes: u64::MAX,
                ended_unix_ms: u64::MAX,
                outcome: long(),
                detail: long(),
                ..record(1)
            });
            let bytes = serde_json::to_vec(&record).unwrap().len();
            assert!(bytes > RECORD_BYTES_MAX / 2 && bytes <= RECORD_BYTES_MAX, "{text:?}: {bytes}");
        }
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        assert_eq!(bounded(record(1)), record(1));
        let mut text = Box::<str>::from("x".repeat(SHORT));
        cut(&mut text, SHORT);
        assert_eq!(text.len(), SHORT);
        text = Box::<str>::from("x".repeat(SHORT + 1));
        cut(&mut text, SHORT);
        assert_eq!(&*text, format!("{}…", "x".repeat(SHORT)));
    }
}
