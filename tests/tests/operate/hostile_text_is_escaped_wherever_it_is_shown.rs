use tidegate_tests::{Appliance, Node, eventually};

/// Nothing that a terminal obeys: no control but the line feed, no change of writing direction.
fn harmless(text: &str) -> bool {
    let deceives =
        |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(deceives)
}

fn said(node: &Node, words: &[&str]) -> String {
    let output = node.cli(words);
    String::from_utf8([output.stdout, output.stderr].concat()).expect("what it prints is UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_text_is_escaped_wherever_it_is_shown() {
    for format in ["text", "json"] {
        let node = Appliance::usual().set("logging", "format", &format!("\"{format}\"")).start().await;
        let sender = node.sender("wh_1");
        // High bytes are allowed in a header's value, and a tab; C1 controls and overrides hide in them.
        let request = sender
            .delivery("\u{1b}[2J\u{1b}[31mred\u{7}\r\n\u{202e}evil\u{9b}m")
            .header("X-GitHub-Delivery", "\u{202e}id\u{9b}31m")
            .header("X-Evil\u{7f}".trim_end_matches('\u{7f}'), "a\t\u{9b}31m\u{202e}");
        let id = sender.send(&request).await.event_id();
        let forged = sender.clone().with_secret("x").delivery("\u{1b}]0;title\u{7}").to("/hooks/wh_1?\u{202e}\u{9b}");
        assert!(sender.send(&forged).await.status >= 400);
        let raw = b"POST /hooks/\x1b[31m HTTP/1.1\r\nHost: hooks.example.com\r\nContent-Length: 0\r\n\r\n";
        let mut connection = sender.connect().await;
        connection.send(raw).await;
        assert_eq!(connection.response().await.status, 400);
        let mut connection = sender.connect().await;
        connection.send(b"\x1b[31mGARBAGE\x07 \x9b\r\n\r\n").await;
        assert_eq!(connection.response().await.status, 400);

        eventually!(node.output().contains(&id));
        assert!(harmless(&node.output()), "{format}: {:?}", node.output());
        for words in [
            &["events", "list", "--tenant", "acme"][..],
            &["events", "list", "--tenant", "acme", "--json"],
            &["events", "list", "--tenant", "acme", "--held"],
            &["events", "show", &id, "--tenant", "acme"],
            &["events", "show", &id, "--tenant", "acme", "--reveal"],
            &["events", "show", &id, "--tenant", "acme", "--json"],
            &["events", "export", "--tenant", "acme"],
            &["events", "reverify", "--tenant", "acme"],
        ] {
            let text = said(&node, words);
            assert!(harmless(&text), "{words:?}: {text:?}");
        }
    }
}
