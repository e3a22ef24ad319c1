//! Absolute URLs: an absolute-form request target, a `Location`, a connection's `base_url`.

use super::{Authority, Malformed};

/// What is spoken behind the door. No other scheme goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// The port that a URL without one means.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Lower case, without the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// An absolute URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// With the port that the scheme means, where none was written.
    pub authority: Authority,
    /// Path and query as they were written: empty, or beginning with `/` or `?`. Printable ASCII without space and
    /// backslash; what the path means is for others to judge.
    pub path_and_query: &'a str,
}

/// Above what any listener takes as a target; it keeps a `Location` from being scanned without end.
const URL_BYTES_MAX: usize = 64 << 10;

impl<'a> Target<'a> {
    /// An `http://` or `https://` URL without user information and fragment.
    pub fn parse(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, Malformed> {
        let bytes = text.as_ref();
        if bytes.len() > URL_BYTES_MAX {
            return Err(Malformed::UrlTooLong);
        }
        // Every byte is judged before any part is looked for: parsers that strip tabs, stop at a backslash or take
        // a space for an end see other parts than those that do not.
        for byte in bytes {
            match byte {
                0x80.. => return Err(Malformed::NotAscii),
                ..=b' ' | 0x7f => return Err(Malformed::Control),
                b'\\' => return Err(Malformed::Backslash),
                b'#' => return Err(Malformed::Fragment),
                _ => {}
            }
        }
        let text = std::str::from_utf8(bytes).expect("every byte was seen to be ASCII");
        let (scheme, rest) = [(Scheme::Https, "https://"), (Scheme::Http, "http://")]
            .into_iter()
            .find_map(|(scheme, start)| {
                let front = text.get(..start.len())?;
                front.eq_ignore_ascii_case(start).then(|| (scheme, &text[start.len()..]))
            })
            .ok_or(Malformed::Scheme)?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(end);
        Ok(Self { scheme, authority: Authority::or_port(authority, scheme.default_port())?, path_and_query })
    }
}
