//! ```text
//! runner ── gate ──┬── edge    an appliance, and a trap on every other port
//!  10.7.0.2        └── world   everybody else: DNS, providers, metadata
//! ```
//!
//! The rules of `deploy/nftables` with the parameters of this network, on the runner itself and on the router before it.
//! Without them everything is reached, or nothing would be proved.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, ipproto, socket};
use tidegate_tests::Appliance;
use tidegate_tests::network::Network;
use tidegate_tests::patience::PATIENCE;
use tidegate_tests::world::{DNS, World};

const APPLIANCE: [&str; 2] = ["10.77.0.10", "fd77::10"];
const PORT: u16 = 3128;
/// What comes at once comes within this, and what does not come is waited for as long.
const MOMENT: Duration = Duration::from_millis(400);

/// Whether there is anybody: a connection, or nothing.
fn tcp(address: &str, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(address.parse().expect("an address"), port), MOMENT).is_ok()
}

/// Whether somebody answers a question for `a.example`.
fn dns(address: &str) -> bool {
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01";
    datagram(udp(address, 53), question)
}

fn udp(address: &str, port: u16) -> Option<UdpSocket> {
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).expect("a socket");
    socket.connect((address.parse::<IpAddr>().expect("an address"), port)).ok()?;
    Some(socket)
}

/// Whether somebody answers an echo request.
fn echo(address: &str) -> bool {
    let address: IpAddr = address.parse().expect("an address");
    let (family, protocol, request) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, [8, 0, 0, 0, 0, 0, 0, 1]),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, [128, 0, 0, 0, 0, 0, 0, 1]),
    };
    let socket = UdpSocket::from(socket(family, SocketType::DGRAM, Some(protocol)).expect("a socket for echoes"));
    let is_connected = socket.connect((address, 0)).is_ok();
    datagram(is_connected.then_some(socket), &request)
}

fn datagram(socket: Option<UdpSocket>, request: &[u8]) -> bool {
    let Some(socket) = socket else { return false };
    socket.set_read_timeout(Some(MOMENT)).expect("an option");
    let mut answer = [0; 512];
    socket.send(request).is_ok() && socket.recv(&mut answer).is_ok_and(|count| count > 0)
}

/// Whether the appliance answers as itself.
fn appliance(address: &str) -> bool {
    let at = SocketAddr::new(address.parse().expect("an address"), PORT);
    let Ok(mut stream) = TcpStream::connect_timeout(&at, MOMENT) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
    let mut answer = String::new();
    let asked = stream.write_all(b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    // What it says is whatever came until it hung up.
    let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
    answer.contains("Proxy-Status") || answer.contains("proxy-status")
}

/// Everything that somebody could try, by name, and whether it gets an answer.
fn tries() -> Vec<(&'static str, bool)> {
    vec![
        ("TCP to a provider", tcp("93.184.216.34", 443)),
        ("TCP over IPv6 to a provider", tcp("2606:2800:220:1::34", 443)),
        ("TCP to a provider's other port", tcp("93.184.216.34", 80)),
        ("DNS by UDP", dns(DNS)),
        ("DNS by TCP", tcp(DNS, 53)),
        ("an echo", echo("93.184.216.34")),
        ("an echo over IPv6", echo("2606:2800:220:1::34")),
        ("metadata", tcp("169.254.169.254", 80)),
        ("metadata over IPv6", tcp("fd00:ec2::254", 80)),
        ("somebody inside", tcp("10.9.0.2", 80)),
        ("another port of the appliance", tcp(APPLIANCE[0], 9000)),
        ("another port of the appliance over IPv6", tcp(APPLIANCE[1], 9000)),
        ("an echo of the appliance", echo(APPLIANCE[0])),
    ]
}

struct Street {
    network: Network,
}

impl Street {
    fn build() -> Option<Self> {
        let network = Network::new(&["runner", "gate", "edge", "world"], &["nft"])?;
        // A cable as others are, with ARP and neighbour discovery: the rules have to let these live.
        network.ip("-n @runner link add up0 type veth peer name runners0 netns @gate");
        for (host, device, addresses) in
            [("runner", "up0", ["10.7.0.2/24", "fd07::2/64"]), ("gate", "runners0", ["10.7.0.1/24", "fd07::1/64"])]
        {
            network.ip(&format!("-n @{host} addr add {} dev {device}", addresses[0]));
            network.ip(&format!("-n @{host} addr add {} dev {device} nodad", addresses[1]));
            network.ip(&format!("-n @{host} link set {device} up"));
        }
        network.ip("-n @runner route add default via 10.7.0.1");
        network.ip("-n @runner -6 route add default via fd07::1");
        network.join(("gate", "out0"), ("world", "in0"));
        network.join(("gate", "edge0"), ("edge", "in0"));
        network.ip("-n @gate addr add 10.78.0.1/32 dev out0");
        network.ip("-n @gate route add default dev out0");
        network.ip("-n @gate -6 addr add fd78::1/128 dev out0 nodad");
        network.ip("-n @gate -6 route add default dev out0");
        network.ip("-n @world addr add 93.184.216.34/32 dev in0");
        network.ip("-n @world -6 addr add 2606:2800:220:1::34/128 dev in0 nodad");
        network.is_everybody("world", "in0", &["10.7.0.0/24", "fd07::/64", "10.78.0.1/32", "fd78::1/128"]);
        for (family, address, bits) in [("-4", APPLIANCE[0], 32), ("-6", APPLIANCE[1], 128)] {
            let nodad = if bits == 128 { " nodad" } else { "" };
            network.ip(&format!("-n @edge {family} addr add {address}/{bits} dev in0{nodad}"));
            network.ip(&format!("-n @edge {family} route add default dev in0"));
            network.ip(&format!("-n @gate {family} route add {address}/{bits} dev edge0"));
        }
        let write = |host: &str, files: &'static [(&str, &str)]| {
            let written = network.within(host, move || {
                for (file, text) in files {
                    std::fs::write(format!("/proc/sys/net/{file}"), text)
                        .unwrap_or_else(|fault| panic!("{file}: {fault}"));
                }
            });
            written.join().expect("it is set");
        };
        write("gate", &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")]);
        // Echoes without a raw socket, as an unprivileged program sends them.
        for host in ["runner", "world", "edge"] {
            write(host, &[("ipv4/ping_group_range", "0 2147483647")]);
        }
        Some(Self { network })
    }

    /// Loads a file of `deploy/nftables` on a host, with the parameters of this network.
    fn load(&self, host: &str, name: &str, directory: &Path) {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy/nftables");
        let parameters = std::fs::read_to_string(rules.join(format!("{name}-parameters.nft"))).expect("parameters");
        let ours = parameters
            .replace("192.0.2.10 ", &format!("{} ", APPLIANCE[0]))
            .replace("2001:db8::10 ", &format!("{} ", APPLIANCE[1]));
        assert!(
            ours.contains(&format!("{} . {PORT}", APPLIANCE[0]))
                && ours.contains(&format!("{} . {PORT}", APPLIANCE[1]))
        );
        std::fs::create_dir_all(directory.join("tidegate")).expect("a directory");
        std::fs::write(directory.join(format!("tidegate/{name}-parameters.nft")), ours).expect("parameters");
        let rules = rules.join(format!("{name}.nft"));
        // Twice: loading it again is how parameters are changed.
        for _ in 0..2 {
            self.nft(host, &format!("-I {} -f {}", directory.display(), rules.display()));
        }
    }

    fn nft(&self, host: &str, line: &str) -> String {
        let output = self.network.run_on(host, &format!("nft {line}"));
        assert!(output.status.success(), "nft {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn on_runner<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        self.network.within("runner", run).join().expect("it runs")
    }

    /// Whether the world and the appliance come in to the runner, over either family.
    fn come_in(&self) -> [bool; 4] {
        let came = |from: &str, to: &'static str| self.network.within(from, move || echo(to)).join().expect("it runs");
        let (v4, v6) = ("10.7.0.2", "fd07::2");
        [came("world", v4), came("world", v6), came("edge", v4), came("edge", v6)]
    }

    /// Packets of a counter, by its name.
    fn counted(&self, host: &str, table: &str, counter: &str) -> u64 {
        let told: serde_json::Value =
            serde_json::from_str(&self.nft(host, &format!("-j list counter inet {table} {counter}"))).expect("JSON");
        let counters = told["nftables"].as_array().expect("a list");
        let counter = counters.iter().find_map(|object| object["counter"]["packets"].as_u64());
        counter.expect("a count of packets")
    }

    /// Nothing but the appliance, which answers over both families, and no packet anywhere else.
    fn is_shut(&self, host: &str, table: &str) {
        // Whoever knows his neighbours has to find them again: the rules have to let him.
        for known in ["runner", "gate"] {
            self.network.ip(&format!("-n @{known} neigh flush all"));
        }
        let before = self.network.packets_into("world", "in0");
        let allowed = self.counted(host, table, "allowed");
        assert_eq!(self.on_runner(|| APPLIANCE.map(appliance)), [true, true], "the appliance is not reached");
        for (what, came) in self.on_runner(tries) {
            assert!(!came, "{what} has a way out past {table}");
        }
        assert_eq!(self.network.packets_into("world", "in0"), before, "a packet got past {table}");
        assert!(self.counted(host, table, "allowed") >= allowed + 2);
        for (counter, least) in [("refused", 10), ("refused_dns", 2), ("refused_link_local", 2)] {
            let count = self.counted(host, table, counter);
            assert!(count >= least, "{counter} is {count}");
        }
    }
}

#[test]
fn a_runner_has_no_other_way_out_than_the_appliance() {
    let Some(street) = Street::build() else { return };
    let _world = World::start(&street.network, "world", &["example.com"]);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let edge = street.network.within("edge", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listen = format!("[\"{}:{PORT}\", \"[{}]:{PORT}\"]", APPLIANCE[0], APPLIANCE[1]);
        let _other = std::net::TcpListener::bind("[::]:9000").expect("a port");
        let node = runtime.block_on(
            Appliance::usual()
                .set("egress", "listen", &listen)
                .set("egress.dns", "servers", "[\"192.0.2.53\"]")
                .start(),
        );
        ready.send(()).expect("somebody waits");
        // Until the test is over, in whatever way.
        let _ = stopped.recv();
        drop(node);
    });
    is_ready.recv_timeout(Duration::from_secs(30)).expect("an appliance");
    let directory = tempfile::tempdir().expect("a directory");

    let is_open = |when: &str| {
        assert_eq!(street.on_runner(|| APPLIANCE.map(appliance)), [true, true], "{when}");
        assert_eq!(street.come_in(), [true; 4], "{when}");
        for (what, came) in street.on_runner(tries) {
            assert!(came, "{when}: {what} gets no answer, so that refusing it would prove nothing");
        }
    };
    // A link that has just come up says nothing for a moment.
    let up = std::time::Instant::now();
    while street.on_runner(|| APPLIANCE.map(appliance)) != [true, true] && up.elapsed() < PATIENCE {}
    is_open("without rules");
    for (host, name, table) in [("runner", "runner", "tidegate_runner"), ("gate", "router", "tidegate_router")] {
        street.load(host, name, directory.path());
        street.is_shut(host, table);
        assert_eq!(street.come_in(), [false; 4], "somebody comes in past {table}");
        street.nft(host, &format!("delete table inet {table}"));
        is_open("with the rules taken away");
    }
    drop(stop);
    edge.join().expect("the appliance stops");
}
