//! One rule: which hosts it is about, and which requests to them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use domain::text::Untrusted;
use http::Method;
use outbound::{HostPattern, Malformed};

use super::Mode;
use super::index::Indexed;
use super::path::PathPrefix;
use crate::asked::{Asked, Way};

/// Where a rule is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<Path>,
    /// Counted from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_os_str().as_encoded_bytes();
        write!(f, "{}:{}", Untrusted::with_limit(file, 1024), self.line)
    }
}

/// One rule, allowing or denying as the list says in which it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What operators call it; none where its hosts say enough.
    pub name: Option<Box<str>>,
    /// Where it is written; none for rules of tests.
    pub place: Option<Place>,
    /// Which hosts it is about.
    pub hosts: HostPattern,
    /// None: a rule that allows has the ports of the way in, one that denies has all.
    pub ports: Option<Box<[u16]>>,
    /// None: all. As they are written; `GET` is not `HEAD`. `CONNECT` among them stands for tunnels.
    pub methods: Option<Box<[Method]>>,
    /// None: all.
    pub paths: Option<Box<[PathPrefix]>>,
    /// What happens to what it would refuse.
    pub mode: Mode,
}

/// How a rule and a request go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fit {
    /// The rule is for this request.
    Fits,
    /// The rule is for `*.zone`, and the zone itself is asked for.
    Apex,
    /// The rule names ports, and not this one.
    Port,
    /// The rule names no ports, and this is none of the appliance's for this way in.
    WayPort,
    /// The rule names methods, and not this one.
    Method,
    /// The rule names paths, and this one is surely within none of them.
    Path,
    /// The rule is about methods or paths, and a tunnel shows neither.
    Tunnel,
}

impl Fit {
    /// For `explain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fits => "matches",
            Self::Apex => "is for names within the zone, not for the zone itself",
            Self::Port => "names other ports",
            Self::WayPort => "names no ports, and this is none of this way's",
            Self::Method => "names other methods",
            Self::Path => "names other paths",
            Self::Tunnel => "names methods or paths, which a tunnel does not show",
        }
    }
}

impl Rule {
    /// A rule about hosts and nothing else.
    pub fn hosts(hosts: HostPattern) -> Self {
        Self { name: None, place: None, hosts, ports: None, methods: None, paths: None, mode: Mode::Enforce }
    }

    /// `host`, `*.zone`, or either with `:port`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let (hosts, port) = parse_hosts(text)?;
        Ok(Self { ports: port.map(|port| [port].into()), ..Self::hosts(hosts) })
    }

    /// As a rule that allows. Its hosts cover the request's.
    pub(super) fn admits(&self, asked: &Asked, way_ports: &[u16]) -> Fit {
        let port = asked.authority.port();
        match &self.ports {
            Some(ports) if !ports.contains(&port) => return Fit::Port,
            None if !way_ports.contains(&port) => return Fit::WayPort,
            Some(_) | None => {}
        }
        if asked.way == Way::Connect {
            let is_for_tunnels = self.methods.is_none() || self.names_tunnels();
            return if is_for_tunnels && self.paths.is_none() { Fit::Fits } else { Fit::Tunnel };
        }
        if self.methods.as_ref().is_some_and(|methods| !methods.contains(&asked.method)) {
            return Fit::Method;
        }
        match &self.paths {
            Some(paths) if !paths.iter().any(|prefix| prefix.holds(asked.path())) => Fit::Path,
            Some(_) | None => Fit::Fits,
        }
    }

    /// As a rule that denies. Its hosts cover the request's. Where it cannot be seen whether the rule is meant, it is.
    pub(super) fn denies(&self, asked: &Asked) -> Fit {
        if self.ports.as_ref().is_some_and(|ports| !ports.contains(&asked.authority.port())) {
            return Fit::Port;
        }
        if asked.way == Way::Connect {
            return Fit::Fits;
        }
        // Some servers take methods in any case.
        let is_named = |method: &Method| method.as_str().eq_ignore_ascii_case(asked.method.as_str());
        if self.methods.as_ref().is_some_and(|methods| !methods.iter().any(is_named)) {
            return Fit::Method;
        }
        match &self.paths {
            Some(paths) if !paths.iter().any(|prefix| prefix.may_hold(asked.path())) => Fit::Path,
            Some(_) | None => Fit::Fits,
        }
    }

    /// Whether it is about what is asked of the hosts, and not only about the hosts.
    pub(super) fn is_about_requests(&self) -> bool {
        self.methods.is_some() || self.paths.is_some()
    }

    /// Whether it says of tunnels that it means them, which opens them to a connector's hosts.
    pub(super) fn names_tunnels(&self) -> bool {
        self.methods.as_ref().is_some_and(|methods| methods.contains(&Method::CONNECT))
    }
}

impl Indexed for Arc<Rule> {
    fn pattern(&self) -> &HostPattern {
        &self.hosts
    }
}

/// Its name, or its hosts; and where it is written.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => Untrusted::new(name.as_bytes()).fmt(f)?,
            None => self.hosts.fmt(f)?,
        }
        match &self.place {
            Some(place) => write!(f, " ({place})"),
            None => Ok(()),
        }
    }
}

/// Hosts as a rule writes them, and the port behind them, if there is one.
pub fn parse_hosts(text: &str) -> Result<(HostPattern, Option<u16>), Malformed> {
    // Behind the brackets of an IPv6 address, or behind the only colon that a name can have.
    let port_at = text.rfind(':').filter(|colon| text.rfind(']').is_none_or(|bracket| bracket < *colon));
    let Some(colon) = port_at else { return Ok((HostPattern::parse(text)?, None)) };
    let (hosts, port) = text.split_at(colon);
    // The one parser of ports reads this one too.
    let port = outbound::Authority::with_port(format!("h{port}"))?.port();
    Ok((HostPattern::parse(hosts)?, Some(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_a_port() {
        for (text, hosts, port) in [
            ("api.example.com", "api.example.com", None),
            ("API.example.com:8443", "api.example.com", Some(8443)),
            ("*.example.com:80", "*.example.com", Some(80)),
            ("[fd00::1]", "[fd00::1]", None),
            ("[fd00::1]:443", "[fd00::1]", Some(443)),
            ("10.0.0.1:1", "10.0.0.1", Some(1)),
        ] {
            let (found, found_port) = parse_hosts(text).unwrap();
            assert_eq!((found.to_string().as_str(), found_port), (hosts, port), "{text}");
        }
        for text in ["a.com:", "a.com:0", "a.com:65536", "a.com:080", "a.com:80:80", "::1", "*:80", "a.com: 80", ":80"]
        {
            assert!(parse_hosts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn it_says_where_it_is_written() {
        let mut rule = Rule::parse("*.example.com").unwrap();
        assert_eq!(rule.to_string(), "*.example.com");
        rule.place = Some(Place { file: Path::new("tenants/a\x1b.toml").into(), line: 7 });
        rule.name = Some("exa\nmple".into());
        assert_eq!(rule.to_string(), "exa\\nmple (tenants/a\\u{1b}.toml:7)");
    }
}
