//! A request to the proxy, from its bytes to what may travel of it: both readers of its destination, the gate's and the
//! vetting's, see one place or one of them refuses; and nothing of the connection, of the caller's proof or of ours goes on.
#![no_main]

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use domain::Refusal;
use egress::forward::headers::{Names, clean_request, gather};
use egress::{Asked, Way};
use http::Method;
use libfuzzer_sys::fuzz_target;
use listen::{Answer, Behaviour, Exchange, Form, Forms, Handler, Reply, testing};
use outbound::{Authority, Scheme, Target};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

struct Nobody;

#[async_trait]
impl Handler for Nobody {
    async fn handle(&self, _: &mut Exchange) -> Reply {
        Answer::new(500).into()
    }

    fn refused(&self, _: SocketAddr, _: Refusal) -> Answer {
        Answer::new(400)
    }
}

fuzz_target!(|data: &[u8]| {
    let behaviour = Behaviour { forms: Forms::Proxy, ..Behaviour::default() };
    // What is no whole head would be waited for.
    if !data.windows(4).any(|four| four == b"\r\n\r\n") || data.len() > 16 << 10 {
        return;
    }
    RUNTIME.block_on(async {
        let began = testing::exchange_of(behaviour, data, testing::peer(), Arc::new(Nobody)).await;
        if let Ok((exchange, _client)) = began {
            judge(&exchange);
        }
    });
});

fn judge(exchange: &Exchange) {
    let head = exchange.head();
    let Ok(method) = Method::from_bytes(head.method().as_bytes()) else { panic!("the gate lets through no method") };
    let asked = match head.form() {
        Form::Authority => {
            let Ok(authority) = Authority::with_port(head.authority().unwrap_or_default()) else { return };
            Asked { way: Way::Connect, method, scheme: Scheme::Https, authority, path_and_query: "".into() }
        }
        Form::Http | Form::Https => {
            let Ok(Target { scheme, authority, .. }) = Target::parse(head.target()) else { return };
            let again = Authority::or_port(head.authority().expect("it has one"), scheme.default_port());
            assert_eq!(again.as_ref(), Ok(&authority), "two readings of {:?}", head.target());
            assert_eq!(head.scheme(), Some(scheme.as_str()));
            let origin = head.origin();
            assert!(origin.starts_with('/') || &*origin == "*", "{origin}");
            Asked { way: Way::Absolute, method, scheme, authority, path_and_query: origin.into() }
        }
        Form::Origin => return,
    };
    let Ok(headers) = gather(head.headers()) else { return };
    let names = Names::new("tidegate", None).expect("a name");
    let Ok(cleaned) = clean_request(headers, &asked, &names) else { return };
    for name in cleaned.headers.keys().map(http::HeaderName::as_str) {
        let stays = ["host", "connection", "te", "trailer", "transfer-encoding", "content-length", "upgrade", "keep-alive"];
        assert!(!stays.contains(&name) && !name.starts_with("proxy-") && !name.starts_with("tidegate-"), "{name}");
    }
    let again = clean_request(cleaned.headers.clone(), &asked, &names).expect("what is clean is clean");
    assert_eq!(again.headers, cleaned.headers);
}
