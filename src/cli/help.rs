//! Help as a terminal of any width shows it.
//!
//! What stands behind the options is written in lines of the source's width. Prose is joined here, so that it is wrapped
//! once and by the width that there is; examples are broken where a shell lets them be, so that they can be pasted.

use clap::{Command, CommandFactory};

use super::args::Cli;

/// As wide as a terminal is at least.
const WIDTH: usize = 80;

/// How far the second line of an example stands in.
const CONTINUED: &str = " \\\n      ";

/// The grammar, with its help laid out.
pub(super) fn command() -> Command {
    laid_out(Cli::command())
}

fn laid_out(command: Command) -> Command {
    let command = command.mut_subcommands(laid_out);
    match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(layout(&text)),
        None => command,
    }
}

fn layout(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        if paragraph.starts_with("Example") {
            paragraph.lines().map(broken).collect::<Vec<_>>().join("\n")
        } else {
            paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ")
        }
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// A line of an example, broken before options until it fits.
fn broken(line: &str) -> String {
    let room = WIDTH - 2;
    if line.chars().count() <= room {
        return line.to_owned();
    }
    let fits = line.char_indices().nth(room).map_or(line.len(), |(at, _)| at);
    // Not within quotes, and not at the words that name the command itself.
    let is_outside = |at: usize| ['"', '\''].iter().all(|quote| line[..at].matches(*quote).count() % 2 == 0);
    let last = |of: &str| line[..fits].rmatch_indices(of).map(|(at, _)| at).find(|at| *at > 10 && is_outside(*at));
    let Some(at) = last(" --").or_else(|| last(" http")) else { return line.to_owned() };
    let (first, rest) = line.split_at(at);
    let rest = broken(&format!("      {}", rest.trim_start()));
    format!("{first}{CONTINUED}{}", rest.trim_start())
}

/// Without the blanks that wrapping leaves at the ends of lines.
pub(super) fn trimmed(help: &str) -> String {
    let lines: Vec<&str> = help.lines().map(|line| line.trim_end_matches(' ')).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::run;

    fn each(command: &Command, look: &mut dyn FnMut(&str)) {
        look(&command.get_after_help().map(ToString::to_string).unwrap_or_default());
        command.get_subcommands().for_each(|child| each(child, look));
    }

    #[test]
    fn prose_is_wrapped_by_the_terminal_and_examples_by_hand() {
        let mut examples = 0;
        each(&command(), &mut |help| {
            for paragraph in help.split("\n\n") {
                if paragraph.starts_with("Example") {
                    examples += 1;
                    for line in paragraph.lines() {
                        assert!(line.chars().count() <= WIDTH, "{line}");
                    }
                } else {
                    assert!(!paragraph.contains('\n'), "{paragraph}");
                }
            }
        });
        assert!(examples > 30, "{examples}");
        let line = "  tidegate a --one first --two second --three 'a third that is long enough to wrap' --four fourth-and-last";
        let quoted = "  curl --proxy-header \"Proxy-Authorization: Bearer $(tidegate grant --tenant acme --ttl 5m)\" https://a.example/";
        assert!(!broken(quoted).contains("grant \\"), "{}", broken(quoted));
        assert_eq!(
            broken(line),
            "  tidegate a --one first --two second \\\n      --three 'a third that is long enough to wrap' --four fourth-and-last"
        );
    }

    #[test]
    fn no_line_ends_in_blanks() {
        for words in [&["--help"][..], &["egress", "log", "--help"], &["grant", "--help"], &["run", "-h"]] {
            let help = run(words).answer;
            assert!(help.lines().all(|line| !line.ends_with(' ')) && help.ends_with('\n'), "{help}");
        }
    }
}
