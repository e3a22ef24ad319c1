use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use tidegate_tests::eventually;
use tidegate_tests::postgres::Postgres;
use tidegate_tests::runs::Runs;

/// An authority of the scenario's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Of two of one name OpenSSL takes the one for the other.
        parameters.distinguished_name.push(DnType::CommonName, "an authority of tests");
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().expect("a key")).expect("an authority"))
    }

    /// A certificate for a name, and its key, in PEM.
    fn signs(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("names");
        parameters.distinguished_name.push(DnType::CommonName, name);
        (parameters.signed_by(&key, &self.0).expect("a certificate").pem(), key.serialize_pem())
    }
}

fn write(path: &Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    format!("\"file:{}\"", path.display())
}

/// A server that takes nobody in clear and nobody without a certificate is reached by who has one and trusts its authority,
/// and by nobody else; who is not says why.
#[tokio::test(flavor = "multi_thread")]
async fn and_only_by_who_trusts_it_and_is_trusted() {
    let Some(mut database) = Postgres::prepare(&[]) else { return };
    let (authority, another) = (Authority::new(), Authority::new());
    let (certificate, key) = authority.signs(&database.address.ip().to_string());
    database.with_tls(&certificate, &key, &authority.0.pem(), "tidegate");
    database.up().await;
    let shared = database.shared("tidegate");
    let files = tempfile::tempdir().expect("a directory");
    let (own, own_key) = authority.signs("runner.internal");
    let file = |name: &str, text: &str| write(&files.path().join(name), text);
    let roots = file("roots.pem", &authority.0.pem());
    let others = file("others.pem", &another.0.pem());
    let (own, own_key) = (file("own.pem", &own), file("own.key", &own_key));

    let tls = |roots: &str, is_named: bool| {
        let mut keys = vec![("runner.postgres.tls", "roots", roots.to_owned())];
        if is_named {
            keys.push(("runner.postgres.tls", "certificate", own.clone()));
            keys.push(("runner.postgres.tls", "key", own_key.clone()));
        }
        keys
    };
    let cases = [
        (Vec::new(), "no pg_hba.conf entry"),
        (tls(&others, true), "certificate"),
        (tls(&roots, false), "certificate"),
    ];
    for (keys, why) in cases {
        let settings: Vec<(&str, &str, &str)> =
            shared.iter().chain(&keys).map(|(table, key, value)| (*table, *key, value.as_str())).collect();
        let mut runs = Runs::prepare(&settings);
        runs.node.start().await;
        let told = async || String::from_utf8_lossy(&runs.node.admin("/readyz").await.body).into_owned();
        eventually!(told().await.contains("runner: no runs are performed: the database: "), "readyz says why");
        assert!(told().await.contains(why), "{why}: {}", told().await);
    }

    let keys = tls(&roots, true);
    let settings: Vec<(&str, &str, &str)> =
        shared.iter().chain(&keys).map(|(table, key, value)| (*table, *key, value.as_str())).collect();
    let runs = Runs::start(&settings).await;
    let nodes = json!([{ "id": "say", "type": "transform", "value": "${event.body.n}" }]);
    runs.put("acme", &Runs::automation("acme", "say", &nodes)).await;
    let execution = runs.deliver("acme", &json!({ "n": 7 })).await;
    runs.once("acme", &execution, &["succeeded"]).await;
    let asked = "SELECT count(*), bool_and(ssl), bool_and(client_dn IS NOT NULL) FROM pg_stat_ssl \
                 JOIN pg_stat_activity USING (pid) WHERE application_name = 'tidegate-runner'";
    let seen = database.run("postgres", asked);
    let (count, all) = seen.split_once('|').expect("three columns");
    assert!(count.parse::<u32>().is_ok_and(|count| count > 0) && all == "t|t", "{seen}");
}
