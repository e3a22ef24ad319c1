//! A delivery as somebody captured it: headers, a body, a URL, each from where people have them.

use std::io::Read;
use std::path::Path;

use domain::text::Untrusted;

use super::exit::{Failure, Outcome};

/// The largest body that the tools read: above what any provider sends, below what hurts a laptop.
const BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Reads `Name: value`. The argument parser's form.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| "has no colon: write 'Name: value'".to_owned())?;
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        return Err("has a name that no header can have: write 'Name: value'".to_owned());
    }
    let value = value.trim_matches([' ', '\t']);
    if value.contains(['\r', '\n', '\0']) {
        return Err("has a line break or a zero byte in its value".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads headers as tools print them: one a line. A request line and everything behind the first empty line are
/// skipped, so that a whole captured head can be given as it is. `curl -v` and its `> ` are understood.
pub(crate) fn headers_of(text: &str) -> Outcome<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.strip_prefix("> ").unwrap_or(line).trim_end_matches('\r');
        if line.is_empty() {
            break;
        }
        let is_request_line = at == 0 && (line.ends_with(" HTTP/1.1") || line.ends_with(" HTTP/2"));
        if is_request_line {
            continue;
        }
        headers.push(header(line).map_err(|fault| {
            Failure::usage(
                format_args!("line {} of the headers, \"{}\", {fault}", at + 1, Untrusted::new(line.as_bytes())),
                "give a file with one 'Name: value' a line",
            )
        })?);
    }
    Ok(headers)
}

/// Reads a whole file, or standard input for `-`, within bounds.
pub(crate) fn read(path: &Path, stdin: &mut dyn Read) -> Outcome<Vec<u8>> {
    let shown = Untrusted::new(path.as_os_str().as_encoded_bytes()).to_string();
    let unreadable = |error: &std::io::Error| {
        Failure::failed(
            format_args!("could not read {shown}: {error}"),
            "name a file that you may read, or - for standard input",
        )
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        stdin.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    } else {
        let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
        file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    }
    if bytes.len() as u64 > BODY_BYTES_MAX {
        return Err(Failure::plain(format_args!("{shown} is larger than {} MiB", BODY_BYTES_MAX >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_as_tools_print_them() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(header("X-Sig: sha256=ab:cd "), Ok(pair("X-Sig", "sha256=ab:cd")));
        assert_eq!(header("Empty:"), Ok(pair("Empty", "")));
        for bad in ["no colon", ": v", "two words: v", "A: x\r\nB: y", "Ü: v"] {
            assert!(header(bad).is_err(), "{bad}");
        }
        let head = "> POST /hooks/wh_1 HTTP/1.1\r\n> A: 1\r\n> a: 2\r\n\r\nbody: not a header";
        assert_eq!(headers_of(head).unwrap(), [pair("A", "1"), pair("a", "2")]);
    }

    #[test]
    fn a_faulty_line_is_named_and_escaped() {
        let failure = headers_of("A: 1\n\u{1b}[31m\n").unwrap_err();
        let complaint = failure.complaint().unwrap();
        assert!(complaint.what.starts_with("line 2 of the headers, \"\\u{1b}[31m\""), "{}", complaint.what);
    }

    #[test]
    fn standard_input_is_a_dash() {
        assert_eq!(read(Path::new("-"), &mut &b"abc"[..]).unwrap(), b"abc");
        let failure = read(Path::new("/nowhere/\u{1b}]0;"), &mut &b""[..]).unwrap_err();
        assert!(!failure.complaint().unwrap().what.contains('\u{1b}'));
    }
}
