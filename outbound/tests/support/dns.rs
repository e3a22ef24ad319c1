//! A DNS server that does what a test wants it to, by UDP and TCP on one port.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// One question, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Lower case, without the final dot.
    pub name: String,
    pub kind: RecordType,
    pub by_tcp: bool,
    /// How often this name and type were asked for before.
    pub before: usize,
}

/// What the server does about it.
#[derive(Debug, Clone)]
pub enum Reply {
    /// These records in the answer section.
    Records(Vec<Record>),
    /// An address in the additional section only.
    Beside(Vec<Record>),
    Code(ResponseCode),
    /// Says that the answer is too long for a datagram, and gives these of it.
    Truncated(Vec<Record>),
    /// Says nothing.
    Silence,
    /// First an answer with another id, then this one.
    AfterSpoof(Vec<Record>, Box<Self>),
    /// The name of the question comes back in lower case.
    LowerCase(Vec<Record>),
    /// No DNS message.
    Noise,
}

pub fn record(name: &str, address: &str, ttl: u32) -> Record {
    let data = match address.parse().unwrap() {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(dns_name(name), ttl, data)
}

pub fn alias(name: &str, to: &str, ttl: u32) -> Record {
    Record::from_rdata(dns_name(name), ttl, RData::CNAME(CNAME(dns_name(to))))
}

fn dns_name(text: &str) -> Name {
    Name::from_ascii(format!("{text}.")).unwrap()
}

type Behaviour = dyn Fn(&Asked) -> Reply + Send + Sync;

/// Runs as long as the runtime of the test.
pub struct Server {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub async fn start(behaviour: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        tokio::spawn(serve_udp(udp, Arc::clone(&behaviour), Arc::clone(&asked)));
        tokio::spawn(serve_tcp(tcp, behaviour, Arc::clone(&asked)));
        Self { address, asked }
    }

    /// Names that were asked for, each once.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.asked.lock().unwrap().iter().map(|asked| asked.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A port that is free for both.
async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

async fn serve_udp(socket: UdpSocket, behaviour: Arc<Behaviour>, asked: Arc<Mutex<Vec<Asked>>>) {
    let mut datagram = [0; 4096];
    loop {
        let (length, peer) = socket.recv_from(&mut datagram).await.unwrap();
        for answer in answers(&datagram[..length], false, &*behaviour, &asked) {
            socket.send_to(&answer, peer).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, behaviour: Arc<Behaviour>, asked: Arc<Mutex<Vec<Asked>>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (behaviour, asked) = (Arc::clone(&behaviour), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut message = vec![0; length.into()];
                stream.read_exact(&mut message).await.unwrap();
                for answer in answers(&message, true, &*behaviour, &asked) {
                    stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            }
        });
    }
}

fn answers(question: &[u8], by_tcp: bool, behaviour: &Behaviour, log: &Mutex<Vec<Asked>>) -> Vec<Vec<u8>> {
    let message = Message::from_vec(question).unwrap();
    let query = &message.queries[0];
    let name = query.name().to_ascii().to_lowercase().trim_end_matches('.').to_owned();
    let kind = query.query_type();
    let mut log = log.lock().unwrap();
    let before = log.iter().filter(|asked| asked.name == name && asked.kind == kind).count();
    let asked = Asked { name, kind, by_tcp, before };
    let reply = behaviour(&asked);
    log.push(asked);
    build(&message, reply)
}

fn build(question: &Message, reply: Reply) -> Vec<Vec<u8>> {
    let mut answer = question.clone().into_response();
    answer.metadata.recursion_available = true;
    match reply {
        Reply::Records(records) => answer.answers = with_case(question, records),
        Reply::Beside(records) => answer.additionals = with_case(question, records),
        Reply::Code(code) => answer.metadata.response_code = code,
        Reply::Truncated(records) => {
            answer.answers = with_case(question, records);
            answer.metadata.truncation = true;
        }
        Reply::Silence => return Vec::new(),
        Reply::Noise => return vec![b"noise".to_vec()],
        Reply::LowerCase(records) => {
            answer.queries[0].set_name(question.queries[0].name().to_lowercase());
            answer.answers = records;
        }
        Reply::AfterSpoof(records, then) => {
            answer.answers = with_case(question, records);
            answer.metadata.id ^= 1;
            let mut all = vec![answer.to_vec().unwrap()];
            all.extend(build(question, *then));
            return all;
        }
    }
    vec![answer.to_vec().unwrap()]
}

/// Records of the name that was asked for have it in the case in which it was asked for, as a server's would.
fn with_case(question: &Message, mut records: Vec<Record>) -> Vec<Record> {
    let asked = question.queries[0].name();
    for record in records.iter_mut().filter(|record| record.name == *asked) {
        record.name = asked.clone();
    }
    records
}
