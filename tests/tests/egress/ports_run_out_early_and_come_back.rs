use tidegate_tests::call::{Call, Said, connect, get, token};
use tidegate_tests::eventually;
use tidegate_tests::world::{PROVIDER, Zone};

use crate::lab::{EXITS, Lab, on_the_edge, open_tenant};

/// Of a thousand ports, one per cent.
const OPEN_MAX: usize = 10;

async fn tunnel(lab: &Lab, tenant: &str) -> (Call, Said) {
    let mut call = lab.call().await;
    let said = call.ask(&connect("api.example.com:443", &token(tenant).0)).await.expect("an answer");
    (call, said)
}

fn exhausted(said: &Said) {
    assert_eq!((said.status, said.code().as_str()), (503, "ports-exhausted"), "{said:?}");
    assert!(said.field("retry-after").is_some_and(|after| after.parse::<u32>().is_ok()), "{said:?}");
    let proxy_status = said.field("proxy-status").expect("Proxy-Status");
    assert!(proxy_status.contains("connection_limit_reached"), "{said:?}");
    assert_eq!(said.field("tidegate-send-state"), Some("not-sent"), "{said:?}");
}

#[expect(clippy::float_cmp, reason = "counts are whole numbers")]
#[test]
fn ports_run_out_early_and_come_back() {
    on_the_edge(async |lab| {
        lab.world.name("api.example.com", Zone::always(PROVIDER));
        // Of the namespace of the edge, and of nobody else.
        let range = |range: &str| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).expect("a range");
        range("40000 40999");
        let bolt = open_tenant("bolt").set("egress", "pool", "\"two\"");
        let node = lab
            .appliance()
            .set("egress.limits", "ports_percent_max", "1")
            .tenant(open_tenant("acme"))
            .tenant(bolt)
            .start()
            .await;
        node.checked();
        let acme = token("acme").0;
        // One that is kept for the next request counts as a tunnel does.
        let mut kept = lab.call().await;
        let request = get("https://api.example.com/", &acme);
        let first = kept.ask(&request).await.expect("an answer").seen();
        let mut tunnels = Vec::new();
        for nth in 1..OPEN_MAX {
            let (call, said) = tunnel(&lab, "acme").await;
            assert_eq!(said.status, 200, "tunnel {nth}: {said:?}");
            tunnels.push(call);
        }
        exhausted(&tunnel(&lab, "acme").await.1);
        // What is kept is used all the same; what needs another connection is refused.
        assert_eq!(kept.ask(&request).await.expect("an answer").seen()["connection"], first["connection"]);
        // From another address, and to another port: room enough.
        let other_exit = tunnel(&lab, "bolt").await;
        assert_eq!(other_exit.1.status, 200);
        assert_eq!(lab.ask(&get("http://api.example.com/", &acme)).await.expect("an answer").status, 200);

        let metrics = node.metrics().await;
        let used = |exit: &str| metrics.sum("tidegate_egress_ports_used", &[&format!("exit=\"{exit}\"")]);
        assert_eq!((used(EXITS[0][0]), used(EXITS[1][0])), (10.0, 1.0));
        assert_eq!(metrics.sum("tidegate_egress_ports_max", &[]), 10.0);
        assert_eq!(metrics.sum("tidegate_egress_ports_refused_total", &["by=\"count\""]), 1.0);
        let ready = String::from_utf8(node.admin("/readyz").await.body).expect("text");
        let told = format!("10 of 10 local ports from {} to {PROVIDER}:443 are in use", EXITS[0][0]);
        assert!(ready.contains(&told), "{ready}");
        let top: serde_json::Value = serde_json::from_str(&node.cli_ok(&["egress", "top", "--json"])).expect("JSON");
        let ports = &top["ports"][0];
        assert_eq!(ports["to"], format!("{PROVIDER}:443"), "{top}");
        assert_eq!((&ports["open"], &ports["openMax"]), (&10.into(), &10.into()), "{top}");

        // One that ends makes room, and a range that is wider does.
        drop(tunnels.pop());
        eventually!({
            let (call, said) = tunnel(&lab, "acme").await;
            tunnels.extend((said.status == 200).then_some(call));
            tunnels.len() + 1 == OPEN_MAX
        });
        exhausted(&tunnel(&lab, "acme").await.1);
        range("40000 42999");
        node.cli_ok(&["reload"]);
        assert_eq!(tunnel(&lab, "acme").await.1.status, 200);
        assert_eq!(node.metrics().await.sum("tidegate_egress_ports_max", &[]), 30.0);

        // Nothing leaks: when all have gone, nothing is counted but what is kept.
        drop((tunnels, other_exit));
        eventually!({
            let metrics = node.metrics().await;
            metrics.sum("tidegate_egress_ports_used", &[]) <= 1.0
                && metrics.sum("tidegate_egress_under_way", &[]) == 0.0
        });
    });
}
