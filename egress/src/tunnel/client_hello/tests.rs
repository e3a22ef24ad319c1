use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

const RECORDED: [(&str, &str); 12] = [
    ("chrome", include_str!("recorded/chrome.hex")),
    ("curl", include_str!("recorded/curl.hex")),
    ("firefox", include_str!("recorded/firefox.hex")),
    ("go", include_str!("recorded/go.hex")),
    ("java", include_str!("recorded/java.hex")),
    ("node", include_str!("recorded/node.hex")),
    ("openssl", include_str!("recorded/openssl.hex")),
    ("openssl-address", include_str!("recorded/openssl-address.hex")),
    ("openssl-no-name", include_str!("recorded/openssl-no-name.hex")),
    ("openssl-tls12", include_str!("recorded/openssl-tls12.hex")),
    ("python", include_str!("recorded/python.hex")),
    ("safari", include_str!("recorded/safari.hex")),
];

fn recorded(name: &str) -> Vec<u8> {
    let (_, text) = RECORDED.iter().find(|(file, _)| *file == name).unwrap();
    let digits: String = text.split_whitespace().collect();
    data_encoding::HEXLOWER.decode(digits.as_bytes()).unwrap()
}

fn name(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

fn hello(server_name: Option<&str>) -> Progress {
    Progress::Hello(Hello { server_name: server_name.map(name), has_ech: false })
}

fn read(bytes: &[u8]) -> Progress {
    HelloReader::default().advance(bytes)
}

/// The answer to the same bytes in pieces.
fn read_in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Progress {
    let mut reader = HelloReader::default();
    let mut last = Progress::More;
    for piece in pieces {
        last = reader.advance(piece);
        if last != Progress::More {
            break;
        }
    }
    last
}

fn of_rustls(server_name: ServerName<'static>, adjust: impl FnOnce(&mut ClientConfig)) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    adjust(&mut config);
    let mut bytes = Vec::new();
    ClientConnection::new(Arc::new(config), server_name).unwrap().write_tls(&mut bytes).unwrap();
    bytes
}

/// The handshake message out of the records of a hello.
fn message_of(mut records: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    while let Some((header, rest)) = records.split_first_chunk::<5>() {
        let (part, behind) = rest.split_at(u16::from_be_bytes([header[3], header[4]]).into());
        message.extend_from_slice(part);
        records = behind;
    }
    message
}

/// A message in records of at most so many bytes.
fn in_records(message: &[u8], bytes_max: usize) -> Vec<u8> {
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    };
    message.chunks(bytes_max).flat_map(record).collect()
}

fn prefixed(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn host_name(text: &[u8]) -> Vec<u8> {
    prefixed(&[&[0], &prefixed(text)[..]].concat())
}

/// Everything up to the extensions, then these.
fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let extensions: Vec<u8> =
        extensions.iter().flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &prefixed(content)].concat()).collect();
    message_with(&prefixed(&extensions))
}

fn message_with(behind: &[u8]) -> Vec<u8> {
    // Version, random, session id, two suites, no compression.
    let front = [&[3, 3][..], &[7; 32], &[0], &[0, 4, 0x13, 1, 0x13, 2], &[1, 0]].concat();
    let length = u32::try_from(front.len() + behind.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &front, behind].concat()
}

fn whole(message: &[u8]) -> Vec<u8> {
    in_records(message, 1 << 14)
}

fn with_names(content: &[u8]) -> Vec<u8> {
    whole(&message(&[(SERVER_NAME, content.to_vec())]))
}

fn fault(fault: HelloFault) -> Progress {
    Progress::Malformed(fault)
}

#[test]
fn hellos_of_the_clients_that_people_use() {
    for (client, _) in RECORDED {
        let expected = match client {
            "openssl-no-name" => hello(None),
            "openssl-address" => fault(HelloFault::ServerName(Malformed::Ipv4)),
            "chrome" | "firefox" => {
                Progress::Hello(Hello { server_name: Some(name("api.example.com")), has_ech: true })
            }
            _ => hello(Some("api.example.com")),
        };
        let bytes = recorded(client);
        assert_eq!(read(&bytes), expected, "{client}");
        assert_eq!(read_in_pieces(bytes.chunks(1)), expected, "{client}, byte by byte");
        assert_eq!(read_in_pieces(bytes.chunks(1400)), expected, "{client}, in packets");
        let message = message_of(&bytes);
        for bytes_max in [message.len().div_ceil(64), 100, 512] {
            let cut = in_records(&message, bytes_max);
            assert_eq!(read(&cut), expected, "{client}, in records of {bytes_max}");
            assert_eq!(read_in_pieces(cut.chunks(7)), expected, "{client}, in records of {bytes_max} and in pieces");
        }
        for end in 0..bytes.len() {
            let early = read(&bytes[..end]);
            assert!(early == Progress::More || client == "openssl-address", "{client} after {end} bytes: {early:?}");
        }
    }
}

#[test]
fn hellos_of_rustls() {
    let named = || ServerName::try_from("API.Example.com").unwrap();
    assert_eq!(read(&of_rustls(named(), |_| {})), hello(Some("api.example.com")));
    assert_eq!(read(&of_rustls(named(), |config| config.enable_sni = false)), hello(None));
    assert_eq!(read(&of_rustls(ServerName::try_from("192.0.2.1").unwrap(), |_| {})), hello(None));
    for protocols in [&["h2"][..], &["h2", "http/1.1"], &["x"; 60]] {
        let bytes = of_rustls(named(), |config| {
            config.alpn_protocols = protocols.iter().map(|id| id.as_bytes().to_vec()).collect();
        });
        assert_eq!(read(&bytes), hello(Some("api.example.com")), "{protocols:?}");
    }
}

#[test]
fn what_is_not_tls_is_told_by_its_first_bytes() {
    let others: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"SSH-2.0-x\r\n",
        b"\x05\x01\x00",
        b"\0",
        b"\x16\x02",
        // SSL 2.0's own hello, which servers took until some years ago.
        b"\x80\x2e\x01\x03\x01",
    ];
    for other in others {
        assert_eq!(read(other), Progress::NotTls, "{other:?}");
        assert_eq!(read_in_pieces(other.chunks(1)), Progress::NotTls, "{other:?}");
    }
    // Application data, an alert: TLS, and not the beginning of it.
    assert_eq!(read(b"\x17\x03\x03\x00\x01\x00"), Progress::NotTls);
    assert_eq!(read(b"\x15\x03\x01\x00\x02\x01\x00"), Progress::NotTls);
}

#[test]
fn records_that_are_none() {
    let good = message(&[(SERVER_NAME, host_name(b"a.example"))]);
    assert_eq!(read(b"\x16\x03\x01\x00\x00"), fault(HelloFault::Record));
    assert_eq!(read(b"\x16\x03\x01\x40\x01"), fault(HelloFault::Record));
    assert_eq!(read(b"\x16\x03\x01\x40\x00"), Progress::More);
    // A ServerHello, a hello request.
    assert_eq!(read(b"\x16\x03\x01\x00\x04\x02"), fault(HelloFault::OtherMessage));
    assert_eq!(read(b"\x16\x03\x01\x00\x04\x00"), fault(HelloFault::OtherMessage));
    // Something else between two records of the hello.
    let cut = in_records(&good, 20);
    for other in [20, 21, 23] {
        let mut interrupted = cut.clone();
        interrupted[25] = other;
        assert_eq!(read(&interrupted), fault(HelloFault::Interrupted));
    }
    // 64 records are taken, and 65 are not.
    assert_eq!(read(&in_records(&good, good.len().div_ceil(64))), hello(Some("a.example")));
    assert_eq!(read(&in_records(&good, 1)), fault(HelloFault::TooLong));
    // What comes behind the hello is the client's, unless it shares its record.
    let early_data = [whole(&good), b"\x14\x03\x03\0\x01\x01\x17\x03\x03\0\x03abc".to_vec()].concat();
    assert_eq!(read(&early_data), hello(Some("a.example")));
    assert_eq!(read(&whole(&[&good[..], &good].concat())), fault(HelloFault::Trailing));
    assert_eq!(read(&whole(&[&good[..], &[0]].concat())), fault(HelloFault::Trailing));
}

#[test]
fn sixteen_kib_and_no_more() {
    // 3 + 1 + 2 + 2 + 32 + 1 + 6 + 2 + 2 + 4 bytes are not the padding's.
    let front = message(&[(21, Vec::new())]).len();
    let at_most = message(&[(21, vec![0; MESSAGE_BYTES_MAX - front])]);
    assert_eq!(at_most.len(), MESSAGE_BYTES_MAX);
    assert_eq!(read(&whole(&at_most)), hello(None));
    let mut reader = HelloReader::default();
    assert_eq!(reader.advance(&in_records(&at_most, 16 << 4)), hello(None));
    assert!(reader.message.len() <= MESSAGE_BYTES_MAX);
    // One more is refused as soon as it is claimed.
    let claim = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0x3f, 0xfd]].concat();
    assert_eq!(read(&claim), fault(HelloFault::TooLong));
    assert_eq!(read(b"\x16\x03\x01\x02\x00\x01\xff\xff\xff"), fault(HelloFault::TooLong));
    // What is claimed costs nothing.
    let mut reader = HelloReader::default();
    assert_eq!(reader.advance(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]), Progress::More);
    assert!(reader.message.capacity() < 64);
}

#[test]
fn lengths_that_do_not_fit() {
    let good = message(&[(SERVER_NAME, host_name(b"a.example")), (10, vec![0, 2, 0, 29])]);
    // Cut short with the length of the message made to fit: never a hello with a name, and never a hello at all
    // but where the extensions are missing altogether.
    for end in 4..good.len() {
        let mut cut = good[..end].to_vec();
        cut[1..4].copy_from_slice(&u32::try_from(end - 4).unwrap().to_be_bytes()[1..]);
        let expected = if end == 4 + 2 + 32 + 1 + 6 + 2 { hello(None) } else { fault(HelloFault::Structure) };
        assert_eq!(read(&whole(&cut)), expected, "cut at {end}");
    }
    assert_eq!(read(&whole(&message_with(&[0, 0]))), hello(None));
    assert_eq!(read(&whole(&message_with(&[0, 0, 0]))), fault(HelloFault::Structure));
    assert_eq!(read(&whole(&message_with(&[0, 3, 0, 0, 0]))), fault(HelloFault::Structure));
    let changed = |at: usize, byte: u8| {
        let mut changed = good.clone();
        changed[at] = byte;
        read(&whole(&changed))
    };
    assert_eq!(changed(4, 2), fault(HelloFault::Structure), "the version of another protocol");
    assert_eq!(changed(38, 33), fault(HelloFault::Structure), "a session id of 33 bytes");
    assert_eq!(changed(40, 3), fault(HelloFault::Structure), "half a cipher suite");
}

#[test]
fn exactly_one_host_name() {
    assert_eq!(read(&with_names(&host_name(b"Api.EXAMPLE.com"))), hello(Some("api.example.com")));
    let two = [&[0][..], &prefixed(b"a.example"), &[0], &prefixed(b"b.example")].concat();
    let other_kind_behind = [&[0][..], &prefixed(b"a.example"), &[1], &prefixed(b"b.example")].concat();
    let other_kind_first = [&[1][..], &prefixed(b"b.example"), &[0], &prefixed(b"a.example")].concat();
    for list in [
        prefixed(&two),
        prefixed(&other_kind_behind),
        prefixed(&other_kind_first),
        prefixed(&[&[1][..], &prefixed(b"a.example")].concat()),
        // As a server answers; no list; an empty list; an empty name; a byte behind the list; lists too short, too long.
        Vec::new(),
        vec![0],
        vec![0, 0],
        host_name(b""),
        [host_name(b"a.example"), vec![0]].concat(),
        vec![0, 3, 0, 0, 1],
        vec![0, 5, 0, 0, 1, b'a'],
    ] {
        assert_eq!(read(&with_names(&list)), fault(HelloFault::ServerNameList), "{list:?}");
    }
    let twice =
        |kind, content: Vec<u8>| read(&whole(&message(&[(kind, content.clone()), (10, vec![]), (kind, content)])));
    assert_eq!(twice(SERVER_NAME, host_name(b"a.example")), fault(HelloFault::DuplicateExtension));
    assert_eq!(twice(ENCRYPTED_CLIENT_HELLO, vec![0]), fault(HelloFault::DuplicateExtension));
}

#[test]
fn names_that_are_none() {
    for (text, expected) in [
        (&b"192.0.2.1"[..], HelloFault::ServerName(Malformed::Ipv4)),
        (b"127.1", HelloFault::ServerName(Malformed::Ipv4)),
        (b"0x7f000001", HelloFault::ServerName(Malformed::Ipv4)),
        (b"2001:db8::1", HelloFault::ServerName(Malformed::Character)),
        (b"[::1]", HelloFault::ServerName(Malformed::Character)),
        (b"a.example:443", HelloFault::ServerName(Malformed::Character)),
        (b"a.example.", HelloFault::FinalDot),
        (b".", HelloFault::FinalDot),
        (b".a.example", HelloFault::ServerName(Malformed::LabelEmpty)),
        (b"a..example", HelloFault::ServerName(Malformed::LabelEmpty)),
        (b"xn--example-.org", HelloFault::ServerName(Malformed::LabelHyphen)),
        (b"xn--a.example", HelloFault::ServerName(Malformed::ALabel)),
        ("b\u{fc}cher.example".as_bytes(), HelloFault::ServerName(Malformed::NotAscii)),
        (b"a.example\xff", HelloFault::ServerName(Malformed::NotAscii)),
        (b"a.example\0", HelloFault::ServerName(Malformed::Control)),
        (b"a.example\0.b.example", HelloFault::ServerName(Malformed::Control)),
        (b" a.example", HelloFault::ServerName(Malformed::Control)),
    ] {
        assert_eq!(read(&with_names(&host_name(text))), fault(expected), "{:?}", String::from_utf8_lossy(text));
    }
    let long = format!("{}.example", "a".repeat(64));
    assert_eq!(read(&with_names(&host_name(long.as_bytes()))), fault(HelloFault::ServerName(Malformed::LabelTooLong)));
    let long = "a.".repeat(5000);
    assert_eq!(
        read(&with_names(&host_name(&[long.as_bytes(), b"b"].concat()))),
        fault(HelloFault::ServerName(Malformed::TooLong))
    );
}

/// What rustls makes of the same bytes: a hello and its name, or nothing yet, or a fault.
#[expect(clippy::option_option, reason = "a hello or not yet one, and in it a name or none")]
fn acceptor(bytes: &[u8]) -> Result<Option<Option<String>>, ()> {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return Err(());
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(Some(accepted.client_hello().server_name().map(str::to_owned))),
            Ok(None) => {}
            Err(_) => return Err(()),
        }
    }
    Ok(None)
}

/// Where both read a hello, both read the same name.
fn agree(bytes: &[u8]) {
    if let (Progress::Hello(ours), Ok(Some(theirs))) = (read(bytes), acceptor(bytes)) {
        assert_eq!(ours.server_name.as_ref().map(HostName::as_str), theirs.as_deref());
    }
}

#[test]
fn rustls_reads_the_same_names() {
    for (client, _) in RECORDED {
        let bytes = recorded(client);
        agree(&bytes);
        let is_address = client == "openssl-address";
        assert_eq!(matches!(read(&bytes), Progress::Hello(_)), !is_address, "{client}");
        assert!(matches!(acceptor(&bytes), Ok(Some(_))), "{client}");
    }
    // Why rustls is the second opinion and not the first: an address is no name to it, a name of an unknown kind and all
    // behind it is skipped, and it wants signature algorithms.
    assert_eq!(acceptor(&recorded("openssl-address")), Ok(Some(None)));
    let signatures = (13, vec![0, 2, 4, 3]);
    let odd = prefixed(&[&[0][..], &prefixed(b"a.example"), &[1], &prefixed(b"b.example")].concat());
    let odd = whole(&message(&[(SERVER_NAME, odd), signatures]));
    assert_eq!(acceptor(&odd), Ok(Some(Some("a.example".to_owned()))));
    assert_eq!(acceptor(&with_names(&host_name(b"a.example"))), Err(()));
}

proptest! {
    #[test]
    fn changed_hellos_are_read_as_rustls_reads_them_or_refused(
        which in 0..RECORDED.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = recorded(RECORDED[which].0);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        agree(&bytes);
    }

    #[test]
    fn cuts_change_nothing(
        which in 0..RECORDED.len(),
        change in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
        record in 40_usize..3000,
        pieces in proptest::collection::vec(1_usize..200, 1..40),
    ) {
        let mut bytes = in_records(&message_of(&recorded(RECORDED[which].0)), record);
        if let Some((at, byte)) = change {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut rest = &bytes[..];
        let cut = pieces.iter().cycle().map_while(|piece| {
            let (front, behind) = rest.split_at((*piece).min(rest.len()));
            rest = behind;
            (!front.is_empty()).then_some(front)
        });
        prop_assert_eq!(read(&bytes), read_in_pieces(cut));
    }
}
