//! `[runner]`: the role that performs what tenants automate, and its bounds.
//!
//! Nothing of it lets a call out: the way out is another role, here or on another machine, and the runner reaches it as
//! every caller does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::issuer::{absolute, operator_reference};
use super::{RunnerApi, RunnerPostgres, class_name};
use crate::form::{
    AtLine, Bytes, Choice, Count, Flag, Lined, List, Maybe, Span, Table, Text, needed, path, settings, shown, text,
};
use crate::units::{GIB, KIB, MIB, TIB, days, seconds};

const HOUR: Duration = Duration::from_hours(1);

/// What holds the ledger of steps and the automations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerStore {
    /// Files of this machine, in `runner.directory`.
    Embedded,
    /// A PostgreSQL that the nodes of a fleet share.
    Postgres,
}

/// Largest payload that is kept whole where nodes share a PostgreSQL: it travels in one transaction.
pub const RUNNER_SHARED_PAYLOAD_BYTES_MAX: u64 = 64 * MIB;

settings! {
    /// The role that performs what tenants automate.
    pub struct Runner {
        /// Whether this process performs runs.
        enabled: bool = true, Flag, restart,
            "A file that has a `[runner]` table means it; without the table the role is off.";
        /// Where ledger, history, payloads, automations and indexes are, each in a directory of its own.
        directory: PathBuf = "/var/lib/tidegate/runner".into(),
            shown(path(), "`runner` beside `log.directory`"), restart,
            "The ledger is what keeps an effect from happening twice: it wants a disk that is as good as the event log's.";
        /// What holds the ledger and the automations: `embedded` for one node, `postgres` for several, which share one (`[runner.postgres]`).
        store: RunnerStore = RunnerStore::Embedded,
            Choice(&[("embedded", RunnerStore::Embedded), ("postgres", RunnerStore::Postgres)]), restart,
            "One node needs no server.";
        /// Where calls are let out: `http://host:port`, or `https://host:port`. Grants go there, so that it is a loopback address, or has TLS.
        egress: Option<AtLine<String>> = None, shown(Maybe(Lined(way_out())), "the first of `egress.listen` of this file"), restart,
            "On one machine it is the role beside this one.";
        /// Authorities that vouch for `egress` with `https`, in PEM: `file:PATH`, `env:NAME` or `systemd-credential:NAME`.
        egress_roots: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), restart,
            "Without it, those that the machine trusts.";
        /// Runs that are worked on at one time.
        slots: u32 = 512, Count(1..=65_536), restart,
            "A run mostly waits for a provider, and holds some 20 KiB meanwhile. No tenant has all of them while another one waits.";
        /// Tiers of tenants: slots that are kept for them, and how many one of them may hold.
        tier: Vec<RunnerTier> = Vec::new(), List(Table, 0..=7), live, "";
        /// How long a lease of a run holds that is not renewed.
        lease: Duration = seconds(30), Span(seconds(1)..=seconds(600)), restart,
            "After a crash of a node, its runs go on elsewhere this late. Alone, a node takes its own up again at once.";
        /// Age of a run from which on it is asked again, before an effect, whether its tenant and connection are still there.
        reauthorise_after: Duration = days(1), Span(seconds(1)..=days(366)), restart,
            "Within a day nobody is surprised by what was begun; what slept for longer may have lost its right meanwhile.";
        /// Workers that may be lost over a step, one after the other, until its run is quarantined.
        crashes_max: u32 = 5, Count(1..=100), restart,
            "Deploys and one bad night take a worker or two; five over the same step are the step's doing.";
        /// By what name grants for calls are signed, and with which key.
        issuer: RunnerIssuer = RunnerIssuer::default(), Table, live, "";
        /// How long runs are kept, and in what detail.
        retention: RunnerRetention = RunnerRetention::default(), Table, restart, "";
        /// Inputs and outputs of steps.
        payloads: RunnerPayloads = RunnerPayloads::default(), Table, restart, "";
        /// How events become runs.
        admission: RunnerAdmission = RunnerAdmission::default(), Table, restart, "";
        /// The API for those who write automations.
        api: RunnerApi = RunnerApi::default(), Table, restart, "";
        /// Where the PostgreSQL is that `runner.store = "postgres"` asks.
        postgres: RunnerPostgres = RunnerPostgres::default(), Table, restart, "";
    }

    /// What tenants of one kind have of the slots.
    pub struct RunnerTier {
        /// Its name: tenants' files refer to it. Those that name none are in the one named `default`, if there is one.
        name: AtLine<String> = AtLine::default(), needed(Lined(class_name())), live, "Tenants' files refer to it.";
        /// Part of the slots that only its tenants get, in per cent. Beyond it they have their turn at those that nobody reserves.
        reserve_percent: u16 = 0, Count(0..=99), live,
            "What is reserved stands empty while its tenants have nothing to run: it is for whom a promise was made to.";
        /// Runs of one of its tenants that are worked on at one time, whoever else waits.
        concurrency: Option<u32> = None, Maybe(Count(1..=65_536)), live,
            "Without it, as many as there are slots; while others wait, no tenant has more than its part all the same.";
    }

    /// Who vouches for the runner's calls.
    pub struct RunnerIssuer {
        /// Its name, what its grants have in `iss`: one of `[[egress.issuer]]` where calls are let out.
        name: Option<AtLine<String>> = None, Maybe(Lined(name())), live,
            "Without it, the one `[[egress.issuer]]` of this file that has a `signing_key`.";
        /// Reference to its private key: `env:NAME`, `file:PATH` or `systemd-credential:NAME`.
        signing_key: Option<AtLine<String>> = None, Maybe(Lined(operator_reference())), live,
            "Without it, the `signing_key` of the `[[egress.issuer]]` of that name. It is worth every connection of the tenants that the issuer may speak for.";
    }

    /// How long runs are kept.
    pub struct RunnerRetention {
        /// With what went in and came out of each step.
        detail: Duration = days(14), Span(HOUR..=days(3660)), restart,
            "Two weeks: whoever comes back from a holiday can still see why.";
        /// Without that: what was done, when, and what came of it.
        metadata: Duration = days(180), Span(HOUR..=days(3660)), restart,
            "Half a year of what audits and invoices ask for, at about 1 KiB a run.";
    }

    /// Inputs and outputs of steps.
    pub struct RunnerPayloads {
        /// Up to this size they stand in the ledger.
        inline_bytes_max: u32 = 4 << 10, Bytes(0..=64 * KIB), restart,
            "Most are smaller, and are read with the record that they belong to.";
        /// Up to this size they are kept whole, in files of their own, or in rows of PostgreSQL (there at most 64 MiB); of longer ones the beginning, with length and digest.
        bytes_max: u64 = 8 * MIB, Bytes(4 * KIB..=GIB), restart,
            "Longer ones are exports and videos, which nobody reads in a history.";
        /// Bytes of one segment of the ledger.
        segment_bytes: u64 = 64 * MIB, Bytes(MIB..=2 * GIB), restart,
            "As the event log's: retention drops whole segments.";
        /// Bytes of the file system that are left free: below them nothing is admitted, and steps wait.
        reserve_bytes: u64 = GIB, Bytes(0..=64 * TIB), restart,
            "A run must be able to write down what came of a call that it has made.";
    }

    /// How events become runs.
    pub struct RunnerAdmission {
        /// Events whose runs are being admitted at one time.
        under_way_max: u32 = 1_024, Count(1..=65_536), restart,
            "The ledger commits many with one write.";
        /// Events that were read and wait for their turn, tenants in turn. Beyond it events wait in the log, where they cost nothing.
        events_max: u32 = 262_144, Count(16..=16_777_216), restart,
            "64 bytes each, 16 MiB. While one tenant's burst waits here, another's single event goes before it.";
        /// Runs that wait in memory, for a slot or for a time, of all tenants. Beyond it they wait in the ledger, and are found there again.
        runs_max: u32 = 1 << 20, Count(16..=67_108_864), restart,
            "About 60 bytes each, 64 MiB.";
        /// Where an event waits for so long that it was not admitted, `readyz` says so.
        lag_alarm: Duration = seconds(60), Span(seconds(1)..=days(1)), restart,
            "A start takes a second as a rule. A minute is an incident, or a burst that somebody wants to know of.";
    }
}

/// Tenants that name no tier are in the one of this name.
pub const DEFAULT_TIER: &str = "default";

impl Runner {
    /// Names that a tenant's file can have.
    pub(crate) fn tier_names(&self) -> BTreeSet<Box<str>> {
        self.tier.iter().map(|tier| tier.name.value.as_str()).chain([DEFAULT_TIER]).map(Box::from).collect()
    }

    /// Slots that a tier reserves, of as many as there are.
    pub fn reserved_slots(slots: u32, reserve_percent: u16) -> u32 {
        u32::try_from(u64::from(slots) * u64::from(reserve_percent) / 100).unwrap_or(slots)
    }

    /// Relative paths, and references to files, are meant relative to the file that they stand in.
    pub(crate) fn resolve_paths(&mut self, directory: &Path) {
        if self.directory.is_relative() {
            self.directory = directory.join(&self.directory);
        }
        for reference in [&mut self.egress_roots, &mut self.issuer.signing_key].into_iter().flatten() {
            absolute(&mut reference.value, directory);
        }
        self.api.resolve_paths(directory);
        self.postgres.resolve_paths(directory);
    }
}

/// Scheme, host and port of a way out.
const fn way_out() -> Text<String> {
    text(
        "URL",
        "http://127.0.0.1:3128",
        |text| {
            let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
            let is_place = |rest: &str| {
                let authority = rest.strip_suffix('/').unwrap_or(rest);
                !authority.contains(['/', '?', '#', '@']) && super::quota_redis::is_host_and_port(authority)
            };
            match rest {
                Some(rest) if is_place(rest) => Ok(text.trim_end_matches('/').to_owned()),
                _ => Err(format!(
                    "{:?} is no way out; write scheme, host and port, such as \"http://127.0.0.1:3128\" or \"https://egress.internal:3129\"",
                    domain::text::Untrusted::with_limit(text.as_bytes(), 128).to_string()
                )),
            }
        },
        String::clone,
    )
}

const fn name() -> Text<String> {
    text(
        "name",
        "runner",
        |text| match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(odd) => Err(format!("{text:?} holds {odd:?}; write the name of an issuer")),
            None if (1..=256).contains(&text.len()) => Ok(text.to_owned()),
            None => Err("has not 1 to 256 characters; write the name of an issuer".into()),
        },
        String::clone,
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Appliance;

    fn read(text: &str) -> Appliance {
        let (appliance, faults) = crate::parse_appliance(Path::new("/etc/tidegate.toml"), text.as_bytes());
        appliance.unwrap_or_else(|| panic!("{faults:?}"))
    }

    const ISSUER: &str = "[[egress.issuer]]\nname = \"runner\"\nkeys = [\"ed25519:x\"]\ntenants = [\"*\"]\nsigning_key = \"file:grant.key.pem\"\n";

    #[test]
    fn the_role_is_on_where_its_table_is() {
        let gateway = "[gateway]\npublic_url = \"https://a.example.com\"\n";
        assert!(!read(gateway).runner.enabled);
        let with = format!("{gateway}[egress]\n{ISSUER}[runner]\n");
        assert!(read(&with).runner.enabled);
        assert!(!read(&format!("{with}enabled = false\n")).runner.enabled);
        assert_eq!(read(&with).runner.directory, Path::new("/var/lib/tidegate/runner"));
        let beside = read(&format!("{with}[log]\ndirectory = \"data/log\"\n"));
        assert_eq!(beside.runner.directory, Path::new("/etc/data/runner"), "beside the log");
        let own = read(&format!("{with}directory = \"runs\"\n"));
        assert_eq!(own.runner.directory, Path::new("/etc/runs"));
    }

    #[test]
    fn what_stores_and_sockets_are_made_of_waits_for_a_restart() {
        let base = format!("[gateway]\npublic_url = \"https://a.example.com\"\n[egress]\n{ISSUER}");
        let old = read(&format!("{base}[runner]\n"));
        let new = read(&format!(
            "{base}[runner]\nslots = 7\nlease = \"10s\"\nreauthorise_after = \"2h\"\ncrashes_max = 2\n\
            [runner.issuer]\nname = \"runner\"\nsigning_key = \"file:k.pem\"\n[runner.retention]\ndetail = \"1d\"\n[runner.api]\nlisten = [\"127.0.0.1:1\"]\n"
        ));
        let wait = [
            "runner.slots",
            "runner.lease",
            "runner.reauthorise_after",
            "runner.crashes_max",
            "runner.retention.detail",
            "runner.api.listen",
        ];
        assert_eq!(old.restart_needed(&new), wait);
        let live = old.with_live(new.clone()).runner;
        assert_eq!(live.issuer, new.runner.issuer);
        assert_eq!(live.slots, old.runner.slots);
        assert_eq!(new.runner.issuer.signing_key.unwrap().value, "file:/etc/k.pem");
    }

    #[test]
    fn a_way_out_is_a_scheme_a_host_and_a_port() {
        let read = |text: &str| {
            crate::parse_appliance(
            Path::new("/etc/tidegate.toml"),
            format!("[gateway]\npublic_url = \"https://a.example.com\"\n[egress]\n{ISSUER}[runner]\negress = \"{text}\"\n").as_bytes(),
        )
        };
        for good in ["http://127.0.0.1:3128", "http://[::1]:3128/", "https://egress.internal:443", "http://localhost:1"]
        {
            let (appliance, faults) = read(good);
            assert_eq!(appliance.expect(good).runner.egress.unwrap().value, good.trim_end_matches('/'), "{faults:?}");
        }
        for bad in [
            "",
            "127.0.0.1:3128",
            "ftp://a:1",
            "http://a",
            "http://a:0",
            "http://a:1/x",
            "http://u@a:1",
            "https://a:1?b",
            "http://a:99999",
        ] {
            assert!(read(bad).0.is_none(), "{bad}");
        }
    }
}
