//! Connector manifests: those that are shipped, and an operator's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use domain::ConnectorId;
use tidegate_config::connector::{AuthSlot, Catalogue, GENERIC, Manifest};
use tidegate_config::{Fault, has_errors};

fn get<'c>(catalogue: &'c Catalogue, name: &str) -> &'c Manifest {
    catalogue.get(&ConnectorId::parse(name).unwrap()).unwrap()
}

/// A manifest that its directory has, and what is said of it.
fn read(name: &str, text: &str) -> (Option<Catalogue>, Vec<Fault>) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(format!("{name}.toml")), text).unwrap();
    Catalogue::default().with_directory(root.path())
}

#[test]
fn what_is_shipped_says_where_it_was_read() {
    let catalogue = Catalogue::shipped().unwrap();
    assert!(catalogue.manifests().count() >= 14);
    for manifest in catalogue.manifests() {
        let name = manifest.connector.as_str();
        assert!(!manifest.title.is_empty() && !manifest.checked.is_empty(), "{name}");
        assert_eq!(manifest.is_generic(), name == GENERIC, "{name}");
        assert!(manifest.is_generic() || manifest.sources.iter().all(|url| url.starts_with("https://")), "{name}");
        assert!(manifest.is_generic() || !manifest.sources.is_empty(), "{name}");
        assert!(!manifest.tunnel, "{name}: a tunnel evades evidence");
        // What is said to be in no source is in the manifest.
        let hosts = manifest.hosts.iter().chain(&manifest.redirects.hosts).map(|host| host.value.clone());
        let headers = manifest.request_headers.named().chain(manifest.response_headers.named());
        let all: Vec<String> = hosts.chain(headers).collect();
        for known in &manifest.not_in_sources {
            let known = known.to_ascii_lowercase();
            let covers = |pattern: &String| pattern.strip_suffix('*').is_some_and(|stem| known.starts_with(stem));
            assert!(all.iter().any(|one| *one == known || covers(one)), "{name}: {known} is not in it");
        }
        // Another way to say a method, a host or who somebody is must not travel unseen.
        for never in ["x-http-method-override", "x-forwarded-host", "x-forwarded-for", "cookie", "authorization"] {
            assert!(manifest.is_generic() || !manifest.request_headers.admits(never), "{name}: {never}");
        }
        assert!(manifest.is_generic() || !manifest.response_headers.admits("set-cookie"), "{name}");
    }
    let stripe = get(&catalogue, "stripe");
    assert_eq!(stripe.idempotency_header.as_deref(), Some("idempotency-key"));
    assert!(stripe.request_headers.admits("idempotency-key") && stripe.response_headers.admits("request-id"));
    assert_eq!(get(&catalogue, "shopify").auth, AuthSlot::Header("x-shopify-access-token".into()));
    assert_eq!(get(&catalogue, "twilio").auth, AuthSlot::BasicPassword);
    assert!(get(&catalogue, "github").redirects.follow);
}

#[test]
fn an_operators_manifest_takes_the_place_of_a_shipped_one() {
    let root = tempfile::tempdir().unwrap();
    let billing = "connector = \"acme-billing\"\ntitle = \"Billing\"\nhosts = [\"billing.example.com\"]\ntunnel = true\n[auth]\nslot = \"query\"\nparameter = \"key\"\n[redirects]\nfollow = true\nmax = 2\nhosts = [\"*.cdn.example.com\"]\n";
    fs::write(root.path().join("acme-billing.toml"), billing).unwrap();
    let stripe =
        "connector = \"stripe\"\ntitle = \"Stripe\"\nhosts = [\"api.stripe.com\"]\nauth = { slot = \"basic-user\" }\n";
    fs::write(root.path().join("stripe.toml"), stripe).unwrap();
    for ignored in [".hidden.toml", "README.md"] {
        fs::write(root.path().join(ignored), "= no TOML =").unwrap();
    }
    let (catalogue, faults) = Catalogue::shipped().unwrap().with_directory(root.path());
    assert!(faults.is_empty(), "{faults:?}");
    let catalogue = catalogue.unwrap();
    let billing = get(&catalogue, "acme-billing");
    assert_eq!((&billing.auth, billing.tunnel), (&AuthSlot::Query("key".into()), true));
    assert_eq!((billing.redirects.max, billing.redirects.hosts[0].value.as_str()), (2, "*.cdn.example.com"));
    assert_eq!(billing.hosts[0].line, 3);
    let stripe = get(&catalogue, "stripe");
    assert_eq!((&stripe.auth, stripe.hosts.len(), &stripe.idempotency_header), (&AuthSlot::BasicUser, 1, &None));
    assert!(catalogue.get(&ConnectorId::parse("github").unwrap()).is_some());
}

#[test]
fn every_mistake_is_found_where_it_is() {
    #[expect(clippy::type_complexity, reason = "a table")]
    let broken: [(&str, &str, &[(u32, &str, &str)]); 9] = [
        (
            "acme",
            "connector = \"acme\"\ntitle = \"Acme\"\n",
            &[(1, "auth", "is missing"), (1, "hosts", "names no host")],
        ),
        (
            "acme",
            "connector = \"other\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\nauth = { slot = \"bearer\" }\n",
            &[(1, "connector", "is \"other\" in the file of \"acme\"")],
        ),
        (
            "http",
            "connector = \"http\"\ntitle = \"x\"\nhosts = [\n  \"a.example.com\"]\n",
            &[(4, "hosts", "are those of each connection")],
        ),
        (
            "acme",
            "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\",\n  \"https://b.example.com\"]\nhost = 1\n[auth]\nslot = \"header\"\n",
            &[(4, "hosts[1]", "has a scheme"), (5, "", "did you mean `hosts`?"), (6, "auth.header", "is missing")],
        ),
        (
            "acme",
            "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\n[auth]\nslot = \"bearer\"\nparameter = \"key\"\n",
            &[(6, "auth.parameter", "belongs to slot = \"query\"")],
        ),
        (
            "acme",
            "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\nauth = { slot = \"bearer\" }\n[headers]\nrequest = [\"X Y\",\n  \"Host\", \"Tidegate-*\"]\nresponses = []\n",
            &[
                (6, "headers.request[0]", "is no name of a header"),
                (7, "headers.request[1]", "is a header that no call sets"),
                (7, "headers.request[2]", "is a header that no call sets"),
                (8, "headers", "did you mean `response`?"),
            ],
        ),
        (
            "acme",
            "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\nauth = { slot = \"baerer\" }\nchecked = \"29.11.2026\"\n[redirects]\nmax = 0\n",
            &[
                (4, "auth.slot", "did you mean \"bearer\"?"),
                (5, "checked", "is no date"),
                (7, "redirects.max", "out of range"),
            ],
        ),
        (
            "acme",
            "connector = \"acme\"\ntitle = \"Acme\"\nhosts = [\"a.example.com\"]\nauth = { slot = \"header\", header = \"X-Key\" }\ncorrelation_headers = [\"Request-Id\", \"X-KEY\",\n  \"Set-Cookie\", \"Authorization\"]\n",
            &[
                (5, "correlation_headers", "\"x-key\" carries credentials"),
                (6, "correlation_headers", "\"set-cookie\" carries credentials"),
                (6, "correlation_headers", "\"authorization\" carries credentials"),
            ],
        ),
        ("a.b", "", &[]),
    ];
    for (name, text, expected) in broken {
        let (catalogue, faults) = read(name, text);
        assert!(catalogue.is_none() && has_errors(&faults), "{text}");
        let found: Vec<_> =
            faults.iter().map(|fault| (fault.line, fault.key.as_str(), fault.message.as_str())).collect();
        if expected.is_empty() {
            assert!(found[0].2.contains("has no name of a connector"), "{found:?}");
            continue;
        }
        assert_eq!(found.len(), expected.len(), "{text}\n{found:#?}");
        for (line, key, words) in expected {
            let is = |one: &&(Option<u32>, &str, &str)| one.0 == Some(*line) && one.1 == *key && one.2.contains(words);
            assert!(found.iter().any(|one| is(&one)), "{text}\nnot found: {line}: {key}: {words}\n{found:#?}");
        }
    }
    let (catalogue, faults) = Catalogue::default().with_directory(Path::new("/nowhere/at/all"));
    assert!(catalogue.is_none() && faults[0].key == "connectors.directory", "{faults:?}");
}
