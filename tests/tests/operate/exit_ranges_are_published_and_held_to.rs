use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tidegate_tests::metrics::Metrics;
use tidegate_tests::{Appliance, Node, eventually, tenant};

/// An address of our own that nobody listens on.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address")
}

/// One request, as plainly as it can be made: status, head and body.
fn get(to: SocketAddr, target: &str, more: &str) -> (u16, String, Vec<u8>) {
    ask(to, "GET", target, more)
}

fn ask(to: SocketAddr, method: &str, target: &str, more: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(to).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let request = format!("{method} {target} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head, answer[end..].to_vec())
}

fn field<'h>(head: &'h str, name: &str) -> &'h str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(have, _)| have.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

fn run(program: &str, words: &[&str], directory: &Path) -> Output {
    let output = Command::new(program).args(words).current_dir(directory).output();
    output.unwrap_or_else(|fault| panic!("{program}: {fault}; deploy/setup.sh test installs it"))
}

fn ranges(node: &Node, words: &[&str]) -> String {
    node.cli_ok(&[&["egress", "ranges"], words].concat())
}

const ROOT: &str = "/.well-known/";

/// Nobody calls out: without any pool, a node that publishes ranges is at fault.
const UNSEEN: &str = r#"[{ name = "default", addresses = [{ v4 = "127.0.0.1" }], private = true }]"#;

fn with_ranges(public: SocketAddr) -> Appliance {
    Appliance::new()
        .tenant(tenant("acme"))
        .set("egress", "listen", &format!("[\"{}\"]", free()))
        .set("egress", "pool", UNSEEN)
        .set("egress.ranges", "listen", &format!("[\"{public}\"]"))
        .set("egress.ranges", "notice", "\"0s\"")
        .set("egress.ranges", "drain", "\"0s\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_checked_with_public_tools() {
    let public = free();
    let mut node = with_ranges(public).prepare();
    node.start().await;
    let page = |name: &str| get(public, &format!("{ROOT}{name}"), "");
    let (status, head, _) = page("egress-ranges.json");
    assert_eq!((status, field(&head, "retry-after")), (503, "300"), "no list is not an empty list");

    ranges(&node, &["key", "--make"]);
    ranges(&node, &["announce", "93.184.216.0/24", "--country", "DE", "--region", "DE-BE", "--city", "São Paulo"]);
    ranges(&node, &["activate", "93.184.216.0/24"]);
    ranges(&node, &["announce", "2600:1f00:1234::/48", "--country", "FR", "--pool", "eu"]);
    eventually!(page("egress-ranges.json").2.windows(11).any(|at| at == b"\"serial\": 3"), "a running node takes it");

    let directory = node.directory.join("got");
    std::fs::create_dir(&directory).expect("a directory");
    let names = [
        "egress-ranges.json",
        "egress-ranges.json.sig",
        "egress-ranges.pub.pem",
        "egress-ranges.txt",
        "egress-ranges-geofeed.csv",
    ];
    for name in names {
        let (status, head, body) = page(name);
        assert_eq!(status, 200, "{name}");
        // HEAD says the same and has no body; what is known is not sent again.
        let (status, head_only, nothing) = ask(public, "HEAD", &format!("{ROOT}{name}"), "");
        assert_eq!((status, nothing.len()), (200, 0));
        assert_eq!(field(&head_only, "content-length"), body.len().to_string());
        let etag = field(&head, "etag");
        let date = field(&head, "last-modified");
        for known in [
            format!("If-None-Match: \"other\", W/{etag}\r\n"),
            "If-None-Match: *\r\n".into(),
            format!("If-Modified-Since: {date}\r\n"),
        ] {
            assert_eq!(get(public, &format!("{ROOT}{name}"), &known).0, 304, "{known}");
        }
        for unknown in [
            format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {date}\r\n"),
            "If-Modified-Since: nonsense\r\n".into(),
        ] {
            assert_eq!(get(public, &format!("{ROOT}{name}"), &unknown).0, 200, "{unknown}");
        }
        assert!(field(&head, "cache-control").starts_with("public, max-age="));
        std::fs::write(directory.join(name), body).expect("a file");
    }

    // OpenSSL takes signature, key and exact bytes as they are, and nothing else.
    let verify = |file: &str| {
        let words = ["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "egress-ranges.pub.pem", "-in", file];
        run("openssl", &[&words[..], &["-sigfile", "egress-ranges.json.sig"]].concat(), &directory)
    };
    let verified = verify("egress-ranges.json");
    assert!(verified.status.success(), "{verified:?}");
    assert!(!verify("egress-ranges.txt").status.success());

    // Python reads the other two by its own libraries.
    let script = "import csv, ipaddress\n\
        text = [ipaddress.ip_network(line.strip()) for line in open('egress-ranges.txt') if line.strip() and line[0] != '#']\n\
        feed = [row for row in csv.reader(open('egress-ranges-geofeed.csv', encoding='utf-8')) if row and row[0][0] != '#']\n\
        print(sorted(map(str, text)))\n\
        print([[str(ipaddress.ip_network(row[0]))] + row[1:] for row in feed])\n";
    let read = run("python3", &["-c", script], &directory);
    let expected = "['2600:1f00:1234::/48', '93.184.216.0/24']\n\
        [['93.184.216.0/24', 'DE', 'DE-BE', 'São Paulo', ''], ['2600:1f00:1234::/48', 'FR', '', '', '']]\n";
    assert_eq!(String::from_utf8_lossy(&read.stdout), expected, "{}", String::from_utf8_lossy(&read.stderr));

    // A past version that nobody has asked for is not made for HEAD, so that nobody knows how long it is.
    let past = format!("{ROOT}egress-ranges/2.json");
    let (status, unmade, _) = ask(public, "HEAD", &past, "");
    assert_eq!((status, field(&unmade, "content-length")), (200, ""), "{unmade}");
    let known = format!("If-None-Match: {}\r\n", field(&unmade, "etag"));
    assert_eq!(get(public, &past, &known).0, 304);
    let (_, made, body) = get(public, &past, "");
    assert_eq!(field(&made, "etag"), field(&unmade, "etag"));
    let (_, again, _) = ask(public, "HEAD", &past, "");
    assert_eq!(field(&again, "content-length"), body.len().to_string());

    // Old versions stay; what is exported is what is served.
    let (status, head, old) = page("egress-ranges/1.json");
    assert_eq!((status, field(&head, "cache-control")), (200, "public, max-age=31536000, immutable"));
    let exported = node.directory.join("exported");
    ranges(&node, &["export", exported.to_str().expect("UTF-8")]);
    assert_eq!(std::fs::read(exported.join("egress-ranges/1.json")).expect("it is there"), old);
    for name in names {
        assert_eq!(
            std::fs::read(exported.join(name)).expect("it is there"),
            std::fs::read(directory.join(name)).expect("it is there"),
            "{name}"
        );
    }

    // Nothing else is there, and nothing can be done there.
    for target in [
        "/",
        "/metrics",
        "/.well-known/",
        "/.well-known/egress-ranges/4.json",
        "/.well-known/egress-ranges/../x",
        "http://example.com/",
    ] {
        assert!((400..500).contains(&get(public, target, "").0), "{target}");
    }
    for method in ["POST", "PUT", "DELETE", "CONNECT"] {
        assert!(
            (400..500).contains(&ask(public, method, "/.well-known/egress-ranges.json", "Content-Length: 0\r\n").0),
            "{method}"
        );
    }

    // A book that breaks takes nothing away, and is told of.
    let book = node.directory.join("state/egress-ranges.book");
    let whole = std::fs::read(&book).expect("the book");
    let served = page("egress-ranges.json").2;
    std::fs::write(&book, &whole[..whole.len() / 2]).expect("damage");
    eventually!(
        String::from_utf8_lossy(&node.admin("/readyz").await.body).contains("egress-ranges.book"),
        "it is said"
    );
    assert_eq!(node.admin("/readyz").await.status, 200);
    assert_eq!(page("egress-ranges.json").2, served);
    let current = |metrics: &Metrics| metrics.sum("tidegate_egress_ranges_current", &[]);
    eventually!(current(&node.metrics().await) < 0.5);
    std::fs::write(&book, &whole).expect("it is put back");
    eventually!(current(&node.metrics().await) > 0.5);
    assert!((node.metrics().await.sum("tidegate_egress_ranges_prefixes", &["state=\"active\""]) - 1.0).abs() < 0.1);
    node.terminate().await;
}

/// What a provider sees: where each connection comes from.
fn provider() -> (SocketAddr, std::sync::mpsc::Receiver<SocketAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let (seen, sources) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            if seen.send(stream.peer_addr().expect("its peer")).is_err() {
                return;
            }
        }
    });
    (address, sources)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_moves_to_another_pool_without_a_restart() {
    let (destination, sources) = provider();
    let proxy = free();
    let token = "tgt_0123456789abcdefghijklmnopqrstuv";
    let hash = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let acme = |pool: &str| {
        let mut text = format!("\n[egress]\nallow = [{{ host = \"127.0.0.1\", ports = [{}] }}]\n", destination.port());
        write!(text, "pool = \"{pool}\"\n[[egress.token]]\nname = \"ci\"\nhash = \"sha256:").expect("text");
        hash.as_ref().iter().for_each(|byte| write!(text, "{byte:02x}").expect("text"));
        tenant("acme").extra(&(text + "\"\n"))
    };
    let pools = |second: &str| {
        format!(
            "[{{ name = \"default\", addresses = [{{ v4 = \"127.0.0.21\" }}], private = true }}, \
             {{ name = \"eu\", addresses = [{{ v4 = \"{second}\" }}], private = true }}]"
        )
    };
    let opening = format!(
        "[{{ host = \"127.0.0.1\", networks = [\"127.0.0.0/8\"], ports = [{}], tenant = \"acme\" }}]",
        destination.port()
    );
    let mut node = Appliance::new()
        .tenant(acme("default"))
        .set("egress", "listen", &format!("[\"{proxy}\"]"))
        .set("egress", "pool", &pools("127.0.0.22"))
        .set("egress", "opening", &opening)
        .start()
        .await;
    let call = || {
        let proof = format!("Proxy-Authorization: Bearer {token}\r\n");
        let mut stream = TcpStream::connect(proxy).expect("the proxy");
        let request =
            format!("GET http://{destination}/ HTTP/1.1\r\nHost: {destination}\r\nConnection: close\r\n{proof}\r\n");
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        sources.recv_timeout(Duration::from_secs(20)).expect("it was called").ip().to_string()
    };
    assert_eq!(call(), "127.0.0.21");
    let pid = node.pid();
    node.rewrite(acme("eu"));
    node.cli_ok(&["reload"]);
    assert_eq!(call(), "127.0.0.22");
    // A pool's address that is not on the machine: the file is refused whole, told by line, and what was stays.
    let config = std::fs::read_to_string(node.config()).expect("the file");
    std::fs::write(node.config(), config.replace("127.0.0.22", "192.0.2.22")).expect("a change");
    let refused = node.cli(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("egress.pool[1].addresses: 192.0.2.22 is not on this machine"), "{said}");
    assert_eq!(call(), "127.0.0.22");
    std::fs::write(node.config(), config.replace("127.0.0.22", "127.0.0.23")).expect("a change");
    node.cli_ok(&["reload"]);
    assert_eq!((call().as_str(), node.pid()), ("127.0.0.23", pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_published_is_refused_on_reload() {
    let public = free();
    let mut node = with_ranges(public).prepare();
    ranges(&node, &["key", "--make"]);
    ranges(&node, &["announce", "93.184.216.0/24"]);
    node.start().await;
    let config = std::fs::read_to_string(node.config()).expect("the file");
    let seen = r#"[{ name = "default", addresses = [{ v4 = "93.184.216.7" }], freebind = true }]"#;
    let line = 1 + config.lines().position(|line| line.contains(UNSEEN)).expect("its pool");
    std::fs::write(node.config(), config.replace(UNSEEN, seen)).expect("a change");
    let reload = |node: &Node| {
        let output = node.cli(&["reload"]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = reload(&node);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("tidegate.toml:{line}: egress.pool[0].addresses: 93.184.216.7 is in 93.184.216.0/24, which is announced and not active")), "{said}");
    // The day it becomes active the same file is in order, and nobody has to say so twice.
    ranges(&node, &["activate", "93.184.216.0/24"]);
    eventually!(!String::from_utf8_lossy(&node.admin("/readyz").await.body).contains("egress.pool"));
    assert_eq!(reload(&node).0, Some(0));
    node.terminate().await;
}
