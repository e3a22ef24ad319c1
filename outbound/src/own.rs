//! The appliance itself, which nobody reaches through the appliance.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;

/// Addresses and listeners of this appliance and its fleet. No opening helps against them.
///
/// The composition root fills it: every address of the machine's interfaces except loopback, the published exit
/// addresses of the whole fleet (a call that hairpins would arrive as a provider's), and every socket that the
/// process listens on. Loopback itself is closed by the table; where an opening opens some of it, listeners stay shut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    addresses: HashSet<IpAddr>,
    listeners: HashSet<SocketAddr>,
}

impl Own {
    /// Addresses are ours on every port, listeners on their own. IPv4-mapped forms are taken as the IPv4 address.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>, listeners: impl IntoIterator<Item = SocketAddr>) -> Self {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self {
            addresses: addresses.into_iter().map(|address| address.to_canonical()).collect(),
            listeners: listeners.into_iter().map(plain).collect(),
        }
    }

    /// Whether a connection to this socket would come back to the appliance.
    pub fn has(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        self.addresses.contains(&address)
            || self.listeners.iter().any(|listener| {
                // Listening on "any" of either family answers on all of loopback; a dual-stack socket on both.
                listener.port() == port
                    && (listener.ip() == address || (listener.ip().is_unspecified() && address.is_loopback()))
            })
    }
}

/// The addresses of this machine's interfaces, as they are now, without those of loopback.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = getifaddrs()?
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|socket| IpAddr::V6(socket.ip())))
        })
        .filter(|address| !address.is_loopback())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Whether a connection can leave from this address as the machine is now: it is on an interface, or a route of type
/// `local` leads to it. Asked by binding a socket that nobody ever sends from.
pub fn is_on_machine(address: IpAddr) -> io::Result<bool> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        // The latter where the machine has no such family at all.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_on_every_port_and_listeners_on_theirs() {
        let own = Own::new(
            ["198.51.100.7".parse().unwrap(), "::ffff:198.51.100.8".parse().unwrap()],
            ["0.0.0.0:3128".parse().unwrap(), "127.0.0.1:9090".parse().unwrap(), "10.0.0.5:80".parse().unwrap()],
        );
        let has = |socket: &str| {
            let socket: SocketAddr = socket.parse().unwrap();
            own.has(socket.ip(), socket.port())
        };
        for socket in ["198.51.100.7:1", "198.51.100.8:443", "[::ffff:198.51.100.7]:1", "127.0.0.1:9090", "10.0.0.5:80"]
        {
            assert!(has(socket), "{socket}");
        }
        // What listens on "any" listens on loopback.
        assert!(has("127.8.8.8:3128") && has("[::1]:3128") && has("[::ffff:127.0.0.1]:3128"));
        for socket in ["198.51.100.9:443", "127.0.0.1:9091", "127.0.0.2:9090", "10.0.0.5:81", "[::1]:9090"] {
            assert!(!has(socket), "{socket}");
        }
    }

    #[test]
    fn an_address_is_on_the_machine_or_is_not() {
        let on = |text: &str| is_on_machine(text.parse().unwrap()).unwrap();
        assert!(on("127.0.0.1") && on("127.9.9.9"), "all of 127/8 is");
        assert!(!on("192.0.2.1") && !on("2001:db8::1"), "documentation is nobody's");
        assert!(
            interface_addresses().unwrap().into_iter().filter(IpAddr::is_ipv4).all(|own| is_on_machine(own).unwrap())
        );
    }

    #[test]
    fn the_machines_addresses_are_found_and_loopback_is_none_of_them() {
        let addresses = interface_addresses().unwrap();
        assert!(addresses.iter().all(|address| !address.is_loopback() && !address.is_unspecified()));
        // Connected to nobody, a socket says which address it would leave from, where there is a way out at all.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let from = socket.local_addr().unwrap().ip();
            assert!(from.is_loopback() || addresses.contains(&from), "{from} is not among {addresses:?}");
        }
    }
}
