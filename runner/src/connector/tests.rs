//! Requests that actions make of inputs.

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use config::connector::{Catalogue, Manifest};
use domain::{ConnectionId, TenantId};
use http::HeaderMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

static SHIPPED: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::shipped().unwrap());

fn shipped(name: &str) -> Arc<Manifest> {
    Arc::clone(SHIPPED.manifests().find(|manifest| manifest.connector.as_str() == name).unwrap())
}

fn action(connector: &str, name: &str) -> ManifestAction {
    ManifestAction::new(&shipped(connector), name).unwrap().unwrap()
}

fn effect() -> EffectKey {
    EffectKey::from_bytes([0xab; 16])
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn header_of<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.to_str().unwrap())
}

#[track_caller]
fn refused(result: Result<Request, InputFault>, words: &str) {
    let fault = result.unwrap_err();
    assert!(fault.0.contains(words), "{fault}");
}

#[test]
fn every_shipped_action_compiles() {
    let catalogue = Catalogue::shipped().unwrap();
    let mut seen = 0;
    for manifest in catalogue.manifests() {
        for spec in &manifest.actions {
            let action = ManifestAction::new(manifest, &spec.name).unwrap();
            assert!(action.is_ok(), "{} {}: {action:?}", manifest.connector, spec.name);
            seen += 1;
        }
    }
    assert!(seen >= 100, "{seen}");
}

#[test]
fn a_form_is_nested_and_has_the_effects_key() {
    let stripe = action("stripe", "create_payment_intent");
    let input = json!({ "amount": 500, "currency": "eur", "metadata": { "order id": "6&7" }, "payment_method_types": ["card"] });
    let request = stripe.request(&input, effect()).unwrap();
    assert_eq!((request.method.as_str(), &*request.target), ("POST", "/v1/payment_intents"));
    assert_eq!(
        request.body,
        "amount=500&currency=eur&metadata[order%20id]=6%267&payment_method_types[0]=card".as_bytes()
    );
    assert_eq!(header_of(&request, "content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(header_of(&request, "idempotency-key"), Some(effect().to_string().as_str()));
    assert_eq!(stripe.safety(&input), ReplaySafety::Idempotent);
    assert_eq!(stripe.remembered_for(&input).unwrap().as_secs(), 24 * 3_600);
    let read = action("stripe", "get_customer");
    let request = read.request(&json!({ "customer": "cus_1" }), effect()).unwrap();
    assert_eq!((&*request.target, header_of(&request, "idempotency-key")), ("/v1/customers/cus_1", None));
    assert!(request.body.is_empty() && read.remembered_for(&json!({})).is_none() && !read.is_effectful(&json!({})));
}

#[test]
fn lists_of_a_repeated_form_repeat_their_name() {
    let input = json!({ "account": "AC1", "To": "+1", "Body": "ä b", "MediaUrl": ["https://a/1", "https://a/2"] });
    let request = action("twilio", "send_message").request(&input, effect()).unwrap();
    assert_eq!(&*request.target, "/2010-04-01/Accounts/AC1/Messages.json");
    assert_eq!(
        request.body,
        "Body=%C3%A4%20b&MediaUrl=https%3A%2F%2Fa%2F1&MediaUrl=https%3A%2F%2Fa%2F2&To=%2B1".as_bytes()
    );
    assert_eq!(action("twilio", "send_message").safety(&input), ReplaySafety::Unsafe);
}

#[test]
fn members_go_where_the_manifest_says() {
    let input = json!({ "base": "app1", "table": "My Table", "view": "Grid/1", "pageSize": 5, "offset": null });
    let request = action("airtable", "list_records").request(&input, effect()).unwrap();
    assert_eq!(&*request.target, "/v0/app1/My%20Table?pageSize=5&view=Grid%2F1");
    let input = json!({ "tenant": "org-1", "Contacts": [{ "Name": "A" }], "summarizeErrors": false });
    let request =
        action("xero", "create_invoice").request(&json!({ "tenant": "org-1", "Invoices": [{}] }), effect()).unwrap();
    assert_eq!(header_of(&request, "xero-tenant-id"), Some("org-1"));
    assert_eq!(body(&request), json!({ "Invoices": [{}] }));
    assert!(header_of(&request, "idempotency-key").is_some());
    let request = action("xero", "upsert_contact").request(&input, effect()).unwrap();
    // What stands nowhere else is the body's, whatever the schema says of it.
    assert_eq!(body(&request), json!({ "Contacts": [{ "Name": "A" }], "summarizeErrors": false }));
    let request =
        action("zendesk", "create_ticket").request(&json!({ "comment": { "body": "x" }, "tags": ["a"] }), effect());
    assert_eq!(body(&request.unwrap()), json!({ "ticket": { "comment": { "body": "x" }, "tags": ["a"] } }));
    let request =
        action("quickbooks", "create_customer").request(&json!({ "realm": "1", "DisplayName": "A" }), effect());
    assert_eq!(&*request.unwrap().target, format!("/v3/company/1/customer?requestid={}", effect()));
    let request = action("klaviyo", "create_event")
        .request(&json!({ "metric": "M", "profile": { "email": "a@b.c" }, "properties": {} }), effect())
        .unwrap();
    assert_eq!(header_of(&request, "content-type"), Some("application/vnd.api+json"));
    assert_eq!(body(&request)["data"]["attributes"]["unique_id"], effect().to_string());
    assert!(body(&request)["data"]["attributes"].get("value").is_none());
    let request =
        action("exact-online", "get_account").request(&json!({ "division": 7, "account": "0-1" }), effect()).unwrap();
    assert_eq!(&*request.target, "/api/v1/7/crm/Accounts(guid'0-1')");
}

#[test]
fn an_input_that_does_not_fit_names_its_field_and_not_its_value() {
    let stripe = action("stripe", "create_payment_intent");
    refused(stripe.request(&json!({ "currency": "eur" }), effect()), "amount");
    let fault = stripe.request(&json!({ "amount": "secret words", "currency": "eur" }), effect()).unwrap_err();
    assert!(fault.0.contains("amount") && !fault.0.contains("secret words"), "{fault}");
    refused(stripe.request(&json!([]), effect()), "object");
    let read = action("stripe", "get_customer");
    refused(read.request(&json!({ "customer": "c", "limit\u{1b}[31m": 1 }), effect()), "limit\\u{1b}[31m is no field");
    refused(read.request(&json!({ "customer": "" }), effect()), "customer");
}

#[test]
fn nothing_in_a_path_leads_elsewhere() {
    let read = action("stripe", "get_customer");
    for (value, words) in [
        ("..", "`.` or `..`"),
        (".", "`.` or `..`"),
        ("a/b", "slash"),
        ("../../v1/accounts", "slash"),
        ("a\\b", "backslash"),
        ("a\nb", "control"),
        ("%2e%2e", "percent-encoded already"),
        ("a%2Fb", "percent-encoded already"),
    ] {
        refused(read.request(&json!({ "customer": value }), effect()), words);
    }
    for (value, target) in [
        ("a?b#c", "/v1/customers/a%3Fb%23c"),
        ("..;x", "/v1/customers/..%3Bx"),
        ("100%", "/v1/customers/100%25"),
        ("é", "/v1/customers/%C3%A9"),
        ("a b@c", "/v1/customers/a%20b%40c"),
    ] {
        assert_eq!(&*read.request(&json!({ "customer": value }), effect()).unwrap().target, target);
    }
}

#[test]
fn a_checkable_action_is_asked_for_by_its_effect() {
    let event = action("google", "create_event");
    let input = json!({ "calendar": "a@b.c", "start": { "date": "2026-12-01" }, "end": { "date": "2026-12-02" }, "summary": "S" });
    let request = event.request(&input, effect()).unwrap();
    assert_eq!(&*request.target, "/calendar/v3/calendars/a%40b.c/events");
    assert_eq!(body(&request)["id"], "ab".repeat(16));
    assert_eq!(event.safety(&input), ReplaySafety::Checkable);
    let asked = event.read_back(&input, effect()).unwrap().unwrap();
    assert_eq!(
        (asked.method.as_str(), &*asked.target),
        ("GET", format!("/calendar/v3/calendars/a%40b.c/events/{}", "ab".repeat(16)).as_str())
    );
    let judge = |status, body: Value| {
        event.judge_read_back(&input, effect(), status, &HeaderMap::new(), &body.to_string().into())
    };
    assert_eq!(judge(200, json!({ "id": "ab".repeat(16) })), ReadBack::Happened(json!({ "id": "ab".repeat(16) })));
    assert_eq!(judge(404, json!({ "error": { "code": 404 } })), ReadBack::NotHappened);
    for (status, body) in
        [(200, json!({ "id": "other" })), (200, json!({})), (401, json!({})), (503, json!({})), (429, json!({}))]
    {
        assert_eq!(judge(status, body), ReadBack::Unknown);
    }

    let issue = action("linear", "create_issue");
    let input = json!({ "teamId": "t", "title": "T" });
    let id = "abababab-abab-4bab-abab-abababababab";
    assert_eq!(
        body(&issue.request(&input, effect()).unwrap())["variables"]["input"],
        json!({ "id": id, "teamId": "t", "title": "T" })
    );
    let judge =
        |body: &str| issue.judge_read_back(&input, effect(), 200, &HeaderMap::new(), &Bytes::from(body.to_owned()));
    let found = format!("{{\"data\":{{\"issues\":{{\"nodes\":[{{\"id\":\"{id}\"}}]}}}}}}");
    assert_eq!(judge(&found), ReadBack::Happened(json!({ "id": id })));
    assert_eq!(judge("{\"data\":{\"issues\":{\"nodes\":[]}}}"), ReadBack::NotHappened);
    // What is an error, cut, or no JSON says nothing.
    for unclear in
        ["{\"data\":null,\"errors\":[{\"message\":\"internal\"}]}", "{\"data\":{\"issues\":{\"no", "", "<html>"]
    {
        assert_eq!(judge(unclear), ReadBack::Unknown, "{unclear}");
    }
}

#[test]
fn the_output_is_what_the_manifest_names() {
    let ticket = action("zendesk", "get_ticket");
    let judge = |body: &str| ticket.judge(200, &HeaderMap::new(), &Bytes::from(body.to_owned()));
    assert_eq!(judge("{\"ticket\":{\"id\":7}}"), Verdict::Done(json!({ "id": 7 })));
    assert_eq!(judge("{\"other\":1}"), Verdict::Done(json!({ "other": 1 })));
    assert_eq!(judge(""), Verdict::Done(Value::Null));
    let binary = ticket.judge(200, &HeaderMap::new(), &Bytes::from_static(&[0xff, 0xfe, 0]));
    assert_eq!(binary, Verdict::Done(json!({ "base64": "//4A", "bytes": 3 })));
}

/// Of slack a success may be a failure, by its body; of github one of status 200 may be; of zendesk none.
#[test]
fn what_is_cut_is_judged_by_what_is_there() {
    let json: HeaderMap = [(http::header::CONTENT_TYPE, "application/json".parse().unwrap())].into_iter().collect();
    let class = |connector: &str, name: &str, status: u16, headers: &HeaderMap, body: &'static str| {
        action(connector, name).judge_cut(status, headers, &Bytes::from_static(body.as_bytes())).map(|(class, _)| class)
    };
    let none = HeaderMap::new();
    let unread = Some(FailureClass::AnswerTooLarge);
    assert_eq!(class("slack", "post_message", 200, &json, "{\"ok\":true,"), unread);
    assert_eq!(class("slack", "post_message", 200, &none, " [{"), unread);
    assert_eq!(class("slack", "post_message", 200, &none, "a,b\nc,d"), None, "no JSON: no rule is about it");
    assert_eq!(class("slack", "post_message", 500, &json, "{\"ok\":"), Some(FailureClass::ProviderUnavailable));
    assert_eq!(class("zendesk", "get_ticket", 200, &json, "{\"ticket\":"), None);
    assert_eq!(class("zendesk", "get_ticket", 404, &json, "{\"error\":"), Some(FailureClass::NotFound));
    let (_, words) = action("zendesk", "get_ticket").judge_cut(404, &none, &Bytes::from_static(b"nobody\xc3")).unwrap();
    assert!(words.is_some_and(|words| words.starts_with("nobody")));
}

mod http_request {
    use super::*;

    fn of(connector: &str) -> HttpRequest {
        HttpRequest::new(shipped(connector))
    }

    #[test]
    fn it_is_as_safe_as_its_method_or_its_connectors_header() {
        let (http, stripe, zendesk) = (of("http"), of("stripe"), of("zendesk"));
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
            assert_eq!(http.safety(&json!({ "method": method, "path": "/x" })), ReplaySafety::Idempotent, "{method}");
        }
        assert_eq!(http.safety(&json!({ "path": "/x" })), ReplaySafety::Idempotent);
        for method in ["POST", "PATCH", "TRACE", "get", "${m}", ""] {
            assert_eq!(http.safety(&json!({ "method": method, "path": "/x" })), ReplaySafety::Unsafe, "{method}");
        }
        for odd in [json!(null), json!([]), json!({ "method": 7 }), json!({ "method": "POST" })] {
            let expected =
                if odd == json!(null) || odd == json!([]) { ReplaySafety::Idempotent } else { ReplaySafety::Unsafe };
            assert_eq!(http.safety(&odd), expected, "{odd}");
        }
        let post = |path: Value| json!({ "method": "POST", "path": path });
        assert_eq!(stripe.safety(&post(json!("/v1/charges?expand[]=customer"))), ReplaySafety::Idempotent);
        assert_eq!(stripe.remembered_for(&post(json!("/v1/charges"))).unwrap().as_secs(), 86_400);
        assert_eq!(zendesk.safety(&post(json!("/api/v2/tickets"))), ReplaySafety::Idempotent);
        assert_eq!(zendesk.safety(&post(json!(["api", "v2", "tickets"]))), ReplaySafety::Idempotent);
        assert_eq!(zendesk.safety(&post(json!("/api/v2/users"))), ReplaySafety::Unsafe);
        assert_eq!(zendesk.safety(&post(json!(["api", "v2", "tickets", "1"]))), ReplaySafety::Unsafe);
        let request = stripe.request(&post(json!("/v1/charges")), effect()).unwrap();
        assert_eq!(header_of(&request, "idempotency-key"), Some(effect().to_string().as_str()));
        let request = zendesk.request(&post(json!("/api/v2/users")), effect()).unwrap();
        assert_eq!(header_of(&request, "idempotency-key"), None);
    }

    /// Some providers do twice what RFC 9110 calls idempotent, and some take another method than the request's own.
    #[test]
    fn what_a_provider_is_known_to_do_twice_is_unsafe() {
        for (connector, input) in [
            ("zendesk", json!({ "method": "PUT", "path": "/api/v2/tickets/7" })),
            ("zendesk", json!({ "method": "PUT", "path": "/api/v2/%74ickets/7" })),
            ("zendesk", json!({ "method": "PUT", "path": ["api", "v2", "tickets", 7] })),
            ("xero", json!({ "method": "PUT", "path": "/payroll.xro/1.0/Employees" })),
            ("slack", json!({ "path": "/chat.postMessage?channel=C1&text=x" })),
            ("meta", json!({ "path": "/v23.0/1/feed?message=x&method=post" })),
            ("meta", json!({ "path": "/v23.0/1/feed", "query": { "Method": "delete" } })),
            ("http", json!({ "path": "/x", "headers": { "X-HTTP-Method-Override": "POST" } })),
            ("http", json!({ "path": "/x", "query": { "_method": ["PUT"] } })),
        ] {
            let http = of(connector);
            assert_eq!(http.safety(&input), ReplaySafety::Unsafe, "{connector} {input}");
            assert!(http.is_effectful(&input), "{connector} {input}");
        }
        for (connector, input) in [
            ("zendesk", json!({ "method": "PUT", "path": "/api/v2/users/7" })),
            ("slack", json!({ "path": "/conversations.list" })),
            ("meta", json!({ "path": "/v23.0/1/feed?method=get" })),
            ("http", json!({ "path": "/x?methods=post" })),
        ] {
            assert_eq!(of(connector).safety(&input), ReplaySafety::Idempotent, "{connector} {input}");
        }
        // With a key that covers it, a PUT that creates is told by that.
        let put = json!({ "method": "PUT", "path": "/api.xro/2.0/Invoices" });
        assert_eq!(
            (of("xero").safety(&put), of("xero").remembered_for(&put).unwrap().as_secs()),
            (ReplaySafety::Idempotent, 360)
        );
        assert!(header_of(&of("xero").request(&put, effect()).unwrap(), "idempotency-key").is_some());
    }

    #[test]
    fn it_sends_what_its_author_wrote() {
        let input = json!({ "method": "PATCH", "path": "/a b/ü%20c?x=1&y=a b", "query": { "z": [1, true], "q": "a&b", "none": null },
            "headers": { "X-Own": "v", "Accept": "text/csv" }, "body": { "n": [1] } });
        let request = of("http").request(&input, effect()).unwrap();
        assert_eq!(&*request.target, "/a%20b/%C3%BC%20c?x=1&y=a%20b&q=a%26b&z=1&z=true");
        assert_eq!((header_of(&request, "x-own"), header_of(&request, "accept")), (Some("v"), Some("text/csv")));
        assert_eq!(
            (body(&request), header_of(&request, "content-type")),
            (json!({ "n": [1] }), Some("application/json"))
        );
        let send = |body: Value, encoding: &str| {
            of("http").request(&json!({ "method": "POST", "path": "/", "body": body, "encoding": encoding }), effect())
        };
        assert_eq!(send(json!({ "a": [{ "b": 1 }] }), "form").unwrap().body, "a[0][b]=1".as_bytes());
        assert_eq!(send(json!("<x/>"), "text").unwrap().body, "<x/>".as_bytes());
        assert_eq!(send(json!("AAE="), "base64").unwrap().body, Bytes::from_static(&[0, 1]));
        refused(send(json!("AAE"), "base64"), "base64");
        refused(send(json!({}), "text"), "no text");
        refused(send(json!([]), "form"), "no object");
        refused(send(json!({}), "xml"), "none of json");
        refused(send(json!("x".repeat((1 << 20) + 1)), "text"), "at most 1048576");
    }

    #[test]
    fn what_is_not_the_authors_is_refused() {
        let get = |more: Value| {
            let mut input = json!({ "path": "/x" });
            for (name, value) in more.as_object().unwrap() {
                input[name] = value.clone();
            }
            of("stripe").request(&input, effect())
        };
        for (more, words) in [
            (json!({ "headers": { "Authorization": "Bearer x" } }), "not the author's"),
            (json!({ "headers": { "Cookie": "a=b" } }), "not the author's"),
            (json!({ "headers": { "Idempotency-Key": "mine" } }), "set by the runner"),
            (json!({ "headers": { "Tidegate-Grant": "x" } }), "no call sets"),
            (json!({ "headers": { "Host": "x" } }), "no call sets"),
            (json!({ "headers": { "Content-Length": "5" } }), "no call sets"),
            (json!({ "headers": { "X-A": "a\r\nX-B: c" } }), "printable ASCII"),
            (json!({ "headers": { "X A": "a" } }), "no name of a header"),
            (json!({ "headers": { "X-A": "1", "x-a": "2" } }), "there twice"),
            (json!({ "headers": { "X-A": ["a"] } }), "no text"),
            (json!({ "path": "x" }), "does not begin with"),
            (json!({ "path": "//evil.example.com/x" }), "empty segment"),
            (json!({ "path": "/a/../b" }), "`.` or `..`"),
            (json!({ "path": "/a/%2e%2e/b" }), "encoded slash, dot"),
            (json!({ "path": "/a%2Fb" }), "encoded slash, dot"),
            (json!({ "path": "/a%252Fb" }), "percent-encoded already"),
            (json!({ "path": "/a%zz" }), "encodes nothing"),
            (json!({ "path": "/a\\b" }), "backslash"),
            (json!({ "path": "/a#b" }), "`#`"),
            (json!({ "path": "/a?b#c" }), "`#`"),
            (json!({ "path": ["a", ".."] }), "`.` or `..`"),
            (json!({ "path": ["a/b"] }), "slash"),
            (json!({ "path": [{}] }), "no text"),
            (json!({ "path": null }), "path is missing"),
            (json!({ "query": { "a": { "b": 1 } } }), "no list of these"),
            (json!({ "query": "a=b" }), "query is no object"),
            (json!({ "query": { "a\n\u{202e}b": {} } }), "query.a \\u{202e}b is no text"),
            (json!({ "query": { "a": "x".repeat(9_000) } }), "more than 8192"),
            (json!({ "body": {} }), "GET has none"),
            (json!({ "method": "CONNECT" }), "method is none of"),
            (json!({ "url": "https://evil.example.com" }), "url is no field"),
        ] {
            refused(get(more.clone()), words);
        }
        let shopify =
            of("shopify").request(&json!({ "path": "/x", "headers": { "X-Shopify-Access-Token": "x" } }), effect());
        refused(shopify, "not the author's");
    }

    #[test]
    fn its_output_has_status_headers_and_body() {
        let headers = [("location", "/x/1"), ("set-cookie", "a=b"), ("request-id", "req_1")];
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        let done = of("stripe").judge(201, &headers, &Bytes::from_static(b"{\"id\":1}"));
        let expected =
            json!({ "status": 201, "headers": { "location": "/x/1", "request-id": "req_1" }, "body": { "id": 1 } });
        assert_eq!(done, Verdict::Done(expected));
    }
}

mod assertions {
    use super::*;

    /// Action and input; `idempotent` and `effectful` as they are written; words of the reason.
    type Case<'a> = (&'a dyn Action, &'a Value, Option<bool>, Option<bool>, Option<&'a str>);

    #[test]
    fn what_contradicts_the_manifest_is_refused_with_its_reason() {
        let (unsafe_one, safe, checkable, read) = (
            action("slack", "post_message"),
            action("stripe", "create_refund"),
            action("google", "create_event"),
            action("stripe", "get_customer"),
        );
        let http = HttpRequest::new(shipped("http"));
        let (post, get) = (json!({ "method": "POST", "path": "/x" }), json!({ "path": "/x" }));
        let none = json!({});
        let cases: [Case<'_>; 15] = [
            (&unsafe_one, &none, None, None, None),
            (&unsafe_one, &none, Some(true), None, Some("declares unsafe")),
            (&unsafe_one, &none, Some(false), Some(true), None),
            (&unsafe_one, &none, None, Some(false), Some("changes something")),
            (&safe, &none, Some(true), Some(true), None),
            (&safe, &none, Some(false), None, Some("declares idempotent")),
            (&checkable, &none, Some(true), None, Some("declares checkable")),
            (&checkable, &none, Some(false), Some(true), None),
            (&read, &none, Some(true), Some(false), None),
            (&read, &none, None, Some(true), Some("changes nothing")),
            (&http, &post, Some(true), None, Some("declares unsafe")),
            (&http, &post, Some(false), Some(true), None),
            (&http, &get, Some(true), Some(false), None),
            (&http, &get, None, Some(true), Some("changes nothing")),
            (&http, &get, Some(false), None, Some("declares idempotent")),
        ];
        for (action, input, idempotent, effectful, reason) in cases {
            let found = contradiction("it", action, input, Assertion { idempotent, effectful });
            match (found, reason) {
                (Ok(()), None) => {}
                (Err(fault), Some(words)) => assert!(fault.0.contains(words), "{fault}"),
                (found, reason) => panic!("{action:?} {idempotent:?} {effectful:?}: {found:?}, not {reason:?}"),
            }
        }
    }
}

/// Connections as a configuration has them, which a reload exchanges.
#[derive(Debug)]
struct Swapped(Mutex<Arc<Manifest>>);

impl Configured for Swapped {
    fn manifest(&self, tenant: &TenantId, connection: &ConnectionId) -> Option<Arc<Manifest>> {
        let is_there = tenant.as_str() == "acme" && connection.as_str() == "conn_x";
        is_there.then(|| Arc::clone(&self.0.lock().unwrap()))
    }
}

#[test]
fn actions_are_found_in_the_configuration_that_is_in_force() {
    let swapped = Arc::new(Swapped(Mutex::new(shipped("stripe"))));
    let connectors = FromConfig::new(Arc::clone(&swapped) as Arc<dyn Configured>);
    let (acme, other) = (TenantId::parse("acme").unwrap(), TenantId::parse("other").unwrap());
    let (connection, gone) = (ConnectionId::parse("conn_x").unwrap(), ConnectionId::parse("conn_y").unwrap());
    let find = |action: &str| connectors.action(&acme, &connection, action);
    assert!(find("http.request").is_ok() && find("create_refund").is_ok() && find("stripe.create_refund").is_ok());
    assert!(Arc::ptr_eq(&find("create_refund").unwrap(), &find("stripe.create_refund").unwrap()), "compiled once");
    for name in ["create_refunds", "slack.post_message", "stripe.http.request", ""] {
        assert!(matches!(find(name), Err(NoAction::Action { .. })), "{name}");
    }
    assert_eq!(
        connectors.action(&other, &connection, "http.request").unwrap_err(),
        NoAction::Connection(connection.clone())
    );
    assert_eq!(connectors.action(&acme, &gone, "http.request").unwrap_err(), NoAction::Connection(gone));
    *swapped.0.lock().unwrap() = shipped("slack");
    assert!(find("create_refund").is_err() && find("post_message").is_ok());
    // A reload brings the same connector with other actions.
    let mut shorter = (*shipped("slack")).clone();
    shorter.actions = Box::default();
    *swapped.0.lock().unwrap() = Arc::new(shorter);
    assert!(find("post_message").is_err() && find("http.request").is_ok());
}

/// The action `put_it` of an operator's manifest with this head and this action.
fn operators(head: &str, action: &str) -> ManifestAction {
    let root = tempfile::tempdir().unwrap();
    let text = format!(
        "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\n{head}[auth]\nslot = \"bearer\"\n[[action]]\nname = \"put_it\"\ntitle = \"Puts it\"\n{action}"
    );
    std::fs::write(root.path().join("acme.toml"), text).unwrap();
    let (catalogue, faults) = Catalogue::default().with_directory(Path::new(root.path()));
    assert!(faults.is_empty(), "{faults:?}");
    ManifestAction::new(catalogue.unwrap().manifests().next().unwrap(), "put_it").unwrap().unwrap()
}

/// The key says which effect a request is of: a read-back is of none.
#[test]
fn a_read_back_has_no_idempotency_key() {
    let it = operators(
        "idempotency_header = \"Idempotency-Key\"\nidempotency_window = \"1h\"\n",
        "class = \"checkable\"\nmethod = \"POST\"\npath = \"/it\"\nbody = { key = \"{effect.key}\", name = \"{name}\" }\ninput = { type = \"object\", properties = { name = { type = \"string\" } } }\ncheck = { method = \"GET\", path = \"/it\", query = { key = \"{effect.key}\" }, happened = { status = [\"200\"], at = \"items[].name\", equals = \"{name}\" }, not_happened = { status = [\"200\"], at = \"items[]\", absent = true }, output = \"items[]\" }\n",
    );
    let input = json!({ "name": "n" });
    assert!(header_of(&it.request(&input, effect()).unwrap(), "idempotency-key").is_some());
    let asked = it.read_back(&input, effect()).unwrap().unwrap();
    assert_eq!((&*asked.target, asked.headers.len()), (format!("/it?key={}", effect()).as_str(), 0));
    let judge =
        |body: &str| it.judge_read_back(&input, effect(), 200, &HeaderMap::new(), &Bytes::from(body.to_owned()));
    assert_eq!(judge("{\"items\":[{\"name\":\"m\"},{\"name\":\"n\"}]}"), ReadBack::Happened(json!({ "name": "m" })));
    assert_eq!(judge("{\"items\":[]}"), ReadBack::NotHappened);
    assert_eq!(judge("{\"items\":[{\"name\":\"m\"}]}"), ReadBack::Unknown);
    assert_eq!(judge("{\"items\":["), ReadBack::Unknown);
}

#[test]
fn an_operators_action_is_as_good_as_a_shipped_one() {
    let put = operators(
        "",
        "class = \"idempotent\"\nmethod = \"PUT\"\npath = \"/it/{id}\"\nbody = { fixed = true, list = [\"{id}\", 7], key = \"{effect.uuid}\" }\ninput = { type = \"object\", required = [\"id\"], properties = { id = { type = [\"string\", \"integer\"], maxLength = 3 } } }\n",
    );
    let request = put.request(&json!({ "id": 42 }), effect()).unwrap();
    assert_eq!(&*request.target, "/it/42");
    assert_eq!(
        body(&request),
        json!({ "fixed": true, "list": [42, 7], "key": "abababab-abab-4bab-abab-abababababab" })
    );
    refused(put.request(&json!({ "id": "long" }), effect()), "id");
    refused(put.request(&json!({ "id": 1, "more": 2 }), effect()), "more is no field");
}

/// Any JSON of some depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[%./\\\\;?#a2eF]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inside| {
        prop_oneof![
            prop::collection::vec(inside.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,8}", inside, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// What the way out takes: as `egress::policy::is_unclear` has it.
fn is_clear(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let octet = |at: usize| path.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let is_clear_at = |at: usize| match octet(at + 1) {
        None | Some(..=0x1f | 0x7f | b'.' | b'/' | b'\\' | 0xc0 | 0xc1) => false,
        Some(b'%') => octet(at + 3).is_none(),
        Some(_) => true,
    };
    target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#')
        && path.starts_with('/')
        && !path.contains("//")
        && path.split('/').all(|segment| !matches!(segment.split(';').next(), Some("." | "..")))
        && path.match_indices('%').all(|(at, _)| is_clear_at(at))
}

proptest! {
    #[test]
    fn any_input_is_a_request_or_a_fault(path in any_json(), query in any_json(), headers in any_json(), payload in any_json(),
        method in "[A-Z]{0,7}|GET|POST", encoding in "json|form|text|base64|x") {
        let http = HttpRequest::new(shipped("http"));
        let input = json!({ "method": method, "path": path, "query": query, "headers": headers, "body": payload, "encoding": encoding });
        let _ = http.safety(&input);
        if let Ok(request) = http.request(&input, effect()) {
            prop_assert!(is_clear(&request.target), "{}", request.target);
        }
    }

    #[test]
    fn any_path_is_clear_or_refused(path in "/[-a-z%/.;?#\\\\ 0-9A-F]{0,24}", value in "[-a-z%/.;?#\\\\ 0-9A-F]{0,12}") {
        let http = HttpRequest::new(shipped("http"));
        for input in [json!({ "path": path }), json!({ "path": ["a", value] })] {
            if let Ok(request) = http.request(&input, effect()) {
                prop_assert!(is_clear(&request.target), "{}", request.target);
            }
        }
    }

    #[test]
    fn any_answer_is_judged(status in 100_u16..=999, bytes in prop::collection::vec(any::<u8>(), 0..200), json in any_json(), kind in "application/json|text/html|text/xml|") {
        let headers: HeaderMap = [(http::header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect();
        for connector in ["slack", "shopify", "discord"] {
            let http = HttpRequest::new(shipped(connector));
            for body in [Bytes::from(bytes.clone()), Bytes::from(json.to_string())] {
                if let Verdict::Failed { message: Some(message), .. } = http.judge(status, &headers, &body) {
                    prop_assert!(message.len() <= 1024 && !message.chars().any(char::is_control));
                }
            }
        }
    }
}

#[test]
fn a_long_message_is_cut_at_a_character_and_no_secret_shows_through_the_cut() {
    let http = HttpRequest::new(shipped("http"));
    let long = "ä".repeat(600) + " sk_live_4eC39HqLyjWDarjtT1zdp7dc";
    let body = Bytes::from(json!({ "message": long }).to_string());
    let Verdict::Failed { message: Some(message), .. } = http.judge(500, &HeaderMap::new(), &body) else { panic!() };
    assert!(message.len() <= 1024 && message.ends_with('…') && message.chars().all(|c| c == 'ä' || c == '…'));
    let body =
        Bytes::from(json!({ "message": format!("{} sk_live_4eC39HqLyjWDarjtT1zdp7dc", "a ".repeat(500)) }).to_string());
    let Verdict::Failed { message: Some(message), .. } = http.judge(500, &HeaderMap::new(), &body) else { panic!() };
    assert!(!message.contains("sk_live"), "{message}");
}
