//! A record of an event: no bytes panic the decoder, and what it takes has exactly one form.
#![no_main]

use std::borrow::Cow;

use bytes::Bytes;
use domain::{EndpointId, TenantId};
use eventlog::codec::{decode_event, encode_head};
use eventlog::{DeliveryId, HeaderBlock, NewEvent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(view) = decode_event(data) else { return };
    let headers = HeaderBlock::from_encoded(Bytes::copy_from_slice(view.headers)).expect("the decoder checked them");
    let event = NewEvent {
        id: view.id,
        tenant: TenantId::parse(view.tenant).expect("the decoder checked it"),
        endpoint: EndpointId::parse(view.endpoint).expect("the decoder checked it"),
        retention: "default".into(),
        received_unix_ms: view.received_unix_ms,
        peer: view.peer,
        method: Cow::Owned(view.method.to_owned()),
        target: Bytes::copy_from_slice(view.target),
        headers,
        body: Bytes::copy_from_slice(view.body),
        scheme: view.scheme.into(),
        secret: view.secret.into(),
        delivery_id: view
            .delivery_id
            .map(|(value, signed)| DeliveryId { value: Bytes::copy_from_slice(value), signed }),
        class: view.class,
        signed_at_unix_ms: view.signed_at_unix_ms,
        public_url: view.public_url.into(),
    };
    let again = [&encode_head(&event, view.node).expect("its lengths fit")[..], view.body].concat();
    assert_eq!(again, data, "two forms of one event");
});
