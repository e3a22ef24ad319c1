//! What `tidegate send` delivers: signed as the provider would, addressed to the appliance's own listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;

use super::Shell;
use super::args::Send;
use super::capture;
use super::exit::{Failure, Outcome};
use super::http::Target;
use super::scheme::Setup;
use super::settings::Configured;
use super::sign::{self, Order};

/// Says what it is to whoever finds it in a log.
const SAMPLE: &str = r#"{"message":"a sample delivery from tidegate send","number":{number}}"#;

/// Stands for a delivery's number in its body. Not `{n}`: that is clap's own line break, so no help could name it.
const NUMBER: &str = "{number}";

/// Everything that the deliveries of one command share.
pub(crate) struct Plan {
    setup: Setup,
    /// The URL as the provider has it: what is signed.
    public_url: String,
    /// Where it goes: mostly the appliance's own listener.
    pub(crate) target: Target,
    pub(crate) method: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Whether [`NUMBER`] in the body stands for the delivery's number.
    numbered: bool,
    at_unix_ms: u64,
}

pub(crate) fn plan(args: &Send, shell: &mut Shell<'_>) -> Outcome<Plan> {
    let configured = Configured::load(&args.file.config, shell)?;
    let setup = configured.setup(&args.endpoint)?;
    let (tenant, _) = configured.endpoint(&args.endpoint)?;
    if let Some(fault) = configured.fault_of(&tenant.id) {
        shell.out.warn(format_args!(
            "the tenant's file is faulty, and the appliance goes by an older version of it: {fault}"
        ));
    }
    let public_url = setup.url.clone().unwrap_or_default();
    let (seen, _) = sign::split(&public_url)?;
    let target = match &args.url {
        Some(url) => Target::parse(url)?,
        None => Target {
            dial: reachable(configured.appliance.gateway.listen.first().copied()).to_string(),
            host: seen.port.map_or_else(|| seen.host.to_owned(), |port| format!("{}:{port}", seen.host)),
            // A base path of the public URL is taken off by whatever stands in front of the listener.
            path: format!("/hooks/{}", args.endpoint),
        },
    };
    let body = match &args.body {
        Some(path) => capture::read(path, shell.stdin)?,
        None => SAMPLE.as_bytes().to_vec(),
    };
    Ok(Plan {
        method: args.method.clone().unwrap_or_else(|| setup.method().to_owned()),
        at_unix_ms: args.at.unix_ms(shell.clock.unix_ms()),
        numbered: args.count > 1 || args.body.is_none(),
        headers: args.headers.clone(),
        setup,
        public_url,
        target,
        body,
    })
}

/// An address of ours to connect to: a listener on all addresses is reached on loopback.
fn reachable(listener: Option<SocketAddr>) -> SocketAddr {
    let mut address = listener.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

impl Plan {
    pub(crate) fn body(&self, number: u32) -> Vec<u8> {
        match std::str::from_utf8(&self.body) {
            Ok(text) if self.numbered => text.replace(NUMBER, &number.to_string()).into_bytes(),
            _ => self.body.clone(),
        }
    }

    /// Headers and path of one signed delivery.
    pub(crate) fn signed(&self, body: &[u8]) -> Outcome<(Vec<(String, String)>, String)> {
        let order = Order {
            method: &self.method,
            url: &self.public_url,
            headers: &self.headers,
            body,
            at_unix_ms: self.at_unix_ms,
        };
        let signed = sign::sign(&self.setup, &order)?;
        let headers = self.headers.iter().cloned().chain(signed.headers).collect();
        // What a scheme puts into the query goes along wherever the delivery is posted.
        let query = signed.target.as_deref().and_then(|target| target.split_once('?')).map(|(_, query)| query);
        let path = match query {
            Some(query) => format!("{}?{query}", self.target.path.split('?').next().unwrap_or_default()),
            None => self.target.path.clone(),
        };
        Ok((headers, path))
    }

    pub(crate) fn request(&self, number: u32) -> Outcome<Request<Full<Bytes>>> {
        let body = self.body(number);
        let (headers, path) = self.signed(&body)?;
        let mut request = Request::builder().method(self.method.as_str()).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header(header::HOST, &self.target.host);
        }
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        request.map_err(|error| {
            Failure::usage(format_args!("this is no request: {error}"), "look at --header, --method and --url")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        let reached = |text: &str| reachable(Some(text.parse().unwrap())).to_string();
        assert_eq!(reached("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(reached("[::]:8080"), "[::1]:8080");
        assert_eq!(reached("192.0.2.7:80"), "192.0.2.7:80");
    }
}
