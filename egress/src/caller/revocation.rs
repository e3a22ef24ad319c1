//! Taking back what was granted, before it ends by itself.
//!
//! By the grant's id, by run, or by tenant; the last covers static tokens and certificates too. Revocations are lines
//! of a file in the state directory (`revocation/file.rs`), so that they outlive every process and need no appliance to
//! be running; a node looks at the file four times a second, and tells open tunnels when something changed.
//!
//! A grant lives for 15 minutes at most, and so do the revocations of ids and runs, with some time on top; that of a
//! tenant stays until it is lifted. They stay on the list for an hour longer, in case the clock is set back.

use std::collections::HashMap;
use std::fmt;

use domain::TenantId;
use serde::{Deserialize, Serialize, Serializer};

use super::claims::is_label;
use super::grant::{LEEWAY_SECONDS, LIFETIME_SECONDS_MAX};
use super::{Caller, Identity};

pub(super) mod file;
pub(super) mod node;

/// After so long every grant that was there has ended.
pub const REVOKED_MS_MIN: u64 = (LIFETIME_SECONDS_MAX + LEEWAY_SECONDS) * 1000;

/// How long an entry is remembered beyond its end.
const KEPT_MS: u64 = 60 * 60 * 1000;

/// What is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// The grant with this `jti`, whoever issued it.
    Grant(Box<str>),
    /// The grants of this run, of one tenant or of any.
    Run {
        /// Whose run; none for every tenant's run of that name.
        tenant: Option<TenantId>,
        /// `run`.
        run: Box<str>,
    },
    /// Everything that is this tenant's: grants, static tokens, certificates.
    Tenant(TenantId),
}

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant(id) => write!(f, "grant {id}"),
            Self::Run { tenant: None, run } => write!(f, "run {run}"),
            Self::Run { tenant: Some(tenant), run } => write!(f, "run {run} of tenant {tenant}"),
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
        }
    }
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// What it is about.
    pub what: Revoked,
    /// When it was written, in Unix milliseconds.
    pub at_unix_ms: u64,
    /// Until when it holds.
    pub until: Until,
}

/// Until when a revocation holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// To this moment, in Unix milliseconds.
    UnixMs(u64),
    /// Until it is lifted.
    Lifted,
    /// It is lifted by this line.
    Now,
}

impl Until {
    /// As a number: for ever, and not at all, at its ends.
    fn unix_ms(self) -> u64 {
        match self {
            Self::UnixMs(ms) => ms,
            Self::Lifted => u64::MAX,
            Self::Now => 0,
        }
    }

    /// Is it to be remembered?
    fn matters(self, now_ms: u64) -> bool {
        matters(self.unix_ms(), now_ms)
    }
}

fn matters(until_ms: u64, now_ms: u64) -> bool {
    until_ms.saturating_add(KEPT_MS) > now_ms
}

/// As it is written. Members that are not known, or stand twice, are faults.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jti: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lifted: bool,
}

impl Revocation {
    fn line(&self) -> Line {
        let (jti, run, tenant) = match self.what.clone() {
            Revoked::Grant(id) => (Some(id), None, None),
            Revoked::Run { tenant, run } => (None, Some(run), tenant),
            Revoked::Tenant(tenant) => (None, None, Some(tenant)),
        };
        let (until, lifted) = match self.until {
            Until::UnixMs(ms) => (Some(ms), false),
            Until::Lifted => (None, false),
            Until::Now => (None, true),
        };
        Line { at: self.at_unix_ms, jti, run, tenant, until, lifted }
    }

    /// The line, without its end. None if an id is not one that a grant can have.
    fn to_line(&self) -> Option<String> {
        let line = self.line();
        let is_sound = line.jti.iter().chain(&line.run).all(|label| is_label(label));
        is_sound.then(|| serde_json::to_string(&line).ok()).flatten()
    }

    fn of_line(line: &[u8]) -> Option<Self> {
        let line: Line = serde_json::from_slice(line).ok()?;
        let what = match (line.jti, line.run, line.tenant) {
            (Some(id), None, None) if is_label(&id) => Revoked::Grant(id),
            (None, Some(run), tenant) if is_label(&run) => Revoked::Run { tenant, run },
            (None, None, Some(tenant)) => Revoked::Tenant(tenant),
            _ => return None,
        };
        let until = match (line.until, line.lifted) {
            (Some(ms), false) => Until::UnixMs(ms),
            (None, false) => Until::Lifted,
            (None, true) => Until::Now,
            (Some(_), true) => return None,
        };
        Some(Self { what, at_unix_ms: line.at, until })
    }
}

/// As it stands in the file.
impl Serialize for Revocation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.line().serialize(serializer)
    }
}

/// What is revoked, for looking up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct List {
    grants: HashMap<Box<str>, u64>,
    runs: HashMap<Box<str>, Vec<(Option<TenantId>, u64)>>,
    tenants: HashMap<TenantId, u64>,
}

impl List {
    /// Takes one line in. A later one about the same replaces the earlier.
    fn apply(&mut self, revocation: Revocation) {
        let until_ms = revocation.until.unix_ms();
        match revocation.what {
            Revoked::Grant(id) => {
                self.grants.insert(id, until_ms);
            }
            Revoked::Run { tenant, run } => {
                let of_name = self.runs.entry(run).or_default();
                of_name.retain(|(known, _)| *known != tenant);
                of_name.push((tenant, until_ms));
            }
            Revoked::Tenant(tenant) => {
                self.tenants.insert(tenant, until_ms);
            }
        }
    }

    /// Everything of both, each until the later end.
    fn join(&mut self, other: &Self) {
        for (id, until_ms) in &other.grants {
            let known = self.grants.entry(id.clone()).or_default();
            *known = (*known).max(*until_ms);
        }
        for (run, of_name) in &other.runs {
            let known = self.runs.entry(run.clone()).or_default();
            for (tenant, until_ms) in of_name {
                match known.iter_mut().find(|(of, _)| of == tenant) {
                    Some((_, until)) => *until = (*until).max(*until_ms),
                    None => known.push((tenant.clone(), *until_ms)),
                }
            }
        }
        for (tenant, until_ms) in &other.tenants {
            let known = self.tenants.entry(tenant.clone()).or_default();
            *known = (*known).max(*until_ms);
        }
    }

    /// Drops what has ended long enough ago.
    fn forget(&mut self, now_ms: u64) {
        self.grants.retain(|_, until_ms| matters(*until_ms, now_ms));
        self.runs.retain(|_, of_name| {
            of_name.retain(|(_, until_ms)| matters(*until_ms, now_ms));
            !of_name.is_empty()
        });
        self.tenants.retain(|_, until_ms| matters(*until_ms, now_ms));
    }

    fn len(&self) -> usize {
        self.grants.len() + self.runs.values().map(Vec::len).sum::<usize>() + self.tenants.len()
    }

    /// Is everything revoked that is this tenant's?
    fn covers_all_of(&self, tenant: &TenantId, now_ms: u64) -> bool {
        self.tenants.get(tenant).is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// Is this caller revoked?
    pub(super) fn covers(&self, caller: &Caller, now_ms: u64) -> bool {
        if self.covers_all_of(&caller.tenant, now_ms) {
            return true;
        }
        let Identity::Grant { id, .. } = &caller.identity else { return false };
        if self.grants.get(id).is_some_and(|until_ms| *until_ms > now_ms) {
            return true;
        }
        let of_name = caller.run.as_ref().and_then(|run| self.runs.get(run));
        of_name.into_iter().flatten().any(|(tenant, until_ms)| {
            *until_ms > now_ms && tenant.as_ref().is_none_or(|tenant| *tenant == caller.tenant)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::caller;
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    fn run(of: Option<&str>, run: &str) -> Revoked {
        Revoked::Run { tenant: of.map(tenant), run: run.into() }
    }

    fn list(entries: impl IntoIterator<Item = (Revoked, Until)>) -> List {
        let mut list = List::default();
        for (what, until) in entries {
            list.apply(Revocation { what, at_unix_ms: 0, until });
        }
        list
    }

    #[test]
    fn lines_say_one_thing_and_are_read_again() {
        for what in
            [Revoked::Grant("g1".into()), run(None, "r/1"), run(Some("acme"), "r"), Revoked::Tenant(tenant("acme"))]
        {
            for until in [Until::UnixMs(7), Until::Lifted, Until::Now] {
                let revocation = Revocation { what: what.clone(), at_unix_ms: 5, until };
                let line = revocation.to_line().unwrap();
                assert!(!line.contains('\n'));
                assert_eq!(Revocation::of_line(line.as_bytes()), Some(revocation), "{line}");
            }
        }
        assert_eq!(
            Revocation { what: Revoked::Grant("a\nb".into()), at_unix_ms: 0, until: Until::Now }.to_line(),
            None
        );
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"at":1}"#,
            r#"{"at":1,"jti":""}"#,
            r#"{"at":1,"jti":"a","run":"b"}"#,
            r#"{"at":1,"jti":"a","tenant":"acme"}"#,
            r#"{"at":1,"tenant":"a.b"}"#,
            r#"{"jti":"a"}"#,
            r#"{"at":1,"jti":"a","jti":"b"}"#,
            r#"{"at":1,"jti":"a","till":5}"#,
            r#"{"at":-1,"jti":"a"}"#,
            r#"{"at":1,"jti":"a","until":5,"lifted":true}"#,
            r#"{"at":1,"jti":"a"} {}"#,
            r#"{"at":1,"run":"a b"}"#,
        ] {
            assert_eq!(Revocation::of_line(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_revocation_covers_what_it_names_and_nothing_else() {
        let mine = caller("acme", "g1", Some("r1"));
        let covers = |what: Revoked| list([(what, Until::UnixMs(100))]).covers(&mine, 99);
        assert!(covers(Revoked::Grant("g1".into())) && covers(run(None, "r1")) && covers(run(Some("acme"), "r1")));
        assert!(covers(Revoked::Tenant(tenant("acme"))));
        assert!(!covers(Revoked::Grant("g2".into())) && !covers(run(None, "r2")) && !covers(run(Some("beta"), "r1")));
        assert!(!covers(Revoked::Grant("r1".into())) && !covers(run(None, "g1")));
        assert!(!covers(Revoked::Tenant(tenant("beta"))));

        let mut token = mine.clone();
        token.identity = Identity::Token { name: "g1".into() };
        let list = list([(Revoked::Grant("g1".into()), Until::Lifted)]);
        assert!(!list.covers(&token, 0), "a token's name is no grant's id");
    }

    #[test]
    fn it_ends_is_lifted_and_is_forgotten() {
        let mine = caller("acme", "g1", Some("r1"));
        let ended = list([(Revoked::Grant("g1".into()), Until::UnixMs(100))]);
        assert!(ended.covers(&mine, 99) && !ended.covers(&mine, 100));
        let lifted =
            list([(Revoked::Tenant(tenant("acme")), Until::Lifted), (Revoked::Tenant(tenant("acme")), Until::Now)]);
        assert!(!lifted.covers(&mine, 0));
        let again = list([(run(None, "r1"), Until::Lifted), (run(Some("acme"), "r1"), Until::Now)]);
        assert!(again.covers(&mine, 0), "another line, another thing");

        let mut list = list([(Revoked::Grant("g1".into()), Until::UnixMs(100)), (run(None, "r1"), Until::Lifted)]);
        list.forget(100 + KEPT_MS - 1);
        assert_eq!(list.len(), 2);
        list.forget(100 + KEPT_MS);
        assert_eq!(list.len(), 1);
        list.forget(u64::MAX - 1);
        assert!(list.covers(&mine, u64::MAX - 1), "what is not lifted stays");
    }

    #[test]
    fn joined_lists_revoke_what_either_did() {
        let mut one = list([(Revoked::Grant("g1".into()), Until::UnixMs(5)), (run(None, "r1"), Until::UnixMs(9))]);
        let two = list([
            (Revoked::Grant("g1".into()), Until::UnixMs(7)),
            (run(None, "r1"), Until::Now),
            (run(Some("acme"), "r1"), Until::UnixMs(1)),
            (Revoked::Tenant(tenant("beta")), Until::Lifted),
        ]);
        one.join(&two);
        assert_eq!(one.len(), 4);
        let mine = caller("acme", "g1", None);
        assert!(one.covers(&mine, 6) && !one.covers(&mine, 7));
        assert!(one.covers(&caller("acme", "g2", Some("r1")), 8));
        assert!(one.covers(&caller("beta", "g3", None), 8));
    }
}
