//! Quota profiles: those that are shipped, and what is wrong with others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use domain::ConnectorId;
use tidegate_config::connector::quota::{Ceiling, Penalty, QuotaKind, QuotaProfile};
use tidegate_config::connector::{Catalogue, GENERIC};
use tidegate_config::{Fault, has_errors, parse_appliance};

const PROVIDERS: [&str; 25] = [
    "airtable",
    "amazon-sp-api",
    "asana",
    "discord",
    "exact-online",
    "github",
    "google",
    "hubspot",
    "intercom",
    "jira",
    "klaviyo",
    "linear",
    "meta",
    "microsoft-graph",
    "notion",
    "openai",
    "quickbooks",
    "salesforce",
    "shopify",
    "slack",
    "stripe",
    "twilio",
    "xero",
    "zendesk",
    "zoom",
];

#[test]
fn all_25_are_there_with_source_and_date() {
    let catalogue = Catalogue::shipped().unwrap();
    let profiled: Vec<&str> = catalogue
        .manifests()
        .filter(|manifest| !manifest.quota.limits.is_empty())
        .map(|manifest| manifest.connector.as_str())
        .collect();
    assert_eq!(profiled, PROVIDERS);
    for manifest in catalogue.manifests().filter(|manifest| !manifest.quota.limits.is_empty()) {
        let (name, profile) = (&manifest.connector, &manifest.quota);
        let is_date = profile.checked.len() == 10 && profile.checked.starts_with("20");
        assert!(is_date, "{name}: {}", profile.checked);
        assert!(!profile.sources.is_empty(), "{name}");
        assert!(profile.sources.iter().all(|url| url.starts_with("https://")), "{name}");
        // What is read is also let through, so that callers see what was seen here.
        for reading in &profile.headers {
            assert!(manifest.response_headers.admits(&reading.name), "{name}: {} does not travel", reading.name);
        }
        for limit in &profile.limits {
            for tier in 1..u8::try_from(profile.tiers.len()).unwrap().max(1) {
                assert!(limit.of_tier(tier).0 >= limit.cap, "{name} {}: the first tier allows least", limit.name);
            }
            assert!(!matches!(limit.kind, QuotaKind::Token { burst: 0, .. }));
        }
    }
    let of = |name: &str| &catalogue.get(&ConnectorId::parse(name).unwrap()).unwrap().quota;
    assert_eq!(**of(GENERIC), QuotaProfile::unknown());
    // Those that punish calls while limited.
    for (name, penalty) in [
        ("asana", Penalty::Counts),
        ("microsoft-graph", Penalty::Counts),
        ("xero", Penalty::Extends),
        ("github", Penalty::Bans),
        ("discord", Penalty::Bans),
        ("stripe", Penalty::None),
    ] {
        assert_eq!(of(name).penalty, penalty, "{name}");
    }
    assert_eq!(of("airtable").park.first.as_secs(), 30);
    assert_eq!(of("github").park.first.as_secs(), 60);
    assert!(of("twilio").park.doubles && of("stripe").park.jitter);
}

/// The faults of a manifest with this `[quota]`, which begins in line 6.
fn faults(quota: &str) -> Vec<Fault> {
    let head = "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\nauth = { slot = \"bearer\" }\n\n";
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("acme.toml"), format!("{head}{quota}")).unwrap();
    let (catalogue, faults) = Catalogue::default().with_directory(root.path());
    assert_eq!(catalogue.is_none(), has_errors(&faults));
    faults
}

#[test]
fn every_mistake_of_a_profile_is_found_where_it_is() {
    let top = "[quota]\nchecked = \"2026-11-29\"\nsources = [\"https://a.example.com\"]\n";
    let limit = "[[quota.limit]]\nname = \"a\"\nlevel = \"app\"\nkind = \"fixed\"\nwindow = \"60s\"\ncap = 5\n";
    assert!(faults(&format!("{top}{limit}")).is_empty());
    #[expect(clippy::type_complexity, reason = "a table")]
    let broken: [(String, &[(u32, &str, &str)]); 9] = [
        ("[quota]\n".into(), &[(6, "quota.checked", "is missing"), (6, "quota.sources", "is missing")]),
        (
            format!("{top}[[quota.limit]]\nname = \"a\"\nlevel = \"ap\"\nkind = \"sliding\"\nburst = 5\ncap = 0\n"),
            &[
                (9, "quota.limit[0].window", "is missing"),
                (11, "quota.limit[0].level", "did you mean \"app\"?"),
                (13, "quota.limit[0].burst", "belongs to kind = \"token\""),
                (14, "quota.limit[0].cap", "out of range"),
            ],
        ),
        (format!("{top}{limit}{limit}"), &[(16, "quota.limit[1].name", "is the name of another limit too")]),
        (
            format!("{top}{limit}by_tier = [{{ tier = \"pro\", cap = 9, burst = 3 }}]\nzone = \"UTC\"\n"),
            &[
                (15, "quota.limit[0].by_tier[0].tier", "is none of quota.tiers"),
                (15, "quota.limit[0].by_tier[0].burst", "belongs to kind = \"token\""),
                (16, "quota.limit[0].zone", "belongs to kind = \"daily\""),
            ],
        ),
        (
            format!(
                "{top}{limit}[[quota.header]]\nname = \"X-Left\"\nlimit = \"b\"\nreads = \"remaining\"\nform = \"seconds\"\n"
            ),
            &[
                (17, "quota.header[0].limit", "is no limit of this profile"),
                (19, "quota.header[0].form", "belongs to reads = \"reset\""),
            ],
        ),
        (
            format!("{top}{limit}[[quota.header]]\nname = \"X-Reset\"\nlimit = \"a\"\nreads = \"reset\"\n"),
            &[(15, "quota.header[0].form", "is never guessed")],
        ),
        (
            format!(
                "{top}{limit}[[quota.signal]]\nstatus = [200]\n[[quota.signal]]\nstatus = [429]\nlimit = \"a\"\nlevel = \"app\"\nbody = {{ at = \"a b\", values = [\"1\"] }}\n"
            ),
            &[
                (15, "quota.signal[0]", "has a status of success and nothing else"),
                (20, "quota.signal[1].level", "stands beside limit"),
                (21, "quota.signal[1].body.at", "is no place in JSON"),
            ],
        ),
        (
            format!(
                "{top}[[quota.retry]]\nform = \"seconds\"\n[[quota.retry]]\nbody = \"a\"\npair = \"b\"\nform = \"second\"\n"
            ),
            &[
                (9, "quota.retry[0]", "has neither header nor body"),
                (13, "quota.retry[1].pair", "belongs to header"),
                (14, "quota.retry[1].form", "did you mean \"seconds\"?"),
            ],
        ),
        (
            format!("{top}park = \"60s\"\npark_max = \"30s\"\ntiers = [\"a\", \"a\"]\n"),
            &[(10, "quota.park_max", "is shorter than park"), (11, "quota.tiers", "names \"a\" twice")],
        ),
    ];
    for (text, expected) in &broken {
        let found = faults(text);
        assert_eq!(found.len(), expected.len(), "{text}\n{found:#?}");
        for (line, key, words) in *expected {
            let is = |fault: &&Fault| fault.line == Some(*line) && fault.key == *key && fault.message.contains(words);
            assert!(found.iter().any(|fault| is(&fault)), "{text}\nnot found: {line}: {key}: {words}\n{found:#?}");
        }
    }
}

#[test]
fn what_the_operator_says_is_checked_against_the_profile() {
    let text = "[egress]\n[[egress.quota]]\nconnector = \"hubspot\"\ntier = \"gold\"\ncap = [{ limit = \"moon\", cap = 5 }]\n[[egress.quota]]\nconnector = \"nobody\"\n[[egress.quota]]\nconnector = \"hubspot\"\n[[egress.quota]]\nconnector = \"notion\"\ntier = \"free\"\n";
    let file = Path::new("tidegate.toml");
    let (appliance, faults) = parse_appliance(file, text.as_bytes());
    let (_, found) =
        Ceiling::all(&appliance.unwrap_or_else(|| panic!("{faults:?}")), file, &Catalogue::shipped().unwrap());
    let found: Vec<_> = found.iter().map(|fault| (fault.line.unwrap(), fault.message.as_str())).collect();
    let expected = [
        (4, "\"gold\" is no tier of this connector; known: free, professional, api-add-on"),
        (5, "\"moon\" is no limit of this connector; known: ten-secondly, daily, search"),
        (7, "\"nobody\" is no connector; docs/connectors.md lists them"),
        (9, "\"hubspot\" has an [[egress.quota]] before; write one"),
        (12, "\"free\" is no tier: this connector's profile has none"),
    ];
    assert_eq!(found, expected);
}
