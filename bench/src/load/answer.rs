//! Just enough of HTTP/1.1 to know when an answer is whole.

use std::ops::Range;

use memchr::memmem;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The server closes the connection behind it.
    pub(super) close: bool,
    /// Where its body lies; none for one in chunks.
    pub(super) body: Option<Range<usize>>,
}

/// The answer at the start of `bytes`, once all of it is there. `Err` for what is no answer.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Answer>, &'static str> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > 65_536 { Err("a head without an end") } else { Ok(None) };
    };
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let status = status.filter(|_| head.starts_with(b"HTTP/1.")).ok_or("no status line")?;
    let (mut length, mut chunked, mut close) = (None, false, head.starts_with(b"HTTP/1.0"));
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = std::str::from_utf8(value).ok().and_then(|text| text.parse::<usize>().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            close |= value.eq_ignore_ascii_case(b"close");
        }
    }
    let whole = match (chunked, length) {
        // None of the servers here sends trailers.
        (true, _) => body.ends_with(b"0\r\n\r\n"),
        (false, Some(length)) => body.len() >= length,
        (false, None) if status == 204 || status == 304 => true,
        (false, None) => return Err("an answer whose length nobody knows"),
    };
    let body = (!chunked).then(|| end + 4..end + 4 + length.unwrap_or(0));
    Ok(whole.then_some(Answer { status, close, body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_at_its_last_byte() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\nDate: now\r\n\r\nabc";
        assert_eq!(
            parse(whole),
            Ok(Some(Answer { status: 202, close: false, body: Some(whole.len() - 3..whole.len()) }))
        );
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn chunked_and_closing_answers() {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Ok(Some(Answer { status: 200, close: false, body: None })));
        assert_eq!(parse(&chunked[..chunked.len() - 1]), Ok(None));
        let closing = b"HTTP/1.1 503 No\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(
            parse(closing),
            Ok(Some(Answer { status: 503, close: true, body: Some(closing.len()..closing.len()) }))
        );
        assert_eq!(
            parse(b"HTTP/1.1 204 No\r\n\r\n"),
            Ok(Some(Answer { status: 204, close: false, body: Some(19..19) }))
        );
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
