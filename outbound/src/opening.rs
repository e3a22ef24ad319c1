//! Openings: internal destinations that an operator gives to a role, by name.
//!
//! Self-hosters must be able to reach a service of their own without opening the metadata address beside it. So an
//! opening says which name, in which networks, on which ports; its networks lie within space that the table calls
//! internal; and what the table calls `never` inside of them stays shut.

use ipnet::IpNet;
use thiserror::Error;

use crate::authority::{Authority, HostPattern, Malformed};
use crate::table::{AddressTable, Verdict};

/// One named destination, open to whoever is handed this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    host: HostPattern,
    networks: Vec<IpNet>,
    ports: Vec<u16>,
}

/// Why something is no opening.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpeningFault {
    #[error("its host is malformed: {0}")]
    Host(Malformed),
    #[error("it names no network, so nothing would be opened")]
    NoNetwork,
    #[error("it names no port, or port 0")]
    Port,
    #[error("{0} has bits set behind its length; the network is {1}")]
    HostBits(IpNet, IpNet),
    #[error("{network} is {name}, which no opening opens")]
    Never { network: IpNet, name: String },
    #[error("{network} does not lie within one internal network; what is public needs no opening")]
    NotInternal { network: IpNet },
}

impl Opening {
    /// `host` is a name, `*.` and a zone, or an address (IPv6 in brackets). Every network lies within one internal row
    /// of the table.
    pub fn new(host: &str, networks: Vec<IpNet>, ports: Vec<u16>, table: &AddressTable) -> Result<Self, OpeningFault> {
        let host = HostPattern::parse(host).map_err(OpeningFault::Host)?;
        if networks.is_empty() {
            return Err(OpeningFault::NoNetwork);
        }
        if ports.is_empty() || ports.contains(&0) {
            return Err(OpeningFault::Port);
        }
        for network in &networks {
            if network.trunc() != *network {
                return Err(OpeningFault::HostBits(*network, network.trunc()));
            }
            let row = table.row_around(*network);
            match row.verdict {
                Verdict::Internal => {}
                Verdict::Never => return Err(OpeningFault::Never { network: *network, name: row.name.clone() }),
                Verdict::Public => return Err(OpeningFault::NotInternal { network: *network }),
            }
        }
        Ok(Self { host, networks, ports })
    }

    /// What an operator's own file names as a service that the appliance itself needs: this host and port, wherever
    /// inside it is. What is `never` dialled stays shut.
    pub(crate) fn of_operator(authority: &Authority, table: &AddressTable) -> Self {
        let internal = table.rows().filter(|row| row.verdict == Verdict::Internal);
        Self {
            host: HostPattern::Exactly(authority.host().clone()),
            networks: internal.map(|row| row.prefix).collect(),
            ports: vec![authority.port()],
        }
    }

    /// Whether this opens the name and port, whatever the name resolves to.
    pub(crate) fn names(&self, authority: &Authority) -> bool {
        self.host.covers(authority.host()) && self.ports.contains(&authority.port())
    }

    /// Whether an address is in one of its networks.
    pub(crate) fn holds(&self, address: std::net::IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(host: &str, network: &str) -> Result<Opening, OpeningFault> {
        Opening::new(host, vec![network.parse().unwrap()], vec![443], &AddressTable::shipped())
    }

    #[test]
    fn only_internal_networks_can_be_opened() {
        for network in
            ["10.0.0.0/8", "10.1.2.3/32", "127.0.0.0/8", "::1/128", "fd00::/8", "100.64.0.0/10", "192.168.7.0/24"]
        {
            assert!(opening("db.internal", network).is_ok(), "{network}");
        }
        for network in [
            "169.254.0.0/16",
            "169.254.7.7/32",
            "fd00:ec2::/64",
            "0.0.0.0/8",
            "ff0e::/16",
            "::ffff:10.0.0.0/104",
            "::ffff:0:0/96",
            "2002:a00::/24",
            "fe80::/64",
            "100.100.100.200/32",
            "4000::/16",
        ] {
            assert!(matches!(opening("db.internal", network), Err(OpeningFault::Never { .. })), "{network}");
        }
        for network in
            ["0.0.0.0/0", "8.8.8.0/24", "8.0.0.0/6", "2000::/3", "2606:4700::/32", "10.0.0.0/7", "172.0.0.0/11", "::/0"]
        {
            let fault = opening("db.internal", network).expect_err(network);
            assert!(
                matches!(fault, OpeningFault::NotInternal { .. } | OpeningFault::Never { .. }),
                "{network}: {fault}"
            );
        }
        assert!(matches!(opening("db.internal", "10.0.0.1/8"), Err(OpeningFault::HostBits(..))));
        assert_eq!(opening("db .internal", "10.0.0.0/8"), Err(OpeningFault::Host(Malformed::Control)));
        assert_eq!(opening("db.internal:443", "10.0.0.0/8"), Err(OpeningFault::Host(Malformed::ColonInHost)));
        let table = AddressTable::shipped();
        assert_eq!(Opening::new("a.b", vec![], vec![1], &table), Err(OpeningFault::NoNetwork));
        assert_eq!(Opening::new("a.b", vec!["10.0.0.0/8".parse().unwrap()], vec![0], &table), Err(OpeningFault::Port));
    }

    #[test]
    fn it_names_what_it_says() {
        let names =
            |host: &str, asked: &str| opening(host, "10.0.0.0/8").unwrap().names(&Authority::with_port(asked).unwrap());
        assert!(names("DB.internal", "db.internal:443"));
        assert!(!names("db.internal", "db.internal:80"));
        assert!(!names("db.internal", "a.db.internal:443"));
        assert!(names("*.svc.internal", "a.b.svc.internal:443"));
        assert!(!names("*.svc.internal", "svc.internal:443"));
        assert!(!names("*.svc.internal", "evilsvc.internal:443"));
        assert!(names("10.1.2.3", "10.1.2.3:443"));
        assert!(names("[fd00::1]", "[fd00:0::1]:443"));
        assert!(!names("10.1.2.3", "10.1.2.4:443"));
    }
}
