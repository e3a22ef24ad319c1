//! A desk over a centre in this process, with a tenant that has two accounts at a provider and one at none that is known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use domain::{Clock, ConnectionId, ManualClock, TenantId};
use egress::compile::{self, Compiled};
use egress::forward::headers::Names;
use egress::quota::{Guards, QuotaRules, Silent};
use egress::{Connections, Entry, Exits, Settings};
use eventlog::{EventLog, HoldingStore};
use outbound::{Alpn, Own, Roots, TlsClient};
use ratelimit::breaker::fleet::{FleetBreakers, FleetSettings};
use ratelimit::breaker::{self, Breakers, Fault, Outcome};
use ratelimit::quota::holder::{BootClock, Held, Holder, Need, Parked, Per};
use ratelimit::quota::{Class, HolderId, InProcess, Kind, Metered, PARK_MS_MAX, Rule, RuleSpec, Share};
use ratelimit::retry_budget::RetryBudgets;
use ratelimit::runaway::{self, Runaways};
use ratelimit::{Bounds, Now, PairKey};
use tokio::sync::{mpsc, oneshot};

use super::wire::{
    Act, Acted, BucketAct, ExplainAnswer, ExplainQuery, Fate, GuardAct, GuardWord, Guarded, GuardsQuery, ListQuery,
    ShowQuery,
};
use super::*;
use crate::control::node::Node;
use crate::control::server::serve;
use crate::control::socket::Socket;
use crate::control::wire::{Judged, Reloaded, Reverify};

/// 2025-11-29T13:46:40Z.
const NOW_UNIX_MS: u64 = 1_764_424_000_000;
const OPERATOR: Peer = Peer { uid: Some(7) };
const SHARE: Share = Share { weight: 1, floor_permille: 0, ceiling_permille: 1_000 };
const CRM_DAILY: &str = "hubspot:app/connection:acme.crm:daily";
const HUBSPOT_ANY: &str = "hubspot:app/app:-:any";

const APPLIANCE: &str = "[egress]\n[gateway]\npublic_url = \"https://hooks.example.com\"\n";
const ACME: &str = r#"
tenant = "acme"

[[connection]]
id = "crm"
connector = "hubspot"
base_url = "https://api.hubapi.com"

[[connection]]
id = "crm2"
connector = "hubspot"
base_url = "https://api.hubapi.com"

[[connection]]
id = "own"
connector = "http"
base_url = "https://api.example.com"
"#;

pub(crate) struct Bench {
    pub(crate) desk: Desk,
    /// By which breakers and runaways go. Leases go by the machine's.
    clock: Arc<ManualClock>,
    stop: Option<oneshot::Sender<()>>,
    directory: tempfile::TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

fn acme() -> TenantId {
    TenantId::parse("acme").unwrap()
}

/// Five a second of somebody new are usual.
const WATCHED: runaway::Rules = runaway::Rules {
    plan_per_minute: 300,
    floor_per_minute: 60,
    trigger_factor: 10,
    throttle_factor: 2,
    pause_after_ms: 600_000,
};

fn snapshot() -> Snapshot {
    let file = Path::new("/etc/t/tidegate.toml");
    let (appliance, faults) = config::parse_appliance(file, APPLIANCE.as_bytes());
    let appliance = appliance.unwrap_or_else(|| panic!("{faults:?}"));
    let catalogue = compile::catalogue(&appliance).0.unwrap();
    let (compiled, faults) = Compiled::new(&appliance, file, &catalogue);
    assert!(!config::has_errors(&faults), "{faults:?}");
    let (tenant, faults) = config::parse_tenant(ACME.as_bytes());
    let tenant = tenant.unwrap_or_else(|| panic!("{faults:?}"));
    let (out, faults) = compiled.tenant(&tenant);
    assert!(!config::has_errors(&faults), "{faults:?}");
    let out = out.unwrap();
    let entries = out.connections.iter().map(|written| {
        let entry = Entry { connection: Arc::clone(&written.connection), tls: None };
        (tenant.id.clone(), entry)
    });
    Snapshot {
        settings: Settings::of(&appliance.egress),
        names: Names::new("edge", None).unwrap(),
        policy: compiled.policy([(&tenant.id, Some(&out))]),
        rules: Arc::new(compiled.vetting(Own::default())),
        exits: Exits::default(),
        connections: Connections::new(entries),
        tls: TlsClient::new(&Roots::of_the_system().unwrap(), None, &[Alpn::Http11]).unwrap(),
        quota: Arc::new(QuotaRules { runaway: WATCHED, ..QuotaRules::default() }),
    }
}

impl Bench {
    /// Within a runtime.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let boot: Arc<dyn Clock> = Arc::new(BootClock::default());
        let centre = InProcess::open(&directory.path().join("quota.journal"), Arc::clone(&boot), 1_000).unwrap();
        let centre: Arc<dyn Centre> = Arc::new(centre);
        let holder = Holder::new(ratelimit::quota::holder::Settings::default(), HolderId(7), boot).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (runs, asks) = (holder.clone(), Arc::clone(&centre));
        tokio::spawn(async move { runs.run(asks, async { drop(stopped.await) }, Duration::ZERO).await });
        let bounds = Bounds { per_tenant: 100, total: 1_000 };
        let guards = Guards {
            breakers: Arc::new(Breakers::new(bounds)),
            fleet: Arc::new(FleetBreakers::new(FleetSettings::default(), 7).unwrap()),
            budgets: RetryBudgets::new(bounds),
            runaways: Arc::new(Runaways::new(bounds)),
        };
        let clock = ManualClock::at_unix_ms(NOW_UNIX_MS);
        let quota = Quota::new(Arc::<ManualClock>::clone(&clock), holder, guards, Arc::new(Silent));
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot()));
        let desk = Desk { centre, quota: Arc::new(quota), snapshot };
        Self { desk, clock, stop: Some(stop), directory }
    }

    /// Units of a bucket for one call of the tenant.
    pub(crate) async fn hold(&self, bucket: &str, cap: u32) -> Result<Held, Parked> {
        let BucketName { application, key } = bucket.parse().unwrap();
        let kind = Kind::Sliding { window_ms: 3_600_000, slots: 10 };
        let spec = RuleSpec { cfgver: 1, kind, cap, lease_ms: 2_000, guard_ms: 500, skew_ms: 1_000 };
        let bucket = Metered { key: Arc::new(key), rule: Arc::new(Rule::checked(spec).unwrap()) };
        let need = Need { application, bucket, per: Per::Call };
        let holder = &self.desk.quota.holder;
        let route = holder.route(&ratelimit::quota::Name::parse("acme").unwrap(), SHARE, &[need]).unwrap();
        holder.hold(&route, Class::Interactive, 1, Some(Duration::from_secs(2))).await
    }

    async fn explain(&self, connection: &str) -> ExplainAnswer {
        let query = ExplainQuery {
            tenant: acme(),
            role: None,
            connection: ConnectionId::parse(connection).unwrap(),
            method: "GET".to_owned(),
            path: "/crm/v3/objects".to_owned(),
            bulk: false,
            automation: Some("nightly".to_owned()),
        };
        self.desk.explain(&query).await.unwrap().unwrap()
    }

    async fn act(&self, bucket: &str, act: Act) -> Result<Acted, DeskError> {
        let asked = BucketAct { bucket: bucket.to_owned(), act, reason: "a test".to_owned() };
        self.desk.act(&asked, OPERATOR).await
    }

    fn guard(&self, of: Guarded, act: GuardWord) -> Result<Acted, DeskError> {
        self.desk.guard(&GuardAct { of, act, reason: String::new() }, OPERATOR)
    }

    fn now(&self) -> Now {
        Now::of(&*self.clock)
    }

    /// Calls of this key fail until its breaker is open.
    pub(crate) fn break_down(&self, key: PairKey) {
        let (breakers, rules) = (&self.desk.quota.breakers, breaker::Rules::default());
        while let Ok(ticket) = breakers.admit(key, &rules, self.now()) {
            breakers.report(key, &rules, ticket, Outcome::Failed(Fault::ServerError), self.now());
        }
    }

    /// So many attempts a minute, for so many seconds.
    pub(crate) fn demand(&self, key: PairKey, per_minute: u64, seconds: u64) {
        for _ in 0..seconds * per_minute / 60 {
            self.clock.advance(Duration::from_micros(60_000_000 / per_minute));
            self.desk.quota.runaways.attempt(key, &WATCHED, self.now());
        }
    }

    async fn list(&self, query: ListQuery) -> Vec<String> {
        let (mut query, mut all) = (query, Vec::new());
        loop {
            let page = self.desk.list(&query).await.unwrap();
            all.extend(page.buckets.into_iter().map(|line| line.bucket));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return all,
            }
        }
    }

    /// The socket of a node that has nothing but this.
    pub(crate) fn serve(&self) -> PathBuf {
        let path = self.directory.path().join("control.sock");
        let socket = Socket::bind(&path).unwrap();
        tokio::spawn(serve(socket, Arc::new(DeskNode(self.desk.clone())), std::future::pending()));
        path
    }
}

#[derive(Debug)]
struct DeskNode(Desk);

#[async_trait]
impl Node for DeskNode {
    fn log(&self) -> Option<&Arc<dyn EventLog>> {
        None
    }

    fn holding(&self) -> Option<&Arc<HoldingStore>> {
        None
    }

    fn quota(&self) -> Option<&Desk> {
        Some(&self.0)
    }

    async fn reverify(&self, _: Reverify, _: mpsc::Sender<Judged>) -> Result<(), String> {
        Err("nothing is held here".to_owned())
    }

    async fn reload(&self) -> Reloaded {
        Reloaded { changed: 0, restart_needed: Vec::new(), faults: Vec::new() }
    }

    fn stat(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

#[tokio::test]
async fn all_buckets_are_listed_once_whatever_the_pages() {
    let bench = Bench::new();
    assert!(bench.list(ListQuery { limit: 10, ..ListQuery::default() }).await.is_empty());
    // The last is of an application that is not configured and was met all the same.
    let names = [
        "generic:src-192.0.2.1/source:192.0.2.1:burst",
        "http:acme.own/connection:acme.own:any",
        "hubspot:app/connection:acme.crm2:daily",
        CRM_DAILY,
        "hubspot:app/connection:acme.crm:ten-secondly",
        "slack:app/app:-:minutely",
    ];
    for name in names {
        drop(bench.hold(name, 100).await.unwrap());
    }
    let mut sorted = names.map(str::to_owned).to_vec();
    for limit in [1, 2, 1_000] {
        let mut found = bench.list(ListQuery { limit, ..ListQuery::default() }).await;
        found.sort_unstable();
        sorted.sort_unstable();
        assert_eq!(found, sorted, "{limit} at a time");
    }
    let some = |query: ListQuery| bench.list(ListQuery { limit: 2, ..query });
    let hubspot = some(ListQuery { provider: Some("hubspot".into()), ..ListQuery::default() }).await;
    assert_eq!(hubspot.len(), 3, "{hubspot:?}");
    let both = ListQuery { provider: Some("slack".into()), application: Some("app".into()), ..ListQuery::default() };
    assert_eq!(some(both).await, ["slack:app/app:-:minutely"]);
    let app = ListQuery { level: Some("app".into()), ..ListQuery::default() };
    assert_eq!(some(app).await, ["slack:app/app:-:minutely"]);
    let parked = || ListQuery { parked: true, ..ListQuery::default() };
    assert!(some(parked()).await.is_empty());
    bench.act(CRM_DAILY, Act::Park { ms: 60_000 }).await.unwrap();
    assert_eq!(some(parked()).await, [CRM_DAILY]);
    for bad in [
        ListQuery { limit: 0, ..ListQuery::default() },
        ListQuery { limit: 1_001, ..ListQuery::default() },
        ListQuery { limit: 1, level: Some("world".into()), ..ListQuery::default() },
        ListQuery { limit: 1, after: Some("a b".into()), ..ListQuery::default() },
        ListQuery { limit: 1, provider: Some("\u{1b}".into()), ..ListQuery::default() },
    ] {
        assert!(matches!(bench.desk.list(&bad).await, Err(DeskError::Refused(_))), "{bad:?}");
    }
}

#[tokio::test]
async fn a_bucket_is_shown_with_who_holds_it_here() {
    let bench = Bench::new();
    let held = bench.hold(CRM_DAILY, 500).await.unwrap();
    held.sent();
    let show = |bucket: &str| ShowQuery { bucket: bucket.to_owned() };
    let shown = bench.desk.show(&show(CRM_DAILY)).await.unwrap().unwrap();
    assert_eq!((shown.line.rule.cap, shown.line.rule.words.as_str()), (500, "500 in any 1 h"));
    assert!(shown.line.used >= 1 && shown.line.used + shown.line.room == 500, "{shown:?}");
    assert_eq!((shown.here.len(), shown.here_all, shown.here[0].tenant.as_str()), (1, 1, "acme"));
    assert!(shown.line.holders.iter().any(|holder| holder.here && holder.holder == shown.node), "{shown:?}");
    assert_eq!(bench.desk.show(&show("hubspot:app/connection:acme.crm:dail")).await.unwrap(), None);
    assert!(matches!(bench.desk.show(&show("daily")).await, Err(DeskError::Refused(_))));
}

#[tokio::test]
async fn an_operators_park_stops_calls_at_once_and_its_release_lets_them_go() {
    let bench = Bench::new();
    drop(bench.hold(CRM_DAILY, 500).await.unwrap());
    let parked = bench.act(CRM_DAILY, Act::Park { ms: 60_000 }).await.unwrap();
    assert!(parked.done && parked.park.as_ref().is_some_and(|park| park.why == "operator"), "{parked:?}");
    let refused = bench.hold(CRM_DAILY, 500).await.unwrap_err();
    assert_eq!(refused.reason.word(), "operator");
    let explained = bench.explain("crm").await;
    assert_eq!(explained.fate, Fate::Parked, "{explained:?}");
    assert!(explained.said.starts_with(CRM_DAILY) && explained.said.ends_with("by an operator"), "{}", explained.said);
    assert!(explained.release_ms.is_some_and(|ms| (50_000..=60_000).contains(&ms)), "{explained:?}");

    assert!(bench.act(CRM_DAILY, Act::Release).await.unwrap().done);
    drop(bench.hold(CRM_DAILY, 500).await.unwrap());
    let again = bench.act(CRM_DAILY, Act::Release).await.unwrap();
    assert_eq!((again.done, again.said.as_str()), (false, "it is not parked"));
    for ms in [0, PARK_MS_MAX + 1] {
        assert!(matches!(bench.act(CRM_DAILY, Act::Park { ms }).await, Err(DeskError::Refused(_))), "{ms}");
    }
    let long = BucketAct { bucket: CRM_DAILY.to_owned(), act: Act::Release, reason: "x".repeat(501) };
    assert!(matches!(bench.desk.act(&long, OPERATOR).await, Err(DeskError::Refused(_))));
}

#[tokio::test]
async fn a_reset_forgets_what_was_used_and_voids_what_is_held() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.hold(CRM_DAILY, 3).await.unwrap().sent();
    }
    bench.hold(CRM_DAILY, 3).await.unwrap_err();
    let before = bench.desk.show(&ShowQuery { bucket: CRM_DAILY.to_owned() }).await.unwrap().unwrap();
    assert_eq!((before.line.used, before.line.refusal.unwrap().reason.as_str()), (3, "exhausted"));
    assert!(bench.act(CRM_DAILY, Act::Reset).await.unwrap().done);
    let after = bench.desk.show(&ShowQuery { bucket: CRM_DAILY.to_owned() }).await.unwrap().unwrap();
    assert_eq!((after.line.used, after.line.refusal), (0, None));
    assert!(after.line.generation > before.line.generation);
    assert!(!bench.act("hubspot:app/app:-:daily", Act::Reset).await.unwrap().done, "there is none");
}

#[tokio::test]
async fn what_has_no_limit_can_be_parked_before_anything_was_asked_of_it() {
    let bench = Bench::new();
    // A call's way is known, and nothing is parked.
    let explained = bench.explain("crm").await;
    assert_eq!(explained.fate, Fate::Goes, "{explained:?}");
    let level = explained.levels.iter().find(|level| level.bucket == HUBSPOT_ANY).unwrap();
    assert_eq!((level.units, &level.here, &level.centre), (0, &None, &None));

    assert!(bench.act(HUBSPOT_ANY, Act::Park { ms: 5_000 }).await.unwrap().done);
    let explained = bench.explain("crm2").await;
    assert_eq!(explained.fate, Fate::Parked, "{explained:?}");
    assert!(explained.said.starts_with(HUBSPOT_ANY), "{}", explained.said);
    let shown = bench.desk.show(&ShowQuery { bucket: HUBSPOT_ANY.to_owned() }).await.unwrap().unwrap();
    assert_eq!(shown.line.rule.kind, "none");
    for nobodys in [
        "hubspot:other/app:-:any",
        "hubspot:app/app:acme:any",
        "hubspot:app/connection:acme.nothing:any",
        "hubspot:app/connection:acme.crm:daily",
        "hubspot:app/source:192.0.2.1:any",
    ] {
        let refused = bench.act(nobodys, Act::Park { ms: 5_000 }).await;
        assert!(matches!(refused, Err(DeskError::Refused(_))), "{nobodys}: {refused:?}");
    }
}

#[tokio::test]
async fn a_call_is_explained_in_the_order_of_serving() {
    let bench = Bench::new();
    let goes = bench.explain("crm").await;
    assert!(goes.said.contains("once units are granted of"), "{}", goes.said);
    assert!(goes.levels.iter().filter(|level| level.units > 0).all(|level| level.asks), "{goes:?}");
    assert_eq!((goes.breaker.who.name.as_str(), goes.breaker.phase.as_str()), ("acme/hubspot", "closed"));
    assert_eq!(goes.retries_left, 10);

    // The breaker stops it before any level does, and a runaway before that.
    bench.act(HUBSPOT_ANY, Act::Park { ms: 5_000 }).await.unwrap();
    let hubspot = domain::ConnectorId::parse("hubspot").unwrap();
    bench.break_down(PairKey::connector(&acme(), &hubspot));
    let shut = bench.explain("crm").await;
    assert!(shut.said.contains("the breaker of acme/hubspot is open"), "{}", shut.said);
    assert!(shut.release_ms.is_some_and(|ms| ms > 0) && shut.until.is_some(), "{shut:?}");

    let automation = PairKey::automation(&acme(), "nightly");
    bench.demand(automation, 6_000, 660);
    let paused = bench.explain("crm").await;
    assert!(
        paused.said.starts_with("the automation acme/automation:nightly ran away and is paused"),
        "{}",
        paused.said
    );
    assert_eq!((paused.fate, paused.release_ms), (Fate::Parked, None));
    assert_eq!(paused.levels.len(), goes.levels.len(), "what comes next is said all the same");

    let unknown = ExplainQuery {
        tenant: acme(),
        role: None,
        connection: ConnectionId::parse("none").unwrap(),
        method: "GET".to_owned(),
        path: "/".to_owned(),
        bulk: true,
        automation: None,
    };
    assert!(bench.desk.explain(&unknown).await.unwrap().is_err());
    let crm = || ConnectionId::parse("crm").unwrap();
    let bad = ExplainQuery { connection: crm(), path: "/a/../b".to_owned(), ..unknown.clone() };
    assert!(bench.desk.explain(&bad).await.unwrap().is_err());
    let bad = ExplainQuery { connection: crm(), method: "G T".to_owned(), ..unknown };
    assert!(matches!(bench.desk.explain(&bad).await, Err(DeskError::Refused(_))));
}

#[tokio::test]
async fn breakers_have_names_where_anybody_knows_them_and_are_closed_by_name_or_key() {
    let bench = Bench::new();
    let hubspot = domain::ConnectorId::parse("hubspot").unwrap();
    let strange = PairKey::authority(&acme(), "strange.example.com:443");
    let other = TenantId::parse("other").unwrap();
    for key in [
        PairKey::connector(&acme(), &hubspot),
        PairKey::authority(&acme(), "api.example.com:443"),
        strange,
        PairKey::automation(&other, "x"),
    ] {
        bench.break_down(key);
    }
    let query = GuardsQuery { tenant: Some(acme()), notable: true, limit: 10 };
    let names = |bench: &Bench| {
        let found = bench.desk.breakers(&query).unwrap();
        let mut names: Vec<_> = found.lines.into_iter().map(|line| (line.who.name, line.phase)).collect();
        names.sort_unstable();
        assert_eq!(found.all, names.len());
        names
    };
    let hidden = guards::who(strange, None).name;
    let open = |name: &str| (name.to_owned(), "open".to_owned());
    // By what is configured: a connector, and the destination of a connection without one.
    assert_eq!(names(&bench), [open("acme/api.example.com:443"), open("acme/hubspot"), open(&hidden)]);
    let everybody = GuardsQuery { tenant: None, notable: true, limit: 1 };
    let few = bench.desk.breakers(&everybody).unwrap();
    assert_eq!((few.all, few.lines.len()), (4, 1));

    let closes = |of| bench.guard(of, GuardWord::CloseBreaker);
    let what = || "HubSpot".to_lowercase();
    assert!(closes(Guarded::Connector { tenant: acme(), what: what() }).unwrap().done);
    assert!(!closes(Guarded::Connector { tenant: acme(), what: what() }).unwrap().done);
    assert!(closes(Guarded::Destination { tenant: acme(), what: "API.example.com:443".into() }).unwrap().done);
    assert!(closes(Guarded::Key(hidden.strip_prefix("key:").unwrap().to_owned())).unwrap().done);
    assert!(names(&bench).is_empty());
    for bad in [
        Guarded::Key("zz".into()),
        Guarded::Key(format!("+{}", "0".repeat(31))),
        Guarded::Destination { tenant: acme(), what: "127.1:443".into() },
        Guarded::Connector { tenant: acme(), what: "a b".into() },
        Guarded::Automation { tenant: acme(), what: "x".repeat(501) },
    ] {
        assert!(matches!(closes(bad.clone()), Err(DeskError::Refused(_))), "{bad:?}");
    }
}

#[tokio::test]
async fn runaways_are_listed_resumed_and_announced() {
    let bench = Bench::new();
    let crm = ConnectionId::parse("crm").unwrap();
    bench.demand(PairKey::connection(&acme(), &crm), 6_000, 60);
    let query = |notable| GuardsQuery { tenant: None, notable, limit: 10 };
    let line = bench.desk.runaways(&query(true)).unwrap().lines.remove(0);
    assert_eq!((line.who.name.as_str(), line.state.as_str()), ("acme/crm", "throttled"));
    assert!(line.wanted > 3_000 && line.throttled_to == Some(600) && line.baseline == Some(300), "{line:?}");
    let explained = bench.explain("crm").await;
    assert_eq!(explained.fate, Fate::Throttled, "{explained:?}");

    let of = || Guarded::Connection { tenant: acme(), what: crm.clone() };
    assert!(bench.guard(of(), GuardWord::Resume).unwrap().done);
    assert!(!bench.guard(of(), GuardWord::Resume).unwrap().done);
    assert!(bench.desk.runaways(&query(true)).unwrap().lines.is_empty());
    assert_eq!(bench.desk.runaways(&query(false)).unwrap().all, 1);

    let until_unix_ms = bench.now().unix_ms + 3_600_000;
    let announce = GuardWord::Announce { factor: 20, until_unix_ms };
    assert!(bench.guard(of(), announce).unwrap().done);
    let line = bench.desk.runaways(&query(true)).unwrap().lines.remove(0);
    assert_eq!((line.announced.unwrap().factor, line.trigger), (20, Some(60_000)));
    assert!(bench.guard(of(), GuardWord::Withdraw).unwrap().done);
    assert!(!bench.guard(of(), GuardWord::Withdraw).unwrap().done);
    let import = || Guarded::Automation { tenant: acme(), what: "import".to_owned() };
    assert!(bench.guard(import(), announce).unwrap().done);
    bench.desk.quota.sweep();
    let line = bench.desk.runaways(&query(true)).unwrap().lines.remove(0);
    assert_eq!(line.who.name, "acme/automation:import", "a digest says nobody's name");
    assert!(bench.guard(import(), GuardWord::Withdraw).unwrap().done);
    bench.desk.quota.sweep();
    let key = PairKey::automation(&acme(), "import");
    assert_eq!(bench.desk.quota.name_of(key), None, "there is nothing to be said of it any more");
    let nobody = Guarded::Connection { tenant: acme(), what: ConnectionId::parse("cmr").unwrap() };
    for (of, act) in [
        (nobody, announce),
        (of(), GuardWord::Announce { factor: 1, until_unix_ms }),
        (of(), GuardWord::Announce { factor: 2, until_unix_ms: 0 }),
        (of(), GuardWord::Announce { factor: 2, until_unix_ms: u64::MAX }),
    ] {
        assert!(matches!(bench.guard(of.clone(), act), Err(DeskError::Refused(_))), "{of:?} {act:?}");
    }
}

/// A centre that has just begun listens, and its parks hold all the same.
#[tokio::test]
async fn a_park_is_the_reason_also_while_the_centre_listens() {
    let bench = Bench::new();
    let mut explained = {
        let query = ExplainQuery {
            tenant: acme(),
            role: None,
            connection: ConnectionId::parse("crm").unwrap(),
            method: "GET".to_owned(),
            path: "/".to_owned(),
            bulk: false,
            automation: None,
        };
        let desk = &bench.desk;
        let question = egress::quota::Question {
            tenant: &query.tenant,
            role: None,
            connection: &query.connection,
            method: http::Method::GET,
            path: "/",
            class: Class::Interactive,
            automation: None,
        };
        desk.quota.explain(&desk.snapshot.load(), &question).unwrap()
    };
    bench.act(HUBSPOT_ANY, Act::Park { ms: 60_000 }).await.unwrap();
    let name: BucketName = HUBSPOT_ANY.parse().unwrap();
    let mut view = bench.desk.bucket(&name).await.unwrap().unwrap();
    view.refusal = Some(ratelimit::quota::RefusalView::Learning { ms: 300 });
    let levels = std::mem::take(&mut explained.levels).into_iter().map(|leg| {
        let name = BucketName { application: leg.application.clone(), key: leg.key.clone() };
        let centre = Ok(Some(view.clone()).filter(|view| view.key == name.key));
        explain::Seen { name, leg, centre }
    });
    let outlook = explain::outlook(&explained, &levels.collect::<Vec<_>>());
    assert_eq!(outlook.said, format!("{HUBSPOT_ANY} is parked by an operator"));
    assert!(outlook.release_ms.is_some_and(|ms| ms > 50_000), "{:?}", outlook.release_ms);
    // The fleet's breaker is asked before any level, and after the tenant's own.
    explained.fleet = Some(breaker::Refused { retry_after_ms: 700, phase: breaker::Phase::HalfOpen });
    let shut = explain::outlook(&explained, &[]);
    assert!(shut.said.contains("many tenants") && shut.release_ms == Some(700), "{}", shut.said);
}
