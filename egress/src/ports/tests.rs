use std::time::Duration;

use outbound::dial::DialFault;
use outbound::{AddressTable, Authority, DialSettings, Dialer, Exit, Opening, Own, Rules, Vetted};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

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
    let ports = Ports::new(PortRange::of(100), 10);
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
    let top = ports.top(2);
    assert_eq!(top[0], Pressure { exit, to: to("198.51.100.1:443"), open: 95, open_max: 95 });
    assert_eq!(top.iter().map(|pressure| pressure.open).collect::<Vec<_>>(), [95, 1]);
    drop(held.pop());
    held.push(ports.take(exit, to("198.51.100.1:443")).unwrap());
    drop((held, others));
    assert_eq!(ports.routes(), 0);
    assert!(ports.top(10).is_empty());
    assert!(ports.shards.iter().all(|shard| lock(shard).is_empty()), "a route without connections is not kept");
}

#[test]
fn no_more_routes_than_are_kept_in_mind() {
    let ports = Ports::new(PortRange::of(100), 3);
    let address = |last: u8| SocketAddr::from(([198, 51, 100, last], 443));
    let mut held: Vec<_> = (0..3).map(|last| ports.take(None, address(last)).unwrap()).collect();
    assert_eq!(ports.take(None, address(3)).unwrap_err(), PortsFull::Node);
    held.push(ports.take(None, address(0)).unwrap());
    drop(held.remove(1));
    held.push(ports.take(None, address(3)).unwrap());
}

#[test]
fn threads_never_get_more_than_there_is() {
    let ports = Ports::new(PortRange::of(10), 10);
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
    let ports = Ports::new(PortRange::of(2), 10);
    let dialer = Dialer::with_connector(PortCounting::new(TcpConnector, Arc::clone(&ports)), DialSettings::default());
    let mut dialled = dialer.dial(&vetted, &Exit::Unbound).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    accepted.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    dialled.stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");

    let refused = dialer.dial(&vetted, &Exit::Unbound).await.unwrap_err();
    assert_eq!(refused.fault, DialFault::Connect(ConnectFault::PortsExhausted));
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "somebody was dialled");

    drop(dialled);
    assert_eq!(ports.routes(), 0);
    drop(listener);
    // A dial that fails holds nothing.
    dialer.dial(&vetted, &Exit::Unbound).await.unwrap_err();
    assert_eq!((ports.routes(), ports.refused()), (0, 1));
}
