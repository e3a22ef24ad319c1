//! Addresses before they are served: taken first, listened on when there is somebody to answer.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// Connections that wait to be taken until the framework asks for more, which it does when it starts: as many as std
/// allows by itself.
const BACKLOG: i32 = 128;

/// Addresses that are taken and not listened on: who connects is refused at once, and so is who wants to have them.
#[derive(Debug)]
pub struct Bound(Vec<(SocketAddr, TcpListener)>);

impl Bound {
    /// Binds the addresses. Port 0 takes any that is free: see [`Service::addresses`](crate::Service::addresses).
    ///
    /// Binding is done here and not by the framework, which would try for half a minute and then go on without.
    ///
    /// # Errors
    /// An address cannot be bound; the error names it.
    pub fn new(addresses: &[SocketAddr]) -> io::Result<Self> {
        let bound = addresses.iter().map(|&address| {
            let socket = take(address).map_err(|errno| named(address, &errno.into()))?;
            let bound = socket.local_addr().map_err(|error| named(address, &error))?;
            Ok((bound, socket))
        });
        bound.collect::<io::Result<_>>().map(Self)
    }

    /// Listens: from now on who connects waits to be served.
    ///
    /// # Errors
    /// Somebody else listens on an address by now; the error names it.
    pub fn listen(self) -> io::Result<Opened> {
        for (address, socket) in &self.0 {
            // For those who come after us: connections of ours that have ended are in nobody's way.
            let listening = set_socket_reuseaddr(socket, true).and_then(|()| net::listen(socket, BACKLOG));
            listening.map_err(|errno| named(*address, &errno.into()))?;
        }
        Ok(Opened(self.0))
    }
}

/// Addresses that are listened on and not served yet: who connects meanwhile waits.
#[derive(Debug)]
pub struct Opened(Vec<(SocketAddr, TcpListener)>);

impl Opened {
    /// The sockets, which do not block, with the addresses that were found.
    pub fn into_listeners(self) -> Vec<(SocketAddr, TcpListener)> {
        self.0
    }
}

fn named(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

/// For nobody but us, if that can be had. It cannot where connections of a process before us have not quite ended; then
/// another that starts at this very moment may take it as well, and finds out when it listens.
fn take(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    match bind(address, false) {
        Err(Errno::ADDRINUSE) => bind(address, true),
        bound => bound,
    }
}

fn bind(address: SocketAddr, shared: bool) -> rustix::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = net::socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, shared)?;
    net::bind(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpStream;

    fn any() -> [SocketAddr; 2] {
        [SocketAddr::from(([127, 0, 0, 1], 0)), "[::1]:0".parse().unwrap()]
    }

    #[test]
    fn nobody_waits_before_it_is_listened_on_and_nobody_else_takes_it() {
        let bound = Bound::new(&any()).unwrap();
        let addresses: Vec<_> = bound.0.iter().map(|(address, _)| *address).collect();
        let refused = |address| Bound::new(&[address]).unwrap_err();
        for &address in &addresses {
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(refused(address).kind(), io::ErrorKind::AddrInUse);
        }
        let opened = bound.listen().unwrap();
        for &address in &addresses {
            TcpStream::connect(address).unwrap();
            let said = refused(address);
            assert!(
                said.kind() == io::ErrorKind::AddrInUse && said.to_string().contains(&address.to_string()),
                "{said}"
            );
        }
        drop(opened);
    }

    #[test]
    fn connections_that_have_not_quite_ended_are_in_nobodys_way_and_of_two_one_listens() {
        let (address, listener) = Bound::new(&any()[..1]).unwrap().listen().unwrap().into_listeners().remove(0);
        let mut client = TcpStream::connect(address).unwrap();
        listener.set_nonblocking(false).unwrap();
        // Whoever closes first remembers the connection for a minute.
        drop(listener.accept().unwrap());
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop((client, listener));
        let (first, second) = (Bound::new(&[address]).unwrap(), Bound::new(&[address]));
        let opened = first.listen().unwrap();
        let said = second.and_then(Bound::listen).map(drop).unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::AddrInUse, "{said}");
        drop(opened);
    }
}
