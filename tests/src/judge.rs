//! Compares what senders were told with what the log holds. The law: every acknowledged delivery is there exactly
//! once, byte for byte, in the order in which its connection sent it; nothing is there that nobody sent; sequences
//! of an endpoint have no holes.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::appliance::Node;
use crate::events::Event;
use crate::load::{Key, Ledger, Outcome};
use crate::sender::Sender;

/// One breach of the law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// Acknowledged and not there.
    Lost { key: Key, id: String },
    /// There more than once.
    Twice { key: Key },
    /// There, and nobody sent it.
    Foreign { id: String },
    /// Its body, its headers, its target or its endpoint are not what was sent.
    Altered { key: Key, what: &'static str },
    /// Acknowledged under one id and stored under another.
    Renamed { key: Key },
    /// Behind a later delivery of the same connection.
    OutOfOrder { key: Key },
    /// The endpoint's sequence has a hole here, or runs backwards.
    Sequence { endpoint: String, id: String },
    /// Refused for good, and stored all the same.
    RefusedAndStored { key: Key, status: u16 },
}

/// All breaches; none is the wish.
pub fn judge(ledger: &Ledger, senders: &[(String, Sender)], events: &[Event]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut ids = HashSet::new();
    let mut stored: HashMap<Key, &str> = HashMap::new();
    let mut latest: HashMap<u64, u64> = HashMap::new();
    let mut sequences: HashMap<&str, (u64, u64)> = HashMap::new();
    for event in events {
        // Dense from 1 in every epoch, and epochs only grow.
        let due = match sequences.insert(&event.endpoint, (event.epoch, event.sequence)) {
            Some((epoch, sequence)) if epoch == event.epoch => sequence + 1,
            Some((epoch, _)) if epoch > event.epoch => 0,
            _ => 1,
        };
        if event.sequence != due {
            breaches.push(Breach::Sequence { endpoint: event.endpoint.clone(), id: event.id.clone() });
        }
        let known = Key::of_body(&event.body).filter(|key| ledger.attempts.contains_key(key));
        let Some(key) = known else {
            breaches.push(Breach::Foreign { id: event.id.clone() });
            continue;
        };
        if !ids.insert(&event.id) || stored.insert(key, &event.id).is_some() {
            breaches.push(Breach::Twice { key });
            continue;
        }
        if latest.insert(key.connection, key.number).is_some_and(|before| before > key.number) {
            breaches.push(Breach::OutOfOrder { key });
        }
        breaches.extend(altered(ledger, senders, key, event));
    }
    for (key, attempt) in &ledger.attempts {
        match (&attempt.outcome, stored.get(key)) {
            (Outcome::Acknowledged(id), None) => breaches.push(Breach::Lost { key: *key, id: id.clone() }),
            (Outcome::Acknowledged(id), Some(other)) if id != other => breaches.push(Breach::Renamed { key: *key }),
            // A 503 does not promise that the event is absent.
            (Outcome::Refused(status), Some(_)) if *status != 503 => {
                breaches.push(Breach::RefusedAndStored { key: *key, status: *status });
            }
            _ => {}
        }
    }
    breaches
}

fn altered(ledger: &Ledger, senders: &[(String, Sender)], key: Key, event: &Event) -> Option<Breach> {
    let endpoint = &ledger.attempts[&key].endpoint;
    let (_, sender) = senders.iter().find(|(id, _)| id == endpoint).expect("an endpoint of this load");
    let request = key.request(ledger.seed, sender);
    let what = if event.endpoint != *endpoint {
        "endpoint"
    } else if event.json["target"] != *sender.target {
        "target"
    } else if event.body != request.body {
        "body"
    } else if event.headers != request.wire_headers() {
        "headers"
    } else {
        return None;
    };
    Some(Breach::Altered { key, what })
}

/// How many acknowledged deliveries are not there. A log that cannot be read has lost them all.
pub fn lost(ledger: &Ledger, node: &Node) -> usize {
    let ids: BTreeSet<&str> = ledger.attempts.values().map(|attempt| attempt.endpoint.as_str()).collect();
    let senders: Vec<_> = ids.into_iter().map(|id| (id.to_owned(), node.sender(id))).collect();
    let breaches = judge(ledger, &senders, &node.try_export().unwrap_or_default());
    breaches.iter().filter(|breach| matches!(breach, Breach::Lost { .. })).count()
}

/// Fails with the first few breaches.
pub fn assert_lawful(ledger: &Ledger, senders: &[(String, Sender)], events: &[Event]) {
    let breaches = judge(ledger, senders, events);
    let few = &breaches[..breaches.len().min(5)];
    assert!(breaches.is_empty(), "{} breaches in {} events, first: {few:#?}", breaches.len(), events.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Attempt;

    fn senders() -> Vec<(String, Sender)> {
        let sender = Sender {
            to: ([127, 0, 0, 1], 1).into(),
            from: None,
            host: "h".into(),
            target: "/hooks/wh_1".into(),
            secret: "s".into(),
        };
        vec![("wh_1".to_owned(), sender)]
    }

    fn event(ledger: &Ledger, key: Key, sequence: u64) -> Event {
        let request = key.request(ledger.seed, &senders()[0].1);
        Event {
            id: format!("evt_{key}"),
            execution_id: format!("ex_{key}"),
            tenant: "acme".into(),
            endpoint: "wh_1".into(),
            epoch: 1,
            sequence,
            headers: request.wire_headers(),
            body: request.body,
            json: serde_json::json!({"target": "/hooks/wh_1"}),
        }
    }

    /// Three acknowledged deliveries of one connection, and the events that a lawful log holds of them.
    fn lawful() -> (Ledger, Vec<Event>) {
        let mut ledger = Ledger::seeded(7);
        let keys: Vec<_> = (0..3).map(|number| Key { connection: 0, number }).collect();
        for key in &keys {
            let outcome = Outcome::Acknowledged(format!("evt_{key}"));
            ledger.attempts.insert(*key, Attempt { endpoint: "wh_1".into(), outcome });
        }
        let events = keys.iter().zip(1..).map(|(key, sequence)| event(&ledger, *key, sequence)).collect();
        (ledger, events)
    }

    #[test]
    fn a_lawful_log_passes() {
        let (ledger, events) = lawful();
        assert_eq!(judge(&ledger, &senders(), &events), []);
    }

    #[test]
    fn each_breach_is_seen() {
        let key = |number| Key { connection: 0, number };
        let (mut ledger, events) = lawful();
        let judged = |ledger: &Ledger, events: &[Event]| judge(ledger, &senders(), events);

        let lost = Breach::Lost { key: key(2), id: "evt_0-2".into() };
        assert_eq!(judged(&ledger, &events[..2]), [lost]);

        let mut twice = events.clone();
        twice.push(Event { sequence: 4, ..events[2].clone() });
        assert_eq!(judged(&ledger, &twice), [Breach::Twice { key: key(2) }]);

        let mut swapped = events.clone();
        swapped.swap(1, 2);
        (swapped[1].sequence, swapped[2].sequence) = (2, 3);
        assert_eq!(judged(&ledger, &swapped), [Breach::OutOfOrder { key: key(1) }]);

        let mut hole = events.clone();
        hole[2].sequence = 5;
        assert!(matches!(judged(&ledger, &hole)[..], [Breach::Sequence { .. }]));

        let mut flipped = events.clone();
        *flipped[1].body.last_mut().unwrap() ^= 1;
        assert_eq!(judged(&ledger, &flipped), [Breach::Altered { key: key(1), what: "body" }]);

        let mut reordered = events.clone();
        reordered[1].headers.swap(0, 1);
        assert_eq!(judged(&ledger, &reordered), [Breach::Altered { key: key(1), what: "headers" }]);

        ledger.attempts.get_mut(&key(2)).unwrap().outcome = Outcome::Refused(401);
        assert_eq!(judged(&ledger, &events), [Breach::RefusedAndStored { key: key(2), status: 401 }]);

        ledger.attempts.remove(&key(2));
        assert_eq!(judged(&ledger, &events), [Breach::Foreign { id: "evt_0-2".into() }]);
    }
}
