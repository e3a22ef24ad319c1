//! The codec against arbitrary events and arbitrary bytes.

use std::borrow::Cow;

use bytes::Bytes;
use domain::{EndpointId, TenantId};
use proptest::prelude::*;

use super::*;
use crate::event::DeliveryId;
use crate::headers::HeaderBlock;

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn headers() -> impl Strategy<Value = HeaderBlock> {
    proptest::collection::vec((bytes(20), bytes(40)), 0..8).prop_map(|fields| {
        let mut builder = HeaderBlock::with_capacity(0);
        for (name, value) in fields {
            builder.push(&name, &value).unwrap();
        }
        builder.finish()
    })
}

fn peer() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::from((ip, port))),
        (any::<[u8; 16]>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::from((ip, port))),
    ]
}

prop_compose! {
    fn event()(
        (id, tenant, endpoint) in (any::<[u8; 16]>(), "[a-z0-9][a-zA-Z0-9_-]{0,63}", "wh_[a-z0-9]{1,20}"),
        (received_unix_ms, signed_at_unix_ms, peer) in (any::<u64>(), any::<Option<u64>>(), peer()),
        (method, scheme, secret, public_url) in ("[A-Z]{0,9}", ".{0,40}", ".{0,40}", ".{0,80}"),
        (target, headers, body) in (bytes(100), headers(), bytes(300)),
        delivery_id in proptest::option::of((bytes(50), any::<bool>())),
        bulk: bool,
    ) -> NewEvent {
        NewEvent {
            id: EventId::from_bytes(id),
            tenant: TenantId::parse(&tenant).unwrap(),
            endpoint: EndpointId::parse(&endpoint).unwrap(),
            retention: "default".into(),
            received_unix_ms,
            peer,
            method: Cow::Owned(method),
            target,
            headers,
            body,
            scheme: scheme.into(),
            secret: secret.into(),
            delivery_id: delivery_id.map(|(value, signed)| DeliveryId { value, signed }),
            class: if bulk { Class::Bulk } else { Class::Normal },
            signed_at_unix_ms,
            public_url: public_url.into(),
        }
    }
}

fn record(event: &NewEvent) -> Vec<u8> {
    let mut record = encode_head(event, NodeId(7)).unwrap();
    record.extend_from_slice(&event.body);
    record
}

proptest! {
    #[test]
    fn every_event_round_trips(event in event()) {
        let record = record(&event);
        let view = decode_event(&record).unwrap();
        prop_assert_eq!(view.id, event.id);
        prop_assert_eq!(view.tenant, event.tenant.as_str());
        prop_assert_eq!(view.endpoint, event.endpoint.as_str());
        prop_assert_eq!(view.received_unix_ms, event.received_unix_ms);
        prop_assert_eq!(view.signed_at_unix_ms, event.signed_at_unix_ms);
        prop_assert_eq!(view.peer, event.peer);
        prop_assert_eq!(view.method, event.method.as_ref());
        prop_assert_eq!(view.scheme, event.scheme.as_ref());
        prop_assert_eq!(view.secret, event.secret.as_ref());
        prop_assert_eq!(view.public_url, event.public_url.as_ref());
        prop_assert_eq!(view.delivery_id, event.delivery_id.as_ref().map(|id| (id.value.as_ref(), id.signed)));
        prop_assert_eq!(view.target, event.target.as_ref());
        prop_assert_eq!(view.headers, event.headers.encoded());
        prop_assert_eq!(view.body, event.body.as_ref());
        prop_assert_eq!(view.class, event.class);
        prop_assert_eq!((view.node, view.key_id), (NodeId(7), 0));
        let key = decode_key(&record).unwrap();
        prop_assert_eq!((key.id, key.received_unix_ms), (view.id, view.received_unix_ms));
        prop_assert_eq!((key.tenant, key.endpoint), (view.tenant, view.endpoint));
    }

    #[test]
    fn the_head_allocates_once(event in event()) {
        let head = encode_head(&event, NodeId(7)).unwrap();
        prop_assert_eq!(head.len(), capacity(&event));
    }

    #[test]
    fn any_bytes_are_an_event_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_event(&bytes).ok();
        decode_key(&bytes).ok();
    }

    /// Bytes near real ones reach every branch that plain noise does not.
    #[test]
    fn damaged_events_never_panic(event in event(), at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let mut record = record(&event);
        let at = at.index(record.len());
        record[at] = to;
        if decode_event(&record).is_ok() {
            prop_assert!(decode_key(&record).is_ok());
        }
        let cut = cut.index(record.len());
        prop_assert!(decode_event(&record[..cut]).is_err());
    }

    /// What decodes has one form only: no two byte strings are the same event.
    #[test]
    fn what_decodes_encodes_to_the_same_bytes(event in event(), at: prop::sample::Index, to: u8) {
        let mut bytes = record(&event);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(view) = decode_event(&bytes) {
            let again = NewEvent {
                id: view.id,
                tenant: TenantId::parse(view.tenant).unwrap(),
                endpoint: EndpointId::parse(view.endpoint).unwrap(),
                retention: "default".into(),
                received_unix_ms: view.received_unix_ms,
                peer: view.peer,
                method: Cow::Owned(view.method.to_owned()),
                target: Bytes::copy_from_slice(view.target),
                headers: HeaderBlock::from_encoded(Bytes::copy_from_slice(view.headers)).unwrap(),
                body: Bytes::copy_from_slice(view.body),
                scheme: view.scheme.into(),
                secret: view.secret.into(),
                delivery_id: view.delivery_id.map(|(value, signed)| DeliveryId { value: Bytes::copy_from_slice(value), signed }),
                class: view.class,
                signed_at_unix_ms: view.signed_at_unix_ms,
                public_url: view.public_url.into(),
            };
            let mut encoded = encode_head(&again, view.node).unwrap();
            encoded.extend_from_slice(&again.body);
            prop_assert_eq!(encoded, bytes);
        }
    }
}

/// The bytes themselves, so that a change of the format cannot pass unseen.
#[test]
fn the_format_is_what_the_document_says() {
    let mut builder = HeaderBlock::with_capacity(0);
    builder.push(b"A", b"bc").unwrap();
    let event = NewEvent {
        id: EventId::from_bytes(*b"0123456789abcdef"),
        tenant: TenantId::parse("acme").unwrap(),
        endpoint: EndpointId::parse("wh_1").unwrap(),
        retention: "default".into(),
        received_unix_ms: 0x0102,
        peer: SocketAddr::from(([192, 0, 2, 1], 0x1234)),
        method: Cow::Borrowed("POST"),
        target: Bytes::from_static(b"/h"),
        headers: builder.finish(),
        body: Bytes::from_static(b"{}"),
        scheme: "gh".into(),
        secret: "p".into(),
        delivery_id: Some(DeliveryId { value: Bytes::from_static(b"d1"), signed: true }),
        class: Class::Bulk,
        signed_at_unix_ms: Some(3),
        public_url: "https://x".into(),
    };
    let mut expected = Vec::new();
    expected.extend_from_slice(&[1, 1 | 2 | 4 | 8, 0, 0, 0, 0]);
    expected.extend_from_slice(b"0123456789abcdef");
    expected.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[7, 0, 0x34, 0x12]);
    expected.extend_from_slice(&[192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[120, 0, 0, 0, 2, 0, 0, 0]);
    expected.extend_from_slice(b"\x04acme\x04wh_1\x04POST\x02gh\x01p\x09\0https://x\x02\0d1");
    expected.extend_from_slice(b"\x02\0\0\0/h\x09\0\0\0\x01\0\x02\0\0\0Abc{}");
    assert_eq!(record(&event), expected);
}

#[test]
fn what_this_version_does_not_know_is_refused() {
    let plain = {
        let mut bytes = vec![0; FIXED_BYTES];
        bytes[0] = FORMAT_VERSION;
        bytes
    };
    let with = |at: usize, to: u8| {
        let mut bytes = plain.clone();
        bytes[at] = to;
        bytes
    };
    assert_eq!(decode_event(&with(0, 2)), Err(DecodeError::Version(2)));
    assert_eq!(decode_event(&with(1, 0x20)), Err(DecodeError::Flags(0x20)));
    assert_eq!(decode_event(&with(1, DELIVERY_ID_SIGNED)), Err(DecodeError::Flags(DELIVERY_ID_SIGNED)));
    assert_eq!(decode_event(&with(2, 9)), Err(DecodeError::Sealed(9)));
    assert_eq!(decode_event(&plain), Err(DecodeError::Truncated { field: "tenant" }));
    assert_eq!(decode_event(&[]), Err(DecodeError::Truncated { field: "format version" }));
}

#[test]
fn a_field_that_does_not_fit_is_refused() {
    let event = NewEvent {
        id: EventId::from_bytes([0; 16]),
        tenant: TenantId::parse("acme").unwrap(),
        endpoint: EndpointId::parse("wh_1").unwrap(),
        retention: "default".into(),
        received_unix_ms: 0,
        peer: SocketAddr::from(([192, 0, 2, 1], 1)),
        method: Cow::Owned("X".repeat(256)),
        target: Bytes::new(),
        headers: HeaderBlock::default(),
        body: Bytes::new(),
        scheme: "gh".into(),
        secret: "p".into(),
        delivery_id: None,
        class: Class::Normal,
        signed_at_unix_ms: None,
        public_url: "".into(),
    };
    let fault = encode_head(&event, NodeId(1)).unwrap_err();
    assert_eq!((fault.field, fault.bytes, fault.bytes_max), ("method", 256, 255));
}
