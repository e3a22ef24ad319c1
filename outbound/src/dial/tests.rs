use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use super::*;
use crate::authority::Authority;
use crate::exit::{ExitAddress, Source};
use crate::own::Own;
use crate::table::AddressTable;
use crate::vet::Rules;

/// How a scripted address behaves.
#[derive(Debug, Clone)]
enum Peer {
    Accepts { after_ms: u64 },
    Fails { after_ms: u64, fault: ConnectFault },
    Silent,
}

/// Whom, when in milliseconds, and from where.
type Tried = (String, u64, Option<Source>);

/// Connects to nothing, and notes who was tried, when, and from where.
#[derive(Debug, Clone, Default)]
struct Scripted {
    peers: Vec<(IpAddr, Peer)>,
    tried: Arc<Mutex<Vec<Tried>>>,
    began: Option<Instant>,
}

impl Connect for Scripted {
    type Stream = DuplexStream;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<DuplexStream>, ConnectFault> {
        let began = self.began.unwrap();
        let at_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
        self.tried.lock().unwrap().push((to.to_string(), at_ms, from));
        let peer =
            &self.peers.iter().find(|(address, _)| *address == to.socket().ip()).expect("only what was scripted").1;
        match peer {
            Peer::Accepts { after_ms } => {
                sleep(Duration::from_millis(*after_ms)).await;
                let local = SocketAddr::new(from.map_or(LOCAL, |source| source.address), 40_000);
                Ok(Connected { stream: tokio::io::duplex(64).0, local })
            }
            Peer::Fails { after_ms, fault } => {
                sleep(Duration::from_millis(*after_ms)).await;
                Err(fault.clone())
            }
            Peer::Silent => std::future::pending().await,
        }
    }
}

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const V6A: &str = "2606:4700::1";
const V6B: &str = "2606:4700::2";
const V4A: &str = "93.184.216.34";
const V4B: &str = "93.184.216.35";

fn vetted(addresses: &[&str]) -> Vetted {
    let rules = Rules { table: Arc::new(AddressTable::shipped()), own: Own::default(), nat64: Vec::new() };
    let answer: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    rules.vet(&Authority::with_port("a.example:443").unwrap(), &answer, &[]).unwrap()
}

fn refuses() -> Peer {
    Peer::Fails { after_ms: 0, fault: ConnectFault::Refused }
}

struct Outcome {
    result: Result<Dialled<DuplexStream>, DialError>,
    /// Address without port, and when its attempt began.
    tried: Vec<(String, u64)>,
    sources: Vec<Option<IpAddr>>,
    took_ms: u128,
}

async fn dial(order: &[&str], peers: &[(&str, Peer)], exit: &Exit) -> Outcome {
    let connector = Scripted {
        peers: peers.iter().map(|(address, peer)| (address.parse().unwrap(), peer.clone())).collect(),
        tried: Arc::default(),
        began: Some(Instant::now()),
    };
    let tried = Arc::clone(&connector.tried);
    let began = Instant::now();
    let result = Dialer::with_connector(connector, DialSettings::default()).dial(&vetted(order), exit).await;
    let took_ms = began.elapsed().as_millis();
    let tried = tried.lock().unwrap();
    Outcome {
        result,
        tried: tried.iter().map(|(socket, at, _)| (socket.replace(":443", "").replace(['[', ']'], ""), *at)).collect(),
        sources: tried.iter().map(|(.., source)| source.map(|source| source.address)).collect(),
        took_ms,
    }
}

fn names(tried: &[(String, u64)]) -> Vec<(&str, u64)> {
    tried.iter().map(|(address, at)| (address.as_str(), *at)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_that_answers_wins_and_nobody_else_is_tried() {
    let outcome =
        dial(&[V4A, V6A], &[(V6A, Peer::Accepts { after_ms: 100 }), (V4A, Peer::Silent)], &Exit::Unbound).await;
    let dialled = outcome.result.unwrap();
    assert_eq!(dialled.address.to_string(), "[2606:4700::1]:443");
    assert_eq!(names(&outcome.tried), [(V6A, 0)]);
    assert!(dialled.failed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn families_take_turns_and_silence_starts_the_next() {
    let peers = [(V6A, Peer::Silent), (V6B, Peer::Silent), (V4A, Peer::Silent), (V4B, Peer::Accepts { after_ms: 10 })];
    let outcome = dial(&[V4A, V4B, V6A, V6B], &peers, &Exit::Unbound).await;
    assert_eq!(outcome.result.unwrap().address.to_string(), "93.184.216.35:443");
    assert_eq!(names(&outcome.tried), [(V6A, 0), (V4A, 250), (V6B, 500), (V4B, 750)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_starts_the_next_at_once() {
    let peers = [(V6A, refuses()), (V4A, Peer::Accepts { after_ms: 1 })];
    let outcome = dial(&[V6A, V4A], &peers, &Exit::Unbound).await;
    let dialled = outcome.result.unwrap();
    assert_eq!(names(&outcome.tried), [(V6A, 0), (V4A, 0)]);
    assert_eq!(dialled.failed.len(), 1);
    assert_eq!(dialled.failed[0].fault, ConnectFault::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_one_still_wins_over_a_slower_second() {
    let peers = [(V6A, Peer::Accepts { after_ms: 300 }), (V4A, Peer::Accepts { after_ms: 100 })];
    let outcome = dial(&[V6A, V4A], &peers, &Exit::Unbound).await;
    assert_eq!(outcome.result.unwrap().address.to_string(), "[2606:4700::1]:443");
    assert_eq!(outcome.took_ms, 300);
}

#[tokio::test(start_paused = true)]
async fn attempts_and_time_are_bounded() {
    let order: Vec<String> = (1..=20).map(|last| format!("93.184.216.{last}")).collect();
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    let silent: Vec<_> = order.iter().map(|address| (*address, Peer::Silent)).collect();
    let outcome = dial(&order, &silent, &Exit::Unbound).await;
    let error = outcome.result.unwrap_err();
    assert_eq!(outcome.tried.len(), 6);
    assert_eq!((error.reason(), error.error_type().token()), ("timeout", "connection_timeout"));
    assert_eq!((error.sent(), error.failed.len()), (Sent::Nothing, 6));
    // The last attempt began after 1.25 s and had its 5 s.
    assert_eq!(outcome.took_ms, 6250);

    let refusing: Vec<_> = order.iter().map(|address| (*address, refuses())).collect();
    let outcome = dial(&order, &refusing, &Exit::Unbound).await;
    let error = outcome.result.unwrap_err();
    assert_eq!((outcome.tried.len(), error.failed.len(), outcome.took_ms), (6, 6, 0));
    assert_eq!((error.reason(), error.error_type().token()), ("refused", "connection_refused"));
}

#[tokio::test(start_paused = true)]
async fn the_time_for_all_ends_what_attempts_would_not() {
    let connector = Scripted {
        peers: vec![(V4A.parse().unwrap(), Peer::Silent), (V4B.parse().unwrap(), refuses())],
        began: Some(Instant::now()),
        ..Scripted::default()
    };
    let settings = DialSettings { connect_timeout: Duration::from_secs(1), ..DialSettings::default() };
    let began = Instant::now();
    let error =
        Dialer::with_connector(connector, settings).dial(&vetted(&[V4A, V4B]), &Exit::Unbound).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    let faults: Vec<_> = error.failed.iter().map(|attempt| attempt.fault.reason()).collect();
    assert_eq!((faults, error.reason()), (vec!["refused", "timeout"], "timeout"));
}

#[tokio::test(start_paused = true)]
async fn what_this_machine_lacks_is_said_first() {
    let exhausted = Peer::Fails { after_ms: 0, fault: ConnectFault::PortsExhausted };
    let outcome = dial(&[V4A, V4B], &[(V4A, refuses()), (V4B, exhausted)], &Exit::Unbound).await;
    let error = outcome.result.unwrap_err();
    assert_eq!((error.reason(), error.error_type().token()), ("ports-exhausted", "connection_limit_reached"));
}

#[tokio::test(start_paused = true)]
async fn a_family_without_an_exit_is_not_dialled() {
    let exit = |v4: Option<&str>, v6: Option<&str>| {
        let (v4, v6) = (v4.map(|text| text.parse().unwrap()), v6.map(|text| text.parse().unwrap()));
        Exit::From(ExitAddress { v4, v6, freebind: false })
    };
    let peers = [(V6A, Peer::Accepts { after_ms: 0 }), (V4A, Peer::Accepts { after_ms: 0 })];
    let outcome = dial(&[V6A, V4A], &peers, &exit(Some("203.0.113.7"), None)).await;
    assert_eq!(outcome.result.unwrap().local.ip().to_string(), "203.0.113.7");
    assert_eq!(outcome.sources, [Some("203.0.113.7".parse().unwrap())]);

    let outcome = dial(&[V4A], &peers, &exit(None, Some("2001:db8::7"))).await;
    let error = outcome.result.unwrap_err();
    assert_eq!((error.reason(), error.sent(), outcome.tried.len()), ("no-exit", Sent::Nothing, 0));
}

#[test]
fn system_faults_have_their_names() {
    use nix::libc;
    let of = |code| ConnectFault::of(&std::io::Error::from_raw_os_error(code));
    for (code, token) in [
        (libc::ECONNREFUSED, "connection_refused"),
        (libc::ETIMEDOUT, "connection_timeout"),
        (libc::EHOSTUNREACH, "destination_ip_unroutable"),
        (libc::ENETUNREACH, "destination_ip_unroutable"),
        (libc::ECONNRESET, "connection_terminated"),
        (libc::EADDRNOTAVAIL, "connection_limit_reached"),
        (libc::EMFILE, "connection_limit_reached"),
        (libc::EACCES, "destination_ip_prohibited"),
        (libc::EIO, "proxy_internal_error"),
    ] {
        assert_eq!(of(code).error_type().token(), token);
    }
}
