//! The machine's own DNS servers, for a file that names none.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::EgressDns;
use crate::read;
use crate::units::KIB;

/// As many as are asked.
const SERVERS_MAX: usize = 8;

const FILE_BYTES_MAX: u64 = 64 * KIB;

impl EgressDns {
    /// The servers to ask: those of the file, else those of `/etc/resolv.conf` as it is now.
    ///
    /// # Errors
    /// A sentence that says what to do: there are none.
    pub fn servers_or_system(&self) -> Result<Vec<SocketAddr>, String> {
        self.servers_or(Path::new("/etc/resolv.conf"))
    }

    fn servers_or(&self, path: &Path) -> Result<Vec<SocketAddr>, String> {
        if !self.servers.is_empty() {
            return Ok(self.servers.clone());
        }
        let hint = "name DNS servers in egress.dns.servers";
        let (bytes, _) =
            read::file(path, FILE_BYTES_MAX).map_err(|fault| format!("{} {fault}; {hint}", path.display()))?;
        let servers = nameservers(&String::from_utf8_lossy(&bytes));
        if servers.is_empty() { Err(format!("{} names no DNS server; {hint}", path.display())) } else { Ok(servers) }
    }
}

/// The addresses behind `nameserver`. One with a zone is of a single link and leads no further than that: it is left out.
fn nameservers(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    });
    let addresses = lines.filter_map(|text| text.parse::<IpAddr>().ok());
    addresses.map(|address| SocketAddr::new(address, 53)).take(SERVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_servers_are_asked_where_the_file_names_none() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("resolv.conf");
        let text = "# nameserver 192.0.2.1\nsearch example.com\nnameserver\t192.0.2.2 # one\n nameserver 2001:db8::53\nnameserver fe80::1%eth0\nnameservers 192.0.2.3\n";
        std::fs::write(&path, text).unwrap();
        let own = EgressDns::default();
        let shown = |servers: Vec<SocketAddr>| servers.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(own.servers_or(&path).unwrap()), ["192.0.2.2:53", "[2001:db8::53]:53"]);
        let named = EgressDns { servers: vec!["192.0.2.9:5353".parse().unwrap()], ..EgressDns::default() };
        assert_eq!(shown(named.servers_or(&path).unwrap()), ["192.0.2.9:5353"]);
        std::fs::write(&path, "search example.com\n").unwrap();
        assert!(own.servers_or(&path).unwrap_err().contains("egress.dns.servers"));
        assert!(own.servers_or(&root.path().join("none")).unwrap_err().contains("is not there"));
    }
}
