//! Authorities and URLs: no bytes panic the parser, what is read has one canonical text that reads as the same, and
//! nothing that other programs take for an address passes as a name.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use outbound::{Authority, Host, Target};

fuzz_target!(|data: &[u8]| {
    if let Ok(target) = Target::parse(data) {
        let authority = &target.authority;
        let url = format!("{}://{}{}", target.scheme.as_str(), authority, target.path_and_query);
        let again = Target::parse(&url).expect("the canonical form is a URL");
        assert_eq!((&again.authority, again.path_and_query), (authority, target.path_and_query));
        check(authority);
    }
    let (strict, lax) = (Authority::with_port(data), Authority::or_port(data, 443));
    if let Ok(authority) = &lax {
        check(authority);
        assert_eq!(Authority::with_port(authority.to_string()).as_ref(), Ok(authority));
    }
    if let Ok(authority) = strict {
        assert_eq!(lax, Ok(authority), "the default changed what was written");
    }
});

fn check(authority: &Authority) {
    assert_ne!(authority.port(), 0);
    if let Host::Name(name) = authority.host() {
        let text = name.as_str();
        assert!(text.len() <= 253 && text.parse::<IpAddr>().is_err());
        assert!(text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.')));
        let last = name.labels().next_back().expect("a name has a label");
        assert!(!last.bytes().all(|byte| byte.is_ascii_digit()), "a browser reads an IPv4 address");
        let hex = last.strip_prefix("0x");
        assert!(hex.is_none_or(|hex| hex.bytes().any(|byte| !byte.is_ascii_hexdigit())), "and here too");
        assert!(name.labels().all(|label| (1..=63).contains(&label.len())));
    }
}
