//! `tidegate reference`: the files under `docs/` that are printed and not written.

use std::fmt::Write;

use clap::Command;

use super::args::ReferenceOf;
use super::exit::{Exit, Outcome};
use super::{Shell, help};

pub(super) fn run(of: ReferenceOf, shell: &mut Shell<'_>) -> Outcome {
    match of {
        ReferenceOf::Cli => shell.out.text(cli_markdown())?,
        ReferenceOf::Configuration => shell.out.text(config::reference_markdown())?,
    }
    Ok(Exit::Yes)
}

const HEAD: &str = "\
# Command line

What `tidegate` can be asked. This page is printed by `tidegate reference cli`, and a test says that the two are equal.

Exit codes, for every command:

| code | means |
|---|---|
| 0 | yes: done, it verifies, nothing is wrong |
| 1 | no: a refusal, or a fault was found |
| 2 | the command line makes no sense |
| 3 | could not do it: a file, a socket or a server was not there |

`--json` prints one stable object, or one JSON object a line; names never change their meaning, new ones may appear.
Remarks and errors go to standard error. Colour appears only on a terminal, never with `NO_COLOR` set;
`--color always|never` decides otherwise. Whatever came from outside is printed with its control characters escaped.
";

/// `docs/cli.md`.
pub(crate) fn cli_markdown() -> String {
    let mut text = HEAD.to_owned();
    let mut root = help::command().term_width(100).color(clap::ColorChoice::Never);
    root.build();
    section(&mut text, &mut root, "tidegate");
    text
}

fn section(text: &mut String, command: &mut Command, path: &str) {
    if path != "tidegate" {
        let help = command.render_long_help().to_string();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        // Writing into a string does not fail.
        write!(text, "\n## `{path}`\n\n```text\n{}\n```\n", help.join("\n").trim()).ok();
    }
    for child in command.get_subcommands_mut() {
        if !child.is_hide_set() && child.get_name() != "help" {
            let path = format!("{path} {}", child.get_name());
            section(text, child, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(page == cli_markdown(), "docs/cli.md is behind: run `cargo run -- reference cli > docs/cli.md`");
    }

    #[test]
    fn every_command_says_how_it_ends_or_shows_an_example() {
        fn look(command: &Command) {
            let leaf = command.get_subcommands().next().is_none();
            if leaf && !command.is_hide_set() {
                let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("Example"), "{} has no example", command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        look(&help::command());
    }

    #[test]
    fn no_help_is_cut_by_a_line_break_of_claps() {
        fn look(command: &Command) {
            let mut texts: Vec<String> =
                command.get_arguments().filter_map(|it| it.get_help()).map(ToString::to_string).collect();
            texts.extend(command.get_about().map(ToString::to_string));
            texts.extend(command.get_after_help().map(ToString::to_string));
            for text in texts {
                assert!(!text.contains("{n}"), "{}: clap makes a line break of {{n}} in {text:?}", command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        look(&help::command());
        assert!(cli_markdown().contains("{number} in the body becomes each one's number"));
    }
}
