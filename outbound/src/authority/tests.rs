use proptest::prelude::*;

use super::*;

fn refused(text: &str) -> Malformed {
    Authority::or_port(text, 443).expect_err(text)
}

fn shown(text: &str) -> String {
    Authority::or_port(text, 443).unwrap_or_else(|reason| panic!("{text}: {reason}")).to_string()
}

#[test]
fn what_is_equal_is_written_equally() {
    for (text, canonical) in [
        ("example.com", "example.com:443"),
        ("EXAMPLE.com.:8443", "example.com:8443"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example:443"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example:443"),
        ("_dmarc.a_b.example.com", "_dmarc.a_b.example.com:443"),
        ("r3---sn-4g5e.example.com", "r3---sn-4g5e.example.com:443"),
        ("123.example.com:1", "123.example.com:1"),
        ("1.2.3.4.example", "1.2.3.4.example:443"),
        ("0x7f.example", "0x7f.example:443"),
        ("8.8.8.8:65535", "8.8.8.8:65535"),
        ("[2001:DB8:0:0:0:0:0:1]:80", "[2001:db8::1]:80"),
        ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]:443"),
        ("[::FFFF:7f00:1]", "[::ffff:127.0.0.1]:443"),
        ("localhost", "localhost:443"),
    ] {
        assert_eq!(shown(text), canonical);
    }
}

#[test]
fn what_another_program_could_read_differently_is_refused_by_its_reason() {
    use Malformed as M;
    for (text, reason) in [
        ("", M::Empty),
        (".", M::Empty),
        (":443", M::Empty),
        ("example.com:", M::Port),
        ("example.com:0", M::Port),
        ("example.com:00080", M::Port),
        ("example.com:080", M::Port),
        ("example.com:+80", M::Character),
        ("example.com:-1", M::Port),
        ("example.com:65536", M::Port),
        ("example.com:65616", M::Port),
        ("example.com:99999999999999999999", M::Port),
        ("example.com:0x50", M::Port),
        ("example.com:http", M::Port),
        ("example.com:80:443", M::ColonInHost),
        ("::1", M::ColonInHost),
        ("::1:443", M::ColonInHost),
        ("[::1", M::Brackets),
        ("[::1]evil.com", M::Brackets),
        ("[::1]:80:80", M::Port),
        ("[[::1]]", M::Brackets),
        ("[]", M::Ipv6),
        ("[127.0.0.1]", M::Ipv6),
        ("[localhost]", M::Ipv6),
        ("[v1.fe80]", M::Ipv6),
        ("[[::1]", M::Ipv6),
        ("[::00001]", M::Ipv6),
        ("[::1.2.3.04]", M::Ipv6),
        ("[fe80::1%eth0]", M::PercentEncoded),
        ("a]b.example", M::Character),
        ("a[b.example", M::Character),
        ("127.1", M::Ipv4),
        ("127", M::Ipv4),
        ("0", M::Ipv4),
        ("2130706433", M::Ipv4),
        ("017700000001", M::Ipv4),
        ("0177.0.0.1", M::Ipv4),
        ("1.2.3.04", M::Ipv4),
        ("0x7f.1", M::Ipv4),
        ("0x7f000001", M::Ipv4),
        ("127.0.0.0X1", M::Ipv4),
        ("0x", M::Ipv4),
        ("127.0.0.0.1", M::Ipv4),
        ("127.0.0.256", M::Ipv4),
        ("127.0.0.1.", M::Ipv4),
        ("example.1", M::Ipv4),
        ("example.0x1f.", M::Ipv4),
        (".127.0.0.1", M::LabelEmpty),
        ("a..example", M::LabelEmpty),
        ("example.com..", M::LabelEmpty),
        ("-1", M::LabelHyphen),
        ("a-.example", M::LabelHyphen),
        ("xn--example-.org", M::LabelHyphen),
        ("example.org.xn--", M::LabelHyphen),
        ("xn--0.example", M::ALabel),
        ("xn--a.example", M::ALabel),
        ("xn--bcher-kvb9999999.example", M::ALabel),
        ("bücher.example", M::NotAscii),
        ("①②⑦.⓪.⓪.①", M::NotAscii),
        ("local\u{ad}host", M::NotAscii),
        ("%31%32%37.0.0.1", M::PercentEncoded),
        ("user@example.com", M::UserInfo),
        ("a\\b", M::Backslash),
        ("example.com/x", M::NotAuthority),
        ("example.com?x", M::NotAuthority),
        ("example.com#x", M::NotAuthority),
        ("127.0.0.1 ", M::Control),
        ("example.com\0", M::Control),
        ("\texample.com", M::Control),
        ("*", M::Character),
        ("a,b", M::Character),
    ] {
        assert_eq!(refused(text), reason, "{text:?}");
    }
    assert_eq!(Authority::with_port("example.com"), Err(M::PortMissing));
    assert_eq!(Authority::with_port("[::1]"), Err(M::PortMissing));
    assert_eq!(Authority::or_port("example.com", 0), Err(M::PortMissing));
    assert_eq!(Authority::with_port(b"\xff\xfe:1"), Err(M::NotAscii));
}

#[test]
fn a_label_that_decodes_to_plain_letters_is_no_a_label() {
    // `xn--example-` and `xn--localhost-` are caught by their hyphens; with a digit behind they are not.
    for text in ["xn--a-.example", "xn--localhost-", "xn--80ak6aa92e-.com", "xn--ls8h-.la", "xn--\u{31}a"] {
        assert!(Authority::or_port(text, 443).is_err(), "{text}");
    }
    // Two that people use.
    assert_eq!(shown("xn--ls8h.la"), "xn--ls8h.la:443");
    assert_eq!(shown("xn--80ak6aa92e.com"), "xn--80ak6aa92e.com:443");
}

#[test]
fn lengths_are_those_of_the_wire() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(longest.len(), 253);
    assert_eq!(shown(&longest), format!("{longest}:443"));
    assert_eq!(shown(&format!("{longest}.:65535")), format!("{longest}:65535"));
    assert_eq!(refused(&format!("{longest}b")), Malformed::TooLong);
    assert_eq!(refused(&format!("{label}a.example")), Malformed::LabelTooLong);
    assert_eq!(refused(&"a".repeat(1 << 20)), Malformed::TooLong);
}

#[test]
fn urls_are_taken_apart_at_one_place() {
    let target = Target::parse("HTTP://Example.com/a?u=http://127.0.0.1/").unwrap();
    assert_eq!(target.authority.to_string(), "example.com:80");
    assert_eq!(target.path_and_query, "/a?u=http://127.0.0.1/");
    let bare = Target::parse("https://[2606:4700::1111]?@allowed.example").unwrap();
    assert_eq!(
        (bare.authority.to_string().as_str(), bare.path_and_query),
        ("[2606:4700::1111]:443", "?@allowed.example")
    );
    for (text, reason) in [
        ("http://127.0.0.1#@allowed.example/", Malformed::Fragment),
        ("http://a.example@b.example/", Malformed::UserInfo),
        ("http://127.1.1.1:80\\@127.2.2.2:80/", Malformed::Backslash),
        ("http:\\\\127.0.0.1\\", Malformed::Backslash),
        ("http://a.example\n.b.example/", Malformed::Control),
        (" http://a.example/", Malformed::Control),
        ("http:/a.example/", Malformed::Scheme),
        ("http:a.example/", Malformed::Scheme),
        ("//a.example/", Malformed::Scheme),
        ("a.example:80", Malformed::Scheme),
        ("ftp://a.example/", Malformed::Scheme),
        ("ws://a.example/", Malformed::Scheme),
        ("httpss://a.example/", Malformed::Scheme),
        ("http:///", Malformed::Empty),
        ("http://a.example:/", Malformed::Port),
        ("", Malformed::Scheme),
        ("http", Malformed::Scheme),
        ("h\u{e9}tps://a.example/", Malformed::NotAscii),
    ] {
        assert_eq!(Target::parse(text), Err(reason), "{text:?}");
    }
}

#[test]
fn a_zone_ends_at_a_dot() {
    let name = HostName::parse("a.example.com").unwrap();
    assert!(name.is_within("example.com") && name.is_within("a.example.com") && name.is_within("com"));
    assert!(!name.is_within("ample.com") && !name.is_within("b.a.example.com"));
}

/// Text near authorities: pieces that parsers fall over, in any order.
fn near_authorities() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "a", "example", ".", "..", ":", "[", "]", "::1", "127", "0", "0x7f", "017", "%", "@", "\\", "/", "-", "_",
        "xn--", "443", "65536", "ü", "。", "\0", " ", "1", "A", "ffff:", "#", "?",
    ]);
    prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// What is read prints to a text that reads as the same authority, and that every strict reader of addresses and
    /// names sees the same way.
    #[test]
    fn one_reading_and_it_is_stable(text in prop_oneof![near_authorities(), ".{0,40}", "[a-z0-9.:\\[\\]-]{0,40}"]) {
        let Ok(authority) = Authority::or_port(&text, 443) else { return Ok(()) };
        let canonical = authority.to_string();
        prop_assert_eq!(Authority::with_port(&canonical), Ok(authority.clone()));
        prop_assert!(canonical.is_ascii());
        match authority.host() {
            Host::Name(name) => {
                prop_assert!(name.as_str().len() <= 253);
                prop_assert!(name.as_str().parse::<IpAddr>().is_err());
                prop_assert!(name.labels().all(|label| !label.is_empty() && label.len() <= 63));
                let last = name.labels().next_back().unwrap();
                prop_assert!(!last.bytes().all(|byte| byte.is_ascii_digit()));
            }
            Host::Address(address) => {
                let literal = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
                prop_assert!(canonical.starts_with(&literal));
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _read = (Authority::with_port(&bytes), Authority::or_port(&bytes, 80), Target::parse(&bytes));
    }

    /// Every address in its canonical form is read as itself.
    #[test]
    fn addresses_are_read_as_themselves(v4: u32, v6: u128, port in 1u16..) {
        let v4 = IpAddr::from(v4.to_be_bytes());
        let v6 = IpAddr::from(v6.to_be_bytes());
        prop_assert_eq!(Authority::with_port(format!("{v4}:{port}")).unwrap().address(), Some(v4));
        prop_assert_eq!(Authority::with_port(format!("[{v6}]:{port}")).unwrap().address(), Some(v6));
    }
}
