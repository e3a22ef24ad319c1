//! Signed deliveries, made in advance: a ring of distinct requests that the load generator only has to send.

use std::fmt::Write;

use data_encoding::HEXLOWER;
use ring::hmac;

use crate::load::Requests;

/// Where deliveries go, and what they are signed with.
#[derive(Debug, Clone)]
pub struct Target {
    pub path: String,
    pub secret: String,
}

/// One request, whole, as bytes. Its delivery id is a field of fixed width that is written anew for every send, so
/// that no two requests of a run are the same delivery; GitHub does not sign that header.
#[derive(Debug)]
pub struct Request {
    pub bytes: Box<[u8]>,
    /// Where the 12 digits at the end of the delivery id begin.
    pub id_at: usize,
}

#[derive(Debug)]
pub struct Ring(Box<[Request]>);

/// Digits of the delivery id that are written per send.
pub const ID_DIGITS: usize = 12;

impl Ring {
    /// `count` requests with bodies of `body_bytes`, one target after the other.
    pub fn signed(count: usize, targets: &[Target], host: &str, body_bytes: usize) -> Self {
        let keys: Vec<_> =
            targets.iter().map(|target| hmac::Key::new(hmac::HMAC_SHA256, target.secret.as_bytes())).collect();
        Self(
            (0..count)
                .map(|n| {
                    let body = body(n, body_bytes);
                    let at = n % targets.len();
                    let signature = HEXLOWER.encode(hmac::sign(&keys[at], body.as_bytes()).as_ref());
                    request(&targets[at].path, host, &signature, &body)
                })
                .collect(),
        )
    }

    pub fn get(&self, n: usize) -> &Request {
        &self.0[n % self.0.len()]
    }
}

impl Requests for Ring {
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        self.get(n as usize).write(n, out);
    }
}

/// A push event's shape, with an id of its own, padded to length.
fn body(n: usize, bytes: usize) -> String {
    let mut body = format!(
        "{{\"ref\":\"refs/heads/main\",\"after\":\"{n:040x}\",\"repository\":{{\"id\":{n},\"full_name\":\"octo/hello\"}},\
         \"pusher\":{{\"name\":\"octocat\"}},\"message\":\""
    );
    let mut state = n as u64 ^ 0x9e37_79b9_7f4a_7c15;
    while body.len() + 2 < bytes {
        // Text that neither compresses away nor needs escaping.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        body.push(char::from(b'a' + ((state >> 33) % 26) as u8));
    }
    body.push_str("\"}");
    body
}

fn request(path: &str, host: &str, signature: &str, body: &str) -> Request {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: GitHub-Hookshot/bench\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nX-GitHub-Event: push\r\nX-GitHub-Hook-ID: 292430182\r\n\
         X-Hub-Signature-256: sha256={signature}\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-"
    );
    let id_at = head.len();
    // Writing to a String does not fail.
    let _ = write!(head, "{:0ID_DIGITS$}\r\nContent-Length: {}\r\n\r\n{body}", 0, body.len());
    Request { bytes: head.into_bytes().into(), id_at }
}

impl Request {
    /// Puts the request into `out`, with this delivery id.
    pub fn write(&self, mut id: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        for digit in out[self.id_at..self.id_at + ID_DIGITS].iter_mut().rev() {
            *digit = b'0' + (id % 10) as u8;
            id /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_distinct_signed_and_of_the_size_that_was_asked_for() {
        let target = Target { path: "/hooks/wh_1".into(), secret: "It's a Secret to Everybody".into() };
        let ring = Ring::signed(100, std::slice::from_ref(&target), "127.0.0.1:1", 1_024);
        let mut seen = std::collections::HashSet::new();
        for n in 0..100 {
            let text = String::from_utf8(ring.get(n).bytes.to_vec()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert_eq!(body.len(), 1_024);
            assert!(head.contains("Content-Length: 1024"));
            serde_json::from_str::<serde_json::Value>(body).unwrap();
            let signature = head.split("sha256=").nth(1).unwrap().split("\r\n").next().unwrap();
            let key = hmac::Key::new(hmac::HMAC_SHA256, target.secret.as_bytes());
            hmac::verify(&key, body.as_bytes(), &HEXLOWER.decode(signature.as_bytes()).unwrap()).unwrap();
            assert!(seen.insert(body.to_owned()));
        }
    }

    #[test]
    fn every_send_has_a_delivery_id_of_its_own() {
        let target = Target { path: "/x".into(), secret: "s".into() };
        let ring = Ring::signed(1, &[target], "h", 64);
        let mut out = Vec::new();
        ring.get(7).write(1_234, &mut out);
        assert!(
            String::from_utf8(out).unwrap().contains("X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-000000001234\r\n")
        );
    }
}
