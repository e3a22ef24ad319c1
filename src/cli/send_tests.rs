//! `send` against a listener that answers as an appliance would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::exit::Exit;
use super::testing::{Files, GOOD};

/// Takes `count` deliveries over one connection and answers each with `answer`; returns what came.
fn listener(count: usize, answer: (&'static str, &'static str)) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hooks/wh_9f2c1b7a", listener.local_addr().unwrap());
    let taken = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        (0..count).map(|_| take(&mut reader, &stream, answer)).collect()
    });
    (url, taken)
}

fn take(reader: &mut BufReader<TcpStream>, mut stream: &TcpStream, (head, said): (&str, &str)) -> String {
    let (mut text, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        text.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    text.push_str(std::str::from_utf8(&body).unwrap());
    write!(stream, "HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{said}", said.len()).unwrap();
    text
}

const ACCEPTED: (&str, &str) = ("202 Accepted", "{\"eventId\":\"evt_\\u001b[31m1\",\"executionId\":\"ex_1\"}");
const LIMITED: (&str, &str) =
    ("429 Too Many Requests\r\nretry-after: 7", "{\"code\":\"rate-limited\",\"title\":\"Too many deliveries.\"}");

#[test]
fn a_delivery_is_signed_and_its_answer_shown() {
    let files = Files::with(GOOD);
    let (url, taken) = listener(1, ACCEPTED);
    let ran = files.run(&["send", "--endpoint", "wh_9f2c1b7a", "--url", &url, "--body", "-"], b"Hello, World!");
    assert_eq!(ran.exit, Exit::Yes, "{}{}", ran.answer, ran.remarks);
    assert!(ran.answer.starts_with("202  evt_\\u{1b}[31m1  ") && ran.answer.ends_with(" ms\n"), "{}", ran.answer);
    let request = &taken.join().unwrap()[0];
    assert!(request.starts_with("POST /hooks/wh_9f2c1b7a HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"), "{request}");
    assert!(request.ends_with("\r\n\r\nHello, World!"), "{request}");
}

#[test]
fn a_refusal_is_a_no_with_its_code() {
    let files = Files::with(GOOD);
    let (url, _taken) = listener(1, LIMITED);
    let ran = files.run(&["send", "--endpoint", "wh_9f2c1b7a", "--url", &url], b"");
    assert_eq!(ran.exit, Exit::No, "{}", ran.remarks);
    assert!(ran.answer.starts_with("429  rate-limited: Too many deliveries.  "), "{}", ran.answer);
    assert!(ran.remarks.contains("after 7 s"), "{}", ran.remarks);
}

#[test]
fn several_go_over_one_connection_and_are_numbered() {
    let files = Files::with(GOOD);
    let (url, taken) = listener(3, ACCEPTED);
    let ran = files.run(&["send", "--endpoint", "wh_9f2c1b7a", "--url", &url, "--count", "3", "--json"], b"");
    assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
    let lines: Vec<serde_json::Value> = ran.answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line["status"] == 202 && line["executionId"] == "ex_1" && line["ms"].is_f64()));
    let requests = taken.join().unwrap();
    assert!(requests.iter().enumerate().all(|(at, text)| text.contains(&format!("\"number\":{at}"))), "{requests:?}");
}

#[test]
fn nobody_there_is_a_failure() {
    let files = Files::with(GOOD);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = files.run(&["send", "--endpoint", "wh_9f2c1b7a", "--url", &format!("http://{closed}/")], b"");
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.remarks.contains("tidegate run"), "{}", ran.remarks);
    let ran = files.run(&["send", "--endpoint", "wh_9f2c1b7a", "--url", "https://hooks.example.com/"], b"");
    assert_eq!(ran.exit, Exit::Usage);
}

#[test]
fn one_endpoint_s_fault_is_not_the_others() {
    let other = "[[endpoint]]\nid = \"wh_other\"\nscheme = \"github\"\nsecrets = [{ value = \"secret:missing\" }]\n";
    let files = Files::with(&format!("{GOOD}{other}"));
    let curl = |endpoint: &str| files.run(&["send", "--endpoint", endpoint, "--print-curl"], b"");
    let good = curl("wh_9f2c1b7a");
    assert_eq!(good.exit, Exit::Yes, "{}", good.remarks);
    assert!(
        good.answer.contains("X-Hub-Signature-256") && good.remarks.contains("acme.secrets/missing"),
        "{}",
        good.remarks
    );
    let faulty = curl("wh_other");
    assert_eq!((faulty.exit, faulty.answer.as_str()), (Exit::Failed, ""));
    assert!(faulty.remarks.contains("endpoint[1].secrets[0].value"), "{}", faulty.remarks);

    for whole in ["nonsense\n", "[[scheme]]\nname = \"github2\"\n"] {
        files.write("tenants/acme.toml", &format!("{GOOD}{whole}"));
        assert_eq!(curl("wh_9f2c1b7a").exit, Exit::Failed, "{whole}: it may have been about any of them");
    }
}
