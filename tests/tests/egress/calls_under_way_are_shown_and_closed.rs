use serde_json::Value;
use tidegate_tests::call::{connect, exchange, get, token};
use tidegate_tests::eventually;
use tidegate_tests::world::{PROVIDER, Zone};
use tokio::io::AsyncReadExt;

use crate::lab::{EXITS, on_the_edge, open_tenant};

fn calls(top: &Value) -> Vec<&Value> {
    top["calls"].as_array().expect("a list").iter().collect()
}

#[test]
fn calls_under_way_are_shown_and_closed() {
    on_the_edge(async |lab| {
        lab.world.name("api.example.com", Zone::always(PROVIDER));
        let node = lab.appliance().tenant(open_tenant("acme")).tenant(open_tenant("bolt")).start().await;
        node.checked();
        let top = |words: &[&str]| -> Value {
            let words = [&["egress", "top", "--json"], words].concat();
            serde_json::from_str(&node.cli_ok(&words)).expect("JSON")
        };
        assert_eq!((&top(&[])["underWay"], calls(&top(&[])).len()), (&0.into(), 0));

        let mut tunnel = lab.call().await;
        let opened = tunnel.ask(&connect("api.example.com:443", &token("acme").0)).await.expect("an answer");
        let id = opened.field("tidegate-correlation-id").expect("an id").to_owned();
        let mut inner = lab.tls(tunnel, "api.example.com").await.expect("TLS");
        let mut rest = Vec::new();
        exchange(&mut inner, &mut rest, b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await.expect("an answer");
        let mut other = lab.call().await;
        other.ask(&connect("api.example.com:443", &token("bolt").0)).await.expect("an answer");

        let all = top(&[]);
        assert_eq!((&all["underWay"], &all["tunnels"]), (&2.into(), &2.into()), "{all}");
        let of_acme = top(&["--tenant", "acme"]);
        let [call] = calls(&of_acme)[..] else { panic!("{of_acme}") };
        for (key, value) in [
            ("correlation", id.as_str()),
            ("tenant", "acme"),
            ("caller", "token:acme"),
            ("way", "connect"),
            ("stage", "tunnel"),
            ("destination", "api.example.com:443"),
            ("exit", EXITS[0][0]),
        ] {
            assert_eq!(call[key], value, "{of_acme}");
        }
        assert!(call["sentBytes"].as_u64() > Some(300) && call["receivedBytes"].as_u64() > Some(500), "{call}");
        assert_eq!(call["sentBytesPerSecond"], 0, "nothing passed meanwhile");
        assert_eq!(of_acme["ports"].as_array().map(Vec::len), Some(0), "others' destinations are not told");
        assert_eq!(calls(&top(&["--limit", "1"])).len(), 1);
        assert_eq!(top(&["--tenant", "nobody"])["underWay"], 0);
        let text = node.cli_ok(&["egress", "top", "--by", "age"]);
        let first = text.lines().skip_while(|line| !line.starts_with("TENANT")).nth(1).expect("a line");
        assert!(first.contains(&id) && first.starts_with("acme"), "{text}");

        // A request is on the list, too, from when it is judged.
        let mut waits = lab.call().await;
        let asked = get("http://api.example.com:80/", &token("bolt").0);
        assert_eq!(waits.ask(&asked).await.expect("an answer").status, 200);

        assert_eq!(node.cli_ok(&["egress", "close", &id]).trim(), "closed");
        let mut byte = [0];
        let ended = inner.read(&mut byte).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "the tunnel goes on");
        assert_eq!(node.cli(&["egress", "close", &id]).status.code(), Some(1), "it is closed already");
        let left = top(&[]);
        assert_eq!(left["underWay"], 1, "{left}");
        assert_eq!(calls(&left)[0]["tenant"], "bolt", "nobody else's was closed");

        // A request, too: its caller is told in place of an answer, and what it has sent is not taken back.
        let asked = String::from_utf8(get("http://api.example.com:80/", &token("acme").0)).expect("text");
        let asked = asked.replacen("GET", "POST", 1).replacen("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nhe", 1);
        let mut half = lab.call().await;
        let closing = async {
            let of_acme = top(&["--tenant", "acme"]);
            let [call] = calls(&of_acme)[..] else { panic!("{of_acme}") };
            assert_eq!(call["stage"], "waiting", "{of_acme}");
            node.cli_ok(&["egress", "close", call["correlation"].as_str().expect("an id")])
        };
        let (answered, closed) = tokio::join!(half.ask(asked.as_bytes()), closing);
        assert!(closed.starts_with("closed"), "{closed}");
        let answered = answered.expect("an answer");
        assert_eq!((answered.status, &*answered.code()), (403, "switched-off"));
        eventually!({
            let record = node.cli(&["egress", "log", "--correlation", &id, "--json"]).stdout;
            let record: Value = serde_json::from_slice(&record).unwrap_or_default();
            record["outcome"] == "switched-off"
        });
    });
}
