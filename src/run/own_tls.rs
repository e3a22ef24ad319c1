//! TLS of connections' own, for the snapshot: made once, and kept for as long as what it was made of.
//!
//! Two ways of speaking TLS are the same only if they are one ([`TlsClient`]), and open connections are pooled by it. Making
//! it anew with every reload would close every tenant's connections for one tenant's change.

use std::sync::Arc;

use config::{Fault, Http2, Tenant};
use domain::TenantId;
use egress::compile::{TenantOut, Written};
use egress::{Connections, Entry, OwnTls};
use outbound::dial::ClientIdentity;
use outbound::{Alpn, Roots, TlsClient};

/// What destinations may choose from, the best first.
pub(super) const SPOKEN: &[Alpn] = &[Alpn::Http2, Alpn::Http11];

/// By what it is made.
#[derive(Debug)]
pub(super) struct OwnTlsOf<'r> {
    /// Whom to trust where a connection does not say.
    pub(super) roots: &'r Roots,
    /// How TLS is spoken without a connection, with everything that can be offered.
    pub(super) tls: &'r TlsClient,
    /// What the file says that is put in force.
    pub(super) http2: Http2,
}

impl OwnTlsOf<'_> {
    /// How TLS is spoken without a connection.
    pub(super) fn usual(&self) -> TlsClient {
        speaking(self.tls, self.http2)
    }

    /// Every connection, with TLS of its own where it has some. One whose TLS cannot be made is told of and is not there.
    /// What was made of the same connection before is kept, if TLS is spoken as it was.
    pub(super) fn connections<'t>(
        &self,
        (before, spoken_before): (&Connections, &TlsClient),
        tenants: impl Iterator<Item = (&'t Tenant, Option<&'t Arc<TenantOut>>)>,
        faults: &mut Vec<Fault>,
    ) -> Vec<(TenantId, Entry)> {
        let speaks_as_before = self.usual() == *spoken_before;
        let mut entries = Vec::new();
        for (tenant, out) in tenants {
            for Written { connection, line } in out.into_iter().flat_map(|out| &out.connections) {
                let kept = before.made_of(&tenant.id, connection).filter(|_| speaks_as_before);
                if let Some(kept) = kept {
                    entries.push((tenant.id.clone(), kept.clone()));
                    continue;
                }
                let written = tenant
                    .egress()
                    .and_then(|egress| egress.connections.iter().find(|written| written.id == *connection.id()));
                match written.map_or(Ok(None), |written| self.of(written)) {
                    Ok(tls) => entries.push((tenant.id.clone(), Entry { connection: Arc::clone(connection), tls })),
                    Err(why) => faults.push(tenant.fault(*line, format!("connection.{}", connection.id()), why)),
                }
            }
        }
        entries
    }

    /// By its secrets, or by what it speaks where others speak something else.
    fn of(&self, written: &config::Connection) -> Result<Option<OwnTls>, String> {
        let http2 = written.http2.unwrap_or(self.http2);
        let of_all = speaking(self.tls, http2);
        let Some(own) = &written.tls else {
            return Ok((http2 != self.http2).then(|| OwnTls { identified: of_all.clone(), anonymous: of_all }));
        };
        let roots = own.roots.as_ref().map(|pem| Roots::from_pem(pem.expose())).transpose();
        let roots = roots.map_err(|fault| fault.to_string())?;
        let identity = own.client.as_ref().map(|(chain, key)| ClientIdentity::from_pem(chain.expose(), key.expose()));
        let identity = identity.transpose().map_err(|fault| fault.to_string())?;
        let make = |roots: &Roots, identity| {
            let tls = TlsClient::new(roots, identity, SPOKEN).map_err(|fault| fault.to_string())?;
            Ok::<_, String>(speaking(&tls, http2))
        };
        let anonymous = roots.as_ref().map_or(Ok(of_all), |roots| make(roots, None))?;
        let identified = match identity {
            Some(identity) => make(roots.as_ref().unwrap_or(self.roots), Some(identity))?,
            None => anonymous.clone(),
        };
        Ok(Some(OwnTls { identified, anonymous }))
    }
}

/// As the file has it.
fn speaking(tls: &TlsClient, http2: Http2) -> TlsClient {
    match http2 {
        Http2::Auto => tls.clone(),
        Http2::Off => tls.without_http2(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use config::{Both, MapEnvironment, TenantFiles};
    use domain::ConnectionId;
    use egress::compile::{self, Compiled};

    use super::*;

    /// Files of two tenants: `acme`'s connection has roots of its own.
    struct Files {
        root: tempfile::TempDir,
        appliance: config::Appliance,
        compiled: Compiled,
        read: TenantFiles<Both<Tenant, TenantOut>>,
        faults: Vec<Fault>,
    }

    impl Files {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("tidegate.toml");
            let log = root.path().join("log");
            let text = format!(
                "[gateway]\npublic_url = \"https://hooks.example.com\"\n[log]\ndirectory = \"{}\"\n",
                log.display()
            );
            fs::write(&path, text).unwrap();
            fs::create_dir_all(root.path().join("tenants/acme.secrets")).unwrap();
            let (appliance, faults) = config::load_appliance(&path);
            let appliance = appliance.unwrap_or_else(|| panic!("{faults:?}"));
            let (compiled, _) = Compiled::new(&appliance, &path, &compile::catalogue(&appliance).0.unwrap());
            let read = TenantFiles::new(&appliance);
            let files = Self { root, appliance, compiled, read, faults: Vec::new() };
            files.acme("one.test", "");
            files.write("tenants/beta.toml", "tenant = \"beta\"\n");
            files
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.root.path().join(name), text).unwrap();
        }

        /// Its roots are those of somebody of this name.
        fn acme(&self, roots: &str, more: &str) {
            let roots = rcgen::generate_simple_self_signed([roots.to_owned()]).unwrap();
            self.write("tenants/acme.secrets/roots", &roots.cert.pem());
            let connection = "[[connection]]\nid = \"conn_1\"\nconnector = \"http\"\n\
                              base_url = \"https://api.example.com\"\nroots = \"secret:roots\"\n";
            self.write("tenants/acme.toml", &format!("tenant = \"acme\"\n{connection}{more}"));
        }

        /// Loads them, as a reload does.
        fn load(&mut self, before: &Connections, making: &OwnTlsOf<'_>, spoken_before: &TlsClient) -> Connections {
            let compiled = &self.compiled;
            let judge = &mut |tenant: Tenant| (Some(tenant), Vec::new());
            let calls = &mut |tenant: &Tenant| compiled.tenant(tenant);
            let load = self.read.load(&self.appliance, &MapEnvironment::default(), &mut config::both(judge, calls));
            self.faults = load.faults;
            let tenants = load.tenants.iter().map(|both| (&*both.made, both.beside.as_ref()));
            let connections = making.connections((before, spoken_before), tenants, &mut self.faults);
            assert!(!config::has_errors(&self.faults), "{:?}", self.faults);
            Connections::new(connections)
        }
    }

    fn of_acme(connections: &Connections) -> TlsClient {
        let (tenant, id) = (TenantId::parse("acme").unwrap(), ConnectionId::parse("conn_1").unwrap());
        let entry = connections.get(&tenant, &id).unwrap();
        let own = entry.tls.as_ref().unwrap();
        assert_eq!(own.identified, own.anonymous, "there is no identity to leave out");
        own.anonymous.clone()
    }

    #[test]
    fn what_is_as_it_was_is_kept_and_what_changed_is_made_anew() {
        let roots = rcgen::generate_simple_self_signed(["system.test".to_owned()]).unwrap();
        let roots = Roots::from_pem(roots.cert.pem().as_bytes()).unwrap();
        let usual = TlsClient::new(&roots, None, SPOKEN).unwrap();
        let making = OwnTlsOf { roots: &roots, tls: &usual, http2: Http2::Auto };
        let mut files = Files::new();
        let first = files.load(&Connections::default(), &making, &usual);
        assert_ne!(of_acme(&first), usual);

        files.write("tenants/beta.toml", "tenant = \"beta\"\n[egress]\nallow = [\"a.example\"]\n");
        let second = files.load(&first, &making, &usual);
        assert_eq!(of_acme(&second), of_acme(&first), "another tenant's file changed");

        files.acme("two.test", "");
        let third = files.load(&second, &making, &usual);
        assert_ne!(of_acme(&third), of_acme(&second), "its secret changed");

        // The appliance speaks HTTP/1.1 from now on: so does whoever does not say.
        let without = OwnTlsOf { http2: Http2::Off, ..making };
        let fourth = files.load(&third, &without, &usual);
        assert!(!of_acme(&fourth).offers_http2() && of_acme(&third).offers_http2());
        files.acme("two.test", "http2 = \"auto\"\n");
        let fifth = files.load(&fourth, &without, &without.usual());
        assert!(of_acme(&fifth).offers_http2(), "it says so itself");
    }
}
