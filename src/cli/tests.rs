//! The command line as a whole: its grammar, its exit codes, and what it never prints.

use super::exit::Exit;
use super::help;
use super::testing::{run, run_with};

#[test]
fn the_grammar_is_consistent() {
    help::command().debug_assert();
}

#[test]
fn help_and_version_are_answers() {
    for words in [&["--help"][..], &["--version"], &["events", "--help"], &["help", "verify"]] {
        let ran = run(words);
        assert_eq!((ran.exit, ran.remarks.as_str()), (Exit::Yes, ""), "{words:?}");
        assert!(!ran.answer.is_empty());
    }
}

#[test]
fn wrong_usage_is_two_and_goes_to_stderr() {
    for words in
        [&[][..], &["nonsense"], &["events", "list"], &["events", "show", "evt_x", "--all-tenants"], &["events"]]
    {
        let ran = run(words);
        assert_eq!((ran.exit, ran.answer.as_str()), (Exit::Usage, ""), "{words:?}");
        assert!(!ran.remarks.is_empty());
    }
}

#[test]
fn what_was_typed_cannot_move_the_cursor() {
    let ran = run(&["events", "list", "--tenant", "\u{1b}[2J\u{9b}31m"]);
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.remarks.chars().all(|c| c == '\n' || !c.is_control()), "{}", ran.remarks);
}

#[test]
fn events_are_never_read_without_saying_whose() {
    let ran = run(&["events", "list"]);
    assert!(ran.remarks.contains("--all-tenants"), "{}", ran.remarks);
}

#[test]
fn issued_endpoints_are_ids() {
    let ran = run(&["endpoints", "issue", "--count", "3"]);
    assert_eq!(ran.exit, Exit::Yes);
    let ids: Vec<_> = ran.answer.lines().map(|line| domain::EndpointId::parse(line).unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let json = run(&["endpoints", "issue", "--json"]).answer;
    assert!(json.starts_with("{\"endpoint\":\"wh_"), "{json}");
}

#[test]
fn completions_are_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(&["completions", shell]);
        assert!(ran.exit == Exit::Yes && ran.answer.contains("tidegate"), "{shell}");
    }
    let fish = run(&["completions", "fish"]).answer;
    for (command, word) in [("completions", "zsh"), ("schema", "tenant")] {
        let uses = format!("__fish_tidegate_using_subcommand {command}\"");
        let mut lines = fish.lines().filter(|line| line.contains(&uses) && line.contains(" -f -a "));
        assert!(lines.any(|line| line.contains(word)), "{command}");
    }
}

#[test]
fn no_appliance_is_said_with_what_to_do() {
    let ran = run(&["events", "tail", "--tenant", "acme", "--socket", "/nonexistent/tidegate.sock"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.remarks.contains("tidegate run"), "{}", ran.remarks);
}

#[test]
fn no_color_is_kept() {
    let ran = run_with(&["--color", "always", "--help"], b"", &[("NO_COLOR", "1")]);
    assert!(!ran.answer.contains('\u{1b}'), "help is decided before --color is read");
}
