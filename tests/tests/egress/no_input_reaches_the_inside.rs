use tidegate_tests::call::{Said, connect, get, governed, token};
use tidegate_tests::world::{PROVIDER, Page, Zone, address, alias};

use crate::lab::{INTERNAL, Lab, METADATA, connection, on_the_edge, open_tenant, with_token};

const ELSEWHERE: &str = "8.8.8.8";

/// The three ways in, to one name.
fn ways(name: &str, token: &str) -> [Vec<u8>; 3] {
    let id = name.split('.').next().expect("a label");
    [
        get(&format!("http://{name}/"), token),
        connect(&format!("{name}:443"), token),
        governed(&format!("/c/conn_{id}/"), token, ""),
    ]
}

fn refused(said: Option<Said>, what: &str) {
    let said = said.expect("an answer");
    assert_eq!((said.status, said.code().as_str()), (403, "address-not-allowed"), "{what}: {said:?}");
}

fn went(said: Option<Said>, what: &str) {
    let said = said.expect("an answer");
    assert_eq!(said.status, 200, "{what}: {said:?}");
}

/// A name moves inside between two requests, on every way in.
async fn between_requests(lab: &Lab, token: &str) {
    for inside in [INTERNAL[0], INTERNAL[1], METADATA, "127.0.0.1", "::1", "0.0.0.0", "93.184.216.10"] {
        for (nth, request) in ways("moves.example.com", token).iter().enumerate() {
            lab.world.name("moves.example.com", Zone::turns(&[PROVIDER, inside]));
            went(lab.ask(request).await, "before it moved");
            refused(lab.ask(request).await, &format!("way {nth} to {inside}"));
            refused(lab.ask(request).await, &format!("way {nth} to {inside}, again"));
        }
    }
}

/// The same on one connection of the caller's, over one that is kept to the provider.
async fn on_kept_connections(lab: &Lab, token: &str) {
    lab.world.name("kept.example.com", Zone::turns(&[PROVIDER, PROVIDER, INTERNAL[0], PROVIDER, ELSEWHERE]));
    let request = get("http://kept.example.com/", token);
    let mut call = lab.call().await;
    let first = call.ask(&request).await.expect("an answer").seen();
    let second = call.ask(&request).await.expect("an answer").seen();
    assert_eq!(first["connection"], second["connection"], "the connection to the provider was to be kept");
    let third = call.ask(&request).await;
    refused(third, "a kept connection does not help");
    let mut call = lab.call().await;
    let fourth = call.ask(&request).await.expect("an answer").seen();
    assert_eq!(fourth["at"], PROVIDER);
    let fifth = call.ask(&request).await.expect("an answer").seen();
    assert_eq!(fifth["at"], ELSEWHERE, "an address that is not vetted now is not used, whatever is kept to it");
    assert_ne!(fourth["connection"], fifth["connection"]);
}

/// Redirects that are followed here, each hop judged as the first was.
async fn between_hops(lab: &Lab, token: &str) {
    let ask = governed("/c/conn_hop/start", token, "Tidegate-Follow-Redirects: 5\r\n");
    lab.world.name("mixed.example.com", Zone::of(&[&[address(PROVIDER), address(INTERNAL[0])]]));
    lab.world.name("inside.example.com", Zone::turns(&[INTERNAL[1]]));
    for to in [
        "https://10.9.0.2/",
        "https://[fd00:9::2]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://127.0.0.1/",
        "https://[::ffff:10.9.0.2]/",
        "https://0x0a090002/",
        "//10.9.0.2/",
        "https://mixed.example.com/",
        "https://inside.example.com/",
        "https://localhost/",
        "https://93.184.216.10/",
        "https://127.0.0.1:3128/",
    ] {
        lab.world.name("hop.example.com", Zone::always(PROVIDER));
        lab.world.page("/start", Page::redirect(302, to));
        lab.world.seen();
        let said = lab.ask(&ask).await.expect("an answer");
        assert!((400..=599).contains(&said.status) && !said.code().is_empty(), "{to}: {said:?}");
        let seen = lab.world.seen();
        assert_eq!(seen.len(), 1, "{to}: {seen:?}");
    }
    // The redirect leads to where it came from, which is somewhere else by then.
    lab.world.page("/start", Page::redirect(302, "/next"));
    lab.world.name("hop.example.com", Zone::turns(&[PROVIDER, INTERNAL[0]]));
    lab.world.seen();
    let said = lab.ask(&ask).await.expect("an answer");
    assert!((400..=599).contains(&said.status), "{said:?}");
    assert_eq!(lab.world.seen().len(), 1);
    lab.world.name("hop.example.com", Zone::always(PROVIDER));
    went(lab.ask(&ask).await, "a redirect that leads outside is followed");
    assert_eq!(lab.world.seen().len(), 2);
}

/// Everything that an answer can be.
async fn answers(lab: &Lab, token: &str) {
    let shut: [(&str, Zone); 13] = [
        ("public and internal", Zone::of(&[&[address(PROVIDER), address(INTERNAL[0])]])),
        ("internal and public", Zone::of(&[&[address(METADATA), address(PROVIDER)]])),
        ("one family inside", Zone::of(&[&[address(PROVIDER), address(INTERNAL[1])]])),
        ("an alias of something inside", Zone::of(&[&[alias("db.internal"), address(INTERNAL[0]).of("db.internal")]])),
        (
            "a chain of aliases",
            Zone::of(&[&[
                alias("a.example.net"),
                alias("b.example.net").of("a.example.net"),
                address("fd00:9::2").of("b.example.net"),
            ]]),
        ),
        ("mapped", Zone::turns(&["::ffff:10.9.0.2"])),
        ("mapped metadata", Zone::turns(&["::ffff:169.254.169.254"])),
        ("by NAT64", Zone::turns(&["64:ff9b::10.9.0.2"])),
        ("by 6to4", Zone::turns(&["2002:a09:2::1"])),
        ("compatible", Zone::turns(&["::10.9.0.2"])),
        ("by TCP alone", Zone { only_tcp: true, ..Zone::turns(&[INTERNAL[0]]) }),
        ("behind a spoof that is public", Zone { spoof: vec![address(PROVIDER)], ..Zone::turns(&[INTERNAL[0]]) }),
        ("the appliance's own address", Zone::turns(&["2606:2800:220:1::11"])),
    ];
    for (what, zone) in shut {
        for request in ways("answers.example.com", token) {
            lab.world.name("answers.example.com", zone.clone());
            refused(lab.ask(&request).await, what);
        }
    }
    let open: [(&str, Zone); 4] = [
        (
            "an alias of something public",
            Zone::of(&[&[alias("cdn.example.net"), address(PROVIDER).of("cdn.example.net")]]),
        ),
        ("by TCP alone", Zone { only_tcp: true, ..Zone::turns(&[PROVIDER]) }),
        ("behind a spoof that is inside", Zone { spoof: vec![address(INTERNAL[0])], ..Zone::turns(&[PROVIDER]) }),
        ("both families", Zone::of(&[&[address(PROVIDER), address("2606:2800:220:1::34")]])),
    ];
    for (what, zone) in open {
        for request in ways("answers.example.com", token) {
            lab.world.name("answers.example.com", zone.clone());
            went(lab.ask(&request).await, what);
        }
    }
    lab.world.name("answers.example.com", Zone { is_absent: true, ..Zone::default() });
    let said = lab.ask(&get("http://answers.example.com/", token)).await.expect("an answer");
    assert_eq!((said.status, said.code().as_str()), (502, "dns-failed"), "{said:?}");
}

/// An answer of TTL 0 is asked for each time; one that may be kept is not, and so does not move.
async fn times_to_live(lab: &Lab, token: &str) {
    let request = get("http://ttl.example.com/", token);
    lab.world.name("ttl.example.com", Zone::always(PROVIDER));
    for _ in 0..3 {
        went(lab.ask(&request).await, "TTL 0");
    }
    assert_eq!(lab.world.lookups("ttl.example.com"), 3);
    for ttl in [3_600, i32::MAX.unsigned_abs()] {
        let name = format!("ttl-{ttl}.example.com");
        lab.world.name(&name, Zone::of(&[&[address(PROVIDER).kept(ttl)], &[address(INTERNAL[0]).kept(ttl)]]));
        for _ in 0..3 {
            went(lab.ask(&get(&format!("http://{name}/"), token)).await, "a TTL of hours");
        }
        assert_eq!(lab.world.lookups(&name), 1, "{name}");
    }
    lab.world.name("beyond.example.com", Zone::of(&[&[address(INTERNAL[0]).kept(u32::MAX)]]));
    refused(lab.ask(&get("http://beyond.example.com/", token)).await, "a TTL beyond all");
    refused(lab.ask(&connect("beyond.example.com:443", token)).await, "a TTL beyond all");
}

/// Texts that lead inside under another reading.
async fn texts(lab: &Lab, token: &str) {
    for target in [
        "10.9.0.2",
        "[fd00:9::2]",
        "169.254.169.254",
        "10.9.2",
        "0x0a.9.0.2",
        "168361986",
        "012.9.0.2",
        "[::ffff:10.9.0.2]",
        "[64:ff9b::a09:2]",
        "127.0.0.1",
        "127.1",
        "[::1]",
        "0.0.0.0",
        "[::]",
        "localhost",
        "LOCALHOST.",
        "user@10.9.0.2",
        "moves.example.com@10.9.0.2",
        "10.9.0.2%00.example.com",
        "93.184.216.11",
        "metadata.google.internal",
        "[fe80::1%25lan0]",
        "10.9.0.2.",
    ] {
        for request in [get(&format!("http://{target}/"), token), connect(&format!("{target}:443"), token)] {
            let said = lab.ask(&request).await.expect("an answer");
            assert!(matches!(said.status, 400 | 403), "{target}: {said:?}");
        }
    }
    for path in ["/c/conn_hop//10.9.0.2/", "/c/conn_hop/../10.9.0.2", "/c/conn_hop/%2e%2e/x", "/c/conn_hop/\\10.9.0.2/"]
    {
        let said = lab.ask(&governed(path, token, "")).await.expect("an answer");
        assert_eq!(said.status, 400, "{path}: {said:?}");
    }
    // What looks like a destination behind a connection is a path there.
    lab.world.name("hop.example.com", Zone::always(PROVIDER));
    for path in ["@10.9.0.2/", "http://10.9.0.2/", "?u=http://10.9.0.2/", "#@10.9.0.2/"] {
        let said = lab.ask(&governed(&format!("/c/conn_hop/{path}"), token, "")).await.expect("an answer");
        if said.status == 200 {
            assert_eq!(said.seen()["at"], PROVIDER, "{path}");
        }
    }
}

#[test]
fn no_input_reaches_the_inside_and_an_opening_does() {
    on_the_edge(async |lab| {
        let connections: String = ["moves", "hop", "answers"]
            .map(|id| connection(&format!("conn_{id}"), &format!("https://{id}.example.com")))
            .concat();
        let acme = open_tenant("acme").extra(&connections).extra("\n[[egress.role]]\nname = \"ops\"\n");
        let acme = with_token(acme, "operator", "role = \"ops\"");
        let opening = "\n[[egress.opening]]\nhost = \"db.example.com\"\nnetworks = [\"10.9.0.0/24\", \"fd00:9::/64\"]\n\
                       ports = [80]\ntenant = \"acme\"\nrole = \"ops\"\n";
        let node = lab.appliance().extra(opening).tenant(acme).start().await;
        node.checked();
        let [caller, operator] = ["acme", "operator"].map(|name| token(name).0);
        between_requests(&lab, &caller).await;
        on_kept_connections(&lab, &caller).await;
        between_hops(&lab, &caller).await;
        answers(&lab, &caller).await;
        times_to_live(&lab, &caller).await;
        texts(&lab, &caller).await;
        let ask = get("http://db.example.com/", &caller);
        lab.world.name("db.example.com", Zone::turns(&[INTERNAL[0]]));
        refused(lab.ask(&ask).await, "what is open to another role");
        for inside in [METADATA, "10.10.0.2", "127.0.0.1"] {
            lab.world.name("db.example.com", Zone::turns(&[inside]));
            refused(lab.ask(&get("http://db.example.com/", &operator)).await, "what no opening names");
        }
        assert_eq!(lab.caught(), (0, 0), "packets inside, or connections to what is not to be called");

        // Whether the judge can convict: what an opening lets in is seen, in both families.
        for (nth, inside) in [(1, INTERNAL[0]), (2, INTERNAL[1])] {
            lab.world.name("db.example.com", Zone::turns(&[inside]));
            let said = lab.ask(&get("http://db.example.com/", &operator)).await.expect("an answer");
            assert_eq!((said.status, said.body.as_str()), (200, "inside"), "{said:?}");
            let (packets, made) = lab.caught();
            assert!(packets >= 3 * nth && made == nth, "{packets} packets, {made} connections");
        }
        drop(node);
    });
}
