use tidegate_tests::call::{Said, connect, exchange, get, governed, token};
use tidegate_tests::eventually;
use tidegate_tests::world::Zone;

use crate::lab::{EXITS, Lab, connection, on_the_edge, open_tenant};

const V6: &str = "2606:2800:220:1::34";

/// Calls by every way in, over both families, in the clear and with TLS; says which addresses the provider saw.
async fn seen_from(lab: &Lab, tenant: &str) -> Vec<String> {
    let token = token(tenant).0;
    let mut seen = Vec::new();
    let mut note = |said: Option<Said>| {
        let said = said.expect("an answer").seen();
        seen.push(said["peer"].as_str().expect("an address").to_owned());
    };
    for host in ["v4.example.com", "v6.example.com"] {
        for scheme in ["http", "https"] {
            note(lab.ask(&get(&format!("{scheme}://{host}/"), &token)).await);
        }
        let mut tunnel = lab.call().await;
        let opened = tunnel.ask(&connect(&format!("{host}:443"), &token)).await.expect("an answer");
        assert_eq!(opened.status, 200, "{opened:?}");
        let mut inner = lab.tls(tunnel, host).await.expect("TLS through the tunnel");
        note(exchange(&mut inner, &mut Vec::new(), format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await);
        let id = &host[..2];
        note(lab.ask(&governed(&format!("/c/conn_{id}/v1"), &token, "")).await);
    }
    note(lab.ask(&get("http://8.8.8.8/", &token)).await);
    note(lab.ask(&get("http://[2a00:1450::1]/", &token)).await);
    seen
}

fn expected([v4, v6]: [&str; 2]) -> Vec<String> {
    [v4, v4, v4, v4, v6, v6, v6, v6, v4, v6].map(str::to_owned).to_vec()
}

#[test]
fn each_tenant_leaves_from_its_own_addresses_and_moves_without_a_restart() {
    on_the_edge(async |lab| {
        lab.world.name("v6.example.com", Zone::turns(&[V6]));
        let connections =
            ["v4", "v6"].map(|id| connection(&format!("conn_{id}"), &format!("https://{id}.example.com")));
        let connections = connections.concat();
        let acme = || open_tenant("acme").extra(&connections);
        let bolt = open_tenant("bolt").set("egress", "pool", "\"two\"").extra(&connections);
        let mut node = lab.appliance().tenant(acme()).tenant(bolt).start().await;
        node.checked();
        assert_eq!(seen_from(&lab, "acme").await, expected(EXITS[0]));
        assert_eq!(seen_from(&lab, "bolt").await, expected(EXITS[1]));
        // Again, now that there are connections of both to the same places.
        assert_eq!(seen_from(&lab, "acme").await, expected(EXITS[0]));

        let pid = node.pid();
        node.rewrite(acme().set("egress", "pool", "\"two\""));
        node.cli_ok(&["reload"]);
        assert_eq!(seen_from(&lab, "acme").await, expected(EXITS[1]), "a pool is left at once");
        node.rewrite(acme());
        node.cli_ok(&["reload"]);
        assert_eq!(seen_from(&lab, "acme").await, expected(EXITS[0]));
        assert_eq!(node.pid(), pid);

        // The records say the same.
        eventually!({
            let records = node.cli_ok(&["egress", "log", "--tenant", "bolt", "--json"]);
            let exits: Vec<serde_json::Value> = records
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["exit"].clone())
                .collect();
            exits.len() >= 10 && exits.iter().all(|exit| EXITS[1].iter().any(|own| exit == *own))
        });
        assert_eq!(lab.caught(), (0, 0));
    });
}
