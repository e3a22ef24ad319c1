use std::process::{Command, Output};

use tidegate_tests::appliance::binary;

fn tidegate(words: &[&str]) -> Output {
    Command::new(binary()).args(words).output().expect("the command runs")
}

#[test]
fn every_command_helps() {
    for words in [
        &[][..],
        &["run"],
        &["check"],
        &["send"],
        &["sign"],
        &["verify"],
        &["events"],
        &["events", "list"],
        &["events", "show"],
        &["events", "tail"],
        &["events", "export"],
        &["events", "reverify"],
        &["log"],
        &["log", "verify"],
        &["log", "stat"],
        &["schemes"],
        &["schemes", "list"],
        &["schemes", "show"],
        &["completions"],
    ] {
        let output = tidegate(&[words, &["--help"]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage:"), "{words:?}");
    }
    assert!(tidegate(&["--version"]).status.success());
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
    assert_eq!(tidegate(&["schemes", "show", "no-such"]).status.code(), Some(1));
}
