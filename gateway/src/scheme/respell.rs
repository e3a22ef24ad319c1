//! Other spellings of a body, a URL and a secret: what proxies, parsers and clipboards make of them.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use domain::Secret;
use zeroize::Zeroizing;

use super::delivery::Unverified;
use super::url::SeenUrl;

/// A larger body is not respelled: the copies would be many times its size.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Every other spelling of a body, with its description.
pub(super) fn spellings(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    if body.len() > BODY_BYTES_MAX {
        return Vec::new();
    }
    let joined = |end: &[u8]| [body, end].concat();
    let unended = body.strip_suffix(b"\n").map(|rest| rest.strip_suffix(b"\r").unwrap_or(rest));
    let mut all = vec![
        ("without its line ending", unended.unwrap_or(body).to_vec()),
        ("with a line ending at its end", joined(b"\n")),
        ("with CRLF at its end", joined(b"\r\n")),
        ("with LF for every line ending", lines(body, b"\n")),
        ("with CRLF for every line ending", lines(body, b"\r\n")),
        ("without its byte-order mark", body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).to_vec()),
        ("without the white space around it", body.trim_ascii().to_vec()),
    ];
    let compact = respace(body, false);
    all.push(("with a space after each colon and comma", respace(&compact, true)));
    all.push(("with slashes escaped", escape_slashes(body)));
    all.push(("with slashes not escaped", unescape_slashes(body)));
    if let Ok(text) = std::str::from_utf8(body) {
        all.push(("with everything that is not ASCII escaped as \\uXXXX", escape_unicode(text).into_bytes()));
        all.push(("with \\uXXXX written in UTF-8", unescape_unicode(text).into_bytes()));
    }
    all.push(("without white space between its tokens", compact));
    let mut seen = vec![body.to_vec()];
    all.retain(|(_, spelling)| {
        let new = !seen.contains(spelling);
        seen.push(spelling.clone());
        new
    });
    all
}

fn lines(body: &[u8], end: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = body.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    parts.join(end)
}

/// Takes white space out from between the tokens of a JSON text, or puts one space after each colon and comma.
fn respace(body: &[u8], spaced: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let (mut quoted, mut escaped) = (false, false);
    for byte in body {
        if quoted {
            quoted = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            out.push(*byte);
        } else if spaced || !byte.is_ascii_whitespace() {
            quoted = *byte == b'"';
            out.push(*byte);
            if spaced && matches!(byte, b':' | b',') {
                out.push(b' ');
            }
        }
    }
    out
}

fn escape_slashes(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for byte in body {
        if *byte == b'/' && out.last() != Some(&b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

fn unescape_slashes(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    for byte in body {
        if *byte == b'/' && out.last() == Some(&b'\\') {
            out.pop();
        }
        out.push(*byte);
    }
    out
}

fn escape_unicode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str("\\u");
            out.push_str(&data_encoding::HEXLOWER.encode(&unit.to_be_bytes()));
        }
    }
    out
}

/// Decodes the escapes of what is not ASCII; those of ASCII stay, since they are there for a reason.
fn unescape_unicode(text: &str) -> String {
    let mut units = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        let unit = rest.get(at + 2..at + 6).and_then(|hex| u16::from_str_radix(hex, 16).ok());
        let escape = unit.filter(|unit| *unit >= 0x80);
        let end = at + if escape.is_some() { 6 } else { 2 };
        units.extend(rest[..if escape.is_some() { at } else { end }].encode_utf16());
        units.extend(escape);
        rest = &rest[end..];
    }
    units.extend(rest.encode_utf16());
    String::from_utf16_lossy(&units)
}

/// Every other URL that a provider may have been given for this one.
pub(super) fn urls<'a>(delivery: &Unverified<'a>) -> Vec<(SeenUrl<'a>, Vec<u8>)> {
    let seen = delivery.url;
    let target = delivery.target;
    let (path, query) = target.split_at(target.iter().position(|b| *b == b'?').unwrap_or(target.len()));
    let slash = match path.strip_suffix(b"/") {
        Some(bare) => [bare, query].concat(),
        None => [path, b"/", query].concat(),
    };
    let targets = [target.to_vec(), slash, path.to_vec()];
    let mut all = Vec::new();
    for scheme in ["https", "http"] {
        for port in [seen.port, None, Some(443), Some(80)] {
            for target in &targets {
                let url = SeenUrl { scheme, port, ..seen };
                let new = !all.contains(&(url, target.clone()));
                if new && (url, target.as_slice()) != (seen, delivery.target) {
                    all.push((url, target.clone()));
                }
            }
        }
    }
    all
}

/// Every other key that a secret's text may stand for.
pub(super) fn readings(secret: &Secret) -> Vec<(&'static str, Vec<u8>)> {
    let raw = secret.expose();
    let bare = raw.trim_ascii();
    let bare = Zeroizing::new(bare.strip_prefix(b"whsec_").unwrap_or(bare).to_vec());
    let mut all = vec![
        ("as text, as it stands", raw.to_vec()),
        ("without the white space around it", raw.trim_ascii().to_vec()),
        ("as text, without its prefix", bare.to_vec()),
    ];
    let decoded = |encoding: &data_encoding::Encoding| encoding.decode(&bare).ok();
    let base64 = decoded(&BASE64).or_else(|| decoded(&BASE64_NOPAD)).or_else(|| decoded(&BASE64URL_NOPAD));
    all.extend(base64.map(|bytes| ("decoded from base64", bytes)));
    all.extend(decoded(&HEXLOWER_PERMISSIVE).map(|bytes| ("decoded from hexadecimal", bytes)));
    let mut seen = Vec::new();
    all.retain(|(_, key)| {
        let new = !key.is_empty() && !seen.contains(key);
        seen.push(key.clone());
        new
    });
    all
}
