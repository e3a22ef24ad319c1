//! A small internet in network namespaces: a caller with two exits, a provider that notes who came, and an internal
//! network that must never see a packet.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "this is a test")]
#![allow(clippy::disallowed_methods, reason = "whether a skipped test is a fault is told by the environment")]

mod support;

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use outbound::{Authority, DialSettings, Dialer, Exit, ExitAddress, resolve_and_vet};
use support::{Scripted, opening, rules};

const PROVIDER: &str = "93.184.216.34";
const PROVIDER_V6: &str = "2606:2800:220:1::34";
const INTERNAL: &str = "10.9.0.2";
const METADATA: &str = "169.254.169.254";

/// The namespaces of one test, taken down with it.
struct Internet {
    id: u32,
}

impl Internet {
    /// None if this machine does not let us.
    fn up() -> Option<Self> {
        let id = std::process::id();
        if !ip(&format!("netns add tgo-caller-{id}")) {
            return None;
        }
        let internet = Self { id };
        for line in [
            "netns add tgo-provider-ID",
            "netns add tgo-inside-ID",
            "-n tgo-caller-ID link add c0 type veth peer name p0 netns tgo-provider-ID",
            "-n tgo-caller-ID link add c1 type veth peer name i0 netns tgo-inside-ID",
            "-n tgo-caller-ID addr add 93.184.216.10/24 dev c0",
            "-n tgo-caller-ID addr add 93.184.216.11/24 dev c0",
            "-n tgo-caller-ID addr add 2606:2800:220:1::10/64 dev c0 nodad",
            "-n tgo-caller-ID addr add 2606:2800:220:1::11/64 dev c0 nodad",
            "-n tgo-provider-ID addr add 93.184.216.34/24 dev p0",
            "-n tgo-provider-ID addr add 2606:2800:220:1::34/64 dev p0 nodad",
            // What speaks IPv6 talks on its own; on the internal network every packet is to mean something.
            "-n tgo-caller-ID link set c1 addrgenmode none",
            "-n tgo-inside-ID link set i0 addrgenmode none",
            "-n tgo-caller-ID addr add 10.9.0.1/24 dev c1",
            "-n tgo-inside-ID addr add 10.9.0.2/24 dev i0",
            "-n tgo-inside-ID addr add 169.254.169.254/32 dev i0",
            "-n tgo-caller-ID link set lo up",
            "-n tgo-caller-ID link set c0 up",
            "-n tgo-caller-ID link set c1 up",
            "-n tgo-provider-ID link set p0 up",
            "-n tgo-inside-ID link set i0 up",
            "-n tgo-caller-ID route add 169.254.169.254/32 dev c1",
        ] {
            assert!(ip(&line.replace("ID", &id.to_string())), "ip {line}");
        }
        Some(internet)
    }

    /// Runs in a thread of its own, inside.
    fn within<T: Send + 'static>(
        &self,
        place: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace = File::open(format!("/var/run/netns/tgo-{place}-{}", self.id)).unwrap();
        std::thread::spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).unwrap();
            run()
        })
    }

    /// Packets that came into the internal network, of any kind.
    fn packets_inside(&self) -> u64 {
        let name = format!("tgo-inside-{}", self.id);
        let output = Command::new("ip").args(["-n", &name, "-j", "-s", "link", "show", "i0"]).output().unwrap();
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    }

    /// Listens at a place and tells who came.
    fn listen(&self, place: &str, addresses: &'static [&'static str]) -> Receiver<IpAddr> {
        let (came, who) = channel();
        let (ready, is_ready) = channel();
        self.within(place, move || {
            for address in addresses {
                let listener = TcpListener::bind((address.parse::<IpAddr>().unwrap(), 443)).unwrap();
                let came = came.clone();
                std::thread::spawn(move || {
                    while let Ok((mut stream, peer)) = listener.accept() {
                        came.send(peer.ip()).unwrap();
                        stream.write_all(b"hello").unwrap();
                    }
                });
            }
            ready.send(()).unwrap();
        });
        is_ready.recv_timeout(Duration::from_secs(5)).unwrap();
        who
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        for place in ["caller", "provider", "inside"] {
            ip(&format!("netns del tgo-{place}-{}", self.id));
        }
    }
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().is_ok_and(|output| output.status.success())
}

fn exit(v4: Option<&str>, v6: Option<&str>, freebind: bool) -> Exit {
    let v4 = v4.map(|text| text.parse::<Ipv4Addr>().unwrap());
    let v6 = v6.map(|text| text.parse::<Ipv6Addr>().unwrap());
    Exit::From(ExitAddress { v4, v6, freebind })
}

fn wait_for(address: &str) {
    let socket = SocketAddr::new(address.parse().unwrap(), 443);
    let connects = |_| TcpStream::connect_timeout(&socket, Duration::from_millis(200)).is_ok();
    assert!((0..50).any(connects), "{address} does not come up");
}

/// Resolves, vets and dials, as one word: where it left from, or why not.
async fn call(
    target: &str,
    answers: Vec<Vec<&str>>,
    exit: &Exit,
    openings: &[outbound::Opening],
) -> Result<IpAddr, String> {
    let authority = Authority::with_port(target).map_err(|reason| reason.to_string())?;
    let name = authority.name().map(ToString::to_string).unwrap_or_default();
    let answers = answers.iter().map(|answer| Ok(answer.iter().map(|address| address.parse().unwrap()).collect()));
    let resolver = Scripted::default().with(&name, answers.collect());
    let vetted = resolve_and_vet(&authority, openings, &rules(), &resolver).await.map_err(|why| why.to_string())?;
    let settings = DialSettings { attempt_timeout: Duration::from_secs(2), ..DialSettings::default() };
    let dialled = Dialer::new(settings).dial(&vetted, exit).await.map_err(|error| error.reason().to_owned())?;
    Ok(dialled.local.ip())
}

#[test]
fn two_exits_a_provider_and_an_inside_that_sees_nothing() {
    let Some(internet) = Internet::up() else {
        return skip::skipped("no network namespaces here; they need root");
    };
    let at_provider = internet.listen("provider", &[PROVIDER, PROVIDER_V6]);
    let at_inside = internet.listen("inside", &[INTERNAL, METADATA]);
    // A link that has just come up says nothing for up to a second.
    internet.within("caller", || [PROVIDER, PROVIDER_V6].map(wait_for)).join().unwrap();
    while at_provider.recv_timeout(Duration::from_millis(100)).is_ok() {}
    let before = internet.packets_inside();

    let outcomes = internet.within("caller", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let both = || vec![vec![PROVIDER, PROVIDER_V6]];
            let mut exits = Vec::new();
            for exit in [
                exit(Some("93.184.216.10"), None, false),
                exit(Some("93.184.216.11"), None, false),
                exit(Some("93.184.216.10"), Some("2606:2800:220:1::10"), false),
                exit(None, Some("2606:2800:220:1::11"), false),
            ] {
                exits.push(call("provider.example:443", both(), &exit, &[]).await.unwrap());
            }
            let elsewhere = call("provider.example:443", both(), &exit(Some("93.184.216.99"), None, false), &[]).await;
            assert_eq!(elsewhere, Err("exit-unavailable".to_owned()));
            let elsewhere =
                call("provider.example:443", both(), &exit(None, Some("2606:2800:220:1::99"), false), &[]).await;
            assert_eq!(elsewhere, Err("exit-unavailable".to_owned()));
            let free = call("provider.example:443", both(), &exit(Some("93.184.216.99"), None, true), &[]).await;
            assert_eq!(free, Err("unroutable".to_owned()));
            // Routed to the machine as part of a prefix, it is on it.
            assert!(ip(&format!("-n tgo-caller-{} route add local 93.184.216.96/29 dev lo", std::process::id())));
            exits.push(
                call("provider.example:443", both(), &exit(Some("93.184.216.99"), None, true), &[]).await.unwrap(),
            );

            // Every way to the inside that an answer or a text can take.
            for (target, answers) in [
                ("10.9.0.2:443", vec![]),
                ("169.254.169.254:443", vec![]),
                ("[::ffff:10.9.0.2]:443", vec![]),
                ("[64:ff9b::a09:2]:443", vec![]),
                ("10.9.2:443", vec![]),
                ("inside.example:443", vec![vec![INTERNAL]]),
                ("inside.example:443", vec![vec![METADATA]]),
                ("inside.example:443", vec![vec![PROVIDER, INTERNAL]]),
                ("inside.example:443", vec![vec![PROVIDER_V6, METADATA, PROVIDER]]),
                ("db.internal:443", vec![vec![INTERNAL]]),
            ] {
                let outcome = call(target, answers.clone(), &Exit::Unbound, &[]).await;
                assert!(outcome.is_err(), "{target} {answers:?}");
            }
            exits
        })
    });
    let exits = outcomes.join().unwrap();
    let expected = ["93.184.216.10", "93.184.216.11", "2606:2800:220:1::10", "2606:2800:220:1::11", "93.184.216.99"];
    assert_eq!(exits.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    // The provider's listeners, one for each family, tell in an order of their own.
    let mut seen: Vec<IpAddr> = (0..5).map(|_| at_provider.recv_timeout(Duration::from_secs(5)).unwrap()).collect();
    let mut exits = exits;
    seen.sort_unstable();
    exits.sort_unstable();
    assert_eq!(exits, seen);
    assert!(at_provider.try_recv().is_err(), "somebody came from an address that nobody was given");
    assert_eq!(internet.packets_inside(), before, "the inside saw packets");
    assert!(at_inside.try_recv().is_err());

    // The counter does count: what an opening lets in is seen, and metadata beside it stays shut.
    let opened = internet.within("caller", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let openings = [opening("db.internal", "10.9.0.0/24", 443)];
            assert!(call("db.internal:443", vec![vec![METADATA]], &Exit::Unbound, &openings).await.is_err());
            call("db.internal:443", vec![vec![INTERNAL]], &Exit::Unbound, &openings).await
        })
    });
    assert_eq!(opened.join().unwrap().unwrap().to_string(), "10.9.0.1");
    assert_eq!(at_inside.recv_timeout(Duration::from_secs(5)).unwrap().to_string(), "10.9.0.1");
    assert!(internet.packets_inside() > before);
}
