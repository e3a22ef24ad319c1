use super::*;
use crate::connector::Catalogue;
use crate::form::AtLine;
use domain::ConnectorId;

fn matching(methods: &[&str], paths: &[&str]) -> RequestMatch {
    let boxed = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
    RequestMatch { methods: boxed(methods), paths: boxed(paths) }
}

#[test]
fn beginnings_are_whole_segments() {
    let cases = [
        ("/crm", "/crm", true),
        ("/crm", "/crm/x", true),
        ("/crm", "/crmx", false),
        ("/crm", "/cr", false),
        ("/crm/", "/crm/x", true),
        ("/crm/", "/crm/", true),
        ("/crm/", "/crm", false),
        ("/api/chat.", "/api/chat.postMessage", true),
        ("/api/chat.", "/api/chats", false),
        ("/a/*/b", "/a/1/b", true),
        ("/a/*/b", "/a/1/b/c", true),
        ("/a/*/b", "/a//b", false),
        ("/a/*/b", "/a/1/2/b", false),
        ("/a/*", "/a/1", true),
        ("/a/*", "/a/", false),
        ("/", "/anything", true),
    ];
    for (start, path, covers) in cases {
        assert_eq!(matching(&[], &[start]).covers("GET", path), covers, "{start} {path}");
    }
    assert!(matching(&["GET"], &[]).covers("GET", "/x") && !matching(&["GET"], &[]).covers("POST", "/x"));
}

fn profile(name: &str) -> Box<QuotaProfile> {
    Catalogue::shipped().unwrap().get(&ConnectorId::parse(name).unwrap()).unwrap().quota.clone()
}

#[test]
fn segments_make_buckets() {
    let airtable = profile("airtable");
    let (_, base) = airtable.limit("base").unwrap();
    for (path, bucket) in
        [("/v0/app1/t/rec", "/v0/app1"), ("/v0/app1", "/v0/app1"), ("/v0", "/v0"), ("/v0/", "/v0/"), ("/", "/")]
    {
        assert_eq!(base.bucket_of(path), bucket, "{path}");
    }
    assert_eq!(airtable.limit("user").unwrap().1.bucket_of("/v0/app1/t"), "");
}

#[test]
fn default_parks_double_up_to_their_end() {
    let park =
        DefaultPark { first: Duration::from_secs(2), doubles: true, max: Duration::from_secs(15), jitter: false };
    let seconds: Vec<u64> = [0, 1, 2, 3, 40].map(|before| park.after(before).as_secs()).to_vec();
    assert_eq!(seconds, [2, 4, 8, 15, 15]);
    assert_eq!(DefaultPark { doubles: false, ..park }.after(9).as_secs(), 2);
}

fn at(text: &str) -> AtLine<Box<str>> {
    AtLine { value: text.into(), line: 7 }
}

fn wants(tier: Option<&str>, caps: &[(&str, u64)]) -> ConnectionQuota {
    let caps = caps.iter().map(|(limit, cap)| CapChoice { limit: at(limit), cap: *cap });
    ConnectionQuota { tier: tier.map(at), caps: caps.collect() }
}

/// What an appliance's file says of one connector.
fn ceiling(text: &str) -> Ceiling {
    let file = std::path::Path::new("tidegate.toml");
    let (appliance, faults) = crate::parse_appliance(file, text.as_bytes());
    let appliance = appliance.unwrap_or_else(|| panic!("{faults:?}"));
    let (all, faults) = Ceiling::all(&appliance, file, &Catalogue::shipped().unwrap());
    assert!(faults.is_empty(), "{faults:?}");
    all.into_values().next().unwrap_or_default()
}

#[test]
fn a_tenant_lowers_and_only_the_operator_raises() {
    let hubspot = profile("hubspot");
    let (place, _) = hubspot.limit("ten-secondly").unwrap();
    let of = |ceiling: &Ceiling, wants: &ConnectionQuota| {
        (hubspot.cap(place, ceiling, Some(wants)).unwrap().0, hubspot.judge(ceiling, wants).len())
    };
    let silent = Ceiling::default();
    assert_eq!(of(&silent, &wants(None, &[])), (100, 0));
    assert_eq!(of(&silent, &wants(None, &[("ten-secondly", 99)])), (99, 0));
    assert_eq!(of(&silent, &wants(None, &[("ten-secondly", 100)])), (100, 0));
    assert_eq!(
        of(&silent, &wants(None, &[("ten-secondly", 101)])),
        (100, 1),
        "no more than the profile, and it is said"
    );
    assert_eq!(of(&silent, &wants(Some("professional"), &[])), (100, 1));
    assert_eq!(of(&silent, &wants(Some("free"), &[])), (100, 0));
    assert_eq!(of(&silent, &wants(Some("gold"), &[("moon", 1)])), (100, 2));

    let allows = ceiling("[egress]\n[[egress.quota]]\nconnector = \"hubspot\"\ntenant_tiers = [\"professional\"]\n");
    assert_eq!(of(&allows, &wants(Some("professional"), &[])), (190, 0));
    assert_eq!(of(&allows, &wants(Some("api-add-on"), &[])), (100, 1), "that one was not allowed");
    assert_eq!(of(&allows, &wants(None, &[])), (100, 0));

    let raises = ceiling("[egress]\n[[egress.quota]]\nconnector = \"hubspot\"\ntier = \"api-add-on\"\n");
    assert_eq!(of(&raises, &wants(None, &[])), (250, 0));
    assert_eq!(of(&raises, &wants(Some("free"), &[("ten-secondly", 150)])), (100, 1));
    assert_eq!(of(&raises, &wants(Some("free"), &[])), (100, 0), "lower is always allowed");

    let caps = "[egress]\n[[egress.quota]]\nconnector = \"hubspot\"\ncap = [{ limit = \"ten-secondly\", cap = 400 }]\n";
    assert_eq!(of(&ceiling(caps), &wants(None, &[])), (400, 0));
    assert_eq!(of(&ceiling(caps), &wants(None, &[("ten-secondly", 300)])), (300, 0));
}

#[test]
fn what_is_shared_is_no_tenants_to_set_and_bursts_keep_their_proportion() {
    let xero = profile("xero");
    let (place, _) = xero.limit("app-minute").unwrap();
    let lower = wants(None, &[("app-minute", 5)]);
    assert_eq!(xero.cap(place, &Ceiling::default(), Some(&lower)).unwrap().0, 10_000);
    assert!(xero.judge(&Ceiling::default(), &lower)[0].2.contains("shared with other tenants"));

    let shopify = profile("shopify");
    let (place, _) = shopify.limit("graphql").unwrap();
    assert_eq!(
        shopify.cap(place, &Ceiling::default(), Some(&wants(None, &[("graphql", 50)]))),
        Some((50, Some(1_000)))
    );
    assert_eq!(shopify.cap(u16::MAX, &Ceiling::default(), None), None);
}
