//! Where commands write: one locked stream for the answer, one for remarks, and the decision whether to colour.
//!
//! Nothing else in the program prints. Text that came from outside goes through `domain::text::Untrusted` before
//! it gets here; colour is added here and only here, so that an escape sequence in the output is always ours.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use domain::text::json_for_terminals;
use serde::Serialize;

use super::exit::{Failure, Outcome};

/// What a piece of text means; how that looks is decided in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Warn,
    Dim,
    Bold,
}

impl Tone {
    fn sgr(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warn => "33",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`
    #[default]
    Auto,
    Always,
    Never,
}

/// The streams of one command.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each about one stream or the command")]
pub(crate) struct Out<'a> {
    answer: &'a mut dyn Write,
    remarks: &'a mut dyn Write,
    colour: bool,
    colour_remarks: bool,
    is_terminal: bool,
    is_verdict: bool,
}

impl fmt::Debug for Out<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("colour", &self.colour).finish_non_exhaustive()
    }
}

impl<'a> Out<'a> {
    pub(crate) fn new(answer: &'a mut dyn Write, remarks: &'a mut dyn Write) -> Self {
        Self { answer, remarks, colour: false, colour_remarks: false, is_terminal: false, is_verdict: false }
    }

    /// What this command is asked for is its exit code: it goes on to that also where nobody reads the answer any more.
    pub(crate) fn is_for_a_verdict(&mut self) {
        self.is_verdict = true;
    }

    fn written(&self, result: io::Result<()>) -> Outcome<()> {
        match result.map_err(|error| Failure::writing(&error)) {
            Err(Failure::PipeClosed) if self.is_verdict => Ok(()),
            result => result,
        }
    }

    /// Decides for each of the two streams; `plain_wanted` is what the environment says (`NO_COLOR`).
    pub(crate) fn colour(&mut self, when: Colour, plain_wanted: bool) {
        let decide = |terminal: bool| match when {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && !plain_wanted,
        };
        self.is_terminal = io::stdout().is_terminal();
        self.colour = decide(self.is_terminal);
        self.colour_remarks = decide(io::stderr().is_terminal());
    }

    /// `text`, coloured if the answer goes to a terminal.
    pub(crate) fn paint<T: fmt::Display>(&self, tone: Tone, text: T) -> Painted<T> {
        Painted { tone, text, on: self.colour }
    }

    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Outcome<()> {
        let result = writeln!(self.answer, "{text}");
        self.written(result)
    }

    /// Writes without a line end.
    pub(crate) fn text(&mut self, text: impl fmt::Display) -> Outcome<()> {
        let result = write!(self.answer, "{text}");
        self.written(result)
    }

    /// Bytes as they are: for what somebody asked for raw.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome<()> {
        let result = self.answer.write_all(bytes);
        self.written(result)
    }

    /// One JSON object on one line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Outcome<()> {
        let line = serde_json::to_string(value).map_err(|error| Failure::plain(format_args!("no JSON: {error}")))?;
        self.line(json_for_terminals(&line))
    }

    /// One JSON object, laid out for people who look at it anyway.
    pub(crate) fn json_pretty(&mut self, value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string_pretty(value).map_err(|e| Failure::plain(format_args!("no JSON: {e}")))?;
        self.line(json_for_terminals(&text))
    }

    /// Sends out what is buffered: after the last line, and after each batch of a stream that somebody follows.
    pub(crate) fn flush(&mut self) -> Outcome<()> {
        let result = self.answer.flush();
        self.written(result)
    }

    /// A remark beside the answer, on stderr: it never gets into a pipe.
    pub(crate) fn remark(&mut self, text: impl fmt::Display) {
        // A remark that cannot be shown changes nothing about the answer.
        let painted = Painted { tone: Tone::Dim, text, on: self.colour_remarks };
        drop(writeln!(self.remarks, "{painted}"));
    }

    /// A remark that somebody should act upon.
    pub(crate) fn warn(&mut self, text: impl fmt::Display) {
        let label = Painted { tone: Tone::Warn, text: "warning:", on: self.colour_remarks };
        drop(writeln!(self.remarks, "{label} {text}"));
    }

    /// Does the answer go to somebody who looks at a screen?
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Begins anew at the top of an empty screen.
    pub(crate) fn clear_screen(&mut self) -> Outcome<()> {
        self.text("\x1b[H\x1b[2J")
    }

    /// Does the answer go to somebody who sees colours?
    pub(crate) fn coloured(&self) -> bool {
        self.colour
    }

    /// An error that was worded elsewhere.
    pub(crate) fn complain_plainly(&mut self, text: &str) {
        drop(writeln!(self.remarks, "{text}"));
    }

    /// Says why the command ends.
    pub(crate) fn complain(&mut self, failure: &Failure) {
        let Some(complaint) = failure.complaint() else { return };
        let label = Painted { tone: Tone::Bad, text: "error:", on: self.colour_remarks };
        drop(writeln!(self.remarks, "{label} {}", complaint.what));
        if let Some(next) = &complaint.next {
            let label = Painted { tone: Tone::Bold, text: "next:", on: self.colour_remarks };
            drop(writeln!(self.remarks, " {label} {next}"));
        }
    }
}

/// Text with a tone around it, if colour is on.
#[derive(Debug)]
pub(crate) struct Painted<T> {
    tone: Tone,
    text: T,
    on: bool,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.on && self.tone != Tone::Plain {
            write!(f, "\x1b[{}m{}\x1b[0m", self.tone.sgr(), self.text)
        } else {
            self.text.fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that has gone away.
    #[derive(Debug)]
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn colour_is_ours_alone_and_can_be_forced() {
        let (mut answer, mut remarks) = (Vec::new(), Vec::new());
        let mut out = Out::new(&mut answer, &mut remarks);
        out.colour(Colour::Never, false);
        assert_eq!(out.paint(Tone::Good, "ok").to_string(), "ok");
        out.colour(Colour::Always, true);
        assert_eq!(out.paint(Tone::Good, "ok").to_string(), "\x1b[32mok\x1b[0m");
        assert_eq!(out.paint(Tone::Plain, "ok").to_string(), "ok");
    }

    #[test]
    fn a_closed_pipe_ends_quietly() {
        let (mut closed, mut remarks) = (Closed, Vec::new());
        let mut out = Out::new(&mut closed, &mut remarks);
        let failure = out.line("anything").unwrap_err();
        assert!(matches!(failure, Failure::PipeClosed));
        out.complain(&failure);
        out.is_for_a_verdict();
        out.line("a verdict does not hang on who reads it").unwrap();
        assert!(remarks.is_empty());
    }

    #[test]
    fn complaints_say_what_to_do_next() {
        let (mut answer, mut remarks) = (Vec::new(), Vec::new());
        Out::new(&mut answer, &mut remarks).complain(&Failure::failed("no log at /x", "name one with --log"));
        assert_eq!(String::from_utf8(remarks).unwrap(), "error: no log at /x\n next: name one with --log\n");
        assert!(answer.is_empty());
    }
}
