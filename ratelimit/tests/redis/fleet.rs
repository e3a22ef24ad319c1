//! More than one server: Sentinel, Cluster; and TLS.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, Issuer, KeyPair, SanType};
use redis::Value;
use tidegate_ratelimit::quota::conformance::asks::name;
use tidegate_ratelimit::quota::redis::{
    Address, Credentials, Fault, Push, RedisCentre, RedisSettings, Servers, client_config,
};
use tidegate_ratelimit::quota::{Answer, Application, Body, Centre, Op, Penalise, Why};
use tokio::runtime::Handle;

use crate::faults::{Node, limit};
use crate::server::{Plain, Server, free_port};

fn settings(servers: Servers) -> RedisSettings {
    RedisSettings { budget: Duration::from_secs(2), ..RedisSettings::new(servers, Arc::new(Plain)) }
}

#[tokio::test]
async fn sentinels_lead_to_the_primary_of_the_moment() {
    let mut primary = Server::start().await;
    let replica = Server::start().await;
    replica.run(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]).await.unwrap();
    let port = free_port();
    let lines = [
        &format!("port {port}"),
        "bind 127.0.0.1",
        &format!("sentinel monitor quota 127.0.0.1 {} 1", primary.port),
        "sentinel down-after-milliseconds quota 500",
        "sentinel failover-timeout quota 2000",
    ];
    let sentinel = Server::spawn_only(&lines, "redis-sentinel", port);
    let nobody = Address::parse(&format!("127.0.0.1:{}", free_port())).unwrap();
    let servers = Servers::Sentinel {
        sentinels: vec![nobody, sentinel.address()],
        name: "quota".to_owned(),
        credentials: Credentials::default(),
    };
    let (centre, _) = RedisCentre::new(settings(servers), &Handle::current());
    let bucket = limit(1_000);
    let mut node = Node::new(centre, 1);
    node.ask_until_granted(&bucket).await;
    // The sentinel has to have found the replica before it can promote it.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let spent = node.spent;
    primary.kill();
    node.ask_until_granted(&bucket).await;
    assert!(node.spent > spent);
    let Value::Array(role) = replica.run(&["ROLE"]).await.unwrap() else { panic!() };
    assert_eq!(role[0], Value::BulkString(b"master".to_vec()));
}

/// Three primaries with a third of the slots each.
async fn cluster() -> Vec<Server> {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let bus = free_port().to_string();
        let arguments = ["--save", "", "--cluster-enabled", "yes", "--cluster-port", &bus];
        nodes.push((Server::with(&arguments).await, bus));
    }
    let ranges = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
    for ((node, _), (first, last)) in nodes.iter().zip(ranges) {
        node.run(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await.unwrap();
        for (other, bus) in &nodes {
            node.run(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), bus]).await.unwrap();
        }
    }
    for (node, _) in &nodes {
        let mut is_ok = false;
        for _ in 0..200 {
            let info = format!("{:?}", node.run(&["CLUSTER", "INFO"]).await.unwrap());
            is_ok = info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3");
            if is_ok {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(is_ok, "the cluster does not come together");
    }
    nodes.into_iter().map(|(node, _)| node).collect()
}

#[tokio::test]
async fn a_cluster_has_each_application_at_its_own_node() {
    let nodes = cluster().await;
    let (centre, mut pushes) =
        RedisCentre::new(settings(Servers::Cluster(vec![nodes[1].address()])), &Handle::current());
    let bucket = limit(1_000);
    for number in 0..12 {
        let mut node = Node::of(centre.clone(), 1, &format!("application-{number}"));
        node.ask_until_granted(&bucket).await;
    }
    for node in &nodes {
        let Value::Int(keys) = node.run(&["DBSIZE"]).await.unwrap() else { panic!() };
        assert!(keys > 0, "no application of twelve is at {}", node.port);
    }
    // A park is heard from whichever node has the application.
    for number in 0..4 {
        let application = Application { provider: name("test"), name: name(&format!("application-{number}")) };
        centre.watch(&application);
        wait_for(&mut pushes, |push| *push == Push::Missed { application: Some(application.clone()) }).await;
        let penalise = Penalise { bucket: bucket.clone(), delta_ms: 1_000, generation: None, why: Why::Provider };
        let op = Op { application: application.clone(), body: Body::Penalise(penalise) };
        assert!(matches!(centre.ask(&op).await.unwrap().answer, Answer::ParkedFor { .. }));
        wait_for(&mut pushes, |push| matches!(push, Push::Bucket { application: of, .. } if *of == application)).await;
    }
}

async fn wait_for(pushes: &mut tidegate_ratelimit::quota::redis::Pushes, is_it: impl Fn(&Push) -> bool) {
    let waiting = async { while !is_it(&pushes.next().await.unwrap()) {} };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("a push");
}

#[tokio::test]
async fn a_slot_that_moves_is_found_again() {
    let nodes = cluster().await;
    let (centre, _) = RedisCentre::new(settings(Servers::Cluster(vec![nodes[0].address()])), &Handle::current());
    let bucket = limit(1_000);
    let mut node = Node::new(centre, 1);
    node.ask_until_granted(&bucket).await;
    // {q:test:faults}: all of its slot goes to another node, as after a failover within the cluster.
    let Value::Int(slot) = nodes[0].run(&["CLUSTER", "KEYSLOT", "q:test:faults"]).await.unwrap() else { panic!() };
    let owner = usize::try_from(slot).unwrap() / 5_461;
    let heir = &nodes[(owner + 1) % 3];
    let Value::BulkString(id) = heir.run(&["CLUSTER", "MYID"]).await.unwrap() else { panic!() };
    let id = String::from_utf8(id).unwrap();
    nodes[owner].run(&["FLUSHALL"]).await.unwrap();
    for other in [heir, &nodes[owner], &nodes[(owner + 2) % 3]] {
        other.run(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]).await.unwrap();
    }
    node.ask_until_granted(&bucket).await;
    let Value::Int(keys) = heir.run(&["DBSIZE"]).await.unwrap() else { panic!() };
    assert!(keys > 0);
}

#[tokio::test]
async fn tls_is_spoken_with_whom_we_trust() {
    let directory = tempfile::tempdir().unwrap();
    let path = |file: &str| directory.path().join(file).to_str().unwrap().to_owned();
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test authority");
    let authority = params.self_signed(&authority_key).unwrap();
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
    let leaf = leaf.signed_by(&key, &Issuer::new(params, &authority_key)).unwrap();
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    std::fs::write(path("leaf.pem"), leaf.pem()).unwrap();
    std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    let port = free_port();
    let tls_port = port.to_string();
    let (ca, certificate, private) = (path("ca.pem"), path("leaf.pem"), path("key.pem"));
    // Without a client's certificate nobody is let in.
    let arguments = [
        "--save",
        "",
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &private,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "yes",
    ];
    let server = Server::with(&arguments).await;
    let address = Address::parse(&format!("127.0.0.1:{port}")).unwrap();
    let with = |tls| {
        let settings = RedisSettings { tls: Some(tls), ..settings(Servers::One(address.clone())) };
        Node::new(RedisCentre::new(settings, &Handle::current()).0, 1)
    };
    let (leaf, key) = (leaf.pem(), key.serialize_pem());
    let identity = Some((leaf.as_bytes(), key.as_bytes()));
    with(client_config(authority.pem().as_bytes(), identity).unwrap()).ask_until_granted(&limit(10)).await;

    let stranger = KeyPair::generate().unwrap();
    let stranger = CertificateParams::default().self_signed(&stranger).unwrap();
    let mut distrusts = with(client_config(stranger.pem().as_bytes(), identity).unwrap());
    distrusts.ask(&limit(10)).await.unwrap_err();
    assert_eq!(distrusts.fault(), Some(Fault::Tls));
    with(client_config(authority.pem().as_bytes(), None).unwrap()).ask(&limit(10)).await.unwrap_err();
    drop(server);
}
