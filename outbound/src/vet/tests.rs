use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

/// Read once: property tests would read it thousands of times.
static TABLE: LazyLock<Arc<AddressTable>> = LazyLock::new(|| Arc::new(AddressTable::shipped()));

fn rules() -> Rules {
    Rules { table: Arc::clone(&TABLE), own: Own::default(), nat64: Vec::new() }
}

fn at(text: &str) -> Authority {
    Authority::with_port(text).unwrap()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn opening(rules: &Rules, host: &str, network: &str, port: u16) -> Opening {
    Opening::new(host, vec![network.parse().unwrap()], vec![port], &rules.table).unwrap()
}

fn reason(result: Result<Vetted, Refused>) -> &'static str {
    result.expect_err("it should have been refused").reason()
}

#[test]
fn a_public_answer_is_vetted_whole_and_in_its_order() {
    let answer = ips(&["93.184.216.34", "2606:4700::1111", "93.184.216.34", "8.8.8.8"]);
    let vetted = rules().vet(&at("example.com:443"), &answer, &[]).unwrap();
    let sockets: Vec<_> = vetted.addresses().iter().map(ToString::to_string).collect();
    assert_eq!(sockets, ["93.184.216.34:443", "[2606:4700::1111]:443", "8.8.8.8:443"]);
    assert!(vetted.addresses().iter().all(|address| !address.is_opened()));
}

#[test]
fn one_bad_address_refuses_the_answer_wherever_it_stands() {
    let rules = rules();
    for bad in ["10.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fec0::1", "0.0.0.0"] {
        for at_index in 0..3 {
            let mut answer = ips(&["93.184.216.34", "2606:4700::1111"]);
            answer.insert(at_index, bad.parse().unwrap());
            let refused = rules.vet(&at("mix.example:443"), &answer, &[]).expect_err(bad);
            assert!(refused.to_string().contains(bad), "{refused}");
        }
    }
}

#[test]
fn empty_and_endless_answers_are_refused() {
    let rules = rules();
    assert_eq!(reason(rules.vet(&at("a.example:443"), &[], &[])), "no-addresses");
    let answer: Vec<IpAddr> = (0..=64u8).map(|last| IpAddr::from([8, 8, 8, last])).collect();
    assert_eq!(reason(rules.vet(&at("a.example:443"), &answer, &[])), "too-many-addresses");
    assert!(rules.vet(&at("a.example:443"), &answer[1..], &[]).is_ok());
}

#[test]
fn an_authority_that_is_an_address_is_its_own_answer() {
    let rules = rules();
    assert!(rules.vet(&at("8.8.8.8:53"), &ips(&["8.8.8.8"]), &[]).is_ok());
    assert_eq!(reason(rules.vet(&at("8.8.8.8:53"), &ips(&["8.8.4.4"]), &[])), "not-the-address");
    assert_eq!(reason(rules.vet(&at("8.8.8.8:53"), &ips(&["8.8.8.8", "8.8.4.4"]), &[])), "not-the-address");
    assert_eq!(reason(rules.vet(&at("127.0.0.1:80"), &ips(&["127.0.0.1"]), &[])), "address-internal");
}

#[test]
fn internal_names_are_refused_before_anything_is_asked() {
    let rules = rules();
    for name in
        ["localhost:80", "metadata:80", "db:5432", "metadata.google.internal:80", "printer.local:80", "a.localhost:1"]
    {
        assert_eq!(rules.judge_name(&at(name), &[]).expect_err(name).reason(), "name-internal");
        // Also where the answer is public.
        assert_eq!(reason(rules.vet(&at(name), &ips(&["8.8.8.8"]), &[])), "name-internal");
    }
    assert!(rules.judge_name(&at("example.com:80"), &[]).is_ok());
}

#[test]
fn an_opening_opens_its_name_network_and_port_and_nothing_beside() {
    let rules = rules();
    let openings = [opening(&rules, "db.internal", "10.0.0.0/8", 5432)];
    let vet =
        |authority: &str, answer: &[&str], openings: &[Opening]| rules.vet(&at(authority), &ips(answer), openings);

    let vetted = vet("db.internal:5432", &["10.1.2.3"], &openings).unwrap();
    assert!(vetted.addresses()[0].is_opened());
    // Another role has no opening.
    assert_eq!(reason(vet("db.internal:5432", &["10.1.2.3"], &[])), "name-internal");
    assert_eq!(reason(vet("db.internal:5433", &["10.1.2.3"], &openings)), "name-internal");
    assert_eq!(reason(vet("other.internal:5432", &["10.1.2.3"], &openings)), "name-internal");
    // A name from outside that points at it.
    assert_eq!(reason(vet("evil.example:5432", &["10.1.2.3"], &openings)), "address-internal");
    assert_eq!(reason(vet("10.1.2.3:5432", &["10.1.2.3"], &openings)), "address-internal");
    // The opened name pointing elsewhere, also in disguise.
    assert_eq!(reason(vet("db.internal:5432", &["192.168.1.1"], &openings)), "address-internal");
    assert_eq!(reason(vet("db.internal:5432", &["10.1.2.3", "169.254.169.254"], &openings)), "address-never");
    assert_eq!(reason(vet("db.internal:5432", &["::ffff:10.1.2.3"], &openings)), "address-never");
    assert_eq!(reason(vet("db.internal:5432", &["2606:4700::5efe:10.1.2.3"], &openings)), "address-embeds");
}

#[test]
fn metadata_stays_shut_inside_of_what_is_opened() {
    let rules = rules();
    let openings =
        [opening(&rules, "*.svc.internal", "fc00::/7", 80), opening(&rules, "*.svc.internal", "100.64.0.0/10", 80)];
    let vet = |answer: &str| rules.vet(&at("a.svc.internal:80"), &ips(&[answer]), &openings);
    assert!(vet("fd12::1").is_ok() && vet("100.100.100.199").is_ok());
    for metadata in
        ["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "100.100.100.200"]
    {
        assert_eq!(reason(vet(metadata)), "address-never", "{metadata}");
    }
    assert_eq!(reason(vet("fd00::5efe:169.254.169.254")), "address-embeds");
    assert_eq!(reason(vet("fd00::5efe:100.64.0.1")), "address-embeds");
}

#[test]
fn the_appliance_is_not_reached_through_itself_even_where_it_is_opened() {
    let mut rules = rules();
    rules.own = Own::new(
        ips(&["198.51.100.7", "203.0.113.9"]),
        ["127.0.0.1:9090".parse().unwrap(), "[::]:3128".parse().unwrap()],
    );
    let openings = [9090, 3128, 8080].map(|port| opening(&rules, "localhost", "127.0.0.0/8", port));
    let vet = |authority: &str, answer: &str| rules.vet(&at(authority), &ips(&[answer]), &openings);
    assert!(vet("localhost:8080", "127.0.0.1").is_ok());
    assert_eq!(reason(vet("localhost:9090", "127.0.0.1")), "address-own");
    assert_eq!(reason(vet("localhost:3128", "127.0.0.3")), "address-own");
    assert_eq!(reason(vet("198.51.100.7:443", "198.51.100.7")), "address-own");
    assert_eq!(reason(vet("peer.example:3128", "203.0.113.9")), "address-own");
    rules.own = Own::new(ips(&["8.8.8.8"]), []);
    rules.nat64 = vec!["64:ff9b::/96".parse().unwrap()];
    assert_eq!(reason(rules.vet(&at("a.example:1"), &ips(&["64:ff9b::808:808"]), &[])), "address-embeds");
    assert_eq!(reason(rules.vet(&at("a.example:1"), &ips(&["2606:4700::5efe:808:808"]), &[])), "address-embeds");
}

#[test]
fn nat64_is_an_opt_in_and_is_decoded() {
    let mut rules = rules();
    let vet = |rules: &Rules, answer: &str| rules.vet(&at("a.example:443"), &ips(&[answer]), &[]);
    assert_eq!(reason(vet(&rules, "64:ff9b::8d5f:accd")), "address-never");
    rules.nat64 =
        vec!["64:ff9b::/96".parse().unwrap(), "64:ff9b:1:fffe::/96".parse().unwrap(), "2a00:64::/32".parse().unwrap()];
    assert!(vet(&rules, "64:ff9b::8d5f:accd").is_ok());
    assert!(vet(&rules, "64:ff9b:1:fffe::8d5f:accd").is_ok());
    assert!(vet(&rules, "2a00:64:8d5f:accd::").is_ok());
    for inside in [
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1:fffe::10.0.0.1",
        "2a00:64:a83f:8110::",
        "64:ff9b::0.0.0.0",
    ] {
        assert_eq!(reason(vet(&rules, inside)), "address-embeds", "{inside}");
    }
    assert_eq!(reason(vet(&rules, "64:ff9b:1::8d5f:accd")), "address-never");
    assert_eq!(reason(vet(&rules, "2a00:64:8d5f:accd::1")), "address-ambiguous");
}

#[test]
fn a_pooled_connection_is_judged_by_the_rules_of_now() {
    let mut rules = rules();
    let authority = at("db.internal:5432");
    let openings = [opening(&rules, "db.internal", "10.0.0.0/8", 5432)];
    let address = rules.vet(&authority, &ips(&["10.1.2.3"]), &openings).unwrap().addresses()[0];
    assert!(rules.still_vetted(&authority, address, &openings).is_ok());
    // The opening is gone, or narrower, or for another name or port.
    assert!(rules.still_vetted(&authority, address, &[]).is_err());
    let narrow = [opening(&rules, "db.internal", "10.2.0.0/16", 5432)];
    assert!(rules.still_vetted(&authority, address, &narrow).is_err());
    assert!(rules.still_vetted(&at("evil.example:5432"), address, &openings).is_err());
    assert!(rules.still_vetted(&at("db.internal:5433"), address, &openings).is_err());
    // The table learns of an address, or it becomes ours.
    let public = at("a.example:443");
    let address = rules.vet(&public, &ips(&["8.8.8.8"]), &[]).unwrap().addresses()[0];
    let text = include_str!("../../addresses.toml").replace("168.63.129.16/32", "8.8.8.8/32");
    let newer = Rules { table: Arc::new(AddressTable::parse(&text).unwrap()), ..rules.clone() };
    assert!(rules.still_vetted(&public, address, &[]).is_ok());
    assert_eq!(newer.still_vetted(&public, address, &[]).expect_err("closed now").reason(), "address-never");
    rules.own = Own::new(ips(&["8.8.8.8"]), []);
    assert_eq!(rules.still_vetted(&public, address, &[]).expect_err("ours now").reason(), "address-own");
}

/// An independent reading of what must never be dialled without an opening: plain arithmetic over the IPv4 address.
fn is_internal_v4(address: u32) -> bool {
    let [a, b, c, d] = address.to_be_bytes();
    matches!(
        (a, b),
        (0 | 10 | 127 | 224.., _) | (100, 64..=127) | (169, 254) | (172, 16..=31) | (192, 168) | (198, 18 | 19)
    ) || matches!((a, b, c), (192, 0, 2) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99))
        || ((a, b, c) == (192, 0, 0) && d != 9 && d != 10)
        || address == u32::from_be_bytes([168, 63, 129, 16])
}

/// All the ways in which an IPv4 address can be written as an IPv6 one.
fn disguises(v4: u32) -> Vec<u128> {
    let low = u128::from(v4);
    vec![
        0xffff << 32 | low,
        low,
        0xffff << 48 | low,
        0x0064_ff9b << 96 | low,
        0x0064_ff9b_0001 << 80 | low,
        0x2002 << 112 | low << 80 | 1,
        0x2001_0000 << 96 | u128::from(!v4),
        0x2606_4700 << 96 | 0x5efe << 32 | low,
        0x2606_4700 << 96 | 0x0200_5efe << 32 | low,
    ]
}

fn any_v4() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        (prop::sample::select(vec![0u32, 10, 100, 127, 168, 169, 172, 192, 198, 203, 224, 255]), 0u32..1 << 24)
            .prop_map(|(first, rest)| first << 24 | rest),
        Just(0xa9fe_a9fe),
        Just(0xa83f_8110),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn ipv4_is_judged_as_plain_arithmetic_does(v4 in any_v4()) {
        let vetted = rules().vet(&at("a.example:443"), &[IpAddr::from(v4.to_be_bytes())], &[]);
        prop_assert_eq!(vetted.is_err(), is_internal_v4(v4));
    }

    /// With and without NAT64: whatever an internal address is dressed as, it is refused; and so is the answer that
    /// it hides in.
    #[test]
    fn no_disguise_helps(v4 in any_v4(), nat64: bool, place in 0usize..3) {
        let mut rules = rules();
        if nat64 {
            rules.nat64 = vec!["64:ff9b::/96".parse().unwrap(), "64:ff9b:1::/96".parse().unwrap()];
        }
        let openings = [opening(&rules, "a.example", "10.0.0.0/8", 443), opening(&rules, "a.example", "fc00::/7", 443)];
        for disguise in disguises(v4) {
            let mut answer = ips(&["93.184.216.34", "2606:4700::1111"]);
            answer.insert(place, IpAddr::from(disguise.to_be_bytes()));
            if is_internal_v4(v4) && disguise != 1 {
                prop_assert!(rules.vet(&at("a.example:443"), &answer, &openings).is_err(), "{:?}", answer);
            }
        }
    }

    /// What is vetted is the answer, and every address of it is admitted alone.
    #[test]
    fn vetted_is_the_answer_and_nothing_else(answer in prop::collection::vec(prop_oneof![
        any_v4().prop_map(|v4| IpAddr::from(v4.to_be_bytes())),
        any::<u128>().prop_map(|v6| IpAddr::from(v6.to_be_bytes())),
        any_v4().prop_flat_map(|v4| prop::sample::select(disguises(v4))).prop_map(|v6| IpAddr::from(v6.to_be_bytes())),
    ], 0..5)) {
        let (rules, authority) = (rules(), at("a.example:443"));
        let each = answer.iter().all(|address| rules.judge(&authority, *address, &[]).is_ok());
        match rules.vet(&authority, &answer, &[]) {
            Ok(vetted) => {
                prop_assert!(each);
                prop_assert!(vetted.addresses().iter().all(|address| answer.contains(&address.socket().ip())));
                prop_assert!(answer.iter().all(|ip| vetted.addresses().iter().any(|address| address.socket().ip() == *ip)));
                prop_assert!(vetted.addresses().iter().all(|address| address.socket().port() == 443));
            }
            Err(_) => prop_assert!(answer.is_empty() || !each),
        }
    }

    /// Outside of global unicast there is nothing public.
    #[test]
    fn nothing_outside_of_global_unicast(bits: u128) {
        prop_assume!(bits >> 125 != 1);
        prop_assert!(rules().vet(&at("a.example:443"), &[IpAddr::from(bits.to_be_bytes())], &[]).is_err());
    }
}
