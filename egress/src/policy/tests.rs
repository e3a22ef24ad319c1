//! Tables for each sentence of the essay, and properties that hold for any rules.

use std::fmt::Write;

use http::Method;
use outbound::{Authority, HostName, Scheme};
use proptest::prelude::*;

use super::*;
use crate::caller::Identity;

fn tenant_id(text: &str) -> TenantId {
    TenantId::parse(text).unwrap()
}

fn caller(role: Option<&str>) -> Caller {
    Caller {
        tenant: tenant_id("acme"),
        role: role.map(Into::into),
        identity: Identity::Token { name: "t".into() },
        connections: None,
        destinations: None,
        run: None,
        automation: None,
        class: None,
        until_unix_ms: None,
    }
}

fn connect(authority: &str) -> Asked {
    Asked {
        way: Way::Connect,
        method: Method::CONNECT,
        scheme: Scheme::Https,
        authority: Authority::with_port(authority).unwrap(),
        path_and_query: "".into(),
    }
}

fn request(method: &str, authority: &str, path: &str) -> Asked {
    Asked {
        way: Way::Absolute,
        method: method.parse().unwrap(),
        scheme: Scheme::Https,
        authority: Authority::with_port(authority).unwrap(),
        path_and_query: path.into(),
    }
}

/// `host`, `*.zone` or either with a port; then words for what a table would say.
fn rule(text: &str) -> Rule {
    let mut words = text.split(' ');
    let mut rule = Rule::parse(words.next().unwrap()).unwrap();
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        let values = value.split(',');
        match key {
            "ports" => rule.ports = Some(values.map(|port| port.parse().unwrap()).collect()),
            "methods" => rule.methods = Some(values.map(|method| method.parse().unwrap()).collect()),
            "paths" => rule.paths = Some(values.map(|path| PathPrefix::parse(path).unwrap()).collect()),
            "mode" => rule.mode = mode(value),
            "name" => rule.name = Some(value.into()),
            _ => panic!("{key}"),
        }
    }
    rule
}

fn mode(text: &str) -> Mode {
    [Mode::Enforce, Mode::Report, Mode::Open].into_iter().find(|mode| mode.as_str() == text).unwrap()
}

fn rules(texts: &[&str]) -> Rules {
    Rules::new(texts.iter().map(|text| Arc::new(rule(text))))
}

/// The parts of a policy with one tenant, `acme`.
#[derive(Default)]
struct Parts<'a> {
    allow_all: &'a [&'a str],
    deny_all: &'a [&'a str],
    allow: &'a [&'a str],
    deny: &'a [&'a str],
    connections: &'a [&'a str],
    opened: &'a [&'a str],
    mode: Mode,
    roles: Vec<(&'a str, RolePolicy)>,
}

impl Parts<'_> {
    fn policy(self) -> Policy {
        let everybody = Everybody {
            allow: rules(self.allow_all),
            deny: rules(self.deny_all),
            connect_ports: [443].into(),
            ports: [80, 443].into(),
            connectors: HostIndex::new([("api.stripe.com", "stripe", false), ("*.hubapi.com", "hubspot", true)].map(
                |(hosts, connector, takes_tunnels)| ConnectorHost {
                    hosts: HostPattern::parse(hosts).unwrap(),
                    connector: ConnectorId::parse(connector).unwrap(),
                    takes_tunnels,
                },
            )),
        };
        let own = RolePolicy {
            allow: Arc::new(rules(self.allow)),
            connections: Arc::new(rules(self.connections)),
            opened: Arc::new(rules(self.opened)),
            mode: self.mode,
            ..RolePolicy::default()
        };
        let roles = self.roles.into_iter().map(|(name, role)| (name.into(), role)).collect();
        let tenant = TenantPolicy { deny: rules(self.deny), own, roles, pool: Some("blue".into()) };
        Policy::new(Arc::new(everybody), HashMap::from([(tenant_id("acme"), Arc::new(tenant))]))
    }
}

/// `ok`, or the code; then what decided; then what would have refused.
fn decided(policy: &Policy, caller: &Caller, asked: &Asked) -> String {
    let (word, by, reported) = match policy.decide(caller, asked, &mut Unseen) {
        Ok(allowed) => ("ok", allowed.by, allowed.reported),
        Err(denied) => (denied.refusal.code(), denied.by, denied.reported),
    };
    let mut text = format!("{word} | {by}");
    for ruling in reported {
        write!(text, " | would refuse: {ruling}").unwrap();
    }
    text
}

fn check(policy: &Policy, cases: &[(Asked, &str)]) {
    for (asked, expected) in cases {
        assert_eq!(decided(policy, &caller(None), asked), *expected, "{asked:?}");
    }
}

#[test]
fn nothing_is_allowed_that_no_rule_allows() {
    let policy = Parts { allow: &["api.example.com", "*.example.org"], ..Parts::default() }.policy();
    check(
        &policy,
        &[
            (connect("api.example.com:443"), "ok | tenant allow: api.example.com"),
            (connect("API.example.com.:443"), "ok | tenant allow: api.example.com"),
            (connect("a.b.example.org:443"), "ok | tenant allow: *.example.org"),
            (connect("example.org:443"), "destination-not-allowed | no allow rule; mode enforce"),
            (connect("api.example.com.evil.test:443"), "destination-not-allowed | no allow rule; mode enforce"),
            (connect("93.184.216.34:443"), "destination-not-allowed | no allow rule; mode enforce"),
            (connect("[2606:4700::1111]:443"), "destination-not-allowed | no allow rule; mode enforce"),
        ],
    );
}

#[test]
fn ports_are_the_rules_own_or_those_of_the_way() {
    let policy = Parts { allow: &["a.com", "b.com ports=443,8443", "c.com:22"], ..Parts::default() }.policy();
    check(
        &policy,
        &[
            (connect("a.com:443"), "ok | tenant allow: a.com"),
            (connect("a.com:80"), "port-not-allowed | ports of connect"),
            (request("GET", "a.com:80", "/"), "ok | tenant allow: a.com"),
            (request("GET", "a.com:8080", "/"), "port-not-allowed | ports of absolute"),
            (connect("b.com:8443"), "ok | tenant allow: b.com"),
            (request("GET", "b.com:80", "/"), "port-not-allowed | tenant allow: b.com"),
            (connect("c.com:22"), "ok | tenant allow: c.com"),
            (connect("c.com:443"), "port-not-allowed | tenant allow: c.com"),
        ],
    );
}

#[test]
fn deny_wins_at_every_level() {
    let role =
        RolePolicy { deny: rules(&["role.a.com"]), allow: Arc::new(rules(&["*.a.com"])), ..RolePolicy::default() };
    let policy = Parts {
        allow_all: &["*.a.com", "tenant.a.com"],
        deny_all: &["all.a.com"],
        allow: &["*.a.com", "all.a.com", "tenant.a.com"],
        deny: &["tenant.a.com", "port.a.com:8443", "del.a.com methods=DELETE", "adm.a.com paths=/admin"],
        roles: vec![("build", role)],
        ..Parts::default()
    }
    .policy();
    check(
        &policy,
        &[
            (connect("ok.a.com:443"), "ok | tenant allow: *.a.com"),
            (connect("all.a.com:443"), "destination-not-allowed | appliance deny: all.a.com"),
            (connect("tenant.a.com.:443"), "destination-not-allowed | tenant deny: tenant.a.com"),
            (connect("role.a.com:443"), "ok | tenant allow: *.a.com"),
            (connect("port.a.com:443"), "ok | tenant allow: *.a.com"),
            (connect("port.a.com:8443"), "destination-not-allowed | tenant deny: port.a.com"),
            (request("GET", "del.a.com:443", "/"), "ok | tenant allow: *.a.com"),
            (request("DELETE", "del.a.com:443", "/"), "request-not-allowed | tenant deny: del.a.com"),
            (request("delete", "del.a.com:443", "/"), "request-not-allowed | tenant deny: del.a.com"),
            (request("GET", "adm.a.com:443", "/admin/x"), "request-not-allowed | tenant deny: adm.a.com"),
            (request("GET", "adm.a.com:443", "/x/../admin"), "request-not-allowed | tenant deny: adm.a.com"),
            (request("GET", "adm.a.com:443", "/x?/admin"), "ok | tenant allow: *.a.com"),
            // Nobody sees what a tunnel carries.
            (connect("del.a.com:443"), "request-not-allowed | tenant deny: del.a.com"),
            (connect("adm.a.com:443"), "request-not-allowed | tenant deny: adm.a.com"),
        ],
    );
    let build = caller(Some("build"));
    assert_eq!(decided(&policy, &build, &connect("role.a.com:443")), "destination-not-allowed | role deny: role.a.com");
    assert_eq!(
        decided(&policy, &build, &connect("tenant.a.com:443")),
        "destination-not-allowed | tenant deny: tenant.a.com"
    );
    assert_eq!(decided(&policy, &build, &connect("ok.a.com:443")), "ok | role allow: *.a.com");
}

#[test]
fn methods_and_paths_bound_requests_and_keep_tunnels_out() {
    let policy = Parts {
        allow: &[
            "a.com methods=GET,HEAD paths=/v1/,/status",
            "b.com methods=CONNECT,PUT",
            "c.com methods=GET",
            "c.com methods=POST paths=/in",
        ],
        ..Parts::default()
    }
    .policy();
    check(
        &policy,
        &[
            (request("GET", "a.com:443", "/v1/x?y=/../"), "ok | tenant allow: a.com"),
            (request("HEAD", "a.com:443", "/status"), "ok | tenant allow: a.com"),
            (request("POST", "a.com:443", "/v1/x"), "request-not-allowed | tenant allow: a.com"),
            (request("get", "a.com:443", "/v1/x"), "request-not-allowed | tenant allow: a.com"),
            (request("GET", "a.com:443", "/v10"), "request-not-allowed | tenant allow: a.com"),
            (request("GET", "a.com:443", "/v1/../x"), "request-not-allowed | tenant allow: a.com"),
            (request("GET", "a.com:443", ""), "request-not-allowed | tenant allow: a.com"),
            (connect("a.com:443"), "request-not-allowed | tenant allow: a.com"),
            (connect("b.com:443"), "ok | tenant allow: b.com"),
            (request("PUT", "b.com:443", "/"), "ok | tenant allow: b.com"),
            (request("GET", "b.com:443", "/"), "request-not-allowed | tenant allow: b.com"),
            (request("GET", "c.com:443", "/"), "ok | tenant allow: c.com"),
            (request("POST", "c.com:443", "/in"), "ok | tenant allow: c.com"),
            (request("POST", "c.com:443", "/"), "request-not-allowed | tenant allow: c.com"),
            // The nearest no: it is not the port.
            (request("PUT", "c.com:443", "/"), "request-not-allowed | tenant allow: c.com"),
            (request("PUT", "c.com:1", "/"), "port-not-allowed | ports of absolute"),
        ],
    );
}

#[test]
fn a_list_that_reports_forgives_names_and_nothing_else() {
    for (word, tail) in [("report", " | would refuse: no allow rule; mode report"), ("open", "")] {
        let policy =
            Parts { allow: &["a.com methods=GET"], deny: &["evil.com"], mode: mode(word), ..Parts::default() }.policy();
        check(
            &policy,
            &[
                (connect("b.com:443"), &format!("ok | no allow rule; mode {word}{tail}")),
                (connect("b.com:22"), "port-not-allowed | ports of connect"),
                (connect("evil.com:443"), "destination-not-allowed | tenant deny: evil.com"),
                // A rule speaks of this one.
                (request("POST", "a.com:443", "/"), "request-not-allowed | tenant allow: a.com"),
                (connect("api.stripe.com:443"), &format!("tunnel-not-allowed | host of connector stripe{tail}")),
            ],
        );
    }
}

#[test]
fn a_rules_mode_is_about_what_the_rule_refuses() {
    let policy = Parts {
        deny_all: &["x.com mode=report name=trial"],
        allow: &[
            "x.com",
            "r.com ports=443 mode=report",
            "o.com methods=GET mode=open",
            "w.com mode=report",
            "both.com methods=GET mode=report",
            "both.com methods=PUT",
        ],
        deny: &["x.com mode=open", "r.com mode=report"],
        ..Parts::default()
    }
    .policy();
    check(
        &policy,
        &[
            (connect("x.com:443"), "ok | tenant allow: x.com | would refuse: appliance deny: trial"),
            (connect("r.com:443"), "ok | tenant allow: r.com | would refuse: tenant deny: r.com"),
            (
                connect("r.com:22"),
                "ok | tenant allow: r.com | would refuse: tenant deny: r.com | would refuse: tenant allow: r.com",
            ),
            (request("POST", "o.com:443", "/"), "ok | tenant allow: o.com"),
            // Ports that it does not name are not its own to forgive.
            (connect("w.com:22"), "port-not-allowed | ports of connect"),
            (request("GET", "both.com:443", "/"), "ok | tenant allow: both.com"),
            // One rule reports, the other enforces.
            (request("POST", "both.com:443", "/"), "request-not-allowed | tenant allow: both.com"),
        ],
    );
}

#[test]
fn a_roles_list_stands_in_the_place_of_the_tenants() {
    let mut parts = Parts { allow: &["a.com"], allow_all: &["all.com"], deny: &["d.com"], ..Parts::default() };
    parts.roles = vec![
        ("own", RolePolicy { allow: Arc::new(rules(&["b.com", "d.com"])), ..RolePolicy::default() }),
        ("none", RolePolicy::default()),
    ];
    let policy = parts.policy();
    for (role, authority, expected) in [
        ("own", "b.com:443", "ok | role allow: b.com"),
        ("own", "a.com:443", "destination-not-allowed | no allow rule; mode enforce"),
        ("own", "all.com:443", "ok | appliance allow: all.com"),
        ("own", "d.com:443", "destination-not-allowed | tenant deny: d.com"),
        ("none", "a.com:443", "destination-not-allowed | no allow rule; mode enforce"),
        ("gone", "a.com:443", "destination-not-allowed | no such role"),
        ("gone", "all.com:443", "destination-not-allowed | no such role"),
    ] {
        assert_eq!(decided(&policy, &caller(Some(role)), &connect(authority)), expected, "{role} {authority}");
    }
    let mut stranger = caller(None);
    stranger.tenant = tenant_id("gone");
    assert_eq!(decided(&policy, &stranger, &connect("all.com:443")), "caller-unknown | no such tenant");
}

#[test]
fn a_grant_narrows_and_allows_nothing() {
    let policy =
        Parts { allow: &["*.a.com"], allow_all: &["all.com"], deny: &["no.a.com"], ..Parts::default() }.policy();
    let mut caller = caller(None);
    let patterns = ["B.a.com", "*.c.a.com", "x.com", "no.a.com"];
    caller.destinations = Some(patterns.map(|text| HostPattern::parse(text).unwrap()).into());
    for (authority, expected) in [
        ("b.a.com:443", "ok | tenant allow: *.a.com"),
        ("b.a.com:80", "port-not-allowed | ports of connect"),
        ("d.c.a.com:443", "ok | tenant allow: *.a.com"),
        ("c.a.com:443", "destination-not-allowed | destinations of the grant"),
        ("all.com:443", "destination-not-allowed | destinations of the grant"),
        ("x.com:443", "destination-not-allowed | no allow rule; mode enforce"),
        ("no.a.com:443", "destination-not-allowed | tenant deny: no.a.com"),
    ] {
        assert_eq!(decided(&policy, &caller, &connect(authority)), expected, "{authority}");
    }
    caller.destinations = Some([].into());
    assert_eq!(
        decided(&policy, &caller, &connect("b.a.com:443")),
        "destination-not-allowed | destinations of the grant"
    );
}

#[test]
fn tunnels_to_connectors_are_refused_unless_somebody_says_tunnel() {
    let plain = Parts { allow: &["api.stripe.com", "*.hubapi.com"], ..Parts::default() }.policy();
    check(
        &plain,
        &[
            (connect("api.stripe.com:443"), "tunnel-not-allowed | host of connector stripe"),
            (request("GET", "api.stripe.com:443", "/"), "ok | tenant allow: api.stripe.com"),
            (connect("a.hubapi.com:443"), "ok | tenant allow: *.hubapi.com"),
        ],
    );
    let said = Parts { allow: &["api.stripe.com methods=CONNECT"], ..Parts::default() }.policy();
    check(&said, &[(connect("api.stripe.com:443"), "ok | tenant allow: api.stripe.com")]);
    // Only who may go there at all learns whose host it is.
    let none = Parts::default().policy();
    check(&none, &[(connect("api.stripe.com:443"), "destination-not-allowed | no allow rule; mode enforce")]);
    let host = connect("API.stripe.com:443");
    assert_eq!(plain.connector(host.authority.host()).unwrap().connector.as_str(), "stripe");
}

#[test]
fn connections_and_openings_count_where_the_own_list_is_silent() {
    let connections = &["api.stripe.com:443 name=conn_1"];
    let opened = &["db.internal:8443"];
    let governed = |method: &str, authority: &str| Asked { way: Way::Governed, ..request(method, authority, "/") };
    let silent = Parts { allow_all: &["*.stripe.com methods=GET"], connections, opened, ..Parts::default() }.policy();
    check(
        &silent,
        &[
            (governed("POST", "api.stripe.com:443"), "ok | connection: conn_1"),
            // A connection is for its own calls.
            (request("POST", "api.stripe.com:443", "/"), "request-not-allowed | appliance allow: *.stripe.com"),
            (connect("api.stripe.com:443"), "request-not-allowed | appliance allow: *.stripe.com"),
            (connect("db.internal:8443"), "ok | opening: db.internal"),
            (governed("GET", "db.internal:8443"), "ok | opening: db.internal"),
            (connect("db.internal:443"), "port-not-allowed | opening: db.internal"),
        ],
    );
    let allow = &["*.stripe.com methods=GET", "db.internal"];
    let bounded = Parts { allow, connections, opened, ..Parts::default() }.policy();
    check(
        &bounded,
        &[
            (governed("POST", "api.stripe.com:443"), "request-not-allowed | tenant allow: *.stripe.com"),
            (governed("GET", "api.stripe.com:443"), "ok | tenant allow: *.stripe.com"),
            (connect("db.internal:8443"), "port-not-allowed | ports of connect"),
        ],
    );
    let denied = Parts { connections, opened, deny: &["*.stripe.com", "*.internal"], ..Parts::default() }.policy();
    check(
        &denied,
        &[
            (governed("GET", "api.stripe.com:443"), "destination-not-allowed | tenant deny: *.stripe.com"),
            (connect("db.internal:8443"), "destination-not-allowed | tenant deny: *.internal"),
        ],
    );
}

#[test]
fn a_witness_sees_every_rule_about_the_host_and_why() {
    let policy = Parts {
        allow: &["*.a.com methods=GET", "x.a.com:8443", "other.com"],
        allow_all: &["x.a.com"],
        deny: &["*.x.a.com", "x.a.com:1"],
        ..Parts::default()
    }
    .policy();
    let mut notes = Vec::new();
    let allowed = policy.decide(&caller(None), &request("POST", "x.a.com:443", "/"), &mut notes).unwrap();
    assert_eq!(allowed.by.to_string(), "appliance allow: x.a.com");
    assert_eq!((allowed.pool.as_deref(), allowed.sni), (Some("blue"), SniRule::Require));
    let seen: Vec<String> = notes
        .iter()
        .map(|note| match note {
            Note::List { list, rules } => format!("{} {rules}", list.as_str()),
            Note::Rule { rule, fit, .. } => format!("{rule} {fit:?}"),
            Note::Grant { .. } | Note::NoRule { .. } | Note::Connector { .. } => format!("{note:?}"),
        })
        .collect();
    assert_eq!(
        seen,
        [
            "tenant deny 2",
            "*.x.a.com Apex",
            "x.a.com Port",
            "tenant allow 3",
            "x.a.com Port",
            "*.a.com Method",
            "appliance allow 1",
            "x.a.com Fits"
        ]
    );
}

/// Names that meet often.
fn any_name() -> impl Strategy<Value = String> {
    "([ab]\\.){0,2}[ab]\\.com"
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let pattern = (any_name(), any::<bool>()).prop_map(|(name, is_zone)| {
        let name = HostName::parse(&name).unwrap();
        if is_zone { HostPattern::Within(name) } else { HostPattern::Exactly(Host::Name(name)) }
    });
    let ports = prop::option::of(prop::sample::select(vec![vec![443], vec![80, 443], vec![22]]));
    let methods = prop::option::of(prop::sample::select(vec!["GET", "POST", "CONNECT"]));
    let paths = prop::option::of(prop::sample::select(vec!["/", "/v1/", "/admin"]));
    let mode = prop::sample::select(vec![Mode::Enforce, Mode::Enforce, Mode::Report, Mode::Open]);
    (pattern, ports, methods, paths, mode).prop_map(|(hosts, ports, methods, paths, mode)| Rule {
        ports: ports.map(Into::into),
        methods: methods.map(|method| [method.parse().unwrap()].into()),
        paths: paths.map(|path| [PathPrefix::parse(path).unwrap()].into()),
        mode,
        ..Rule::hosts(hosts)
    })
}

fn any_rules(max: usize) -> impl Strategy<Value = Vec<Arc<Rule>>> {
    prop::collection::vec(any_rule().prop_map(Arc::new), 0..max)
}

fn any_asked() -> impl Strategy<Value = Asked> {
    let port = prop::sample::select(vec![443_u16, 80, 22]);
    let method = prop::sample::select(vec!["GET", "POST"]);
    let path = prop::sample::select(vec!["", "/v1/x", "/admin", "/v1/../admin", "/x"]);
    (any_name(), port, method, path, any::<bool>()).prop_map(|(name, port, method, path, tunnel)| {
        let authority = format!("{name}:{port}");
        if tunnel { connect(&authority) } else { request(method, &authority, path) }
    })
}

prop_compose! {
    fn any_policy()(
        allow_all in any_rules(6), deny_all in any_rules(3), allow in any_rules(20), deny in any_rules(3),
        mode in prop::sample::select(vec![Mode::Enforce, Mode::Report, Mode::Open]),
    ) -> (Everybody, TenantPolicy) {
        let everybody = Everybody {
            allow: Rules::new(allow_all),
            deny: Rules::new(deny_all),
            connect_ports: [443].into(),
            ports: [80, 443].into(),
            connectors: HostIndex::default(),
        };
        let own = RolePolicy { allow: Arc::new(Rules::new(allow)), mode, ..RolePolicy::default() };
        (everybody, TenantPolicy { deny: Rules::new(deny), own, ..TenantPolicy::default() })
    }
}

fn with(everybody: &Everybody, tenants: &[(&str, &TenantPolicy)]) -> Policy {
    let tenants = tenants.iter().map(|(id, tenant)| (tenant_id(id), Arc::new((*tenant).clone()))).collect();
    Policy::new(Arc::new(everybody.clone()), tenants)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Whatever allows: a deny rule that covers the host and enforces is a no, on every port, method and path of it.
    #[test]
    fn deny_always_wins((everybody, tenant) in any_policy(), asked in any_asked(), level in 0..2) {
        let rule = Arc::new(Rule::hosts(HostPattern::Exactly(asked.authority.host().clone())));
        let (mut everybody, mut tenant) = (everybody, tenant);
        let denies = if level == 0 { &mut everybody.deny } else { &mut tenant.deny };
        *denies = Rules::new(denies.iter().cloned().chain([rule]));
        let policy = with(&everybody, &[("acme", &tenant)]);
        prop_assert!(policy.decide(&caller(None), &asked, &mut Unseen).is_err());
    }

    /// Another tenant, and rules about other hosts, change nothing.
    #[test]
    fn what_is_unrelated_changes_nothing(
        (everybody, tenant) in any_policy(), (_, other) in any_policy(), asked in any_asked(), at in 0..4,
    ) {
        let before = decided(&with(&everybody, &[("acme", &tenant)]), &caller(None), &asked);
        let after = decided(&with(&everybody, &[("acme", &tenant), ("other", &other)]), &caller(None), &asked);
        prop_assert_eq!(&before, &after);
        let (mut everybody, mut tenant) = (everybody, tenant);
        let unrelated = ["elsewhere.net", "*.elsewhere.net", "*.a.a.a.a.a.com"].map(|text| Arc::new(rule(text)));
        let mut allow = (*tenant.own.allow).clone();
        let list = match at {
            0 => &mut everybody.allow,
            1 => &mut everybody.deny,
            2 => &mut tenant.deny,
            _ => &mut allow,
        };
        *list = Rules::new(list.iter().cloned().chain(unrelated));
        tenant.own.allow = Arc::new(allow);
        prop_assert_eq!(before, decided(&with(&everybody, &[("acme", &tenant)]), &caller(None), &asked));
    }

    /// With every rule and the list in report mode, nothing is refused but ports; and what would have been, is said.
    #[test]
    fn report_lets_through_and_says_so((everybody, tenant) in any_policy(), asked in any_asked()) {
        let to = |rules: &Rules, mode: Mode| {
            Rules::new(rules.iter().map(|rule| Arc::new(Rule { mode, ..(**rule).clone() })))
        };
        let in_mode = |mode: Mode| {
            let mut everybody = everybody.clone();
            everybody.allow = to(&everybody.allow, mode);
            everybody.deny = to(&everybody.deny, mode);
            let mut tenant = tenant.clone();
            tenant.deny = to(&tenant.deny, mode);
            tenant.own.allow = Arc::new(to(&tenant.own.allow, mode));
            tenant.own.mode = mode;
            with(&everybody, &[("acme", &tenant)]).decide(&caller(None), &asked, &mut Unseen)
        };
        let enforced = in_mode(Mode::Enforce);
        match in_mode(Mode::Report) {
            Ok(allowed) => prop_assert_eq!(!allowed.reported.is_empty(), enforced.is_err()),
            Err(denied) => {
                prop_assert_eq!(denied.refusal, Refusal::PortNotAllowed);
                prop_assert!(matches!(denied.by, Ruling::Ports { .. }), "not for a port");
                prop_assert!(enforced.is_err());
            }
        }
        match in_mode(Mode::Open) {
            Ok(allowed) => prop_assert!(allowed.reported.is_empty()),
            Err(denied) => prop_assert!(matches!(denied.by, Ruling::Ports { .. }), "not for a port"),
        }
    }

    /// The same answer with a witness and without.
    #[test]
    fn who_looks_on_changes_nothing((everybody, tenant) in any_policy(), asked in any_asked()) {
        let policy = with(&everybody, &[("acme", &tenant)]);
        let mut notes: Vec<Note> = Vec::new();
        let seen = policy.decide(&caller(None), &asked, &mut notes).map(|allowed| allowed.by).map_err(|no| no.by);
        let unseen = policy.decide(&caller(None), &asked, &mut Unseen).map(|allowed| allowed.by).map_err(|no| no.by);
        prop_assert_eq!(seen, unseen);
    }
}
