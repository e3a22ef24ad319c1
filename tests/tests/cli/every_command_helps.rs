use std::process::{Command, Output};

use tidegate_tests::appliance::binary;

fn tidegate(words: &[&str]) -> Output {
    Command::new(binary()).args(words).output().expect("the command runs")
}

/// Every command that the reference has, `tidegate` itself aside.
fn commands() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
    let page = std::fs::read_to_string(page).expect("docs/cli.md");
    let named = |line: &str| Some(line.strip_prefix("## `tidegate ")?.strip_suffix('`')?.to_owned());
    page.lines().filter_map(named).collect()
}

#[test]
fn every_command_helps() {
    let commands = commands();
    for known in ["run", "events list", "endpoints issue", "reload", "explain", "egress log", "grant keygen"] {
        assert!(commands.iter().any(|command| command == known), "docs/cli.md has no {known}: {commands:?}");
    }
    for command in &commands {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let output = tidegate(&words);
        assert_eq!(output.status.code(), Some(0), "{command}");
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(help.contains(&format!("Usage: tidegate {command}")), "{command}: {help}");
    }
    for word in ["--help", "--version"] {
        assert!(tidegate(&[word]).status.success(), "{word}");
    }
    let send = String::from_utf8(tidegate(&["send", "--help"]).stdout).expect("UTF-8");
    assert!(send.contains("{number} in the body becomes each one's number"), "{send}");
}

#[test]
fn completions_are_scripts_of_their_shell() {
    for (shell, part) in [("bash", "complete -F"), ("zsh", "#compdef tidegate"), ("fish", "complete -c tidegate")] {
        let output = tidegate(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && script.contains(part), "{shell}: {script:.200}");
    }
    let script = tidegate(&["completions", "bash"]).stdout;
    let path = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(path.path(), script).expect("the script");
    let checked = Command::new("bash").arg("-n").arg(path.path()).output().expect("bash runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn schemes_are_listed_and_explained() {
    let list = tidegate(&["schemes", "list", "--json"]);
    assert!(list.status.success());
    let list = String::from_utf8(list.stdout).expect("UTF-8");
    for name in [
        "github",
        "stripe",
        "slack",
        "shopify",
        "standard-webhooks",
        "twilio",
        "linear",
        "gitlab",
        "paddle",
        "zoom",
        "twitch",
        "square",
        "typeform",
        "hubspot-v3",
        "box",
    ] {
        assert!(list.contains(&format!("\"{name}")), "{name} is missing:\n{list}");
    }
    let shown = tidegate(&["schemes", "show", "github"]);
    assert!(String::from_utf8_lossy(&shown.stdout).to_lowercase().contains("x-hub-signature-256"));
    assert!(tidegate(&["schemes", "show", "hubspot"]).status.success(), "another name for hubspot-v3");
    assert_eq!(tidegate(&["schemes", "show", "no-such"]).status.code(), Some(1));
}
