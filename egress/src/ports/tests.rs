use std::time::Duration;

use outbound::dial::{Connect, ConnectFault, Connected, DialFault, TcpConnector};
use outbound::{AddressTable, Authority, DialSettings, Dialer, Exit, Opening, Own, Rules, Source, Vetted, VettedAddr};
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::*;

fn to(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn ranges_as_the_kernel_writes_them() {
    let parse = |range, reserved| PortRange::parse(range, reserved).map(PortRange::count);
    assert_eq!(parse("32768\t60999\n", "\n"), Some(28_232));
    assert_eq!(parse("1024 65535", ""), Some(64_512));
    assert_eq!(parse("5000\t5000", ""), Some(1));
    assert_eq!(parse("32768\t60999\n", "8080,32768,40000-40009,60990-61010,65535\n"), Some(28_232 - 1 - 10 - 10));
    assert_eq!(parse("5000\t5009", "4000-6000"), None);
    for nothing in ["", "32768", "60999\t32768", "a\tb", "0\t70000", "-1\t5"] {
        assert_eq!(parse(nothing, ""), None, "{nothing:?}");
    }
    assert_eq!(parse("1\t2", "x"), None);
    assert!(PortRange::of_the_system().unwrap().count() > 0);
}

#[test]
fn each_route_has_its_own_ports_and_gets_them_back() {
    let ports = Ports::new(PortRange::of(100), 95, 10);
    let (exit, other) = (Some("192.0.2.1".parse().unwrap()), Some("192.0.2.2".parse().unwrap()));
    let mut held: Vec<_> = (0..95).map(|_| ports.take(exit, to("198.51.100.1:443")).unwrap()).collect();
    assert_eq!(ports.take(exit, to("198.51.100.1:443")).unwrap_err(), PortsFull::Route);
    // Another exit, another port, another address: none of them is short of ports.
    let others = [
        ports.take(other, to("198.51.100.1:443")).unwrap(),
        ports.take(None, to("198.51.100.1:443")).unwrap(),
        ports.take(exit, to("198.51.100.1:80")).unwrap(),
        ports.take(exit, to("198.51.100.2:443")).unwrap(),
    ];
    assert_eq!((ports.routes(), ports.refused()), (5, 1));
    // Of each exit the fullest route, and of those the fullest first.
    let worst = ports.worst(10);
    assert_eq!(worst[0], Pressure { exit, to: to("198.51.100.1:443"), open: 95, open_max: 95 });
    assert_eq!(
        worst.iter().map(|pressure| (pressure.exit, pressure.open)).collect::<Vec<_>>(),
        [(exit, 95), (None, 1), (other, 1)]
    );
    assert_eq!(ports.worst(1), worst[..1]);
    assert!(worst[0].is_near() && !worst[1].is_near());
    assert_eq!(worst[0].to_string(), "95 of 95 local ports from 192.0.2.1 to 198.51.100.1:443");
    assert!(!Pressure { open: 75, ..worst[0] }.is_near() && Pressure { open: 76, ..worst[0] }.is_near());
    drop(held.pop());
    held.push(ports.take(exit, to("198.51.100.1:443")).unwrap());
    drop((held, others));
    assert_eq!(ports.routes(), 0);
    assert!(ports.worst(10).is_empty());
    assert!(ports.shards.iter().all(|shard| lock(shard).is_empty()), "a route without connections is not kept");
}

#[test]
fn no_more_routes_than_are_kept_in_mind() {
    let ports = Ports::new(PortRange::of(100), 95, 3);
    let address = |last: u8| SocketAddr::from(([198, 51, 100, last], 443));
    let mut held: Vec<_> = (0..3).map(|last| ports.take(None, address(last)).unwrap()).collect();
    assert_eq!(ports.take(None, address(3)).unwrap_err(), PortsFull::Node);
    held.push(ports.take(None, address(0)).unwrap());
    drop(held.remove(1));
    held.push(ports.take(None, address(3)).unwrap());
}

#[test]
fn threads_never_get_more_than_there_is() {
    let ports = Ports::new(PortRange::of(10), 95, 10);
    let most = AtomicU64::new(0);
    let open = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let ports: Vec<_> = (0..3).filter_map(|_| ports.take(None, to("198.51.100.1:443")).ok()).collect();
                    let now = open.fetch_add(ports.len() as u64, Ordering::SeqCst) + ports.len() as u64;
                    most.fetch_max(now, Ordering::SeqCst);
                    open.fetch_sub(ports.len() as u64, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(most.into_inner() <= 9);
    assert_eq!(ports.routes(), 0);
}

fn vetted(address: SocketAddr) -> Vetted {
    let rules = Rules { table: Arc::new(AddressTable::shipped()), own: Own::default(), nat64: Vec::new() };
    let authority = Authority::with_port(address.to_string()).unwrap();
    let networks = vec!["127.0.0.0/8".parse().unwrap()];
    let opening = Opening::new("127.0.0.1", networks, vec![address.port()], &rules.table).unwrap();
    rules.vet(&authority, &[address.ip()], &[opening]).unwrap()
}

#[tokio::test]
async fn the_dialer_counts_and_nothing_is_dialled_where_there_is_no_room() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let vetted = vetted(listener.local_addr().unwrap());
    let ports = Ports::new(PortRange::of(2), 95, 10);
    let dialer = Dialer::with_connector(PortCounting::new(TcpConnector, Arc::clone(&ports)), DialSettings::default());
    let mut dialled = dialer.dial(&vetted, &Exit::Unbound).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    accepted.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    dialled.stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");

    let refused = dialer.dial(&vetted, &Exit::Unbound).await.unwrap_err();
    assert_eq!(refused.fault, DialFault::Connect(ConnectFault::PortsExhausted));
    assert!(timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "somebody was dialled");

    drop(dialled);
    assert_eq!(ports.routes(), 0);
    drop(listener);
    // A dial that fails holds nothing.
    dialer.dial(&vetted, &Exit::Unbound).await.unwrap_err();
    assert_eq!((ports.routes(), ports.refused()), (0, 1));
}

#[test]
fn a_bound_that_is_lowered_closes_nothing_and_lets_nothing_in() {
    let ports = Ports::new(PortRange::of(100), 50, 10);
    let held: Vec<_> = (0..50).map(|_| ports.take(None, to("198.51.100.1:443")).unwrap()).collect();
    ports.bound(PortRange::of(100), 10);
    assert_eq!(ports.take(None, to("198.51.100.1:443")).unwrap_err(), PortsFull::Route);
    assert_eq!(ports.worst(1)[0], Pressure { exit: None, to: to("198.51.100.1:443"), open: 50, open_max: 10 });
    ports.bound(PortRange::of(1000), 6);
    drop(ports.take(None, to("198.51.100.1:443")).unwrap());
    drop(held);
    assert_eq!(ports.routes(), 0);
}

#[test]
fn metrics_tell_of_exits_and_of_no_destination() {
    let ports = Ports::new(PortRange::of(100), 100, 1000);
    let text = |ports: &Arc<Ports>| {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(PortMetrics(Arc::clone(ports))));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let destinations = (1..=9).map(|last| SocketAddr::from(([198, 51, 100, last], 443)));
    let exits = (0..100).map(|last| Some(IpAddr::from([192, 0, 2, last])));
    let mut held: Vec<_> = destinations.map(|to| ports.take(None, to).unwrap()).collect();
    held.extend(exits.map(|exit| ports.take(exit, to("198.51.100.1:443")).unwrap()));
    held.push(ports.take(None, to("198.51.100.1:443")).unwrap());
    let told = text(&ports);
    for line in [
        "egress_ports_used{exit=\"unbound\"} 2\n",
        "egress_ports_used{exit=\"192.0.2.0\"} 1\n",
        "egress_ports_max 100\n",
        "egress_ports_refused_total{by=\"count\"} 0\n",
        "egress_ports_refused_total{by=\"kernel\"} 0\n",
    ] {
        assert!(told.contains(line), "{line} is not in\n{told}");
    }
    assert!(!told.contains("198.51"), "{told}");
    assert_eq!(told.matches("egress_ports_used{").count(), 64, "labels are bounded");
}

/// What an address does to whoever connects, and after how many milliseconds.
#[derive(Debug, Clone, Copy)]
enum Does {
    Accept(u64),
    Refuse(u64),
    LackPorts(u64),
    Nothing,
}

/// Alive from the moment of dialling until the connection is dropped.
#[derive(Debug)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone)]
struct Scripted {
    does: Vec<Does>,
    alive: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Held {
    stream: DuplexStream,
    _alive: Alive,
}

impl Connect for Scripted {
    type Stream = Held;

    async fn connect(&self, to: VettedAddr, from: Option<Source>) -> Result<Connected<Held>, ConnectFault> {
        let alive = Alive::begin(&self.alive);
        let place = ADDRESSES.iter().position(|address| address.parse() == Ok(to.socket().ip()));
        match self.does[place.unwrap()] {
            Does::Accept(after_ms) => {
                sleep(Duration::from_millis(after_ms)).await;
                let local = SocketAddr::new(from.unwrap().address, 40_000);
                Ok(Connected { stream: Held { stream: tokio::io::duplex(64).0, _alive: alive }, local })
            }
            Does::Refuse(after_ms) => {
                sleep(Duration::from_millis(after_ms)).await;
                Err(ConnectFault::Refused)
            }
            Does::LackPorts(after_ms) => {
                sleep(Duration::from_millis(after_ms)).await;
                Err(ConnectFault::PortsExhausted)
            }
            Does::Nothing => std::future::pending().await,
        }
    }
}

impl tokio::io::AsyncRead for Held {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_read(cx, space)
    }
}

impl tokio::io::AsyncWrite for Held {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const ADDRESSES: [&str; 4] = ["2606:4700::1", "2606:4700::2", "93.184.216.34", "93.184.216.35"];
const EXITS: u8 = 2;

/// One caller: which addresses the name has, from where, when it comes, when it gives up, and for how long it holds what
/// it got.
#[derive(Debug, Clone)]
struct Caller {
    addresses: Vec<bool>,
    exit: u8,
    comes_ms: u64,
    gives_up_ms: u64,
    holds_ms: u64,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        (0_u64..800).prop_map(Does::Accept),
        (0_u64..800).prop_map(Does::Refuse),
        (0_u64..100).prop_map(Does::LackPorts),
        Just(Does::Nothing),
    ]
}

fn caller() -> impl Strategy<Value = Caller> {
    let addresses = prop::collection::vec(any::<bool>(), ADDRESSES.len());
    (addresses, 0..EXITS, 0_u64..1_000, 0_u64..8_000, 0_u64..2_000).prop_map(
        |(mut addresses, exit, comes_ms, gives_up_ms, holds_ms)| {
            addresses[2] |= !addresses.iter().any(|is_one| *is_one);
            Caller { addresses, exit, comes_ms, gives_up_ms, holds_ms }
        },
    )
}

async fn call(caller: Caller, dialer: Dialer<PortCounting<Scripted>>) {
    sleep(Duration::from_millis(caller.comes_ms)).await;
    let rules = Rules { table: Arc::new(AddressTable::shipped()), own: Own::default(), nat64: Vec::new() };
    let named = ADDRESSES.iter().zip(&caller.addresses).filter(|(_, is_one)| **is_one);
    let answer: Vec<IpAddr> = named.map(|(address, _)| address.parse().unwrap()).collect();
    let vetted = rules.vet(&Authority::with_port("a.example:443").unwrap(), &answer, &[]).unwrap();
    let exit = Exit::From(outbound::ExitAddress {
        v4: Some([192, 0, 2, caller.exit].into()),
        v6: Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, caller.exit.into()].into()),
        freebind: false,
    });
    let patience = Duration::from_millis(caller.gives_up_ms);
    if let Ok(Ok(dialled)) = timeout(patience, dialer.dial(&vetted, &exit)).await {
        sleep(Duration::from_millis(caller.holds_ms)).await;
        drop(dialled);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever wins, loses, fails, is too late or is given up: a port is held as long as a connection, and no longer.
    #[test]
    fn a_port_is_held_for_as_long_as_a_connection(
        does in prop::collection::vec(does(), ADDRESSES.len()),
        callers in prop::collection::vec(caller(), 1..24),
        ports_max in 1_u16..6,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let ports = Ports::new(PortRange::of(ports_max), 100, 100);
        let alive = Arc::new(AtomicUsize::new(0));
        let connector = PortCounting::new(Scripted { does, alive: Arc::clone(&alive) }, Arc::clone(&ports));
        let dialer = Dialer::with_connector(connector, DialSettings::default());
        runtime.block_on(async {
            let calls: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(call(caller, dialer.clone()))).collect();
            while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
                // A prime number of milliseconds: between the others' steps, and now and then at the same time.
                sleep(Duration::from_millis(7)).await;
                let open: u32 = ports.shards.iter().map(|shard| lock(shard).values().sum::<u32>()).sum();
                assert_eq!(open as usize, alive.load(Ordering::SeqCst));
                assert!(ports.worst(10).iter().all(|worst| worst.open <= u32::from(ports_max)));
            }
            for call in calls {
                call.await.unwrap();
            }
        });
        prop_assert_eq!(alive.load(Ordering::SeqCst), 0);
        prop_assert_eq!(ports.routes(), 0);
        prop_assert!(ports.shards.iter().all(|shard| lock(shard).is_empty()));
    }
}
