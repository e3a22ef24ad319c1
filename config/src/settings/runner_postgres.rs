//! `[runner.postgres]`: where the PostgreSQL is that a fleet shares, who we are there, and by what it is trusted.
//!
//! All of it is read once, at start.

use std::path::Path;
use std::time::Duration;

use super::issuer::{absolute, operator_reference};
use super::quota_redis::is_host_and_port;
use crate::form::{AtLine, Count, Flag, Lined, Maybe, Span, Table, Text, settings, text};
use crate::units::seconds;

const MS: Duration = Duration::from_millis(1);

settings! {
    /// The PostgreSQL that nodes share: 13 or later, or what speaks as it does. The appliance starts without it, and goes on when it is gone; nothing is admitted and no step is made until it is there, and `readyz` says why.
    pub struct RunnerPostgres {
        /// Host and port. Names are looked up in `egress.dns`.
        address: Option<String> = None, Maybe(host_and_port()), restart,
            "Nowhere, until somebody says where.";
        /// The database.
        database: String = "tidegate".into(), word(), restart,
            "One of its own: the tables in it are the appliance's.";
        /// The user to log in as.
        user: String = "tidegate".into(), word(), restart,
            "It owns its tables, and needs no other right.";
        /// Reference to the user's password: `env:NAME`, `file:PATH` or `systemd-credential:NAME`.
        password: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Without it, the server has to trust the connection or its certificate.";
        /// Connections of this node.
        connections: u16 = 8, Count(1..=256), restart,
            "A commit holds one for a round trip; more of them only make the server share its disk.";
        /// How long a statement may take.
        statement_timeout: Duration = seconds(5), Span(100 * MS..=seconds(60)), restart,
            "A commit takes milliseconds. What takes longer is not there, and is read again before it is tried again.";
        /// TLS with the server.
        tls: RunnerPostgresTls = RunnerPostgresTls::default(), Table, restart, "";
    }

    /// TLS with PostgreSQL. The table's presence enables it.
    pub struct RunnerPostgresTls {
        /// Whether TLS is spoken.
        enabled: bool = true, Flag, restart,
            "A file that has a `[runner.postgres.tls]` table means it; without the table connections are in the clear.";
        /// Authorities that vouch for the server, in PEM: `file:PATH`, `env:NAME` or `systemd-credential:NAME`.
        roots: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Without it, those that the machine trusts.";
        /// Our own certificate for a server that asks for one, in PEM with its chain: a reference as for `roots`.
        certificate: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Most servers ask for none.";
        /// Its private key, in PEM: a reference as for `roots`.
        key: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "It belongs to the certificate.";
    }
}

impl RunnerPostgres {
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        let tls = &mut self.tls;
        let all = [&mut self.password, &mut tls.roots, &mut tls.certificate, &mut tls.key];
        for reference in all.into_iter().flatten() {
            absolute(&mut reference.value, directory);
        }
    }
}

const fn host_and_port() -> Text<String> {
    text(
        "host and port",
        "postgres.internal:5432",
        |text| {
            if is_host_and_port(text) {
                return Ok(text.to_owned());
            }
            Err(format!("{text:?} is no host and port; write \"postgres.internal:5432\" or \"[2001:db8::1]:5432\""))
        },
        String::clone,
    )
}

/// The name of a database or a user.
const fn word() -> Text<String> {
    text(
        "name",
        "tidegate",
        |text| match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(odd) => Err(format!("{text:?} holds {odd:?}; write the name that PostgreSQL has for it")),
            // The longest that it takes.
            None if (1..=63).contains(&text.len()) => Ok(text.to_owned()),
            None => Err("has not 1 to 63 characters; write the name that PostgreSQL has for it".into()),
        },
        String::clone,
    )
}
