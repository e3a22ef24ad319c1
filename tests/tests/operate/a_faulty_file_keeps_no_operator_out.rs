use std::process::Output;

use tidegate_tests::Appliance;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Calls are switched off and grants taken back in an incident: a typing error that somebody has just made must not
/// stand in the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_file_keeps_no_operator_from_the_appliance_that_runs_on() {
    let node = Appliance::usual().set("egress", "listen", "[\"127.0.0.1:0\"]").start().await;
    assert_eq!(node.sender("wh_1").deliver("{}").await.status, 202);
    let good = std::fs::read_to_string(node.config()).expect("the configuration");
    for (what, faulty) in [
        ("a key that is unknown", format!("{good}\n[gateway.listener]\nheader_timeot = \"5s\"\n")),
        ("every directory", good.replace("directory = ", "diretory = ")),
        ("the socket itself", good.replace("socket = ", "sokcet = ")),
        ("a table's name", good.replace("[admin]", "[admn]")),
        ("a line that is no TOML", format!("{good}\nnonsense\n")),
    ] {
        assert_ne!(faulty, good, "{what}");
        std::fs::write(node.config(), &faulty).expect("the configuration");
        for (words, exit) in [
            (&["reload"][..], 1),
            (&["events", "list", "--tenant", "acme"], 0),
            (&["log", "stat"], 0),
            (&["egress", "top", "--once"], 0),
            (&["egress", "switch", "off", "--tenant", "acme", "--reason", "an incident"], 0),
            (&["egress", "switch", "list"], 0),
            (&["grant", "revoke", "--tenant", "acme"], 0),
            (&["grant", "revoked"], 0),
        ] {
            let output = node.cli(words);
            assert_eq!(output.status.code(), Some(exit), "{what}: {words:?}: {}", said(&output));
        }
        std::fs::write(node.config(), &good).expect("the configuration");
        // What was written then is where the appliance looks.
        for (words, text) in
            [(&["egress", "switch", "list"][..], "an incident"), (&["grant", "revoked"], "tenant acme")]
        {
            assert!(node.cli_ok(words).contains(text), "{what}: {words:?}");
        }
        node.cli_ok(&["egress", "switch", "on", "--tenant", "acme"]);
        node.cli_ok(&["grant", "revoke", "--tenant", "acme", "--lift"]);
    }
    assert_eq!(node.cli(&["reload"]).status.code(), Some(0));
}

/// Another appliance's socket is not believed to be the one that is meant.
#[tokio::test(flavor = "multi_thread")]
async fn another_appliance_is_not_taken_for_the_one_that_is_meant() {
    let other = Appliance::usual().start().await;
    let meant = Appliance::usual().prepare();
    let socket = other.directory.join("control.sock");
    let faulty = std::fs::read_to_string(meant.config()).expect("the configuration");
    let own = format!("{:?}", meant.directory.join("control.sock"));
    let faulty = faulty.replace("socket = ", "sokcet = ").replace(&own, &format!("{socket:?}"));
    std::fs::write(meant.config(), faulty).expect("the configuration");
    let output = meant.cli(&["reload"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("--socket"), "{}", said(&output));
    // Whoever names it means it.
    let named = meant.cli(&["reload", "--socket", socket.to_str().expect("UTF-8")]);
    assert_eq!(named.status.code(), Some(0), "{}", said(&named));
}
