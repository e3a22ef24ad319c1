use super::*;

fn verdict(address: &str) -> Verdict {
    AddressTable::shipped().row(address.parse().unwrap()).verdict
}

#[test]
fn the_longest_prefix_decides_and_its_neighbours_are_others() {
    use Verdict::{Internal, Never, Public};
    for (address, expected) in [
        ("9.255.255.255", Public),
        ("10.0.0.0", Internal),
        ("10.255.255.255", Internal),
        ("11.0.0.0", Public),
        ("100.63.255.255", Public),
        ("100.64.0.0", Internal),
        ("100.100.100.199", Internal),
        ("100.100.100.200", Never),
        ("100.100.100.201", Internal),
        ("100.127.255.255", Internal),
        ("100.128.0.0", Public),
        ("126.255.255.255", Public),
        ("127.0.0.0", Internal),
        ("128.0.0.0", Public),
        ("168.63.129.15", Public),
        ("168.63.129.16", Never),
        ("168.63.129.17", Public),
        ("169.253.255.255", Public),
        ("169.254.0.0", Never),
        ("169.254.255.255", Never),
        ("169.255.0.0", Public),
        ("172.15.255.255", Public),
        ("172.16.0.0", Internal),
        ("172.31.255.255", Internal),
        ("172.32.0.0", Public),
        ("192.0.0.7", Never),
        ("192.0.0.8", Never),
        ("192.0.0.9", Public),
        ("192.0.0.10", Public),
        ("192.0.0.11", Never),
        ("192.0.1.0", Public),
        ("198.17.255.255", Public),
        ("198.19.255.255", Internal),
        ("198.20.0.0", Public),
        ("223.255.255.255", Public),
        ("224.0.0.0", Never),
        ("239.255.255.255", Never),
        ("240.0.0.0", Internal),
        ("255.255.255.254", Internal),
        ("255.255.255.255", Never),
        ("0.0.0.0", Never),
        ("0.255.255.255", Never),
        ("1.0.0.0", Public),
        ("::", Never),
        ("::1", Internal),
        ("::2", Never),
        ("1fff:ffff::", Never),
        ("2000::", Public),
        ("2001::1", Never),
        ("2001:1::", Never),
        ("2001:1::1", Public),
        ("2001:1::3", Public),
        ("2001:1::4", Never),
        ("2001:1ff:ffff::", Never),
        ("2001:200::", Public),
        ("2001:1f::", Never),
        ("2001:20::", Public),
        ("2001:3f::1", Public),
        ("2001:40::", Never),
        ("2001:db7:ffff::", Public),
        ("2001:db8::", Internal),
        ("2001:db9::", Public),
        ("2002::", Never),
        ("2003::", Public),
        ("3ffe:ffff::", Public),
        ("3fff::", Internal),
        ("3fff:1000::", Public),
        ("4000::", Never),
        ("fbff::", Never),
        ("fc00::", Internal),
        ("fd00:ec1:ffff::1", Internal),
        ("fd00:ec2::123", Never),
        ("fd00:ec3::1", Internal),
        ("fdff:ffff::", Internal),
        ("fe00::", Never),
        ("fe80::1", Never),
        ("fec0::1", Internal),
        ("ff02::1", Never),
    ] {
        assert_eq!(verdict(address), expected, "{address}");
    }
}

/// The registries, as somebody else copied them.
#[test]
fn the_shipped_table_restates_the_registries() {
    let Some(text) = skip::shared_cases("special_addresses.json") else { return };
    let shared: serde_json::Value = serde_json::from_str(&text).unwrap();
    let table = AddressTable::shipped();
    assert!(shared["source"].as_str().unwrap().contains(table.registry_date()));
    let prefix = |row: &serde_json::Value| row["prefix"].as_str().unwrap().parse::<IpNet>();

    let mut registered = Vec::new();
    for theirs in shared["special_purpose"].as_array().unwrap() {
        let prefix = prefix(theirs).unwrap();
        let ours = table.rows().find(|row| row.prefix == prefix && row.is_registered);
        let ours = ours.unwrap_or_else(|| panic!("{prefix} is missing"));
        // "decode-embedded" is closed in the table; the decoding is in code, behind an opt-in.
        let is_public = theirs["recommended"] == "allow";
        assert_eq!(ours.verdict == Verdict::Public, is_public, "{prefix}");
        assert!(theirs["rfc"].as_str().unwrap().replace(' ', "").contains(&ours.source.replace(' ', "")), "{prefix}");
        registered.push(prefix);
    }
    for ours in table.rows().filter(|row| row.is_registered) {
        assert!(registered.contains(&ours.prefix), "{} stands in no registry", ours.prefix);
    }
    for theirs in shared["not_in_the_registries"].as_array().unwrap() {
        // ISATAP is a pattern and no prefix.
        let Ok(prefix) = prefix(theirs) else { continue };
        for address in [prefix.network(), prefix.broadcast()] {
            assert_ne!(table.row(address).verdict, Verdict::Public, "{address} of {prefix}");
        }
        if theirs["note"].as_str().unwrap().contains("always-deny") {
            assert_eq!(table.row(prefix.addr()).verdict, Verdict::Never, "{prefix}");
        }
    }
    println!("{} registered rows, {} in all", registered.len(), table.rows().count());
}

#[test]
fn names_of_the_inside() {
    let table = AddressTable::shipped();
    let zone = |name: &str| table.name_row(&HostName::parse(name).unwrap()).map(|row| row.zone.clone());
    for (name, expected) in [
        ("localhost", "localhost"),
        ("a.b.LOCALHOST.", "localhost"),
        ("metadata.google.internal", "internal"),
        ("kubernetes.default.svc", "svc"),
        ("x.svc.cluster.local", "local"),
        ("printer.home.arpa", "home.arpa"),
    ] {
        assert_eq!(zone(name).as_deref(), Some(expected), "{name}");
    }
    for name in ["example.com", "internal.example.com", "notlocal", "xlocalhost.example", "home.example", "arpa"] {
        assert_eq!(zone(name), None, "{name}");
    }
}

#[test]
fn a_table_with_a_hole_does_not_load() {
    let shipped = include_str!("../../addresses.toml");
    let with = |from: &str, to: &str| {
        assert_eq!(shipped.matches(from).count(), 1, "{from}");
        AddressTable::parse(&shipped.replace(from, to)).map(|table| table.rows().count())
    };
    let row = |prefix: &str| format!("prefix = \"{prefix}\"");
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    assert!(AddressTable::parse(shipped).is_ok());
    assert!(matches!(with("registry_date", "date"), Err(TableFault::Syntax(_))));
    assert_eq!(with("2025-06-30", "2025-6-30"), Err(TableFault::Date("2025-6-30".into())));
    assert_eq!(with("2025-06-30", "2025-13-30"), Err(TableFault::Date("2025-13-30".into())));
    assert_eq!(
        with(&row("10.0.0.0/8"), &row("10.0.0.1/8")),
        Err(TableFault::HostBits(net("10.0.0.1/8"), net("10.0.0.0/8")))
    );
    assert_eq!(with(&row("10.0.0.0/8"), &row("127.0.0.0/8")), Err(TableFault::Twice(net("127.0.0.0/8"))));
    assert_eq!(with(&row("10.0.0.0/8"), &row("fd00::/8")), Err(TableFault::Family(net("fd00::/8"))));
    assert_eq!(with(&row("0.0.0.0/0"), &row("0.0.0.0/1")), Err(TableFault::Source("0.0.0.0/1".into())));
    assert_eq!(with(&row("::/0"), &row("8000::/1")), Err(TableFault::NoDefault(net("::/0"))));
    assert_eq!(with("zone = \"onion\"", "zone = \"Onion.\""), Err(TableFault::Zone("Onion.".into())));
    // What embeds IPv4 addresses cannot be opened by the table either, as a whole or in part.
    for prefix in ["::ffff:0.0.0.0/96", "2002::/16", "2001::/32", "64:ff9b::/96", "::/96"] {
        let start = shipped.find(&row(prefix)).unwrap();
        let mut text = shipped.to_owned();
        let verdict = start + text[start..].find("\"never\"").unwrap();
        text.replace_range(verdict..verdict + 7, "\"internal\"");
        assert_eq!(AddressTable::parse(&text).err(), Some(TableFault::Embedding(net(prefix))), "{prefix}");
    }
    let public = "verdict = \"public\",   name = \"global unicast\"";
    let text = shipped.replace("\"2000::/3\"", "\"2002:808::/32\"");
    assert!(text.contains(public));
    assert_eq!(AddressTable::parse(&text).err(), Some(TableFault::Embedding(net("2002::/16"))));
}
