//! An event for tests of what is printed.

use data_encoding::BASE64;
use domain::{EndpointId, EventId, NodeId, Slot, TenantId};

use crate::control::wire::{DeliveryId, EventLine, PlaceLine, Text};

pub(super) fn line() -> EventLine {
    let id = EventId::new(1_764_424_000_123, Slot(7), NodeId(1), [1, 2, 3, 4, 5, 6]);
    EventLine {
        id,
        execution_id: id.execution(),
        tenant: TenantId::parse("acme").unwrap(),
        endpoint: EndpointId::parse("wh_9f2c1b7a").unwrap(),
        received_at: "2025-11-29T13:46:40.123Z".to_owned(),
        place: Some(PlaceLine {
            node: 1,
            epoch: 3,
            sequence: 17,
            position: "default.0.0.3.4096".to_owned(),
            appended_at: "2025-11-29T13:46:40.125Z".to_owned(),
            class: "normal".to_owned(),
        }),
        held: None,
        method: "POST".to_owned(),
        target: Text::Plain("/hooks/wh_9f2c1b7a".to_owned()),
        peer: "127.0.0.1:5555".to_owned(),
        scheme: "github".to_owned(),
        secret: Some("primary".to_owned()),
        delivery_id: Some(DeliveryId { value: Text::of(b"\x1b[31mred"), signed: false }),
        signed_at: None,
        public_url: "https://hooks.example.com".to_owned(),
        headers: Some(vec![
            (Text::of(b"Content-Type"), Text::of(b"application/json")),
            (Text::of(b"Authorization"), Text::of(b"Bearer hunter2")),
            (Text::of(b"X-Odd"), Text::of(b"\x1b]0;title\x07\xff")),
        ]),
        body_bytes: 9,
        body: Some(BASE64.encode(b"{\"a\": 1}\n")),
    }
}
