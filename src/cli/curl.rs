//! A request as a curl command that is ready to paste into any shell.

use std::path::Path;

/// What is to be said.
#[derive(Debug)]
pub(crate) struct Curl<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
    /// The file that the body came from, if it came from one: the only way to give a body that is no text.
    pub(crate) body_file: Option<&'a Path>,
}

impl Curl<'_> {
    /// The command, or `None` where the body can be given neither inline nor from a file.
    pub(crate) fn command(&self) -> Option<String> {
        let mut words = vec!["curl -sS".to_owned()];
        if self.method != "POST" || self.body.is_empty() {
            words.push(format!("-X {}", quote(self.method)));
        }
        words.push(quote(self.url));
        for (name, value) in self.headers {
            // curl drops a header whose value is empty unless a semicolon takes the colon's place.
            let header = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
            words.push(format!("-H {}", quote(&header)));
        }
        // curl would claim a form otherwise, and a scheme may sign the type.
        if !self.body.is_empty() && !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            words.push("-H 'Content-Type:'".to_owned());
        }
        if !self.body.is_empty() {
            words.push(format!("--data-binary {}", self.body_word()?));
        }
        Some(words.join(" \\\n  "))
    }

    fn body_word(&self) -> Option<String> {
        const INLINE_BYTES_MAX: usize = 2048;
        let text = std::str::from_utf8(self.body).ok();
        // A first @ would mean a file to curl, and what cannot be seen cannot be checked before it is pasted.
        let inline = text.filter(|text| {
            text.len() <= INLINE_BYTES_MAX
                && !text.starts_with('@')
                && !text.chars().any(|c| c.is_control() && c != '\n')
        });
        match (inline, self.body_file) {
            (Some(text), _) => Some(quote(text)),
            (None, Some(file)) => Some(quote(&format!("@{}", file.to_str()?))),
            (None, None) => None,
        }
    }
}

/// One word for a POSIX shell: single quotes, in which nothing is special but the quote itself.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curl<'a>(body: &'a [u8], headers: &'a [(String, String)], file: Option<&'a Path>) -> Curl<'a> {
        Curl { method: "POST", url: "http://127.0.0.1:8080/hooks/wh_1", headers, body, body_file: file }
    }

    #[test]
    fn the_command_is_ready_to_paste() {
        let headers =
            [("X-Sig".to_owned(), "t=1,v1=ab".to_owned()), ("Content-Type".to_owned(), "application/json".to_owned())];
        assert_eq!(
            curl(b"{\"it's\":\"$HOME\"}", &headers, None).command().unwrap(),
            "curl -sS \\\n  http://127.0.0.1:8080/hooks/wh_1 \\\n  -H 'X-Sig: t=1,v1=ab' \\\n  \
             -H 'Content-Type: application/json' \\\n  --data-binary '{\"it'\\''s\":\"$HOME\"}'"
        );
    }

    #[test]
    fn what_no_shell_can_carry_comes_from_its_file() {
        let file = Path::new("a b.bin");
        assert!(curl(b"\x00\x01", &[], Some(file)).command().unwrap().ends_with("--data-binary '@a b.bin'"));
        assert!(curl(b"\x1b[31m", &[], None).command().is_none());
        assert!(curl(b"@/etc/passwd", &[], None).command().is_none());
        assert!(curl(b"", &[], None).command().unwrap().contains("-X POST"));
    }
}
