//! DNS over UDP and TCP (RFC 1035): as much of it as it takes to lie well.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::{PROVIDER, State, lock};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const NO_SUCH_NAME: u16 = 3;

/// One record of an answer.
#[derive(Debug, Clone)]
pub struct Record {
    /// Whose it is; the name's that was asked for, if nobody's.
    pub owner: Option<String>,
    pub data: Data,
    /// In seconds.
    pub ttl: u32,
}

#[derive(Debug, Clone)]
pub enum Data {
    Address(IpAddr),
    Alias(String),
}

/// An address of the name that is asked for, not to be kept.
pub fn address(text: &str) -> Record {
    Record { owner: None, data: Data::Address(text.parse().expect("an address")), ttl: 0 }
}

/// The name that is asked for is another one, which has records of its own in the same answer.
pub fn alias(to: &str) -> Record {
    Record { owner: None, data: Data::Alias(to.to_owned()), ttl: 0 }
}

impl Record {
    #[must_use]
    pub fn of(self, owner: &str) -> Self {
        Self { owner: Some(owner.to_owned()), ..self }
    }

    #[must_use]
    pub fn kept(self, ttl: u32) -> Self {
        Self { ttl, ..self }
    }

    fn kind(&self) -> u16 {
        match self.data {
            Data::Address(IpAddr::V4(_)) => A,
            Data::Address(IpAddr::V6(_)) => AAAA,
            Data::Alias(_) => CNAME,
        }
    }
}

/// What a name resolves to.
#[derive(Debug, Clone, Default)]
pub struct Zone {
    /// One answer after the other; the last one stays.
    pub answers: Vec<Vec<Record>>,
    /// By UDP it says that its answer is too long.
    pub only_tcp: bool,
    /// Comes first by UDP, under another id.
    pub spoof: Vec<Record>,
    /// There is no such name.
    pub is_absent: bool,
}

impl Zone {
    pub fn of(answers: &[&[Record]]) -> Self {
        Self { answers: answers.iter().map(|answer| answer.to_vec()).collect(), ..Self::default() }
    }

    /// This address, whoever asks and however often.
    pub fn always(text: &str) -> Self {
        Self::turns(&[text])
    }

    /// These addresses one after the other, each alone.
    pub fn turns(addresses: &[&str]) -> Self {
        Self { answers: addresses.iter().map(|text| vec![address(text)]).collect(), ..Self::default() }
    }
}

pub(super) async fn serve(at: SocketAddr, state: &Arc<State>) {
    let udp = UdpSocket::bind(at).await.expect("the DNS server's address");
    let tcp = TcpListener::bind(at).await.expect("the DNS server's address");
    let by_udp = Arc::clone(state);
    tokio::spawn(async move {
        let mut datagram = [0; 2048];
        while let Ok((count, peer)) = udp.recv_from(&mut datagram).await {
            for answer in answers(&datagram[..count], false, &by_udp) {
                // A resolver that has gone needs no answer.
                let _ = udp.send_to(&answer, peer).await;
            }
        }
    });
    let by_tcp = Arc::clone(state);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let state = Arc::clone(&by_tcp);
            tokio::spawn(async move {
                while let Ok(length) = stream.read_u16().await {
                    let mut question = vec![0; length.into()];
                    if stream.read_exact(&mut question).await.is_err() {
                        return;
                    }
                    for answer in answers(&question, true, &state) {
                        let mut framed = u16::try_from(answer.len()).expect("short").to_be_bytes().to_vec();
                        framed.extend(answer);
                        if stream.write_all(&framed).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
}

/// The messages that answer a question, in their order.
fn answers(message: &[u8], by_tcp: bool, state: &State) -> Vec<Vec<u8>> {
    let Some((name, end)) = question(message) else { return Vec::new() };
    let kind = u16::from_be_bytes([message[end - 4], message[end - 3]]);
    let usual = || Zone::turns(&[PROVIDER]);
    let zone = lock(&state.zones).get(&name).cloned().unwrap_or_else(usual);
    if zone.only_tcp && !by_tcp {
        return vec![build(message, end, 0x0200, &[])];
    }
    let mut given = lock(&state.given);
    let count = given.entry((name, kind)).or_default();
    let records = zone.answers.get(*count).or(zone.answers.last()).cloned().unwrap_or_default();
    *count += 1;
    drop(given);
    let of_kind = |records: Vec<Record>| {
        let wanted = |record: &Record| record.kind() == kind || record.kind() == CNAME;
        records.into_iter().filter(wanted).collect::<Vec<_>>()
    };
    let mut messages = Vec::new();
    if !zone.spoof.is_empty() && !by_tcp {
        let mut spoof = build(message, end, 0, &of_kind(zone.spoof));
        spoof[0] ^= 0xff;
        messages.push(spoof);
    }
    messages.push(build(message, end, if zone.is_absent { NO_SUCH_NAME } else { 0 }, &of_kind(records)));
    messages
}

/// The name that is asked for, in lower case, and where the question ends.
fn question(message: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
    (message.len() >= at + 4).then(|| (labels.join("."), at + 4))
}

fn build(question: &[u8], end: usize, flags: u16, records: &[Record]) -> Vec<u8> {
    let mut out = question[..2].to_vec();
    // An answer to a recursive question, by a recursive server.
    out.extend((0x8180 | flags).to_be_bytes());
    let count = u16::try_from(records.len()).expect("few");
    for number in [1, count, 0, 0] {
        out.extend(number.to_be_bytes());
    }
    out.extend(&question[12..end]);
    for record in records {
        match &record.owner {
            // A pointer to the question, so that the name is spelled as it was asked for.
            None => out.extend([0xc0, 12]),
            Some(owner) => out.extend(wire(owner)),
        }
        let data = match &record.data {
            Data::Address(IpAddr::V4(address)) => address.octets().to_vec(),
            Data::Address(IpAddr::V6(address)) => address.octets().to_vec(),
            Data::Alias(name) => wire(name),
        };
        out.extend(record.kind().to_be_bytes());
        out.extend(1_u16.to_be_bytes());
        out.extend(record.ttl.to_be_bytes());
        out.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        out.extend(data);
    }
    out
}

fn wire(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).expect("a label"));
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}
